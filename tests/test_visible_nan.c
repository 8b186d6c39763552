/* A NaN code in a slot that a row sees makes the whole row NaN: NaN is then the right answer, and anything else is an anomaly. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

#include "../verify/judge.h"
#include "support_launch.h"

static const char *const kernels[] = {"reference", "splitk@host:cdna3", "splitk@host:cdna4", "splitk@host:cdna4tall", "splitk@host:mma"};

/* The last key, which under the causal mask the last query alone sees. */
static test_problem make_problem(mla_kv_format format) {
    const test_shape shape = {.heads = 2, .q_len = {2}, .kv_len = {70}, .kv_format = format, .causal = true, .seed = 3};
    test_problem made = test_problem_make(&shape);
    const size_t bytes = mla_kv_format_get(format)->token_bytes;
    if (format == MLA_KV_MXFP4)
        made.kv_block_scales[69 * made.problem.kv_scale_stride + 17] = 0xFF;
    else
        memset(made.kv + 69 * bytes + bytes - 2, format == MLA_KV_FP8FNUZ ? 0x80 : 0xFF, 2);
    return made;
}

static mla_verdict judge(const mla_problem *problem, const mla_contract *contract, const mla_output *output, mla_measure *measure) {
    const mla_integrity untouched = {0};
    mla_truth truth = test_truth(problem, contract);
    cr_assert(isfinite(truth.out[0]) && isfinite(truth.lse[0]) && isnan(truth.out[3 * MLA_HEAD_DIM_V + 511]) && isnan(truth.lse[3]));
    cr_assert_eq(mla_measure_init(measure, problem).code, MLA_OK);
    mla_compare(problem, &truth, output, measure);
    mla_truth_free(&truth);
    return mla_judge(measure, &untouched);
}

ParameterizedTestParameters(visible_nan, is_right_where_the_truth_is_nan) {
    static int indices[] = {0, 1, 2, 3, 4};
    return cr_make_param_array(int, indices, sizeof kernels / sizeof *kernels);
}

ParameterizedTest(int *index, visible_nan, is_right_where_the_truth_is_nan) {
    mla_kernel_handle handle = test_kernel_open(kernels[*index]);
    for (int format = 0; format < MLA_KV_FORMAT_COUNT; format++) {
        test_problem made = make_problem((mla_kv_format)format);
        if (format == MLA_KV_FP16 && *index > 0)
            made.problem.q_format = MLA_FP16; /* any code is some number: bf16's of 1 is fp16's of 1.875 */
        const mla_contract contract = mla_kernel_contract(handle.kernel, &made.problem);
        mla_output output = test_launch(handle.kernel, &made.problem);
        mla_measure measure;
        mla_verdict verdict = judge(&made.problem, &contract, &output, &measure);
        cr_expect_eq(verdict.status, MLA_PASSED, "%s on %s: %s", kernels[*index], mla_kv_format_get((mla_kv_format)format)->name,
                     verdict.reason);
        mla_measure_free(&measure);
        memset(output.out, 0, (size_t)4 * MLA_HEAD_DIM_V * 2);
        memset(output.lse, 0, 4 * sizeof(float));
        verdict = judge(&made.problem, &contract, &output, &measure);
        cr_expect_eq(verdict.status, MLA_FAILED);
        cr_expect_eq(measure.out.anomalies, 2 * MLA_HEAD_DIM_V);
        cr_expect_eq(measure.lse.anomalies, 2);
        mla_measure_free(&measure);
        test_output_free(&output);
        test_problem_free(&made);
    }
    mla_kernel_close(&handle);
}
