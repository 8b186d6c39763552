#include "bench.h"

#include <stdlib.h>

#include "../ref/try.h"
#include "launch_timer.h"
#include "replica.h"

#define CACHES 4         /* the cold copies are at least as many last-level caches large */
#define MAX_COPIES 256   /* of small inputs, which then stay in the cache: each has guards of its own */
#define GPU_BURST 32     /* launches enqueued together on a GPU, where a launch is only enqueued */
#define LAUNCH_COST 2e-5 /* seconds: more than a launch costs the host */

const char *mla_bench_mode_name(mla_bench_mode mode) {
    static const char *const names[] = {[MLA_BENCH_COLD] = "cold", [MLA_BENCH_WARM] = "warm", [MLA_BENCH_PREPARE] = "cold+plan"};
    return names[mode];
}

typedef struct bench {
    const mla_kernel *kernel;
    mla_device *device; /* that keeps time */
    mla_device *space;  /* NULL: host memory */
    mla_inputs inputs;
    mla_work work;
    mla_outputs outputs;
    mla_replica replicas[MAX_COPIES];
    int copies;
    bool rotates, prepares; /* what a launch does */
    int next;               /* replica */
    mla_buffer lead[2];     /* GPU: copied from one to the other while the host enqueues */
    int lead_copies;
} bench;

/* ---- set-up --------------------------------------------------------------------------------------------------------------------------- */

static int copies_for(const mla_device *device, size_t bytes) {
    const size_t wanted = CACHES * device->cache_bytes, copies = (wanted + bytes - 1) / bytes;
    return copies < MAX_COPIES ? (int)copies : MAX_COPIES;
}

/* A burst is enqueued behind copies that take longer than the enqueueing, so that no launch waits for the host. */
static mla_status make_lead(bench *b, double bandwidth) {
    const size_t bytes = (size_t)64 << 20;
    if (!b->space)
        return mla_ok();
    b->lead_copies = 1 + (int)(LAUNCH_COST * GPU_BURST * bandwidth / (2.0 * (double)bytes));
    TRY(mla_buffer_make(b->space, bytes, &b->lead[0]));
    return mla_buffer_make(b->space, bytes, &b->lead[1]);
}

static mla_status set_up(bench *b, const mla_case *test) {
    TRY(mla_inputs_make(test, &b->inputs));
    TRY(mla_work_count(&b->inputs.problem, &b->work));
    const int copies = copies_for(b->device, mla_replica_bytes(&b->inputs));
    for (; b->copies < copies; b->copies++)
        TRY(mla_replica_make(b->space, &b->inputs, &b->replicas[b->copies]));
    return mla_outputs_make(b->space, b->kernel, &b->inputs.problem, &b->outputs);
}

static void tear_down(void *context) {
    bench *b = context;
    for (int i = 0; i < MAX_COPIES; i++)
        mla_replica_free(&b->replicas[i]);
    mla_outputs_free(&b->outputs);
    mla_buffer_free(&b->lead[0]);
    mla_buffer_free(&b->lead[1]);
    mla_inputs_free(&b->inputs);
    free(b);
}

/* Free with tear_down, also after failure, unless it is NULL. */
static mla_status make_bench(const mla_subject *subject, const mla_case *test, bench **made) {
    bench *b = *made = calloc(1, sizeof *b);
    if (!b)
        return mla_error(MLA_ENOMEM, "no memory to time a case");
    b->kernel = subject->handle.kernel;
    b->device = subject->handle.device;
    b->space = b->kernel->space == MLA_SPACE_HOST ? NULL : b->device;
    return set_up(b, test);
}

/* ---- launches ------------------------------------------------------------------------------------------------------------------------- */

static mla_status launch(void *context) {
    bench *b = context;
    const mla_launch arguments = mla_launch_make(b->space, &b->inputs.problem, &b->replicas[b->next], &b->outputs);
    if (b->rotates)
        b->next = (b->next + 1) % b->copies;
    if (b->prepares)
        TRY(mla_kernel_prepare(b->kernel, &arguments));
    return mla_kernel_run(b->kernel, &arguments);
}

/* On a GPU the first launch of a burst, behind the lead, is not counted. `prepare` is the host's work: nothing must hide it. */
static mla_status time_some(bench *b, int launches, double *seconds) {
    const mla_timed_call call = {launch, b};
    if (!b->space || b->prepares)
        return mla_time_burst(b->device, call, launches, seconds);
    double all[GPU_BURST + 1];
    for (int i = 0; i < b->lead_copies; i++)
        TRY(b->device->copy(b->device, b->lead[0].data, b->lead[1].data, b->lead[0].bytes));
    TRY(mla_time_burst(b->device, call, launches + 1, all));
    for (int i = 0; i < launches; i++)
        seconds[i] = all[i + 1];
    return mla_ok();
}

