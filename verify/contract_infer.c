#include "contract_infer.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "inputs.h"
#include "trial.h"

/*
 * fp32 outputs show all other roundings, and bf16 ones their own. Positive values (uniform) show what is biased, and whether l sums rounded weights.
 * Each with a stand-in for kernels that write bf16 alone.
 */
static const char *const probe_lines[MLA_INFER_PROBES][2] = {
    {"heads=4 batch=2 kv_len=200,130 out=fp32 plan=fixed:4 seed=1", "heads=4 batch=2 kv_len=200,130 plan=fixed:4 seed=1"},
    {"heads=4 batch=2 kv_len=200,150 out=fp32 input=uniform plan=fixed:4 seed=2",
     "heads=4 batch=2 kv_len=200,150 input=uniform plan=fixed:4 seed=2"},
    {"heads=4 batch=2 kv_len=300,100 input=peaked plan=fixed:4 seed=3", "heads=4 batch=2 kv_len=300,100 input=peaked plan=fixed:4 seed=3"},
};

typedef struct probe {
    bool run;
    const char *case_line;
    mla_case test;
    mla_inputs inputs;
    mla_trial trial;
} probe;

typedef struct candidate {
    mla_contract contract;
    mla_infer_fit first; /* of the first probe that was run */
} candidate;

/* ---- probes ---------------------------------------------------------------------------------------------------------------------------- */

static bool supports(const mla_kernel *kernel, const mla_problem *problem) {
    char reason[200];
    return !kernel->supports || kernel->supports(kernel, problem, reason, sizeof reason);
}

static mla_status make_inputs(probe *p, const char *line) {
    mla_inputs_free(&p->inputs);
    mla_case_free(&p->test);
    p->case_line = line;
    TRY(mla_case_parse(line, &p->test));
    return mla_inputs_make(&p->test, &p->inputs);
}

static mla_status run_probe(const mla_kernel *kernel, mla_device *device, const char *const lines[2], probe *p) {
    for (int i = 0; i < 2 && !p->run; i++) {
        TRY(make_inputs(p, lines[i]));
        p->run = supports(kernel, &p->inputs.problem);
    }
    return p->run ? mla_trial_run(kernel, device, &p->inputs, &p->trial) : mla_ok();
}

static void probe_free(probe *p) {
    mla_trial_free(&p->trial);
    mla_inputs_free(&p->inputs);
    mla_case_free(&p->test);
}

/* ---- fits ------------------------------------------------------------------------------------------------------------------------------ */

static double geometric_mean(const double *values, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += log(values[i]);
    return exp(sum / (double)count);
}

static double all_rows(const mla_chi *chi) {
    const double rows = (double)(chi->rows + chi->doubted_rows), gating = mla_chi_gating(chi), doubted = mla_chi_doubted(chi);
    return sqrt((gating * gating * (double)chi->rows + doubted * doubted * (double)chi->doubted_rows) / rows);
}

static mla_status fit_contract(const probe *p, const mla_contract *contract, mla_infer_fit *fit) {
    const mla_problem *problem = &p->inputs.problem;
    mla_truth truth;
    mla_measure measure;
    *fit = (mla_infer_fit){.run = p->run, .case_line = p->case_line};
    if (!p->run)
        return mla_ok();
    TRY(mla_oracle_run(problem, contract, 0, problem->total_q, &truth));
    const mla_status status = mla_measure_init(&measure, problem);
    if (status.code == MLA_OK) {
        mla_compare(problem, &truth, &p->trial.output, &measure);
        const int64_t wrong = mla_counts_wrong(&measure.out) + mla_counts_wrong(&measure.lse);
        fit->chi = all_rows(&measure.chi);
        fit->over_bound = fmax(measure.max_err_over_bound, measure.max_lse_over_bound);
        fit->over_bound = wrong > 0 && !(fit->over_bound > 1) ? INFINITY : fit->over_bound;
        fit->size = geometric_mean(truth.sigma, truth.rows * MLA_HEAD_DIM_V);
        mla_measure_free(&measure);
    }
    mla_truth_free(&truth);
    return status;
}

