/* bmm on the host: numbers worked out by hand, every kind of problem against the oracle, and what it refuses. */
#include "../gpu/bmm_args.h"
#include "../verify/run.h"
#include "support_launch.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static const char *const cases[] = {
    "kv_len=1",                                                  /* one key, in a chunk of eight weights */
    "heads=17 kv_len=63,0,1,130",                                /* one past a tile of rows and columns; an empty sequence in a batch */
    "heads=16 kv_len=4 q_len=9 causal=1",                        /* queries that see nothing beside ones that do */
    "heads=5 kv_len=40 q_len=3 causal=1",                        /* rows of one product that see different keys */
    "kv_len=300,17,90 q_len=1,0,2",                              /* a sequence without queries */
    "kv_len=150 page=16",                                        /* page table */
    "kv_len=50,33 page=list",                                    /* token list */
    "kv_len=90 q_len=2 page=topk:40",                            /* sparse, with absent entries */
    "kv_len=120 window=50 causal=1 q_len=2 sink=1.5 softcap=30", /* every score modifier */
    "kv_len=70 lse=2,+inf out=fp32 input=needle",                /* conventions */
    "kv_len=70 q=fp16 kv=fp16 input=needle",
    "kv_len=70 q=fp16 kv=fp16 input=subnormal out=fp16",
    "kv_len=70 q=fp8 kv=fp8 input=needle",
    "kv_len=70 q=fp8fnuz kv=fp16",
    "kv_len=70 q=fp8fnuz kv=fp8fnuz page=16",
    "kv_len=70 kv=fp8b656 page=64 input=needle",
    "kv_len=70 kv=mxfp4 scale_stride=32 page=16 input=needle",
};

static mla_subject open_subject(void) {
    return (mla_subject){.spec = "bmm@host", .opened = mla_ok(), .handle = test_kernel_open("bmm@host")};
}

static mla_verdict run(const mla_subject *subject, const char *line) {
    mla_case test;
    mla_result result;
    const mla_status status = mla_case_parse(line, &test);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    mla_run_case(subject, &test, NULL, &result);
    const mla_verdict verdict = result.verdict;
    mla_case_free(&test);
    mla_result_free(&result);
    return verdict;
}

Test(bmm, within_the_bound) {
    mla_subject subject = open_subject();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const mla_verdict verdict = run(&subject, cases[i]);
        cr_expect_eq(verdict.status, MLA_PASSED, "%s: %s", cases[i], verdict.reason);
    }
    mla_kernel_close(&subject.handle);
}

/* Keys 1 and 2 score log2(3) / log2(e) more than key 0: weights 1/3, 1, 1 of which bf16 rounds the first, to 0x1.56p-2; their sum is not rounded. */
Test(bmm, weights_are_rounded_and_their_sum_is_not) {
    mla_kernel_handle handle = test_kernel_open("bmm@host");
    test_problem made =
        test_problem_make(&(test_shape){.heads = 1, .q_len = {1}, .kv_len = {3}, .sm_scale = 1.0986123f, .out_format = MLA_FP32});
    float rows[3][MLA_HEAD_DIM] = {{0}};
    rows[0][0] = 1;
    rows[1][MLA_HEAD_DIM - 1] = rows[2][MLA_HEAD_DIM - 1] = 1;
    for (int i = 0; i < 3; i++)
        test_problem_set_slot(&made, made.problem.kv_indptr[0] + i, rows[i]);
    memset(made.q, 0, MLA_HEAD_DIM * sizeof(uint16_t));
    ((uint16_t *)made.q)[MLA_HEAD_DIM - 1] = 0x3F80;
    mla_output output = test_launch(handle.kernel, &made.problem);
    cr_expect_float_eq(test_output_element(&made.problem, &output, 0, 0), 0x1.56p-2 / (7.0 / 3), 1e-7);
    cr_expect_float_eq(output.lse[0], 1.0986123 + log(7.0 / 3), 1e-6);
    test_output_free(&output);
    test_problem_free(&made);
    mla_kernel_close(&handle);
}

