/* Kernels that depend on one thing they should not: its axis must say so, and no other. Sequences taken out of a problem keep their rows. */
#include <criterion/criterion.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "../verify/invariance.h"
#include "../verify/subset.h"

static mla_case test_case;
static mla_axis_result results[MLA_AXES];

static void teardown(void) {
    mla_case_free(&test_case);
}

TestSuite(invariance, .fini = teardown);

typedef int run_function(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t size);

static void probe(const char *line, run_function *run) {
    mla_kernel kernel = {.abi_version = MLA_KERNEL_ABI, .name = "fake", .contract = mla_reference_contract(), .run = run};
    mla_subject subject = {.spec = "reference", .opened = mla_ok(), .handle = {.kernel = &kernel}};
    cr_assert_eq(mla_case_parse(line, &test_case).code, MLA_OK);
    const mla_status status = mla_invariance_case(&subject, &test_case, results);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
}

static void expect_alone(mla_axis axis) {
    for (int i = 0; i < MLA_AXES; i++)
        cr_expect_eq(results[i].status == MLA_AXIS_VARIES, i == (int)axis, "%s %s: %s", mla_axis_name((mla_axis)i),
                     mla_axis_status_name(results[i].status), results[i].detail);
}

static int run_right(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t size) {
    (void)kernel, (void)reason, (void)size;
    return mla_reference_run(launch->problem, launch->output).code != MLA_OK;
}

Test(invariance, a_right_kernel_varies_nowhere) {
    probe("heads=2 kv_len=40,3,0 seed=1", run_right);
    expect_alone(MLA_AXES);
    cr_expect_eq(results[MLA_AXIS_ALONE].status, MLA_AXIS_INVARIANT);
    cr_expect_eq(results[MLA_AXIS_NEIGHBOUR].status, MLA_AXIS_INVARIANT);
}

Test(invariance, one_sequence_has_no_neighbours) {
    probe("heads=2 kv_len=40 seed=1", run_right);
    cr_expect_eq(results[MLA_AXIS_ALONE].status, MLA_AXIS_SKIPPED);
    cr_expect_eq(results[MLA_AXIS_PERMUTED].status, MLA_AXIS_SKIPPED);
    cr_expect_eq(results[MLA_AXIS_NEIGHBOUR].status, MLA_AXIS_SKIPPED);
    cr_expect_eq(results[MLA_AXIS_REPEAT].status, MLA_AXIS_INVARIANT);
}

/* The first two launches are the plain one and the first repeat. */
static int run_count;
static int run_second_differently(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t size) {
    const int failed = run_right(kernel, launch, reason, size);
    launch->output->lse[1] += ++run_count == 2;
    return failed;
}

Test(invariance, a_launch_that_differs) {
    probe("heads=2 kv_len=40,3 seed=1", run_second_differently);
    expect_alone(MLA_AXIS_REPEAT);
    cr_expect_str_eq(results[MLA_AXIS_REPEAT].detail, "launched again: other bits at seq 0 q 0 head 1");
}

static void touch_last(const mla_launch *launch) {
    ((uint16_t *)launch->output->out)[launch->problem->total_q * launch->problem->heads * MLA_HEAD_DIM_V - 1] ^= 1;
}

static int run_by_batch(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t size) {
    const int failed = run_right(kernel, launch, reason, size);
    if (launch->problem->batch == 1)
        touch_last(launch);
    return failed;
}

Test(invariance, a_kernel_that_knows_its_company) {
    probe("heads=2 kv_len=40,3 seed=1", run_by_batch);
    expect_alone(MLA_AXIS_ALONE);
    cr_expect_str_eq(results[MLA_AXIS_ALONE].detail, "alone: other bits at seq 0 q 0 head 1");
}

static int run_by_place(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t size) {
    const int failed = run_right(kernel, launch, reason, size);
    if (launch->problem->batch > 1)
        touch_last(launch);
    return failed;
}

/* The sequence that comes last changes: alone nobody does, in reverse another one does. */
Test(invariance, a_kernel_that_knows_the_order_of_sequences) {
    probe("heads=2 kv_len=40,3 seed=1", run_by_place);
    cr_expect_eq(results[MLA_AXIS_PERMUTED].status, MLA_AXIS_VARIES);
    cr_expect_eq(results[MLA_AXIS_NEIGHBOUR].status, MLA_AXIS_INVARIANT);
}

/* A NaN leaks from the last token of the batch into its first row. */
static int run_with_a_leak(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t size) {
    const mla_problem *p = launch->problem;
    const int failed = run_right(kernel, launch, reason, size);
    if (((const uint16_t *)p->kv)[p->kv_indptr[p->batch] * MLA_HEAD_DIM - 1] == 0xFFFF)
        launch->output->lse[0] = 0;
    return failed;
}

