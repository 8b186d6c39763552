#include "support_problem.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#define U 0x1p-24

/* ---- numbers -------------------------------------------------------------------------------------------------------------------------- */

enum { KEYS = 70 };

static test_problem patterned(void) {
    return test_problem_patterned(KEYS);
}

/* Bounds of `made` under `contract`: columns 0 and 301, and the lse's. */
typedef struct three_bounds {
    double first, other, lse;
} three_bounds;

static three_bounds bounds_of(const test_problem *made, const mla_contract *contract) {
    mla_truth truth;
    const mla_status status = mla_oracle_run(&made->problem, contract, 0, 1, &truth);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    const three_bounds bounds = {truth.bound[0], truth.bound[301], truth.lse_bound[0]};
    mla_truth_free(&truth);
    return bounds;
}

static void expect_bounds(const char *name, const test_problem *made, const mla_contract *contract, three_bounds expected) {
    const three_bounds got = bounds_of(made, contract);
    cr_expect(fabs(got.first / expected.first - 1) < 1e-9, "%s: %.17g", name, got.first);
    cr_expect(fabs(got.other / expected.other - 1) < 1e-9, "%s: %.17g", name, got.other);
    cr_expect(fabs(got.lse / expected.lse - 1) < 1e-9, "%s: %.17g", name, got.lse);
}

/* The expected numbers come from an independent implementation of the same formulas in another language. */
Test(bound, weights_and_output) {
    test_problem made = patterned();
    mla_contract contract = mla_contract_default();
    expect_bounds("default", &made, &contract, (three_bounds){0.0018614719801062292, 0.0017762276255389947, 7.1583354626554761e-05});
    contract.p = MLA_FP8, contract.p_scale = 256;
    expect_bounds("p fp8", &made, &contract, (three_bounds){0.027183786081286129, 0.025888872086297039, 7.1583354626554761e-05});
    contract.p = MLA_FP32, contract.p_scale = 1;
    made.problem.out_format = MLA_FP32;
    expect_bounds("p, out fp32", &made, &contract, (three_bounds){3.2625354259926156e-05, 3.1023527465235786e-05, 7.1583354626554761e-05});
    made.problem.out_format = MLA_BF16;
    contract.p = MLA_BF16, contract.p_rounding = contract.out_rounding = MLA_RZ;
    expect_bounds("p, out rz", &made, &contract, (three_bounds){0.0037034581401219459, 0.003533943627269321, 7.1583354626554761e-05});
    contract = mla_contract_default();
    contract.rowsum_of_rounded_p = true;
    expect_bounds("rowsum p", &made, &contract, (three_bounds){0.0020099099941169587, 0.0019213274963386369, 0.0039780821036090735});
    test_problem_free(&made);
}

Test(bound, scores_and_accumulation) {
    test_problem made = patterned();
    mla_contract contract = mla_contract_default();
    contract.scores = MLA_BF16;
    expect_bounds("scores bf16", &made, &contract, (three_bounds){0.0021135642804618725, 0.0019717107252603529, 0.0005535754662914673});
    contract.scores = MLA_FP32, contract.acc_rounding = MLA_RZ, contract.mma_k = 16;
    expect_bounds("acc rz", &made, &contract, (three_bounds){0.0020624373220313671, 0.0019672423384191392, 0.00048972296305510186});
    contract = mla_contract_default();
    contract.tile = 16, contract.max_splits = 8;
    expect_bounds("tile 16", &made, &contract, (three_bounds){0.0018612189331420929, 0.001775986153479771, 7.1046897475728958e-05});
    contract = mla_contract_default();
    contract.exp_error = 16;
    expect_bounds("exp 16", &made, &contract, (three_bounds){0.0018628215513289551, 0.0017775154645115916, 7.4444377575773511e-05});
    test_problem_free(&made);
}

Test(bound, partials_softcap_sink) {
    test_problem made = patterned();
    mla_contract contract = mla_contract_default();
    contract.combine_lse = true, contract.partial = MLA_BF16;
    expect_bounds("lse", &made, &contract, (three_bounds){0.0035567305984481189, 0.0033905075892592938, 7.2425987331930486e-05});
    contract = mla_contract_default();
    made.problem.softcap = 2;
    expect_bounds("softcap", &made, &contract, (three_bounds){0.0018596915030345356, 0.0017763659402694949, 7.2533589841246922e-05});
    made.problem.softcap = 0;
    const float sink = 1.5f;
    made.problem.sink = &sink;
    expect_bounds("sink", &made, &contract, (three_bounds){0.0017550811710378628, 0.001674705668768203, 7.1780795010263846e-05});
    test_problem_free(&made);
}

