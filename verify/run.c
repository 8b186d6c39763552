#include "run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "chi.h"
#include "contract_line.h"
#include "exactness.h"
#include "golden.h"
#include "kv_profile.h"
#include "slabs.h"
#include "trial.h"
#include "worker.h"

typedef struct launch {
    const mla_kernel *kernel;
    mla_device *device; /* NULL: the kernel works in host memory */
    mla_inputs inputs;
    mla_trial trial;
    const mla_subject *subject;
} launch;

static mla_status save_outputs(const launch *l, const mla_result *result) {
    char *name = mla_golden_result_name(result->case_line, result->kernel), *path = NULL;
    mla_status status = mla_error(MLA_ENOMEM, "no memory for a file name");
    if (name && asprintf(&path, "%s/%s", l->subject->outputs, name) >= 0)
        status = mla_golden_result_write(path, result->case_line, result->kernel, &l->inputs.problem, &l->trial.output);
    free(path);
    free(name);
    return status;
}

typedef struct comparison {
    const launch *launch;
    mla_measure *measure;
} comparison;

static mla_status compare_slab(void *context, const mla_truth *truth) {
    const comparison *c = context;
    mla_compare(&c->launch->inputs.problem, truth, &c->launch->trial.output, c->measure);
    return mla_ok();
}

/* What the kernel is graded by. */
static mla_status choose_contract(const launch *l, mla_contract *contract) {
    *contract = mla_kernel_contract(l->kernel, &l->inputs.problem);
    return l->subject->contract ? mla_contract_parse(l->subject->contract, contract) : mla_ok();
}

static mla_status measure_outputs(const launch *l, const mla_case *test, mla_progress *progress, mla_measure *measure) {
    const mla_problem *p = &l->inputs.problem;
    comparison c = {l, measure};
    mla_contract contract;
    TRY(choose_contract(l, &contract));
    TRY(mla_measure_init(measure, p));
    measure->bitwise = mla_is_bitwise(test, &contract);
    if (l->subject->pictures)
        TRY(mla_measure_add_pictures(measure, p));
    TRY(mla_slabs_visit(p, &contract, progress, compare_slab, &c));
    TRY(mla_chi_settle(p, &contract, measure));
    return l->subject->pictures ? mla_kv_profile_make(p, &contract, &l->trial.output, measure) : mla_ok();
}

static mla_status launch_and_measure(launch *l, mla_progress *progress, mla_result *result) {
    mla_status status = mla_trial_run(l->kernel, l->device, &l->inputs, &l->trial);
    result->integrity = l->trial.integrity;
    if (status.code == MLA_OK)
        status = measure_outputs(l, result->test, progress, &result->measure);
    result->measured = status.code == MLA_OK;
    return status;
}

static mla_verdict grade(launch *l, mla_progress *progress, mla_result *result) {
    char reason[200] = "the kernel gave no reason";
    const mla_kernel *k = l->kernel;
    mla_status status = mla_contract_check(&k->contract);
    if (status.code == MLA_OK)
        status = mla_inputs_make(result->test, &l->inputs);
    if (status.code == MLA_OK)
        status = mla_problem_check(&l->inputs.problem);
    if (status.code != MLA_OK)
        return mla_verdict_make(MLA_ERROR, status.message);
    if (l->inputs.problem.total_q == 0)
        return mla_verdict_make(MLA_SKIPPED, "the case has no query rows: there is nothing to compare");
    if (k->supports && !k->supports(k, &l->inputs.problem, reason, sizeof reason))
        return mla_verdict_make(MLA_SKIPPED, reason);
    status = launch_and_measure(l, progress, result);
    if (status.code != MLA_OK)
        return mla_verdict_make(MLA_ERROR, status.message);
    const mla_verdict verdict = mla_judge(&result->measure, &result->integrity);
    mla_contract contract;
    if (verdict.status == MLA_FAILED && choose_contract(l, &contract).code == MLA_OK)
        result->diagnosis = mla_diagnose(&l->inputs.problem, &contract, &l->trial.output, &result->measure);
    if (l->subject->outputs && (!l->subject->only_failing || verdict.status == MLA_FAILED))
        status = save_outputs(l, result);
    return status.code == MLA_OK ? verdict : mla_verdict_make(MLA_ERROR, status.message);
}

static void launch_free(launch *l) {
    mla_trial_free(&l->trial);
    mla_inputs_free(&l->inputs);
}

static void run_case(const mla_subject *subject, mla_progress *progress, mla_result *result) {
    if (!result->case_line) {
        result->verdict = mla_verdict_make(MLA_ERROR, "no memory to print the case");
    } else if (subject->opened.code != MLA_OK) {
        result->verdict = mla_verdict_make(MLA_SKIPPED, subject->opened.message);
    } else if (subject->worker) {
        mla_worker_run(subject->worker, subject, progress, result);
    } else {
        const mla_kernel *kernel = subject->handle.kernel;
        launch l = {.kernel = kernel, .device = kernel->space == MLA_SPACE_HOST ? NULL : subject->handle.device, .subject = subject};
        result->verdict = grade(&l, progress, result);
        launch_free(&l);
    }
}

void mla_run_case(const mla_subject *subject, const mla_case *test, mla_progress *progress, mla_result *result) {
    const double begin = mla_seconds();
    *result = (mla_result){.test = test, .kernel = subject->spec, .contract = subject->contract, .case_line = mla_case_print(test)};
    run_case(subject, progress, result);
    result->seconds = mla_seconds() - begin;
}