Test(invariance, a_neighbour_that_leaks) {
    probe("heads=2 kv_len=40,3 seed=1", run_with_a_leak);
    expect_alone(MLA_AXIS_NEIGHBOUR);
}

static int run_by_threads(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t size) {
    const int failed = run_right(kernel, launch, reason, size);
    if (omp_get_max_threads() == 1)
        touch_last(launch);
    return failed;
}

Test(invariance, a_kernel_that_counts_threads) {
    omp_set_num_threads(2);
    probe("heads=2 kv_len=40,3 seed=1", run_by_threads);
    expect_alone(MLA_AXIS_THREADS);
}

static int run_by_fibers(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t size) {
    const int failed = run_right(kernel, launch, reason, size);
    const char *seed = getenv("MLA_FIBER_SEED");
    if (seed && strcmp(seed, "2") == 0)
        touch_last(launch);
    return failed;
}

Test(invariance, a_kernel_that_races) {
    probe("heads=2 kv_len=40,3 seed=1", run_by_fibers);
    expect_alone(MLA_AXIS_ORDER);
    cr_expect_str_eq(results[MLA_AXIS_ORDER].detail, "with MLA_FIBER_SEED=2: other bits at seq 1 q 0 head 1");
}

static int run_by_splits(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t size) {
    const int failed = run_right(kernel, launch, reason, size);
    if (launch->problem->split_policy == MLA_SPLIT_FIXED && launch->problem->split_arg == 8)
        touch_last(launch);
    return failed;
}

Test(invariance, splits_are_reported_and_do_not_fail) {
    probe("heads=2 kv_len=40,3 seed=1", run_by_splits);
    expect_alone(MLA_AXES);
    cr_expect_eq(results[MLA_AXIS_SPLITS].status, MLA_AXIS_REPORTED);
    cr_expect(strstr(results[MLA_AXIS_SPLITS].detail, "up to 0.049 % of the elements"), "%s", results[MLA_AXIS_SPLITS].detail);
}

/* ---- subsets: every layout gives its sequences the same results ---- */

static void expect_same_rows(const char *line) {
    static const int32_t order[] = {2, 0};
    static uint16_t whole_out[16 * MLA_HEAD_DIM_V], part_out[16 * MLA_HEAD_DIM_V];
    static float whole_lse[16], part_lse[16];
    mla_inputs whole, part;
    cr_assert_eq(mla_case_parse(line, &test_case).code, MLA_OK);
    cr_assert_eq(mla_inputs_make(&test_case, &whole).code, MLA_OK);
    cr_assert_eq(mla_subset_make(&whole, order, 2, &part).code, MLA_OK);
    const mla_status status = mla_problem_check(&part.problem);
    cr_assert_eq(status.code, MLA_OK, "%s: %s", line, status.message);
    cr_assert_eq(mla_reference_run(&whole.problem, &(mla_output){whole_out, whole_lse}).code, MLA_OK);
    cr_assert_eq(mla_reference_run(&part.problem, &(mla_output){part_out, part_lse}).code, MLA_OK);
    const mla_problem *w = &whole.problem, *p = &part.problem;
    for (int32_t i = 0; i < 2; i++) {
        const size_t rows = (size_t)mla_q_len(p, i) * 2, from = (size_t)w->qo_indptr[order[i]] * 2, to = (size_t)p->qo_indptr[i] * 2;
        cr_assert_eq(mla_q_len(p, i), mla_q_len(w, order[i]));
        cr_expect_eq(memcmp(whole_lse + from, part_lse + to, rows * sizeof(float)), 0, "%s", line);
        cr_expect_eq(memcmp(whole_out + from * MLA_HEAD_DIM_V, part_out + to * MLA_HEAD_DIM_V, rows * MLA_HEAD_DIM_V * 2), 0, "%s", line);
    }
    mla_inputs_free(&whole);
    mla_inputs_free(&part);
    mla_case_free(&test_case);
}

Test(invariance, subsets_keep_their_rows) {
    expect_same_rows("heads=2 q_len=2,1,3 kv_len=20,5,9 causal=1 q_pad=1");
    expect_same_rows("heads=2 q_len=2,1,3 kv_len=20,5,9 page=4");
    expect_same_rows("heads=2 q_len=2,1,3 kv_len=20,5,9 page=list sink=rand");
    expect_same_rows("heads=2 q_len=2,1,3 kv_len=20,5,9 page=topk:8");
    expect_same_rows("heads=2 q_len=2,1,3 kv_len=20,5,9 kv=mxfp4 scale_stride=20");
    cr_assert_eq(mla_case_parse("kv_len=1", &test_case).code, MLA_OK);
}