/* Scores that all differ: roundings to nearest average out, those toward zero do not. */
Test(bound, independent_roundings) {
    test_problem made = test_problem_hashed(300);
    mla_contract contract = mla_contract_default();
    expect_bounds("hashed: default", &made, &contract,
                  (three_bounds){0.0028848301467590764, 0.0043584479889492442, 0.00013376638226904951});
    contract.p = MLA_FP8;
    expect_bounds("hashed: p fp8 unscaled", &made, &contract,
                  (three_bounds){0.055389684587950232, 0.065747388449333102, 0.00013376638226904951});
    contract.p = MLA_FP16;
    expect_bounds("hashed: p fp16", &made, &contract,
                  (three_bounds){0.00049949780037753498, 0.0015247520265066062, 0.00013376638226904951});
    contract = mla_contract_default();
    contract.p_rounding = contract.out_rounding = MLA_RZ;
    expect_bounds("hashed: p, out rz", &made, &contract,
                  (three_bounds){0.0076804521806259751, 0.010417041933683176, 0.00013376638226904951});
    contract = mla_contract_default();
    contract.rowsum_of_rounded_p = true;
    expect_bounds("hashed: rowsum p", &made, &contract,
                  (three_bounds){0.0029167549308009369, 0.0049969592662940645, 0.0026979762007116933});
    contract = mla_contract_default();
    contract.acc_rounding = MLA_RZ, contract.mma_k = 16;
    expect_bounds("hashed: acc rz", &made, &contract, (three_bounds){0.0037056550879141096, 0.0054645594456238849, 0.00094394980765789491});
    contract = mla_contract_default();
    contract.p = MLA_FP32;
    made.problem.out_format = MLA_FP32;
    expect_bounds("hashed: p, out fp32", &made, &contract,
                  (three_bounds){0.00012578555662432107, 0.00017104560380522691, 0.00013376638226904951});
    test_problem_free(&made);
}

/* q = 0 and one key of value 1. */
static test_problem single(mla_kv_format format) {
    const test_shape shape = {.heads = 1, .q_len = {1}, .kv_len = {1}, .kv_format = format, .out_format = MLA_FP32, .seed = 2};
    test_problem made = test_problem_make(&shape);
    memset(made.q, 0, MLA_HEAD_DIM * 2);
    float row[MLA_HEAD_DIM];
    for (int d = 0; d < MLA_HEAD_DIM; d++)
        row[d] = 1;
    made.problem.kv_scale = 1;
    test_problem_set_slot(&made, 0, row);
    return made;
}

/* O = A = 1, lse = 0, T = S = N = 1, and theta = (4 (T + 2) + T + 4) u = 17 u. */
Test(bound, one_key_by_hand) {
    test_problem made = single(MLA_KV_BF16);
    mla_contract contract = mla_contract_default();
    contract.p = MLA_FP32;
    /* To first order: numerator 17 u + 2 u, denominator the same, 8 u, then the output's u; lse 17 u + 2 u + 4 u ln 2 + 12 u. */
    const three_bounds got = bounds_of(&made, &contract);
    cr_assert_float_eq(got.first / U, 19 + 19 + 8 + 1, 1e-4);
    cr_assert_float_eq(got.lse / U, 17 + 2 + 4 * log(2) + 12, 1e-4);
    /* bf16 weights: u_p = 2^-8 once more in the numerator, of 1 + 19 u. */
    contract.p = MLA_BF16;
    cr_assert_float_eq(bounds_of(&made, &contract).first, 0x1p-8 + 47 * U, U / 2);
    test_problem_free(&made);
}

/* 100 keys with one score: their roundings are alike, and all N + S = 132 of them count. T = 2, so theta = (4 (T + 2) + T + 4) u = 22 u. */
Test(bound, equal_keys_by_hand) {
    const test_shape shape = {.heads = 1, .q_len = {1}, .kv_len = {100}, .out_format = MLA_FP32, .seed = 2};
    test_problem made = test_problem_make(&shape);
    memset(made.q, 0, MLA_HEAD_DIM * 2);
    mla_contract contract = mla_contract_default();
    contract.p = MLA_FP32;
    cr_assert_float_eq(bounds_of(&made, &contract).lse / U, 22 + 132 + 4 * log(101) + 12, 1e-2);
    test_problem_free(&made);
}