static bool explains(const mla_infer_fit *fit) {
    return !fit->run || (fit->chi <= MLA_CHI_CASE && fit->over_bound <= 1);
}

static mla_status fit_all(const probe *probes, const mla_contract *contract, mla_infer_fit *fits, bool *good) {
    *good = true;
    for (int i = 0; i < MLA_INFER_PROBES; i++) {
        TRY(fit_contract(&probes[i], contract, &fits[i]));
        *good = *good && explains(&fits[i]);
    }
    return mla_ok();
}

/* ---- candidates ------------------------------------------------------------------------------------------------------------------------ */

static const struct {
    mla_format format;
    int times;
} scores[] = {{MLA_FP32, 1}, {MLA_FP16, 1}, {MLA_BF16, 1}, {MLA_BF16, 2}};
static const struct {
    mla_format format;
    mla_rounding rounding;
    double scale;
} weights[] = {{MLA_FP32, MLA_RNE, 1},  {MLA_FP16, MLA_RNE, 1},    {MLA_FP16, MLA_RZ, 1},
               {MLA_BF16, MLA_RNE, 1},  {MLA_BF16, MLA_RZ, 1},     {MLA_FP8, MLA_RNE, 1},
               {MLA_FP8, MLA_RNE, 256}, {MLA_FP8FNUZ, MLA_RNE, 1}, {MLA_FP8FNUZ, MLA_RNE, 128}};
static const mla_format partials[] = {MLA_FP32, MLA_FP16, MLA_BF16};

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
enum { FINALISTS = 32 };
static const double AS_LIKELY = 0.15; /* of deviance, an element */
#define CHOICES (COUNT(scores) * COUNT(weights) * COUNT(partials) * 4)

/* The i-th choice, over what the kernel declares; false where it is another one's twin: fp32 weights are not rounded. */
static bool make_candidate(int i, const mla_contract *declared, mla_contract *contract) {
    *contract = *declared;
    contract->rowsum_of_rounded_p = i % 2;
    contract->out_rounding = i / 2 % 2 ? MLA_RZ : MLA_RNE;
    i /= 4;
    contract->partial = partials[i % COUNT(partials)];
    i /= COUNT(partials);
    contract->scores = scores[i % COUNT(scores)].format;
    contract->n_scores = scores[i % COUNT(scores)].times;
    i /= COUNT(scores);
    contract->p = weights[i].format;
    contract->p_rounding = weights[i].rounding;
    contract->p_scale = weights[i].scale;
    return contract->p != MLA_FP32 || !contract->rowsum_of_rounded_p;
}

/* Minus twice the logarithm of the likelihood of errors that are normal with these sigmas, an element: less is likelier. */
static double deviance(const mla_infer_fit *fit) {
    return fit->run ? 2 * log(fit->size) + fit->chi * fit->chi : 0;
}

static int by_deviance(const void *a, const void *b) {
    const double left = deviance(&((const candidate *)a)->first), right = deviance(&((const candidate *)b)->first);
    return left < right ? -1 : left > right;
}

static mla_status fit_candidates(const probe *first, const mla_contract *declared, candidate *list, int *count) {
    *count = 0;
    for (int i = 0; i < CHOICES; i++) {
        candidate *c = &list[*count];
        if (!make_candidate(i, declared, &c->contract))
            continue;
        TRY(fit_contract(first, &c->contract, &c->first));
        ++*count;
    }
    qsort(list, (size_t)*count, sizeof *list, by_deviance);
    return mla_ok();
}

static double total_deviance(const mla_infer_fit *fits) {
    double sum = 0;
    for (int i = 0; i < MLA_INFER_PROBES; i++)
        sum += deviance(&fits[i]);
    return sum;
}

