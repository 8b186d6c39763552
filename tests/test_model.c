#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../verify/drift_model.h"
#include "../verify/trial.h"
#include "support_problem.h"

/* ---- host execution, bit for bit ------------------------------------------------------------------------------------------------------ */

typedef struct outcome {
    mla_trial trial;
    mla_inputs inputs;
    double *out, *lse;
    int64_t rows;
} outcome;

static outcome run_both(const char *spec, const char *line) {
    outcome o = {0};
    mla_case c = {0};
    mla_kernel_handle handle;
    mla_drift_splits splits;
    cr_assert_eq(mla_kernel_open(spec, &handle).code, MLA_OK);
    cr_assert_eq(mla_case_parse(line, &c).code, MLA_OK);
    cr_assert_eq(mla_inputs_make(&c, &o.inputs).code, MLA_OK);
    const mla_problem *p = &o.inputs.problem;
    o.rows = p->total_q * p->heads;
    o.out = malloc((size_t)o.rows * MLA_HEAD_DIM_V * sizeof *o.out);
    o.lse = malloc((size_t)o.rows * sizeof *o.lse);
    const mla_status status = mla_trial_run(handle.kernel, NULL, &o.inputs, &o.trial);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    const mla_model model = mla_drift_model(handle.kernel, p);
    cr_assert_eq(mla_drift_splits_make(handle.kernel, handle.device, p, &splits).code, MLA_OK);
    cr_assert_eq(mla_model_run(p, &model, &splits.view, 0, o.rows, o.out, o.lse).code, MLA_OK);
    mla_drift_splits_free(&splits);
    mla_kernel_close(&handle);
    mla_case_free(&c);
    return o;
}

static void outcome_free(outcome *o) {
    mla_trial_free(&o->trial);
    mla_inputs_free(&o->inputs);
    free(o->out);
    free(o->lse);
}

/* Elements and lse that differ. -0 and 0 are different bits, and the kernel makes no NaN here. */
static int64_t differences(const outcome *o) {
    const mla_problem *p = &o->inputs.problem;
    int64_t count = 0;
    for (int64_t i = 0; i < o->rows * MLA_HEAD_DIM_V; i++) {
        const double got = test_output_element(p, &o->trial.output, i / MLA_HEAD_DIM_V, (int)(i % MLA_HEAD_DIM_V));
        count += !(got == o->out[i] && signbit(got) == signbit(o->out[i]));
    }
    for (int64_t r = 0; r < o->rows; r++)
        count += !(o->trial.output.lse[r] == (float)o->lse[r]);
    return count;
}

static const char *const lines[] = {
    "heads=3 kv_len=130 out=fp32",
    "heads=17 batch=2 kv_len=257,33 plan=fixed:3 out=fp32 seed=1",
    "heads=2 kv_len=700 plan=balanced batch=2 out=fp32 input=peaked seed=2",
    "heads=2 kv_len=200 plan=size:7 out=fp32 seed=3",
    "heads=4 kv_len=301 plan=size:100 lse=2 seed=4",
    "heads=2 kv_len=90 q_len=5 causal=1 plan=fixed:2 out=fp32 seed=5",
    "heads=3 kv_len=150 q_len=3 window=40 sink=rand plan=fixed:4 out=fp32 seed=6",
    "heads=2 kv_len=120 softcap=20 out=fp32 input=large seed=7",
    "heads=2 kv_len=100 q=fp16 kv=fp16 out=fp16 seed=8",
    "heads=2 kv_len=100 q=fp8 kv=fp8 out=fp32 seed=9",
    "heads=2 kv_len=100 q=fp8fnuz kv=fp8fnuz out=fp32 seed=10",
    "heads=2 kv_len=100 kv=fp8b656 plan=fixed:2 out=fp32 seed=11",
    "heads=2 kv_len=100 kv=mxfp4 page=16 out=fp32 seed=12",
    "heads=2 kv_len=100 q_len=2 page=topk:60 plan=fixed:2 out=fp32 seed=13",
    "heads=2 batch=3 kv_len=0,5,64 q_pad=1 out=fp32 seed=14",
    "heads=1 kv_len=80 input=needle plan=fixed:2 out=fp32 seed=15",
};

