#include "exam.h"

#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "chi.h"
#include "contract_line.h"
#include "exactness.h"

const char *mla_killer_name(int bit) {
    static const char *const names[MLA_KILLERS] = {"bound", "chi", "lse", "anomaly", "unwritten", "memory", "error", "bits"};
    return names[bit];
}

/* ---- truth ------------------------------------------------------------------------------------------------------------------------ */

mla_status mla_exam_truth(mla_exam *exam, const mla_contract *contract, const mla_truth **truth) {
    char *line = mla_contract_print(contract);
    int i = 0;
    *truth = &exam->truths[0].truth;
    if (!line)
        return mla_error(MLA_ENOMEM, "no memory to print a contract");
    while (i < MLA_EXAM_TRUTHS && exam->truths[i].contract && strcmp(exam->truths[i].contract, line) != 0)
        i++;
    mla_status status = mla_ok();
    if (i == MLA_EXAM_TRUTHS)
        status = mla_error(MLA_EUNSUPPORTED, "more than %d contracts on one case", MLA_EXAM_TRUTHS);
    else if (!exam->truths[i].contract)
        status = mla_oracle_run(&exam->inputs.problem, contract, 0, exam->inputs.problem.total_q, &exam->truths[i].truth);
    if (status.code == MLA_OK && !exam->truths[i].contract)
        exam->truths[i].contract = line;
    else
        free(line);
    if (status.code == MLA_OK)
        *truth = &exam->truths[i].truth;
    return status;
}

/* ---- grading ------------------------------------------------------------------------------------------------------------------------ */

static size_t out_bytes(const mla_problem *p) {
    return (size_t)(p->total_q * p->heads) * MLA_HEAD_DIM_V * mla_format_bytes(p->out_format);
}

static bool same_out(const mla_problem *p, const mla_output *a, const mla_output *b) {
    return memcmp(a->out, b->out, out_bytes(p)) == 0;
}

static bool same_lse(const mla_problem *p, const mla_output *a, const mla_output *b) {
    return memcmp(a->lse, b->lse, (size_t)(p->total_q * p->heads) * sizeof(float)) == 0;
}

/* What the verdict's parts say; a failure that is none of them is one of the errors' size. */
static unsigned killers_of(const mla_measure *m, const mla_integrity *integrity, const mla_verdict *verdict) {
    unsigned killers = 0;
    killers |= m->out.outside ? MLA_BY_BOUND : 0;
    killers |= m->lse.outside ? MLA_BY_LSE : 0;
    killers |= m->out.anomalies + m->lse.anomalies ? MLA_BY_ANOMALY : 0;
    killers |= m->out.unwritten + m->lse.unwritten ? MLA_BY_UNWRITTEN : 0;
    killers |= m->out.inexact ? MLA_BY_BITS : 0;
    killers |= *integrity->guard_touched || *integrity->input_changed ? MLA_BY_MEMORY : 0;
    return killers == 0 && verdict->status == MLA_FAILED ? MLA_BY_CHI : killers;
}

static mla_status judge(const mla_exam *exam, const mla_contract *contract, const mla_truth *truth, const mla_trial *trial,
                        mla_grade *grade) {
    const mla_problem *p = &exam->inputs.problem;
    mla_measure measure;
    mla_status status = mla_measure_init(&measure, p);
    measure.bitwise = mla_is_bitwise(exam->test, contract);
    if (status.code == MLA_OK) {
        mla_compare(p, truth, &trial->output, &measure);
        status = mla_chi_settle(p, contract, &measure);
    }
    if (status.code == MLA_OK) {
        const mla_verdict verdict = mla_judge(&measure, &trial->integrity);
        grade->killers = killers_of(&measure, &trial->integrity, &verdict);
        grade->status = verdict.status == MLA_PASSED ? MLA_GRADE_PASSED : MLA_GRADE_KILLED;
        memcpy(grade->reason, verdict.reason, sizeof grade->reason);
    }
    if (status.code == MLA_OK && grade->status == MLA_GRADE_KILLED)
        grade->cause = mla_diagnose(p, contract, &trial->output, &measure).cause;
    mla_measure_free(&measure);
    return status;
}

static unsigned failing_rivals(const mla_rival_sheet *sheet, mla_tolerance tolerance) {
    unsigned failing = 0;
    for (int i = 0; i < mla_num_rivals; i++)
        failing |= mla_rivals[i].passes(sheet) ? 0 : 1u << i;
    if (tolerance.given && !mla_allclose(sheet, tolerance.rtol, tolerance.atol, 0))
        failing |= 1u << mla_num_rivals;
    return failing;
}

