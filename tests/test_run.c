/* Kernels that misbehave in one way each: the runner must see it, and say which. */
#include <criterion/criterion.h>
#include <string.h>

#include "../verify/memory.h"
#include "../verify/run.h"

static mla_case test_case;
static mla_result result;

static void setup(void) {
    cr_assert_eq(mla_case_parse("heads=2 batch=2 kv_len=17,0 seed=3", &test_case).code, MLA_OK);
}

static void teardown(void) {
    mla_result_free(&result);
    mla_case_free(&test_case);
}

TestSuite(run, .init = setup, .fini = teardown);

typedef int (*run_function)(const mla_kernel *, const mla_launch *, char *, size_t);

/* A kernel in host memory with the reference's contract. */
static mla_kernel kernel_of(run_function run) {
    return (mla_kernel){.abi_version = MLA_KERNEL_ABI, .name = "fake", .contract = mla_reference_contract(), .run = run};
}

static void grade(const mla_kernel *kernel) {
    mla_subject subject = {.spec = "fake", .opened = mla_ok(), .handle = {.kernel = kernel}};
    mla_run_case(&subject, &test_case, NULL, &result);
}

static void expect_verdict(mla_verdict_status status, const char *reason) {
    cr_expect_eq(result.verdict.status, status, "%s", mla_verdict_name(result.verdict.status));
    cr_expect(strstr(result.verdict.reason, reason) != NULL, "'%s' is not in '%s'", reason, result.verdict.reason);
}

static int run_right(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t size) {
    (void)kernel, (void)reason, (void)size;
    return mla_reference_run(launch->problem, launch->output).code != MLA_OK;
}

Test(run, a_right_kernel_passes) {
    mla_kernel kernel = kernel_of(run_right);
    grade(&kernel);
    expect_verdict(MLA_PASSED, "");
    cr_expect_str_eq(result.case_line, "heads=2 kv_len=17,0 seed=3");
    cr_expect(result.measured);
    cr_expect_eq(result.measure.out.total, 2 * 2 * MLA_HEAD_DIM_V);
    cr_expect_eq(result.measure.rows, 4);
    cr_expect_eq(result.measure.empty_rows, 2);
    cr_expect_gt(result.measure.max_err_over_bound, 0);
}

static int run_nothing(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t size) {
    (void)kernel, (void)launch, (void)reason, (void)size;
    return 0;
}

Test(run, a_kernel_that_writes_nothing_fails) {
    mla_kernel kernel = kernel_of(run_nothing);
    grade(&kernel);
    expect_verdict(MLA_FAILED, "2048 of 2048 elements never written; 4 of 4 lse never written");
}

static int run_past_the_end(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t size) {
    ((uint8_t *)launch->output->out)[2048 * 2 + 3] = 0;
    return run_right(kernel, launch, reason, size);
}

Test(run, a_write_past_the_output_fails) {
    mla_kernel kernel = kernel_of(run_past_the_end);
    grade(&kernel);
    expect_verdict(MLA_FAILED, "wrote outside out: byte 4099 of a buffer of 4096");
}

static int run_before_the_lse(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t size) {
    launch->output->lse[-1] = 0;
    return run_right(kernel, launch, reason, size);
}

Test(run, a_write_before_the_lse_fails) {
    mla_kernel kernel = kernel_of(run_before_the_lse);
    grade(&kernel);
    expect_verdict(MLA_FAILED, "wrote outside lse: byte -4 of a buffer of 16");
}

/* The damage comes after the answer: only the input's own check can see it. */
static int run_over_the_kv(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t size) {
    int failed = run_right(kernel, launch, reason, size);
    ((uint8_t *)(uintptr_t)launch->problem->kv)[5] ^= 1;
    return failed;
}

Test(run, a_changed_input_fails) {
    mla_kernel kernel = kernel_of(run_over_the_kv);
    grade(&kernel);
    expect_verdict(MLA_FAILED, "changed its input kv at byte ");
    cr_expect_eq(mla_counts_wrong(&result.measure.out), 0, "the truth is computed from the original");
}

