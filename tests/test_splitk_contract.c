/* What the split-K kernel declares for a format: a problem made by hand keeps to it, and would not keep to the stricter declaration. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "support_launch.h"

static const char *const engines[] = {"splitk@host:cdna3", "splitk@host:cdna4", "splitk@host:cdna3tall", "splitk@host:cdna4tall",
                                      "splitk@host:mma"};
enum { ENGINES = 5 };

static double worst_under(const mla_problem *problem, const mla_output *output, const mla_contract *contract) {
    mla_truth truth = test_truth(problem, contract);
    const double worst = test_worst_error(problem, output, &truth);
    mla_truth_free(&truth);
    return worst;
}

static void set_scales(test_problem *made, float scale) {
    for (int64_t slot = 0; slot < made->problem.total_kv; slot++)
        for (int i = 0; i < 4; i++)
            memcpy(made->kv + slot * 656 + 512 + 4 * i, &scale, sizeof scale);
}

/* Codes of e4m3fn times a scale need more bits than bf16 has, unless it is a power of two. */
static test_problem make_656(float scale) {
    const test_shape shape = {
        .heads = 2, .q_len = {1}, .kv_len = {40}, .kv_format = MLA_KV_FP8B656, .q_std = 4, .out_format = MLA_FP32, .seed = 1};
    test_problem made = test_problem_make(&shape);
    set_scales(&made, scale);
    return made;
}

Test(splitk_contract, arbitrary_656_scales_are_declared_as_rounded) {
    for (int e = 0; e < ENGINES; e++) {
        mla_kernel_handle handle = test_kernel_open(engines[e]);
        test_problem made = make_656(0.0437f);
        mla_contract contract = mla_kernel_contract(handle.kernel, &made.problem);
        cr_expect_eq(contract.kv_dequant, MLA_BF16);
        mla_output output = test_launch(handle.kernel, &made.problem);
        cr_expect_leq(worst_under(&made.problem, &output, &contract), 1);
        contract.kv_dequant = MLA_NONE;
        const double exact = worst_under(&made.problem, &output, &contract);
        cr_expect_gt(exact, 1, "%s: %g", engines[e], exact);
        test_output_free(&output);
        test_problem_free(&made);
        mla_kernel_close(&handle);
    }
}

Test(splitk_contract, power_of_two_656_scales_are_declared_exact) {
    for (int e = 0; e < ENGINES; e++) {
        mla_kernel_handle handle = test_kernel_open(engines[e]);
        test_problem made = make_656(0x1p-5f);
        const mla_contract contract = mla_kernel_contract(handle.kernel, &made.problem);
        cr_expect_eq(contract.kv_dequant, MLA_NONE);
        mla_output output = test_launch(handle.kernel, &made.problem);
        cr_expect_leq(worst_under(&made.problem, &output, &contract), 1);
        test_output_free(&output);
        test_problem_free(&made);
        mla_kernel_close(&handle);
    }
}

/* One key of weight 1 and value 0; the others weigh 1.4 * 2^-24, which fp16 rounds to 2^-24, and have value 1. */
static test_problem make_fp16(void) {
    const test_shape shape = {
        .heads = 2, .q_len = {1}, .kv_len = {65}, .q_format = MLA_FP16, .kv_format = MLA_KV_FP16, .sm_scale = 1, .out_format = MLA_FP32};
    test_problem made = test_problem_make(&shape);
    float row[MLA_HEAD_DIM] = {0};
    memset(made.q, 0, 2 * MLA_HEAD_DIM * 2);
    for (int h = 0; h < 2; h++)
        ((uint16_t *)made.q)[h * MLA_HEAD_DIM + 575] = 0x3C00;
    test_problem_set_slot(&made, 0, row);
    for (int d = 0; d < MLA_HEAD_DIM_V; d++)
        row[d] = 1;
    row[575] = (float)log(1.4 * 0x1p-24);
    for (int64_t j = 1; j < 65; j++)
        test_problem_set_slot(&made, j, row);
    return made;
}

Test(splitk_contract, fp16_weights_are_declared) {
    for (int e = 0; e < ENGINES; e++) {
        mla_kernel_handle handle = test_kernel_open(engines[e]);
        test_problem made = make_fp16();
        mla_contract contract = mla_kernel_contract(handle.kernel, &made.problem);
        cr_expect_eq(contract.p, MLA_FP16);
        mla_output output = test_launch(handle.kernel, &made.problem);
        cr_expect_leq(worst_under(&made.problem, &output, &contract), 1);
        contract.p = MLA_BF16;
        const double exact = worst_under(&made.problem, &output, &contract);
        cr_expect_gt(exact, 1, "%s: %g", engines[e], exact);
        test_output_free(&output);
        test_problem_free(&made);
        mla_kernel_close(&handle);
    }
}
