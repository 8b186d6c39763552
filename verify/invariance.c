#include "invariance.h"

#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "subset.h"
#include "trial.h"

#define REPEATS 3
#define SPLIT_TOKENS 64 /* of the axes that need splits to be the same in any company */
#define FIBER_SEEDS 3
#define MOST_ALONE 8 /* sequences run on their own */

const char *mla_axis_name(mla_axis axis) {
    static const char *const names[MLA_AXES] = {"repeat", "permuted", "alone", "neighbour", "order", "threads", "splits"};
    return names[axis];
}

const char *mla_axis_status_name(mla_axis_status status) {
    static const char *const names[MLA_AXIS_STATUSES] = {"INVARIANT", "VARIES", "REPORTED", "SKIPPED"};
    return names[status];
}

/* A kernel on a case, and what it wrote there. */
typedef struct probe {
    const mla_kernel *kernel;
    mla_device *device; /* NULL: host memory */
    mla_inputs inputs;
    mla_trial plain;
} probe;

static void conclude(mla_axis_result *result, mla_axis_status status, const char *format, ...) MLA_PRINTF(3, 4);
static void conclude(mla_axis_result *result, mla_axis_status status, const char *format, ...) {
    va_list arguments;
    result->status = status;
    va_start(arguments, format);
    vsnprintf(result->detail, sizeof result->detail, format, arguments);
    va_end(arguments);
}

/* ---- comparing ------------------------------------------------------------------------------------------------------------------------- */

/* Rows of sequence b in one run, and of the same sequence as number c in another. */
typedef struct row_pair {
    const mla_problem *problem, *other;
    int32_t b, c;
} row_pair;

/* The first row of the sequence whose bits differ, or -1. */
static int64_t first_difference(row_pair pair, const mla_output *output, const mla_output *other) {
    const mla_problem *p = pair.problem;
    const size_t row_bytes = MLA_HEAD_DIM_V * mla_format_bytes(p->out_format);
    const int64_t from = (int64_t)p->qo_indptr[pair.b] * p->heads, to = (int64_t)pair.other->qo_indptr[pair.c] * p->heads;
    for (int64_t r = 0; r < (int64_t)mla_q_len(p, pair.b) * p->heads; r++) {
        const uint8_t *x = (const uint8_t *)output->out + (size_t)(from + r) * row_bytes;
        const uint8_t *y = (const uint8_t *)other->out + (size_t)(to + r) * row_bytes;
        const uint8_t *s = (const uint8_t *)(output->lse + from + r), *t = (const uint8_t *)(other->lse + to + r);
        if (memcmp(x, y, row_bytes) != 0 || memcmp(s, t, sizeof(float)) != 0)
            return r;
    }
    return -1;
}

/* Does the sequence keep its bits? If not, says where. */
static bool keeps_bits(row_pair pair, const mla_output *output, const mla_output *other, const char *when, mla_axis_result *result) {
    const int64_t row = first_difference(pair, output, other);
    if (row >= 0)
        conclude(result, MLA_AXIS_VARIES, "%s: other bits at seq %d q %" PRId64 " head %" PRId64, when, pair.b, row / pair.problem->heads,
                 row % pair.problem->heads);
    return row < 0;
}

/* The same problem, all sequences. */
static bool all_keep_bits(const probe *p, const mla_output *output, const char *when, mla_axis_result *result) {
    bool kept = true;
    for (int32_t b = 0; b < p->inputs.problem.batch && kept; b++)
        kept = keeps_bits((row_pair){&p->inputs.problem, &p->inputs.problem, b, b}, &p->plain.output, output, when, result);
    return kept;
}

/* ---- axes -------------------------------------------------------------------------------------------------------------------------------- */

static mla_status try_repeat(probe *p, mla_axis_result *result) {
    conclude(result, MLA_AXIS_INVARIANT, "%d launches", REPEATS);
    bool kept = true;
    for (int i = 1; i < REPEATS && kept; i++) {
        mla_trial trial;
        const mla_status status = mla_trial_run(p->kernel, p->device, &p->inputs, &trial);
        kept = status.code == MLA_OK && all_keep_bits(p, &trial.output, "launched again", result);
        mla_trial_free(&trial);
        TRY(status);
    }
    return mla_ok();
}

static bool supports(const probe *p, const mla_problem *problem) {
    char reason[200];
    return problem->total_q > 0 && (!p->kernel->supports || p->kernel->supports(p->kernel, problem, reason, sizeof reason));
}