/* Zeroes q before use: the oracle must not see the damage, or everything would agree. */
static int run_with_zero_q(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t size) {
    memset((void *)(uintptr_t)launch->problem->q, 0, 2 * 2 * MLA_HEAD_DIM * 2);
    return run_right(kernel, launch, reason, size);
}

Test(run, damage_to_an_input_does_not_reach_the_truth) {
    mla_kernel kernel = kernel_of(run_with_zero_q);
    grade(&kernel);
    expect_verdict(MLA_FAILED, "changed its input q at byte 0");
    cr_expect_gt(result.measure.out.outside, 0);
}

static size_t workspace_of_100(const mla_kernel *kernel, const mla_problem *host) {
    (void)kernel, (void)host;
    return 100;
}

static int run_over_the_workspace(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t size) {
    uint8_t *workspace = launch->workspace;
    if ((uintptr_t)workspace % 256 != 0 || workspace[0] != MLA_POISON || workspace[99] != MLA_POISON)
        return 1;
    memset(workspace, 0, 101);
    return run_right(kernel, launch, reason, size);
}

Test(run, the_workspace_is_aligned_poisoned_and_guarded) {
    mla_kernel kernel = kernel_of(run_over_the_workspace);
    kernel.workspace = workspace_of_100;
    grade(&kernel);
    expect_verdict(MLA_FAILED, "wrote outside workspace: byte 100 of a buffer of 100");
}

static int fail_with_a_reason(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t size) {
    (void)kernel, (void)launch;
    snprintf(reason, size, "out of\nregisters");
    return 7;
}

Test(run, a_kernel_that_fails_is_an_error_with_its_message) {
    mla_kernel kernel = kernel_of(fail_with_a_reason);
    grade(&kernel);
    expect_verdict(MLA_ERROR, "run failed: out of registers");
    cr_expect_not(result.measured);
}

Test(run, a_prepare_that_fails_is_an_error) {
    mla_kernel kernel = kernel_of(run_right);
    kernel.prepare = fail_with_a_reason;
    grade(&kernel);
    expect_verdict(MLA_ERROR, "prepare failed: out of registers");
}

static bool supports_nothing(const mla_kernel *kernel, const mla_problem *host, char *reason, size_t size) {
    (void)kernel, (void)host;
    snprintf(reason, size, "no empty sequences");
    return false;
}

Test(run, an_unsupported_case_is_skipped_and_not_run) {
    mla_kernel kernel = kernel_of(fail_with_a_reason);
    kernel.supports = supports_nothing;
    grade(&kernel);
    expect_verdict(MLA_SKIPPED, "no empty sequences");
}

Test(run, a_kernel_that_could_not_be_opened_is_skipped) {
    mla_subject subject = {.spec = "fake", .opened = mla_error(MLA_EDEVICE, "no device")};
    mla_run_case(&subject, &test_case, NULL, &result);
    expect_verdict(MLA_SKIPPED, "no device");
}

Test(run, a_contract_out_of_range_is_an_error) {
    mla_kernel kernel = kernel_of(run_right);
    kernel.contract.tile = 0;
    grade(&kernel);
    expect_verdict(MLA_ERROR, "tile");
}

Test(run, a_case_without_rows_is_skipped) {
    mla_case_free(&test_case);
    cr_assert_eq(mla_case_parse("q_len=0 kv_len=3", &test_case).code, MLA_OK);
    mla_kernel kernel = kernel_of(fail_with_a_reason);
    grade(&kernel);
    expect_verdict(MLA_SKIPPED, "no query rows");
}

/* 10 tokens of 1024 heads are two slabs of 8192 rows at most. */
Test(run, slabs_cover_every_row_once) {
    mla_case_free(&test_case);
    cr_assert_eq(mla_case_parse("heads=1024 batch=1 q_len=10 kv_len=3", &test_case).code, MLA_OK);
    mla_kernel kernel = kernel_of(run_right);
    grade(&kernel);
    expect_verdict(MLA_PASSED, "");
    cr_expect_eq(result.measure.rows, 10240);
    cr_expect_eq(result.measure.out.total, (int64_t)10240 * MLA_HEAD_DIM_V);
}