static int next_burst(const bench *b, const mla_bench_options *o, int done, double began) {
    const int burst = b->space && !b->prepares ? GPU_BURST : 1;
    const int most = o->repeat ? o->repeat : MLA_BENCH_MOST;
    if (!o->repeat && done >= MLA_BENCH_LEAST && mla_now() - began >= o->seconds)
        return 0;
    return most - done < burst ? most - done : burst;
}

static mla_status time_mode(bench *b, mla_bench_mode mode, const mla_bench_options *o, mla_progress *progress, mla_timing *timing) {
    double *seconds = malloc((size_t)(o->repeat ? o->repeat : MLA_BENCH_MOST) * sizeof *seconds), warm_up;
    if (!seconds)
        return mla_error(MLA_ENOMEM, "no memory for times");
    b->rotates = mode != MLA_BENCH_WARM;
    b->prepares = mode == MLA_BENCH_PREPARE;
    mla_status status = mla_time_burst(b->device, (mla_timed_call){launch, b}, 1, &warm_up);
    const double began = mla_now();
    int done = 0;
    for (int burst; status.code == MLA_OK && (burst = next_burst(b, o, done, began)) > 0; done += burst) {
        status = time_some(b, burst, seconds + done);
        mla_progress_update(progress, (mode + 0.5) / MLA_BENCH_MODES);
    }
    if (status.code == MLA_OK)
        *timing = mla_timing_of(seconds, done);
    free(seconds);
    return status;
}

/* Once a shape: the workspace keeps what `prepare` leaves. */
static mla_status launch_first(bench *b) {
    b->prepares = true;
    const mla_status status = launch(b);
    b->prepares = false;
    return status;
}

static mla_status time_modes(bench *b, const mla_bench_options *o, mla_progress *progress, mla_bench_result *result) {
    TRY(launch_first(b));
    for (mla_bench_mode mode = 0; mode < MLA_BENCH_MODES; mode++)
        if (mode != MLA_BENCH_PREPARE || b->kernel->prepare)
            TRY(time_mode(b, mode, o, progress, &result->timing[mode]));
    return mla_ok();
}

/* ---- a case ---------------------------------------------------------------------------------------------------------------------------- */

static mla_verdict grade(const mla_subject *subject, const mla_case *test, mla_progress *progress) {
    mla_result graded;
    mla_run_case(subject, test, progress, &graded);
    const mla_verdict verdict = graded.verdict;
    mla_result_free(&graded);
    return verdict;
}

static void describe(const bench *b, const mla_yardstick *yardstick, mla_bench_result *result) {
    result->work = b->work;
    result->floor = mla_floor_of(&b->work, &yardstick->ceiling);
    result->copies = b->copies;
    result->copied_bytes = mla_replica_bytes(&b->inputs) * (size_t)b->copies;
    result->cold_enough = result->copied_bytes >= CACHES * b->device->cache_bytes;
}

static mla_status measure(const mla_subject *subject, const mla_case *test, const mla_bench_options *options,
                          const mla_yardstick *yardstick, mla_progress *progress, mla_bench_result *result) {
    bench *b;
    mla_status status = make_bench(subject, test, &b);
    if (status.code == MLA_OK)
        status = make_lead(b, yardstick->ceiling.bandwidth);
    if (status.code == MLA_OK) {
        describe(b, yardstick, result);
        status = time_modes(b, options, progress, result);
    }
    if (b)
        tear_down(b);
    return status;
}

void mla_bench_case(const mla_subject *subject, const mla_case *test, const mla_bench_options *options, const mla_yardstick *yardstick,
                    mla_progress *progress, mla_bench_result *result) {
    *result = (mla_bench_result){.kernel = subject->spec, .case_line = mla_case_print(test), .verdict = grade(subject, test, progress)};
    if (result->verdict.status != MLA_PASSED)
        return;
    const mla_status status = result->case_line ? measure(subject, test, options, yardstick, progress, result)
                                                : mla_error(MLA_ENOMEM, "no memory to print the case");
    if (status.code != MLA_OK)
        result->verdict = mla_verdict_make(MLA_ERROR, status.message);
}

void mla_bench_result_free(mla_bench_result *result) {
    free(result->case_line);
    *result = (mla_bench_result){0};
}

mla_status mla_bench_racer(const mla_subject *subject, const mla_case *test, mla_racer *racer) {
    bench *b;
    mla_status status = make_bench(subject, test, &b);
    if (status.code == MLA_OK)
        status = launch_first(b);
    if (status.code == MLA_OK) {
        b->rotates = true;
        *racer = (mla_racer){.call = {launch, b}, .flops = (double)b->work.flops, .close = tear_down};
    } else if (b) {
        tear_down(b);
    }
    return status;
}