/* Padding rows, and sequences without keys, are zeros and the convention's infinity, whatever the workspace held. */
Test(bmm, empty_rows_are_written) {
    mla_kernel_handle handle = test_kernel_open("bmm@host");
    test_problem made = test_problem_make(
        &(test_shape){.batch = 2, .heads = 3, .q_len = {1, 1}, .kv_len = {0, 5}, .padding = 2, .causal = true, .lse_empty_positive = true});
    mla_output output = test_launch(handle.kernel, &made.problem);
    for (int64_t row = 0; row < 12; row++) {
        const bool empty = row < 3 || row >= 6;
        cr_expect_eq(isinf(output.lse[row]) && output.lse[row] > 0, empty, "row %d", (int)row);
        for (int c = 0; c < MLA_HEAD_DIM_V && empty; c++)
            cr_assert_eq(((uint16_t *)output.out)[row * MLA_HEAD_DIM_V + c], 0);
    }
    test_output_free(&output);
    test_problem_free(&made);
    mla_kernel_close(&handle);
}

Test(bmm, says_what_it_cannot_do) {
    mla_subject subject = open_subject();
    const mla_verdict verdict = run(&subject, "kv_len=64 q=fp16 kv=mxfp4");
    cr_expect_eq(verdict.status, MLA_SKIPPED);
    cr_expect_str_eq(verdict.reason, "q=fp16 is not exact in the operands of kv=mxfp4");
    mla_kernel_close(&subject.handle);
}

/* 2^29 keys take 2 GiB of scores and 1 of weights for each head. Nothing is read but the tables. */
Test(bmm, problems_that_are_too_large_are_refused) {
    mla_kernel_handle handle = test_kernel_open("bmm@host");
    const int32_t qo_indptr[] = {0, 1}, kv_indptr[] = {0, 1 << 29};
    mla_problem p = {
        .batch = 1, .heads = 10, .q_format = MLA_BF16, .total_q = 1, .qo_indptr = qo_indptr, .kv_indptr = kv_indptr, .total_kv = 1 << 29};
    char reason[200] = "";
    cr_expect(handle.kernel->supports(handle.kernel, &p, reason, sizeof reason), "%s", reason);
    p.heads = 11;
    cr_expect_not(handle.kernel->supports(handle.kernel, &p, reason, sizeof reason));
    cr_expect_str_eq(reason, "bmm would write down 33.0 GiB of scores and more; it takes problems up to 32");
    mla_kernel_close(&handle);
}

Test(bmm, run_needs_prepare) {
    mla_kernel_handle handle = test_kernel_open("bmm@host");
    mla_problem p = {.q_format = MLA_BF16, .kv_format = MLA_KV_BF16};
    char workspace[256], reason[200];
    const mla_launch launch = {.problem = &p, .host = &p, .output = &(mla_output){0}, .workspace = workspace};
    cr_expect_neq(handle.kernel->run(handle.kernel, &launch, reason, sizeof reason), 0);
    cr_expect_str_eq(reason, "run without a prepare of this problem and workspace");
    mla_kernel_close(&handle);
}

/* What a sequence's results are does not depend on its neighbours: a product's sums run over its own keys, in order. */
Test(bmm, neighbours_do_not_matter) {
    mla_kernel_handle handle = test_kernel_open("bmm@host");
    test_problem two =
        test_problem_make(&(test_shape){.batch = 2, .heads = 4, .q_len = {2, 1}, .kv_len = {70, 33}, .causal = true, .seed = 3});
    mla_problem first = two.problem;
    mla_output both = test_launch(handle.kernel, &two.problem);
    first.batch = 1;
    first.total_q = 2;
    mla_output alone = test_launch(handle.kernel, &first);
    cr_expect_arr_eq((char *)alone.out, (char *)both.out, 2 * 4 * MLA_HEAD_DIM_V * sizeof(uint16_t));
    cr_expect_arr_eq(alone.lse, both.lse, 2 * 4 * sizeof(float));
    test_output_free(&alone);
    test_output_free(&both);
    test_problem_free(&two);
    mla_kernel_close(&handle);
}