/* Runs some sequences as a problem of their own, and compares each with `whole`, a run of all of them. */
static mla_status compare_subset(probe *p, const mla_output *whole, const int32_t *sequences, int32_t count, const char *when,
                                 mla_axis_result *result) {
    mla_inputs subset = {0};
    mla_trial trial = {0};
    mla_status status = mla_subset_make(&p->inputs, sequences, count, &subset);
    if (status.code == MLA_OK && supports(p, &subset.problem)) {
        status = mla_trial_run(p->kernel, p->device, &subset, &trial);
        bool kept = status.code == MLA_OK;
        for (int32_t i = 0; i < count && kept; i++)
            kept = keeps_bits((row_pair){&p->inputs.problem, &subset.problem, sequences[i], i}, whole, &trial.output, when, result);
    }
    mla_trial_free(&trial);
    mla_inputs_free(&subset);
    return status;
}

static mla_status reverse(probe *p, const mla_output *whole, mla_axis_result *result) {
    const int32_t batch = p->inputs.problem.batch;
    int32_t *order = malloc((size_t)batch * sizeof *order);
    if (!order)
        return mla_error(MLA_ENOMEM, "no memory for the order of %d sequences", batch);
    for (int32_t i = 0; i < batch; i++)
        order[i] = batch - 1 - i;
    conclude(result, MLA_AXIS_INVARIANT, "%d sequences in reverse order, splits of %d tokens", batch, SPLIT_TOKENS);
    const mla_status status = compare_subset(p, whole, order, batch, "in reverse order", result);
    free(order);
    return status;
}

static mla_status isolate(probe *p, const mla_output *whole, mla_axis_result *result) {
    const int32_t batch = p->inputs.problem.batch, count = batch < MOST_ALONE ? batch : MOST_ALONE;
    conclude(result, MLA_AXIS_INVARIANT, "%d of %d sequences on their own, splits of %d tokens", count, batch, SPLIT_TOKENS);
    for (int32_t i = 0; i < count && result->status == MLA_AXIS_INVARIANT; i++) {
        const int32_t b = (int32_t)((int64_t)i * batch / count);
        TRY(compare_subset(p, whole, &b, 1, "alone", result));
    }
    return mla_ok();
}

typedef mla_status company_axis(probe *p, const mla_output *whole, mla_axis_result *result);

/* Runs the axis against a run with splits of a fixed size: any other plan may follow from the company. */
static mla_status try_company(probe *p, company_axis *axis, mla_axis_result *result) {
    mla_problem *problem = &p->inputs.problem;
    const mla_problem kept = *problem;
    mla_trial whole = {0};
    if (problem->batch < 2) {
        conclude(result, MLA_AXIS_SKIPPED, "a single sequence");
        return mla_ok();
    }
    problem->split_policy = MLA_SPLIT_SIZE;
    problem->split_arg = SPLIT_TOKENS;
    mla_status status = mla_ok();
    if (supports(p, problem)) {
        status = mla_trial_run(p->kernel, p->device, &p->inputs, &whole);
        if (status.code == MLA_OK)
            status = axis(p, &whole.output, result);
    } else {
        conclude(result, MLA_AXIS_SKIPPED, "no splits of %d tokens", SPLIT_TOKENS);
    }
    mla_trial_free(&whole);
    p->inputs.problem = kept;
    return status;
}

/* One slot of NaN: e4m3fnuz has one code for it, mxfp4's is in its scales. */
static void poison_slot(mla_inputs *in, int64_t slot) {
    const mla_problem *p = &in->problem;
    const size_t bytes = mla_kv_format_get(p->kv_format)->token_bytes;
    memset(in->kv.data + (size_t)slot * bytes, p->kv_format == MLA_KV_FP8FNUZ ? 0x80 : MLA_POISON, bytes);
    if (p->kv_block_scales)
        memset(in->kv_block_scales.data + slot * p->kv_scale_stride, MLA_POISON, (size_t)p->kv_scale_stride);
}

/* Sequences of the other parity than `parity`: the slots their query tokens may see. */
static mla_status poison_others(mla_inputs *in, int parity) {
    const mla_problem *p = &in->problem;
    int64_t *slots = malloc(((size_t)p->total_kv + (size_t)p->topk + 1) * sizeof *slots);
    if (!slots)
        return mla_error(MLA_ENOMEM, "no memory for %" PRId64 " slots", p->total_kv);
    for (int64_t t = 0; t < p->qo_indptr[p->batch]; t++) {
        if (mla_sequence_of(p, t) % 2 == parity)
            continue;
        const int64_t count = mla_visible_slots(p, t, slots);
        for (int64_t i = 0; i < count; i++)
            poison_slot(in, slots[i]);
    }
    free(slots);
    return mla_ok();
}