static void same_bits(const char *spec) {
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        outcome o = run_both(spec, lines[i]);
        cr_expect_eq(differences(&o), 0, "%s: %lld values differ: %s", spec, (long long)differences(&o), lines[i]);
        outcome_free(&o);
    }
}

Test(model, reproduces_cdna3_bit_for_bit) {
    same_bits("splitk@host:cdna3");
}

Test(model, reproduces_cdna4_bit_for_bit) {
    same_bits("splitk@host:cdna4");
}

Test(model, reproduces_cdna3tall_bit_for_bit) {
    same_bits("splitk@host:cdna3tall");
}

Test(model, reproduces_cdna4tall_bit_for_bit) {
    same_bits("splitk@host:cdna4tall");
}

Test(model, reproduces_mma_bit_for_bit) {
    same_bits("splitk@host:mma");
}

/* ---- NVIDIA's matrix unit ---------------------------------------------------------------------------------------------------------------- */

/* What splitk@nvidia wrote on an H200 as lse of one key in base 2: that key's score. All 1,024 of this case agree; these are the first. */
static const float h200_scores[] = {0x1.1566c6p+0f,  -0x1.041712p+0f, -0x1.727ea0p-1f, 0x1.d332d8p-1f,  -0x1.9f726ap-2f, 0x1.cc687ep-1f,
                                    -0x1.08fda4p+0f, 0x1.75c17ep+1f,  0x1.750372p-2f,  0x1.4de5a2p+0f,  -0x1.23322cp+1f, -0x1.8a358ap-2f,
                                    -0x1.c20f12p-5f, -0x1.57dd40p+1f, 0x1.ba16bcp-2f,  -0x1.d33ad8p+0f, -0x1.999d8cp+1f, 0x1.dbb06ap-3f,
                                    0x1.647c94p+0f,  0x1.727a9cp-3f,  0x1.b1888cp+0f,  -0x1.2c4972p+0f, -0x1.c12208p-1f, -0x1.6cf8c0p+0f};
#define H200_SCORES (int)(sizeof h200_scores / sizeof *h200_scores)

/* Scores in which the model with this many aligned bits differs from the H200. */
static int wrong_scores(int bits) {
    const mla_contract contract = mla_contract_default();
    mla_case c;
    mla_inputs inputs;
    double out[H200_SCORES * MLA_HEAD_DIM_V], lse[H200_SCORES];
    cr_assert_eq(mla_case_parse("heads=16 batch=64 kv_len=1 lse=2 out=fp32", &c).code, MLA_OK);
    cr_assert_eq(mla_inputs_make(&c, &inputs).code, MLA_OK);
    mla_model model = mla_drift_model_of_engine(mla_engine_find("mma"), MLA_SPACE_CUDA, &contract, &inputs.problem);
    model.qk.bits = bits;
    cr_assert_eq(mla_model_run(&inputs.problem, &model, NULL, 0, H200_SCORES, out, lse).code, MLA_OK);
    int wrong = 0;
    for (int r = 0; r < H200_SCORES; r++)
        wrong += !(h200_scores[r] == (float)lse[r]);
    mla_inputs_free(&inputs);
    mla_case_free(&c);
    return wrong;
}

Test(model, reproduces_the_sums_of_an_h200) {
    cr_expect_eq(wrong_scores(25), 0);
    cr_expect_gt(wrong_scores(24), 0);
    cr_expect_gt(wrong_scores(26), 0);
}

/* ---- roundings and matrix units, by hand ------------------------------------------------------------------------------------------------ */