/* Choices in which two contracts differ. */
static int differences(const mla_contract *a, const mla_contract *b) {
    return (a->scores != b->scores || a->n_scores != b->n_scores) +
           (a->p != b->p || a->p_rounding != b->p_rounding || a->p_scale != b->p_scale) +
           (a->rowsum_of_rounded_p != b->rowsum_of_rounded_p) + (a->partial != b->partial) + (a->out_rounding != b->out_rounding);
}

typedef struct finalist {
    mla_contract contract;
    mla_infer_fit fits[MLA_INFER_PROBES];
    bool good;
} finalist;

/* The first of the sorted list that explain the first probe, on all of them; returns their number. */
static mla_status hold_final(const probe *probes, const candidate *list, int count, finalist *finalists, int *entered) {
    *entered = 0;
    for (int i = 0; i < count && *entered < FINALISTS; i++) {
        finalist *f = &finalists[*entered];
        if (!explains(&list[i].first))
            continue;
        f->contract = list[i].contract;
        TRY(fit_all(probes, &f->contract, f->fits, &f->good));
        *entered += f->good;
    }
    return mla_ok();
}

/* Where a large error hides a small one, contracts are about as likely with it as without: of those, the one that differs least from the declared. */
static mla_status choose(const probe *probes, const candidate *list, int count, const mla_contract *declared, mla_inference *inference) {
    finalist finalists[FINALISTS];
    double least = INFINITY;
    int entered, fewest = INT_MAX;
    TRY(hold_final(probes, list, count, finalists, &entered));
    for (int i = 0; i < entered; i++)
        least = fmin(least, total_deviance(finalists[i].fits));
    for (int i = 0; i < entered; i++) {
        const int differs = differences(&finalists[i].contract, declared);
        if (total_deviance(finalists[i].fits) > least + AS_LIKELY || differs >= fewest)
            continue;
        fewest = differs;
        inference->contract = finalists[i].contract;
        memcpy(inference->fits, finalists[i].fits, sizeof finalists[i].fits);
    }
    inference->explains = entered > 0;
    return mla_ok();
}

static mla_status take_closest(const probe *probes, const candidate *list, int count, mla_inference *inference) {
    int closest = 0;
    for (int i = 1; i < count; i++)
        closest = list[i].first.chi < list[closest].first.chi ? i : closest;
    inference->contract = list[closest].contract;
    return fit_all(probes, &inference->contract, inference->fits, &inference->explains);
}

/* ---- the inference --------------------------------------------------------------------------------------------------------------------- */

static mla_status infer(const mla_kernel *kernel, mla_device *device, probe *probes, candidate *list, mla_inference *inference) {
    const probe *first = NULL;
    bool good;
    for (int i = MLA_INFER_PROBES - 1; i >= 0; i--) {
        TRY(run_probe(kernel, device, probe_lines[i], &probes[i]));
        first = probes[i].run ? &probes[i] : first;
    }
    if (!first)
        return mla_error(MLA_EUNSUPPORTED, "the kernel can do none of the probes, the first of which is '%s'", probe_lines[0][1]);
    const mla_contract declared = mla_kernel_contract(kernel, &first->inputs.problem);
    TRY(mla_contract_check(&declared));
    TRY(fit_all(probes, &declared, inference->declared, &good));
    TRY(fit_candidates(first, &declared, list, &inference->candidates));
    TRY(choose(probes, list, inference->candidates, &declared, inference));
    return inference->explains ? mla_ok() : take_closest(probes, list, inference->candidates, inference);
}

mla_status mla_contract_infer(const mla_kernel *kernel, mla_device *device, mla_inference *inference) {
    probe probes[MLA_INFER_PROBES] = {{.run = false}};
    candidate *list = calloc(CHOICES, sizeof *list);
    *inference = (mla_inference){.explains = false};
    const mla_status status =
        list ? infer(kernel, device, probes, list, inference) : mla_error(MLA_ENOMEM, "no memory for %d contracts", CHOICES);
    for (int i = 0; i < MLA_INFER_PROBES; i++)
        probe_free(&probes[i]);
    free(list);
    return status;
}
