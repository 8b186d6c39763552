/* Reproducible arithmetic against MPFR, and truth in double-double against the exact rows. */
#include "../ref/arithmetic.h"
#include "../ref/double_double.h"
#include "support_problem.h"

#include <criterion/criterion.h>
#include <math.h>
#include <mpfr.h>
#include <omp.h>
#include <string.h>

/* ---- double-double functions ------------------------------------------------------------------------------------------------------------ */

static double uniform(uint64_t *state) {
    return (double)(test_random(state) >> 11) * 0x1p-53;
}

/* hi anywhere in [-range, range], small and large magnitudes alike, lo a part of its last bit. */
static mla_dd random_dd(uint64_t *state, double range) {
    const double hi = ldexp((2 * uniform(state) - 1) * range, -(int)(test_random(state) % 12));
    return mla_dd_two_sum(hi, hi * (uniform(state) - 0.5) * 0x1p-53);
}

/* |got - exact| / |exact|, in units of 2^-94. */
static double error_in_units(mla_dd got, mpfr_t exact) {
    mpfr_t difference;
    mpfr_init2(difference, 300);
    mpfr_sub_d(difference, exact, got.hi, MPFR_RNDN);
    mpfr_sub_d(difference, difference, got.lo, MPFR_RNDN);
    mpfr_div(difference, difference, exact, MPFR_RNDN);
    const double error = fabs(mpfr_get_d(difference, MPFR_RNDN)) * 0x1p94;
    mpfr_clear(difference);
    return error;
}

typedef int (*exact_function)(mpfr_t result, const mpfr_t x, mpfr_rnd_t rounding);

static double worst_error(mla_dd (*function)(mla_dd), exact_function exact, double range, bool positive, uint64_t seed) {
    double worst = 0;
    mpfr_t x, y;
    mpfr_init2(x, 300);
    mpfr_init2(y, 300);
    for (int i = 0; i < 20000; i++) {
        mla_dd argument = random_dd(&seed, range);
        if (positive && argument.hi < 0)
            argument = mla_dd_negate(argument);
        mpfr_set_d(x, argument.hi, MPFR_RNDN);
        mpfr_add_d(x, x, argument.lo, MPFR_RNDN);
        exact(y, x, MPFR_RNDN);
        worst = fmax(worst, error_in_units(function(argument), y));
    }
    mpfr_clear(x);
    mpfr_clear(y);
    return worst;
}

Test(fixed, functions_keep_94_bits) {
    cr_expect_lt(worst_error(mla_dd_exp, mpfr_exp, 600, false, 1), 1);
    cr_expect_lt(worst_error(mla_dd_exp, mpfr_exp, 1, false, 2), 1);
    cr_expect_lt(worst_error(mla_dd_expm1, mpfr_expm1, 50, false, 3), 1);
    cr_expect_lt(worst_error(mla_dd_expm1, mpfr_expm1, 1e-5, false, 4), 1);
    cr_expect_lt(worst_error(mla_dd_log, mpfr_log, 1e6, true, 5), 1);
    cr_expect_lt(worst_error(mla_dd_log, mpfr_log, 1.5, true, 6), 1);
    cr_expect_lt(worst_error(mla_dd_tanh, mpfr_tanh, 45, false, 7), 1);
    cr_expect_lt(worst_error(mla_dd_tanh, mpfr_tanh, 1e-3, false, 8), 1);
}

Test(fixed, log_near_one_keeps_its_relative_error) {
    mpfr_t y;
    mpfr_init2(y, 300);
    for (int exponent = -60; exponent < -1; exponent++) {
        const double x = ldexp(exponent % 2 ? 1.3 : -1.7, exponent);
        mpfr_set_d(y, x, MPFR_RNDN);
        mpfr_log1p(y, y, MPFR_RNDN);
        cr_expect_lt(error_in_units(mla_dd_log(mla_dd_two_sum(1, x)), y), 1, "log(1 + %g)", x);
    }
    mpfr_clear(y);
}

Test(fixed, functions_at_their_ends) {
    cr_expect_eq(mla_dd_exp((mla_dd){0, 0}).hi, 1);
    cr_expect_eq(mla_dd_exp((mla_dd){-601, 0}).hi, 0);
    cr_expect_eq(mla_dd_exp((mla_dd){-INFINITY, 0}).hi, 0);
    cr_expect_eq(mla_dd_exp((mla_dd){710, 0}).hi, INFINITY);
    cr_expect(isnan(mla_dd_exp((mla_dd){NAN, 0}).hi));
    cr_expect_eq(mla_dd_log((mla_dd){1, 0}).hi, 0);
    cr_expect_eq(mla_dd_log((mla_dd){0, 0}).hi, -INFINITY);
    cr_expect_eq(mla_dd_log((mla_dd){INFINITY, 0}).hi, INFINITY);
    cr_expect(isnan(mla_dd_log((mla_dd){-1, 0}).hi));
    cr_expect(isnan(mla_dd_log((mla_dd){NAN, 0}).hi));
    cr_expect_eq(mla_dd_tanh((mla_dd){-INFINITY, 0}).hi, -1);
    cr_expect_eq(mla_dd_tanh((mla_dd){0, 0}).hi, 0);
    cr_expect(isnan(mla_dd_tanh((mla_dd){NAN, 0}).hi));
}