Test(model, rounds_to_formats) {
    cr_expect_eq(mla_round(MLA_NONE, MLA_RNE, 0x1.0000000001p0), 0x1.0000000001p0);
    cr_expect_eq(mla_round(MLA_FP32, MLA_RNE, 1 + 0x1.8p-24), 1 + 0x1p-23);
    cr_expect_eq(mla_round(MLA_FP32, MLA_RZ, 1 + 0x1.8p-24), 1);
    cr_expect_eq(mla_round(MLA_FP32, MLA_RZ, -1 - 0x1.8p-24), -1);
    cr_expect_eq(mla_round(MLA_BF16, MLA_RNE, 1 + 0x1.8p-8), 1 + 0x1p-7);
    cr_expect_eq(mla_round(MLA_BF16, MLA_RZ, 1 + 0x1.8p-8), 1);
}

Test(model, sums_a_step_before_it_rounds) {
    const double a[] = {1, 1, 1}, b[] = {0x1p-24, 0x1p-24, 0x1p-24};
    const mla_unit together = {.sum = MLA_FP32, .k = 3}, apart = {.sum = MLA_FP32, .k = 1};
    cr_expect_eq(mla_unit_accumulate(&together, 1, a, b, 1, 3), 1 + 0x1p-22, "1 + 3 * 2^-24 lies halfway; even is up");
    cr_expect_eq(mla_unit_accumulate(&apart, 1, a, b, 1, 3), 1, "each alone is a tie and goes to even");
}

Test(model, cuts_what_lies_below_the_largest) {
    const double a[] = {1.25, -1.25}, one[] = {1, 1};
    const mla_unit zero = {.sum = MLA_FP32, .k = 1, .bits = 3}, down = {.sum = MLA_FP32, .k = 1, .bits = 3, .cut = MLA_CUT_DOWN};
    cr_expect_eq(mla_unit_accumulate(&zero, 8, a, one, 1, 1), 9, "8 is 2^3: cells of 2^0");
    cr_expect_eq(mla_unit_accumulate(&zero, 8, a + 1, one, 1, 1), 7);
    cr_expect_eq(mla_unit_accumulate(&down, 8, a + 1, one, 1, 1), 6);
    const double q[] = {1.5, 0.25}, k[] = {1.5, 1};
    const mla_unit two = {.sum = MLA_FP32, .k = 2, .bits = 1};
    cr_expect_eq(mla_unit_accumulate(&two, 0, q, k, 1, 2), 2, "1.5 * 1.5 = 2.25 has its factors' exponent, 0: cells of 1/2");
}

Test(model, lets_the_accumulator_join_later) {
    const double a[] = {0.75, 0.5}, one[] = {1, 1};
    const mla_unit unit = {.sum = MLA_FP32, .k = 2, .bits = 2, .apart = true, .cut = MLA_CUT_DOWN};
    cr_expect_eq(mla_unit_accumulate(&unit, 0, a, one, 1, 2), 1.25, "cells of 1/8, then of 1/4");
    cr_expect_eq(mla_unit_accumulate(&unit, 16, a, one, 1, 2), 16, "then cells of 4: 1.25 is lost");
    cr_expect_eq(mla_unit_accumulate(&unit, -16, a, one, 1, 2), -16);
}

/* ---- the exact model, and refusals -------------------------------------------------------------------------------------------------------- */

static test_problem small_problem(void) {
    const test_shape shape = {
        .heads = 3, .q_len = {2}, .kv_len = {150}, .causal = true, .sink = true, .softcap = 30, .out_format = MLA_FP32};
    return test_problem_make(&shape);
}

Test(model, without_roundings_is_the_truth) {
    test_problem made = small_problem();
    double out[6 * MLA_HEAD_DIM_V], lse[6];
    const mla_model model = mla_model_exact();
    const mla_contract contract = mla_contract_default();
    mla_truth truth;
    cr_assert_eq(mla_model_run(&made.problem, &model, NULL, 0, 6, out, lse).code, MLA_OK);
    cr_assert_eq(mla_oracle_run(&made.problem, &contract, 0, 2, &truth).code, MLA_OK);
    for (int i = 0; i < 6 * MLA_HEAD_DIM_V; i++)
        cr_assert(fabs(out[i] - truth.out[i]) <= 1e-12, "%d: %g", i, out[i] - truth.out[i]);
    for (int r = 0; r < 6; r++)
        cr_assert(fabs(lse[r] - truth.lse[r]) <= 1e-12);
    mla_truth_free(&truth);
    test_problem_free(&made);
}

