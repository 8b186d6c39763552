/* What is timed, how often and on which memory, seen by a kernel that takes notes. */
#include "../verify/bench.h"
#include "../verify/launch_timer.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define NOTES 256

static struct {
    int runs, prepares;
    const void *kv[NOTES]; /* of each run */
    bool wrong;
} notes;

static int run(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t size) {
    (void)kernel, (void)reason, (void)size;
    notes.kv[notes.runs++ % NOTES] = launch->problem->kv;
    if (notes.wrong)
        return 0;
    return mla_reference_run(launch->problem, launch->output).code != MLA_OK;
}

static int prepare(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t size) {
    (void)kernel, (void)launch, (void)reason, (void)size;
    notes.prepares++;
    return 0;
}

static mla_device *device;
static mla_kernel kernel;
static mla_subject subject;
static mla_case test_case;
static mla_bench_result result;
static const mla_yardstick yardstick = {.ceiling = {.bandwidth = 1e10, .matrix_rate = 1e11}};

static void setup(void) {
    memset(&notes, 0, sizeof notes);
    kernel = (mla_kernel){.abi_version = MLA_KERNEL_ABI, .name = "notes", .contract = mla_reference_contract(), .run = run};
    cr_assert_eq(mla_device_open(MLA_SPACE_HOST, &device).code, MLA_OK);
    subject = (mla_subject){.spec = "notes", .opened = mla_ok(), .handle = {.kernel = &kernel, .device = device}};
    cr_assert_eq(mla_case_parse("heads=1 kv_len=100", &test_case).code, MLA_OK);
}

static void teardown(void) {
    mla_bench_result_free(&result);
    mla_case_free(&test_case);
    device->close(device);
}

TestSuite(bench, .init = setup, .fini = teardown);

static void bench(int repeat, size_t cache_bytes) {
    device->cache_bytes = cache_bytes;
    mla_bench_case(&subject, &test_case, &(mla_bench_options){.repeat = repeat, .seconds = 1e-3}, &yardstick, NULL, &result);
}

Test(bench, a_wrong_kernel_is_graded_and_not_timed) {
    notes.wrong = true;
    bench(7, 1 << 20);
    cr_expect_eq(result.verdict.status, MLA_FAILED);
    cr_expect_eq(notes.runs, 1);
    for (int mode = 0; mode < MLA_BENCH_MODES; mode++)
        cr_expect_eq(result.timing[mode].launches, 0);
}

Test(bench, every_mode_has_its_launches) {
    kernel.prepare = prepare;
    bench(7, 1 << 20);
    cr_assert_eq(result.verdict.status, MLA_PASSED, "%s", result.verdict.reason);
    cr_expect_str_eq(result.case_line, "heads=1 kv_len=100");
    for (int mode = 0; mode < MLA_BENCH_MODES; mode++) {
        const mla_timing *t = &result.timing[mode];
        cr_expect_eq(t->launches, 7);
        cr_expect(t->min > 0 && t->min <= t->p10 && t->p10 <= t->median && t->median <= t->p90);
    }
    cr_expect_eq(notes.runs, 1 + 1 + 3 * 8); /* graded, prepared, and in each mode a warm-up */
    cr_expect_eq(notes.prepares, 1 + 1 + 8);
}

Test(bench, without_prepare_there_is_no_such_mode) {
    bench(3, 1 << 20);
    cr_expect_eq(result.timing[MLA_BENCH_COLD].launches, 3);
    cr_expect_eq(result.timing[MLA_BENCH_PREPARE].launches, 0);
}

Test(bench, time_decides_without_repeat) {
    bench(0, 1 << 20);
    cr_expect_geq(result.timing[MLA_BENCH_WARM].launches, MLA_BENCH_LEAST);
}

Test(bench, cold_launches_go_round_copies) {
    bench(20, 230000);
    cr_assert_eq(result.copies, 7, "%d copies", result.copies);
    cr_expect_geq(result.copied_bytes, 4 * 230000);
    cr_expect_lt(result.copied_bytes / 7 * 6, 4 * 230000);
    cr_expect(result.cold_enough);
    const int first = 2 + 1; /* graded, prepared, warm-up */
    for (int i = first; i < first + 20; i++)
        for (int j = i + 1; j < first + 20; j++)
            cr_expect_eq(notes.kv[i] == notes.kv[j], (j - i) % 7 == 0, "launches %d and %d", i, j);
    const int warm = first + 20;
    for (int i = warm; i < warm + 21; i++)
        cr_expect_eq(notes.kv[i], notes.kv[warm]);
}

Test(bench, a_small_rotation_is_owned_up_to) {
    bench(1, (size_t)1 << 30);
    cr_expect_eq(result.copies, 256);
    cr_expect(!result.cold_enough);
}

Test(bench, the_floor_is_of_the_yardstick) {
    bench(1, 1 << 20);
    cr_expect_eq(result.work.bytes, 100 * 1152 + 2176);
    cr_expect_float_eq(result.floor.seconds, (100 * 1152 + 2176) / 1e10, 1e-15);
}

/* ---- the clock --------------------------------------------------------------------------------------------------------------------------- */

static mla_status sleep_longer(void *context) {
    int *calls = context;
    nanosleep(&(struct timespec){.tv_nsec = 2000000L * ++*calls}, NULL);
    return mla_ok();
}

Test(bench, a_burst_times_each_call) {
    int calls = 0;
    double seconds[3] = {0};
    const double began = mla_now();
    cr_assert_eq(mla_time_burst(device, (mla_timed_call){sleep_longer, &calls}, 3, seconds).code, MLA_OK);
    cr_expect_leq(seconds[0] + seconds[1] + seconds[2], mla_now() - began);
    cr_expect_eq(calls, 3);
    for (int i = 0; i < 3; i++)
        cr_expect_geq(seconds[i], 0.002 * (i + 1));
}

static mla_status fail_second(void *context) {
    int *calls = context;
    return ++*calls == 2 ? mla_error(MLA_EDEVICE, "the second") : mla_ok();
}

Test(bench, a_burst_ends_with_a_failure) {
    int calls = 0;
    double seconds[3];
    const mla_status status = mla_time_burst(device, (mla_timed_call){fail_second, &calls}, 3, seconds);
    cr_expect_str_eq(status.message, "the second");
    cr_expect_eq(calls, 2);
}

Test(bench, host_copies_are_whole) {
    static uint8_t from[1003], to[1004];
    for (size_t bytes = 0; bytes <= sizeof from; bytes += 59) {
        memset(to, 0, sizeof to);
        memset(from, 1, sizeof from);
        cr_assert_eq(device->copy(device, to, from, bytes).code, MLA_OK);
        for (size_t i = 0; i < sizeof to; i++)
            cr_assert_eq(to[i], i < bytes, "byte %zu of %zu", i, bytes);
    }
}