Test(fixed, rounding_to_float_looks_at_every_bit) {
    const double tie = 1 + 0x1p-24; /* between 1 and 1 + 2^-23: even is 1 */
    cr_expect_eq(mla_dd_to_float((mla_dd){tie, 0}), 1);
    cr_expect_eq(mla_dd_to_float((mla_dd){tie, 0x1p-90}), 1 + 0x1p-23f);
    cr_expect_eq(mla_dd_to_float((mla_dd){tie, -0x1p-90}), 1);
    cr_expect_eq(mla_dd_to_float((mla_dd){-tie, -0x1p-90}), -1 - 0x1p-23f);
    cr_expect_eq(mla_dd_to_float((mla_dd){tie + 0x1p-23, -0x1p-90}), 1 + 0x1p-23f, "the tie above goes up to even");
    cr_expect_eq(mla_dd_to_float((mla_dd){0x1p-150, 0}), 0, "half the smallest subnormal");
    cr_expect_eq(mla_dd_to_float((mla_dd){0x1p-150, 0x1p-220}), 0x1p-149f);
    cr_expect_eq(signbit(mla_dd_to_float((mla_dd){-0x1p-160, 0})), 0, "zeros are +0");
    cr_expect_eq(mla_dd_to_float((mla_dd){INFINITY, 0}), INFINITY);
}

/* ---- the two tables of arithmetic --------------------------------------------------------------------------------------------------------- */

Test(fixed, both_arithmetics_agree) {
    const test_shape shape = {
        .heads = 3, .batch = 2, .q_len = {2, 1}, .kv_len = {150, 0}, .padding = 1, .sink = true, .softcap = 5, .causal = true, .seed = 4};
    test_problem made = test_problem_make(&shape);
    mla_contract contract = mla_contract_default();
    contract.combine_lse = true;
    mla_truth fast, fixed;
    cr_assert_eq(mla_oracle_run_with(&mla_arithmetic_fast, &made.problem, &contract, 0, 4, &fast).code, MLA_OK);
    cr_assert_eq(mla_oracle_run_with(&mla_arithmetic_fixed, &made.problem, &contract, 0, 4, &fixed).code, MLA_OK);
    for (int64_t i = 0; i < fast.rows * MLA_HEAD_DIM_V; i++) {
        cr_assert_float_eq(fixed.out[i], fast.out[i], 1e-13 * fast.abs[i]);
        cr_assert_float_eq(fixed.bound[i], fast.bound[i], 1e-11 * fast.bound[i]);
        cr_assert_float_eq(fixed.square[i], fast.square[i], 1e-12 * fast.square[i]);
        cr_assert_float_eq(fixed.sigma[i], fast.sigma[i], 1e-9 * fast.sigma[i]);
    }
    cr_assert_arr_eq(fixed.kind, fast.kind, (size_t)fast.rows);
    for (int64_t r = 0; r < fast.rows; r++) {
        cr_assert(fixed.lse[r] == fast.lse[r] || fabs(fixed.lse[r] - fast.lse[r]) < 1e-13);
        cr_assert_float_eq(fixed.lse_bound[r], fast.lse_bound[r], 1e-11 * fast.lse_bound[r]);
    }
    mla_truth_free(&fast);
    mla_truth_free(&fixed);
    test_problem_free(&made);
}

/* ---- truth ---------------------------------------------------------------------------------------------------------------------------------- */

static mla_fixed_truth run(const test_problem *made) {
    const mla_contract contract = mla_contract_default();
    mla_fixed_truth truth;
    const mla_status status = mla_fixed_run(&made->problem, &contract, 0, made->problem.total_q, &truth);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    return truth;
}

/* Every row against MPFR, which rounds it once. */
static void expect_exact(const test_shape *shape) {
    test_problem made = test_problem_make(shape);
    mla_fixed_truth truth = run(&made);
    for (int64_t r = 0; r < truth.rows; r++) {
        float out[MLA_HEAD_DIM_V], lse;
        const int64_t token = r / shape->heads;
        cr_assert_eq(mla_exact_row_f32(&made.problem, token, (int32_t)(r % shape->heads), out, &lse).code, MLA_OK);
        cr_assert_arr_eq(truth.out + r * MLA_HEAD_DIM_V, out, sizeof out, "row %d", (int)r);
        cr_assert_arr_eq(&truth.lse[r], &lse, sizeof lse, "row %d: %a is not %a", (int)r, (double)truth.lse[r], (double)lse);
    }
    mla_fixed_truth_free(&truth);
    test_problem_free(&made);
}