Test(model, of_a_contract_lies_within_its_bound) {
    test_problem made = small_problem();
    double out[6 * MLA_HEAD_DIM_V], lse[6];
    mla_contract contract = mla_contract_default();
    contract.scores = MLA_BF16;
    contract.combine_lse = true;
    const mla_model model = mla_model_of_contract(&contract, &made.problem);
    mla_truth truth;
    double worst = 0;
    cr_assert_eq(mla_model_run(&made.problem, &model, NULL, 0, 6, out, lse).code, MLA_OK);
    cr_assert_eq(mla_oracle_run(&made.problem, &contract, 0, 2, &truth).code, MLA_OK);
    for (int i = 0; i < 6 * MLA_HEAD_DIM_V; i++)
        worst = fmax(worst, fabs(out[i] - truth.out[i]) / truth.bound[i]);
    cr_expect(worst <= 1 && worst > 0.05, "%g of the bound", worst);
    mla_truth_free(&truth);
    test_problem_free(&made);
}

/*
 * Weights 1, 0, w, w with w = 0.75 * 2^-24: 1 + w is 1 in float, and 1 + 2 w is 1 + 2^-23. Two lanes in turn sum 1 + w and 0 + w, two groups 1 + 0 and
 * w + w.
 */
Test(model, sums_the_weights_of_each_group_apart) {
    const test_shape shape = {.heads = 1, .q_len = {1}, .kv_len = {4}, .out_format = MLA_FP32};
    const mla_contract contract = mla_contract_default();
    test_problem made = test_problem_make(&shape);
    uint16_t *q = (uint16_t *)(uintptr_t)made.problem.q, *kv = (uint16_t *)(uintptr_t)made.problem.kv;
    double out[MLA_HEAD_DIM_V], lse[2];
    memset(q, 0, MLA_HEAD_DIM * sizeof *q);
    memset(kv, 0, 4 * MLA_HEAD_DIM * sizeof *kv);
    q[575] = (uint16_t)mla_encode(MLA_BF16, 1, MLA_RNE);
    for (int t = 1; t < 4; t++)
        kv[t * MLA_HEAD_DIM + 575] = (uint16_t)mla_encode(MLA_BF16, t == 1 ? -7200 : -406, MLA_RNE);
    mla_model model = mla_model_of_contract(&contract, &made.problem);
    model.tile = 4;
    model.row_lanes = 2;
    for (int groups = 1; groups <= 2; groups++) {
        model.row_groups = groups;
        cr_assert_eq(mla_model_run(&made.problem, &model, NULL, 0, 1, out, &lse[groups - 1]).code, MLA_OK);
    }
    cr_expect_eq(lse[0], 0);
    cr_expect_float_eq(lse[1], 0x1p-23, 1e-12, "%g", lse[1]);
    test_problem_free(&made);
}

Test(model, refuses_what_is_malformed) {
    test_problem made = small_problem();
    double out[MLA_HEAD_DIM_V], lse;
    mla_model model = mla_model_exact();
    model.dim_parts = 5;
    cr_expect_eq(mla_model_run(&made.problem, &model, NULL, 0, 1, out, &lse).code, MLA_EINVAL);
    model = mla_model_exact();
    model.pv.k = 0;
    cr_expect_eq(mla_model_run(&made.problem, &model, NULL, 0, 1, out, &lse).code, MLA_EINVAL);
    model = mla_model_exact();
    model.row_lanes = 3;
    cr_expect_eq(mla_model_run(&made.problem, &model, NULL, 0, 1, out, &lse).code, MLA_EINVAL);
    model = mla_model_exact();
    model.row_groups = 2;
    cr_expect_eq(mla_model_run(&made.problem, &model, NULL, 0, 1, out, &lse).code, MLA_EINVAL);
    test_problem_free(&made);
}