static mla_status poison_and_run(probe *p, const mla_case *test, int parity, mla_axis_result *result) {
    mla_inputs poisoned = {0};
    mla_trial trial = {0};
    mla_status status = mla_inputs_make(test, &poisoned);
    if (status.code == MLA_OK)
        status = poison_others(&poisoned, parity);
    if (status.code == MLA_OK)
        status = mla_trial_run(p->kernel, p->device, &poisoned, &trial);
    bool kept = status.code == MLA_OK;
    for (int32_t b = parity; b < poisoned.problem.batch && kept; b += 2)
        kept = keeps_bits((row_pair){&p->inputs.problem, &poisoned.problem, b, b}, &p->plain.output, &trial.output,
                          "beside NaN in other sequences", result);
    mla_trial_free(&trial);
    mla_inputs_free(&poisoned);
    return status;
}

static mla_status try_neighbour(probe *p, const mla_case *test, mla_axis_result *result) {
    if (p->inputs.problem.batch < 2) {
        conclude(result, MLA_AXIS_SKIPPED, "a single sequence");
        return mla_ok();
    }
    conclude(result, MLA_AXIS_INVARIANT, "every other sequence's KV was NaN");
    for (int parity = 0; parity < 2 && result->status == MLA_AXIS_INVARIANT; parity++)
        TRY(poison_and_run(p, test, parity, result));
    return mla_ok();
}

static mla_status run_in_order(probe *p, int seed, mla_axis_result *result) {
    char text[16], when[40];
    mla_trial trial = {0};
    snprintf(text, sizeof text, "%d", seed);
    snprintf(when, sizeof when, "with MLA_FIBER_SEED=%d", seed);
    if (setenv("MLA_FIBER_SEED", text, 1) != 0)
        return mla_error(MLA_ENOMEM, "no memory for MLA_FIBER_SEED");
    const mla_status status = mla_trial_run(p->kernel, NULL, &p->inputs, &trial);
    if (status.code == MLA_OK)
        all_keep_bits(p, &trial.output, when, result);
    mla_trial_free(&trial);
    return status;
}

/* A kernel that has no fibers merely runs again. */
static mla_status try_order(probe *p, mla_axis_result *result) {
    const char *given = getenv("MLA_FIBER_SEED");
    char *kept = given ? strdup(given) : NULL;
    mla_status status = given && !kept ? mla_error(MLA_ENOMEM, "no memory for MLA_FIBER_SEED") : mla_ok();
    if (p->device) {
        conclude(result, MLA_AXIS_SKIPPED, "host execution alone orders its threads");
        free(kept);
        return status;
    }
    conclude(result, MLA_AXIS_INVARIANT, "%d orders of fibers", FIBER_SEEDS);
    for (int seed = 1; seed <= FIBER_SEEDS && status.code == MLA_OK && result->status == MLA_AXIS_INVARIANT; seed++)
        status = run_in_order(p, seed, result);
    if (kept ? setenv("MLA_FIBER_SEED", kept, 1) : unsetenv("MLA_FIBER_SEED"))
        status = mla_error(MLA_ENOMEM, "no memory for MLA_FIBER_SEED");
    free(kept);
    return status;
}

static mla_status try_threads(probe *p, mla_axis_result *result) {
    const int threads = omp_get_max_threads();
    mla_trial trial = {0};
    if (p->device || threads < 2) {
        conclude(result, MLA_AXIS_SKIPPED, p->device ? "the kernel runs on a device" : "there is one thread");
        return mla_ok();
    }
    conclude(result, MLA_AXIS_INVARIANT, "%d threads and one", threads);
    omp_set_num_threads(1);
    const mla_status status = mla_trial_run(p->kernel, p->device, &p->inputs, &trial);
    omp_set_num_threads(threads);
    if (status.code == MLA_OK)
        all_keep_bits(p, &trial.output, "with one thread", result);
    mla_trial_free(&trial);
    return status;
}

/* ---- splits -------------------------------------------------------------------------------------------------------------------------------- */

/* How far two runs are apart. */
typedef struct distance {
    double ulp;        /* largest, in units of the last place of the row's largest value: small values are differences of larger ones */
    int64_t different; /* elements */
} distance;

static void measure_row(const mla_problem *p, const double *x, const double *y, distance *d) {
    double top = 0;
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        top = fmax(top, fabs(x[c]));
    for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
        const bool same = x[c] == y[c] || (isnan(x[c]) && isnan(y[c]));
        d->different += !same;
        if (!same)
            d->ulp = fmax(d->ulp, isnan(x[c] - y[c]) ? INFINITY : fabs(x[c] - y[c]) / mla_ulp(p->out_format, top));
    }
}