/* A kernel multiplies scaled values by their scale, and may round once more. */
Test(bound, one_scaled_key_by_hand) {
    test_problem made = single(MLA_KV_FP8);
    mla_contract contract = mla_contract_default();
    contract.p = MLA_FP32;
    const three_bounds got = bounds_of(&made, &contract);
    cr_assert_float_eq(got.first / U, 20 + 19 + 8 + 1, 1e-4);
    cr_assert_float_eq(got.lse / U, 17 + 2 + 4 * log(2) + 12, 1e-4);
    test_problem_free(&made);
}

/* ---- properties ------------------------------------------------------------------------------------------------------------------------ */

static void expect_looser(const char *name, const test_problem *made, const mla_contract *loose, const mla_contract *strict) {
    const three_bounds a = bounds_of(made, loose), b = bounds_of(made, strict);
    cr_expect(a.first > b.first && a.other > b.other && a.lse >= b.lse, "%s: %g is not above %g", name, a.first, b.first);
}

#define EXPECT_LOOSER(field, value)                                                                                                        \
    do {                                                                                                                                   \
        mla_contract loose = strict;                                                                                                       \
        loose.field = value;                                                                                                               \
        expect_looser(#field " = " #value, &made, &loose, &strict);                                                                        \
    } while (0)

Test(bound, a_looser_contract_has_a_larger_bound) {
    test_problem made = patterned();
    mla_contract strict = mla_contract_default();
    EXPECT_LOOSER(acc_rounding, MLA_RZ);
    EXPECT_LOOSER(acc_bits, 20);
    EXPECT_LOOSER(mma_k, 16);
    EXPECT_LOOSER(scores, MLA_FP16);
    EXPECT_LOOSER(q_scaled, MLA_FP16);
    EXPECT_LOOSER(kv_dequant, MLA_FP16);
    EXPECT_LOOSER(p, MLA_FP8);
    EXPECT_LOOSER(p_rounding, MLA_RZ);
    EXPECT_LOOSER(rowsum_of_rounded_p, true);
    EXPECT_LOOSER(partial, MLA_FP16);
    EXPECT_LOOSER(combine_lse, true);
    EXPECT_LOOSER(exp_error, 8);
    EXPECT_LOOSER(out_rounding, MLA_RZ);
    EXPECT_LOOSER(tile, 8);
    EXPECT_LOOSER(max_splits, 64);
    strict.scores = MLA_BF16;
    EXPECT_LOOSER(n_scores, 2);
    strict = mla_contract_default();
    strict.q_scaled = MLA_FP16;
    EXPECT_LOOSER(q_scaled, MLA_BF16);
    strict = mla_contract_default();
    made.problem.softcap = 2;
    EXPECT_LOOSER(tanh_error, 16);
    test_problem_free(&made);
}

/* Weights down to e^-20 vanish from fp8, and values of 1e-38 from a unit that flushes subnormals. */
Test(bound, underflow_costs) {
    const test_shape spread = {.heads = 1, .q_len = {1}, .kv_len = {40}, .q_std = 4, .seed = 5};
    test_problem made = test_problem_make(&spread);
    mla_contract strict = mla_contract_default();
    strict.p = MLA_FP8, strict.p_scale = 256;
    EXPECT_LOOSER(p_scale, 1);
    EXPECT_LOOSER(ftz, true);
    test_problem_free(&made);
    const test_shape small = {.heads = 1, .q_len = {1}, .kv_len = {40}, .kv_std = 1e-38f, .out_format = MLA_FP32, .seed = 6};
    made = test_problem_make(&small);
    strict = mla_contract_default();
    EXPECT_LOOSER(ftz, true);
    test_problem_free(&made);
}

/* Every key twice: the same truth, more roundings. */
Test(bound, grows_with_kv_len) {
    const test_shape shape = {.heads = 1, .q_len = {1}, .kv_len = {40}, .paging = MLA_TOKEN_LIST, .seed = 3};
    const mla_contract contract = mla_contract_default();
    test_problem made = test_problem_make(&shape);
    const three_bounds once = bounds_of(&made, &contract);
    int32_t twice[80];
    for (int j = 0; j < 80; j++)
        twice[j] = made.kv_indices[j % 40];
    made.problem.kv_indices = twice;
    made.kv_indptr[1] = 80;
    const three_bounds doubled = bounds_of(&made, &contract);
    cr_assert(doubled.first > once.first && doubled.other > once.other && doubled.lse > once.lse);
    test_problem_free(&made);
}

/* The same values in fp8 with scale 1: a kernel multiplies by the scale, and may round. */
Test(bound, a_scaled_format_costs_one_more_product) {
    test_problem made = patterned();
    const mla_contract contract = mla_contract_default();
    const three_bounds plain = bounds_of(&made, &contract);
    uint8_t codes[KEYS * MLA_HEAD_DIM];
    double values[MLA_HEAD_DIM];
    for (int j = 0; j < KEYS; j++) {
        mla_kv_row_f64(&made.problem, j, values);
        for (int d = 0; d < MLA_HEAD_DIM; d++)
            codes[j * MLA_HEAD_DIM + d] = (uint8_t)mla_encode(MLA_FP8, values[d], MLA_RNE);
    }
    made.problem.kv = codes;
    made.problem.kv_format = MLA_KV_FP8;
    const three_bounds scaled = bounds_of(&made, &contract);
    cr_assert(scaled.first > plain.first && scaled.first < plain.first * 1.01);
    cr_assert(scaled.lse > plain.lse && scaled.lse < plain.lse * 1.01);
    test_problem_free(&made);
}

/* Scores known to a few bits only: nothing but the hull of V is left, and that holds any weighted mean. Weights in fp8 may vanish besides. */
Test(bound, hull_when_scores_are_lost) {
    test_problem made = patterned();
    mla_contract contract = mla_contract_default();
    contract.acc_bits = 8;
    mla_truth truth, vanishing;
    cr_assert_eq(mla_oracle_run(&made.problem, &contract, 0, 1, &truth).code, MLA_OK);
    contract.p = MLA_FP8;
    cr_assert_eq(mla_oracle_run(&made.problem, &contract, 0, 1, &vanishing).code, MLA_OK);
    cr_assert(truth.kind[0] == MLA_ROW_HULL && vanishing.kind[0] == MLA_ROW_HULL);
    for (int c = 0; c < 128; c++) { /* columns that take all values from -3/4 to 3/4 */
        cr_assert(truth.bound[c] >= fmax(0.75 - truth.out[c], truth.out[c] + 0.75) && isfinite(truth.bound[c]));
        cr_assert(truth.bound[c] <= 1.5 + 2.5 * 0.75 * 2, "column %d: %g", c, truth.bound[c]);
        cr_assert_float_eq(vanishing.bound[c] - truth.bound[c], 2 * (1 - 0x1p-8) * 0.75, 0.01);
    }
    mla_truth_free(&truth);
    mla_truth_free(&vanishing);
    test_problem_free(&made);
}

/* Negating q and sm_scale changes nothing. */
Test(bound, a_negative_scale_is_as_good) {
    test_problem made = patterned();
    const mla_contract contract = mla_contract_default();
    const three_bounds before = bounds_of(&made, &contract);
    for (int d = 0; d < MLA_HEAD_DIM; d++)
        ((uint16_t *)made.q)[d] ^= 0x8000;
    made.problem.sm_scale = -made.problem.sm_scale;
    expect_bounds("negated", &made, &contract, before);
    test_problem_free(&made);
}

/* fp16 cannot hold q sm_scale log2(e) when q is 2^-22: the rounding error is absolute there, and so is the bound's part. */
Test(bound, operands_that_underflow_count_as_smallest_normals) {
    const test_shape shape = {.heads = 1, .q_len = {1}, .kv_len = {4}, .q_std = 0x1p-22f, .kv_std = 30, .out_format = MLA_FP32, .seed = 4};
    test_problem made = test_problem_make(&shape);
    mla_contract contract = mla_contract_default();
    contract.p = MLA_FP32;
    const three_bounds exact = bounds_of(&made, &contract);
    contract.q_scaled = MLA_FP16;
    /* 576 entries of magnitude about 24, each off by up to 2^-25, in units of ln 2. */
    const double lost = bounds_of(&made, &contract).lse - exact.lse, expected = 576 * 24 * 0x1p-25 * log(2);
    cr_assert(lost > 0.7 * expected && lost < 1.4 * expected, "%g against %g", lost, expected);
    test_problem_free(&made);
}