static void ask_rivals(mla_exam *exam, const mla_output *output, mla_tolerance tolerance, mla_grade *grade) {
    mla_decode_f64(exam->inputs.problem.out_format, output->out, (size_t)exam->elements, exam->got);
    const mla_rival_sheet sheet = {
        .count = exam->elements, .got = exam->got, .expected = exam->expected, .exact = exam->exact, .baseline = exam->baseline};
    grade->rivals = failing_rivals(&sheet, tolerance);
}

mla_status mla_exam_grade(mla_exam *exam, const mla_contract *contract, const mla_trial *trial, const mla_output *plain,
                          mla_tolerance tolerance, mla_grade *grade) {
    const mla_problem *p = &exam->inputs.problem;
    const mla_truth *truth;
    *grade = (mla_grade){.status = MLA_GRADE_NONE};
    TRY(mla_exam_truth(exam, contract, &truth));
    TRY(judge(exam, contract, truth, trial, grade));
    ask_rivals(exam, &trial->output, tolerance, grade);
    grade->out_changed = !same_out(p, &trial->output, plain);
    if (!grade->out_changed && same_lse(p, &trial->output, plain) && grade->status == MLA_GRADE_PASSED)
        grade->status = MLA_GRADE_SAME;
    return mla_ok();
}

void mla_grade_join(mla_grade *grade, const mla_grade *other) {
    if (other->status > grade->status) {
        grade->status = other->status;
        memcpy(grade->reason, other->reason, sizeof grade->reason);
    }
    grade->killers |= other->killers;
    grade->rivals |= other->rivals;
    grade->out_changed |= other->out_changed;
}

/* ---- making an exam ------------------------------------------------------------------------------------------------------------------- */

bool mla_exam_able(const mla_exam *exam, const mla_kernel *kernel) {
    char reason[200];
    return exam->inputs.problem.total_q > 0 &&
           (!kernel->supports || kernel->supports(kernel, &exam->inputs.problem, reason, sizeof reason));
}

static mla_status make_sheet(mla_exam *exam, const mla_truth *truth) {
    const mla_problem *p = &exam->inputs.problem;
    const size_t count = (size_t)(p->total_q * p->heads) * MLA_HEAD_DIM_V;
    exam->elements = (int64_t)count;
    exam->exact = malloc((count + 1) * sizeof(double));
    exam->expected = malloc((count + 1) * sizeof(double));
    exam->baseline = calloc(count + 1, sizeof(double));
    exam->got = malloc((count + 1) * sizeof(double));
    if (!exam->exact || !exam->expected || !exam->baseline || !exam->got)
        return mla_error(MLA_ENOMEM, "no memory for %zu elements", count);
    for (size_t i = 0; i < count; i++) {
        exam->exact[i] = truth->out[i];
        exam->expected[i] = mla_decode(p->out_format, mla_encode(p->out_format, truth->out[i], MLA_RNE));
    }
    return mla_bf16_baseline(p, exam->baseline);
}

mla_status mla_exam_make(const mla_subject *subject, const mla_case *test, mla_tolerance tolerance, mla_exam *exam, mla_grade *grade) {
    const mla_kernel *kernel = subject->handle.kernel;
    const mla_truth *truth;
    *exam = (mla_exam){.test = test};
    *grade = (mla_grade){.status = MLA_GRADE_NONE};
    TRY(mla_inputs_make(test, &exam->inputs));
    exam->able = mla_exam_able(exam, kernel);
    if (!exam->able)
        return mla_ok();
    const mla_contract contract = mla_kernel_contract(kernel, &exam->inputs.problem);
    TRY(mla_exam_truth(exam, &contract, &truth));
    TRY(make_sheet(exam, truth));
    TRY(mla_trial_run(kernel, kernel->space == MLA_SPACE_HOST ? NULL : subject->handle.device, &exam->inputs, &exam->plain));
    TRY(mla_exam_grade(exam, &contract, &exam->plain, &exam->plain.output, tolerance, grade));
    if (grade->status == MLA_GRADE_SAME)
        grade->status = MLA_GRADE_PASSED;
    return mla_ok();
}

void mla_exam_free(mla_exam *exam) {
    for (int i = 0; i < MLA_EXAM_TRUTHS; i++) {
        mla_truth_free(&exam->truths[i].truth);
        free(exam->truths[i].contract);
    }
    mla_trial_free(&exam->plain);
    mla_inputs_free(&exam->inputs);
    free(exam->exact);
    free(exam->expected);
    free(exam->baseline);
    free(exam->got);
    *exam = (mla_exam){0};
}