Test(fixed, rows_are_the_exact_ones_rounded) {
    expect_exact(&(test_shape){.heads = 2, .q_len = {1}, .kv_len = {70}, .seed = 11});
    expect_exact(&(test_shape){.heads = 9,
                               .batch = 2,
                               .q_len = {2, 3},
                               .kv_len = {5, 2},
                               .padding = 1,
                               .causal = true,
                               .seed = 12,
                               .lse_base = MLA_LSE_2,
                               .lse_empty_positive = true});
    expect_exact(
        &(test_shape){.heads = 2, .q_len = {1}, .kv_len = {33}, .q_format = MLA_FP8, .kv_format = MLA_KV_FP8, .sink = true, .seed = 13});
    expect_exact(&(test_shape){.heads = 2, .q_len = {2}, .kv_len = {40}, .kv_format = MLA_KV_MXFP4, .softcap = 3, .seed = 14});
    expect_exact(&(test_shape){.heads = 2, .q_len = {1}, .kv_len = {20}, .kv_format = MLA_KV_FP8B656, .q_std = 100, .seed = 15});
    expect_exact(&(test_shape){.heads = 2, .q_len = {1}, .kv_len = {20}, .kv_std = 1e-38f, .seed = 16});
    expect_exact(&(test_shape){.heads = 2, .q_len = {1}, .kv_len = {20}, .sink = true, .sink_shift = 800, .seed = 17});
}

/* The bound beside a float holds for the distance to that float, and is no more than a rounding away from the oracle's. */
Test(fixed, bounds_contain_the_oracles) {
    const test_shape shape = {.heads = 2, .q_len = {2}, .kv_len = {90}, .lse_base = MLA_LSE_2, .out_format = MLA_FP32, .seed = 18};
    test_problem made = test_problem_make(&shape);
    const mla_contract contract = mla_contract_default();
    mla_fixed_truth fixed = run(&made);
    mla_truth truth;
    cr_assert_eq(mla_oracle_run(&made.problem, &contract, 0, 2, &truth).code, MLA_OK);
    for (int64_t i = 0; i < truth.rows * MLA_HEAD_DIM_V; i++) {
        const double rounding = fabs((double)fixed.out[i] - truth.out[i]), bound = (double)fixed.bound[i];
        cr_assert_geq(bound, (truth.bound[i] + rounding) * (1 - 1e-9));
        cr_assert_leq(bound, (truth.bound[i] + rounding) * (1 + 0x1p-22));
        cr_assert_float_eq((double)fixed.sigma[i], truth.sigma[i], 0x1p-23 * truth.sigma[i]);
    }
    for (int64_t r = 0; r < truth.rows; r++) {
        cr_assert_float_eq((double)fixed.lse[r] * log(2), truth.lse[r], 1e-6);
        cr_assert_geq((double)fixed.lse_bound[r] * log(2), truth.lse_bound[r] * (1 - 1e-9));
        cr_assert_leq((double)fixed.lse_bound[r] * log(2), truth.lse_bound[r] + 0x1p-21);
    }
    mla_truth_free(&truth);
    mla_fixed_truth_free(&fixed);
    test_problem_free(&made);
}

/* ---- doubtful roundings, planted ---------------------------------------------------------------------------------------------------------- */

/*
 * Two fp8 keys, the second e^-gap behind. kv_scale = 1 + 2^-23: the code for 1.5 is then 1.5 (1 + 2^-23) = 1.5 + 2^-23 + 2^-24, a tie between
 * floats whose even neighbour is 1.5 + 2^-22. `second` is the second key's value in column 0.
 */
static test_problem two_fp8_keys(float gap, float second) {
    const test_shape shape = {.heads = 1, .q_len = {1}, .kv_len = {2}, .kv_format = MLA_KV_FP8, .sm_scale = 1, .seed = 19};
    test_problem made = test_problem_make(&shape);
    made.problem.kv_scale = 1 + 0x1p-23f;
    memset(made.q, 0, MLA_HEAD_DIM * 2);
    ((uint16_t *)made.q)[MLA_HEAD_DIM_V] = (uint16_t)mla_encode(MLA_BF16, (double)gap, MLA_RNE);
    memset(made.kv, 0, 2 * MLA_HEAD_DIM);
    made.kv[0] = (uint8_t)mla_encode(MLA_FP8, 1.5, MLA_RNE);
    made.kv[MLA_HEAD_DIM] = (uint8_t)mla_encode(MLA_FP8, (double)second, MLA_RNE);
    made.kv[MLA_HEAD_DIM_V] = (uint8_t)mla_encode(MLA_FP8, 1, MLA_RNE);
    return made;
}