static distance distance_of(const mla_problem *p, const mla_output *a, const mla_output *b) {
    const size_t row_bytes = MLA_HEAD_DIM_V * mla_format_bytes(p->out_format);
    double x[MLA_HEAD_DIM_V], y[MLA_HEAD_DIM_V];
    distance d = {0};
    for (int64_t row = 0; row < p->total_q * p->heads; row++) {
        mla_decode_f64(p->out_format, (const uint8_t *)a->out + (size_t)row * row_bytes, MLA_HEAD_DIM_V, x);
        mla_decode_f64(p->out_format, (const uint8_t *)b->out + (size_t)row * row_bytes, MLA_HEAD_DIM_V, y);
        measure_row(p, x, y, &d);
    }
    return d;
}

static mla_status run_split(probe *p, int32_t splits, mla_trial *trial, bool *ran) {
    mla_problem *problem = &p->inputs.problem;
    const mla_problem kept = *problem;
    problem->split_policy = MLA_SPLIT_FIXED;
    problem->split_arg = splits;
    *ran = supports(p, problem);
    const mla_status status = *ran ? mla_trial_run(p->kernel, p->device, &p->inputs, trial) : mla_ok();
    p->inputs.problem = kept;
    return status;
}

static mla_status compare_splits(probe *p, int32_t splits, const mla_trial *whole, distance *largest) {
    mla_trial trial = {0};
    bool ran;
    const mla_status status = run_split(p, splits, &trial, &ran);
    if (status.code == MLA_OK && ran) {
        const distance d = distance_of(&p->inputs.problem, &whole->output, &trial.output);
        largest->ulp = fmax(largest->ulp, d.ulp);
        largest->different = d.different > largest->different ? d.different : largest->different;
    }
    mla_trial_free(&trial);
    return status;
}

static mla_status try_splits(probe *p, mla_axis_result *result) {
    static const int32_t counts[] = {2, 3, 8, 32};
    const double elements = (double)(p->inputs.problem.total_q * p->inputs.problem.heads) * MLA_HEAD_DIM_V;
    mla_trial whole = {0};
    distance largest = {0};
    bool ran;
    mla_status status = run_split(p, 1, &whole, &ran);
    for (size_t i = 0; i < sizeof counts / sizeof *counts && status.code == MLA_OK && ran; i++)
        status = compare_splits(p, counts[i], &whole, &largest);
    mla_trial_free(&whole);
    if (largest.different == 0)
        conclude(result, MLA_AXIS_INVARIANT, "2, 3, 8, 32 splits and one");
    else
        conclude(result, MLA_AXIS_REPORTED,
                 "2, 3, 8, 32 splits and one: up to %.2g %% of the elements differ, by up to %.2g ulp of the row's largest",
                 100 * (double)largest.different / elements, largest.ulp);
    return status;
}

/* ---- a case ---------------------------------------------------------------------------------------------------------------------------------- */

static mla_status try_axes(probe *p, const mla_case *test, mla_axis_result results[MLA_AXES]) {
    TRY(mla_inputs_make(test, &p->inputs));
    if (!supports(p, &p->inputs.problem)) {
        for (int i = 0; i < MLA_AXES; i++)
            conclude(&results[i], MLA_AXIS_SKIPPED, "the kernel cannot do this case");
        return mla_ok();
    }
    TRY(mla_trial_run(p->kernel, p->device, &p->inputs, &p->plain));
    TRY(try_repeat(p, &results[MLA_AXIS_REPEAT]));
    TRY(try_company(p, reverse, &results[MLA_AXIS_PERMUTED]));
    TRY(try_company(p, isolate, &results[MLA_AXIS_ALONE]));
    TRY(try_neighbour(p, test, &results[MLA_AXIS_NEIGHBOUR]));
    TRY(try_order(p, &results[MLA_AXIS_ORDER]));
    TRY(try_threads(p, &results[MLA_AXIS_THREADS]));
    return try_splits(p, &results[MLA_AXIS_SPLITS]);
}

mla_status mla_invariance_case(const mla_subject *subject, const mla_case *test, mla_axis_result results[MLA_AXES]) {
    const mla_kernel *kernel = subject->handle.kernel;
    probe p = {.kernel = kernel, .device = kernel->space == MLA_SPACE_HOST ? NULL : subject->handle.device};
    memset(results, 0, MLA_AXES * sizeof *results);
    const mla_status status = try_axes(&p, test, results);
    mla_trial_free(&p.plain);
    mla_inputs_free(&p.inputs);
    return status;
}