static void expect_planted(float gap, float second, float expected, int64_t doubtful) {
    test_problem made = two_fp8_keys(gap, second);
    mla_fixed_truth truth = run(&made);
    cr_expect_eq(truth.out[0], expected, "gap %g, second %g: %a", (double)gap, (double)second, (double)truth.out[0]);
    cr_expect_eq(truth.doubtful, doubtful, "gap %g, second %g", (double)gap, (double)second);
    mla_fixed_truth_free(&truth);
    test_problem_free(&made);
}

Test(fixed, doubtful_roundings_are_decided_by_what_lies_below) {
    const float below = 1.5f + 0x1p-23f, even = 1.5f + 0x1p-22f;
    expect_planted(40, 2, even, 0); /* e^-40 = 2^-58: double-double sees it */
    expect_planted(40, 1, below, 0);
    expect_planted(80, 2, even, 1); /* 2^-115: 256 bits do */
    expect_planted(80, 1, below, 1);
    expect_planted(300, 2, even, 1); /* 2^-433: 512 bits do */
    expect_planted(300, 1, below, 1);
    expect_planted(5000, 1, below, 1);  /* 2^-7213 */
    expect_planted(5000, 1.5, even, 1); /* a true tie */
    expect_planted(0, 1.5, even, 1);    /* likewise: equal weights */
}

/* Pairs of keys with equal scores and opposite values: the mean is exactly 0, and double-double has only noise. */
Test(fixed, cancellation_is_zero) {
    const test_shape shape = {.heads = 1, .q_len = {1}, .kv_len = {6}, .seed = 20};
    test_problem made = test_problem_make(&shape);
    float row[MLA_HEAD_DIM];
    memset(made.q, 0, MLA_HEAD_DIM_V * 2);
    for (int j = 0; j < 6; j++) {
        for (int d = 0; d < MLA_HEAD_DIM; d++)
            row[d] = (float)((d * 3 + j / 2 * 5) % 7 - 3) / 4 * (d < MLA_HEAD_DIM_V && j % 2 ? -1 : 1);
        test_problem_set_slot(&made, j, row);
    }
    mla_fixed_truth truth = run(&made);
    const float zeros[MLA_HEAD_DIM_V] = {0};
    cr_expect_arr_eq(truth.out, zeros, sizeof zeros);
    mla_fixed_truth_free(&truth);
    test_problem_free(&made);
}

/* ---- reproducibility ------------------------------------------------------------------------------------------------------------------------ */

Test(fixed, threads_and_slabs_change_nothing) {
    const test_shape shape = {.heads = 20, .batch = 2, .q_len = {2, 1}, .kv_len = {65, 7}, .seed = 21};
    test_problem made = test_problem_make(&shape);
    const mla_contract contract = mla_contract_default();
    omp_set_num_threads(1);
    mla_fixed_truth whole = run(&made), last;
    omp_set_num_threads(3);
    cr_assert_eq(mla_fixed_run(&made.problem, &contract, 1, 2, &last).code, MLA_OK);
    cr_assert_arr_eq(last.out, whole.out + 20 * MLA_HEAD_DIM_V, 40 * MLA_HEAD_DIM_V * sizeof(float));
    cr_assert_arr_eq(last.bound, whole.bound + 20 * MLA_HEAD_DIM_V, 40 * MLA_HEAD_DIM_V * sizeof(float));
    cr_assert_arr_eq(last.sigma, whole.sigma + 20 * MLA_HEAD_DIM_V, 40 * MLA_HEAD_DIM_V * sizeof(float));
    cr_assert_arr_eq(last.lse, whole.lse + 20, 40 * sizeof(float));
    cr_assert_arr_eq(last.lse_bound, whole.lse_bound + 20, 40 * sizeof(float));
    mla_fixed_truth_free(&whole);
    mla_fixed_truth_free(&last);
    test_problem_free(&made);
}

Test(fixed, refuses_what_the_oracle_refuses) {
    const test_shape shape = {.heads = 1, .q_len = {1}, .kv_len = {2}, .seed = 22};
    test_problem made = test_problem_make(&shape);
    const mla_contract contract = mla_contract_default();
    mla_fixed_truth truth;
    cr_assert_eq(mla_fixed_run(&made.problem, &contract, 0, 2, &truth).code, MLA_EINVAL);
    mla_fixed_truth_free(&truth);
    test_problem_free(&made);
}
