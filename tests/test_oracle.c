#include "support_problem.h"

#include <criterion/criterion.h>
#include <math.h>
#include <omp.h>
#include <string.h>

static mla_truth truth_of(const mla_problem *problem) {
    const mla_contract contract = mla_contract_default();
    mla_truth truth;
    const mla_status status = mla_oracle_run(problem, &contract, 0, problem->total_q, &truth);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    return truth;
}

/* ---- against MPFR ------------------------------------------------------------------------------------------------------------------ */

/* Largest |oracle - exact| over the row in units of A, and of lse in units of max(1, |lse|). Infinity when the row has no bound of its own. */
static double distance_from_exact(const mla_problem *problem, const mla_truth *truth, int64_t row) {
    double out[MLA_HEAD_DIM_V], abs[MLA_HEAD_DIM_V], lse, worst = 0;
    const mla_status status = mla_exact_row(problem, row / problem->heads, (int32_t)(row % problem->heads), 160, out, abs, &lse);
    if (status.code != MLA_OK)
        return NAN;
    for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
        const int64_t at = row * MLA_HEAD_DIM_V + c;
        const double scale = abs[c] > 0 ? abs[c] : 1;
        worst = fmax(worst, fabs(truth->out[at] - out[c]) / scale);
        worst = fmax(worst, fabs(truth->abs[at] - abs[c]) / scale);
        if (!isfinite(truth->bound[at]) || truth->kind[row] == MLA_ROW_HULL)
            return INFINITY;
    }
    if (lse == -INFINITY || truth->lse[row] == -INFINITY)
        return lse == truth->lse[row] ? worst : INFINITY;
    return fmax(worst, fabs(truth->lse[row] - lse) / fmax(1, fabs(lse)));
}

/* Every row within `limit`; returns the number of rows. */
static int64_t compare_with_exact(const test_shape *shape, double limit) {
    test_problem made = test_problem_make(shape);
    mla_truth truth = truth_of(&made.problem);
    double worst = 0;
#pragma omp parallel for schedule(dynamic) reduction(max : worst)
    for (int64_t row = 0; row < truth.rows; row++)
        worst = fmax(worst, distance_from_exact(&made.problem, &truth, row));
    const int64_t rows = truth.rows;
    cr_expect(worst <= limit, "seed %d: %g of A", (int)shape->seed, worst);
    mla_truth_free(&truth);
    test_problem_free(&made);
    return rows;
}

/* Formats of q and KV, pagings, masks, sinks and lengths in turn, by the index's digits. */
static test_shape shape_number(int i) {
    static const mla_format q_formats[] = {MLA_BF16, MLA_FP16, MLA_FP8, MLA_FP8FNUZ};
    static const float scales[] = {1.0f / 24, 0.1f, -0.05f, 0.0721688f};
    test_shape shape = {.batch = 4,
                        .heads = (int32_t[]){2, 1, 3}[i % 3],
                        .q_len = {1, 3, 0, 2},
                        .kv_len = {5, 2, 3, 17},
                        .padding = i % 2,
                        .q_format = q_formats[i % 4],
                        .kv_format = (mla_kv_format)(i % MLA_KV_FORMAT_COUNT),
                        .paging = (mla_paging)(i / 2 % 4),
                        .sm_scale = scales[i / 3 % 4],
                        .softcap = i % 5 == 0 ? 2 : 0,
                        .sink = i % 3 == 1,
                        .sink_shift = i % 2 ? 3 : 0,
                        .v_mean = i % 4 == 3 ? 1 : 0,
                        .seed = (uint64_t)i};
    if (shape.paging == MLA_PAGED)
        shape.page_size = (int32_t[]){1, 4, 16}[i % 3];
    if (shape.paging == MLA_SPARSE)
        shape.topk = 9;
    shape.causal = shape.paging != MLA_SPARSE && i % 2;
    shape.window = shape.paging != MLA_SPARSE && i % 7 < 2 ? 4 : 0;
    return shape;
}

Test(oracle, agrees_with_mpfr_on_a_thousand_short_rows) {
    int64_t rows = 0;
    for (int i = 0; i < 84; i++) {
        const test_shape shape = shape_number(i);
        rows += compare_with_exact(&shape, 1e-12);
    }
    cr_assert_geq(rows, 1000);
}

Test(oracle, agrees_with_mpfr_on_long_rows) {
    const test_shape long_one = {.heads = 2, .q_len = {2}, .kv_len = {1025}, .causal = true, .seed = 101};
    const test_shape sunk = {.heads = 2, .q_len = {1}, .kv_len = {700}, .kv_format = MLA_KV_MXFP4, .sink = true, .seed = 102};
    compare_with_exact(&long_one, 1e-12);
    compare_with_exact(&sunk, 1e-12);
}

/* Scores in the thousands lose digits of the exponent: some 1e3 * 2^-53 * sqrt(576). */
Test(oracle, agrees_with_mpfr_on_large_scores) {
    const test_shape large = {.heads = 4, .q_len = {1}, .kv_len = {40}, .q_std = 100, .seed = 103};
    const test_shape capped = {.heads = 4, .q_len = {1}, .kv_len = {40}, .q_std = 100, .softcap = 50, .seed = 104};
    compare_with_exact(&large, 1e-11);
    compare_with_exact(&capped, 1e-11);
}

/* A sink so far above or below the scores that its weight, or theirs, leaves the range of double. */
Test(oracle, agrees_with_mpfr_under_an_extreme_sink) {
    const test_shape above = {.heads = 2, .q_len = {1}, .kv_len = {20}, .sink = true, .sink_shift = 2000, .seed = 105};
    const test_shape below = {.heads = 2, .q_len = {1}, .kv_len = {20}, .sink = true, .sink_shift = -2000, .seed = 106};
    compare_with_exact(&above, 1e-12);
    compare_with_exact(&below, 1e-12);
}

/* ---- properties --------------------------------------------------------------------------------------------------------------------- */

static bool same_truth(const mla_truth *a, const mla_truth *b) {
    const size_t rows = (size_t)a->rows, bytes = rows * MLA_HEAD_DIM_V * sizeof(double);
    return a->rows == b->rows && memcmp(a->out, b->out, bytes) == 0 && memcmp(a->abs, b->abs, bytes) == 0 &&
           memcmp(a->square, b->square, bytes) == 0 && memcmp(a->bound, b->bound, bytes) == 0 && memcmp(a->sigma, b->sigma, bytes) == 0 &&
           memcmp(a->doubts, b->doubts, rows) == 0 && memcmp(a->lse, b->lse, rows * sizeof(double)) == 0 &&
           memcmp(a->lse_bound, b->lse_bound, rows * sizeof(double)) == 0;
}

Test(oracle, same_bits_for_any_number_of_threads) {
    const test_shape shape = {.batch = 3, .heads = 40, .q_len = {2, 1, 1}, .kv_len = {300, 1, 129}, .causal = true, .seed = 5};
    test_problem made = test_problem_make(&shape);
    omp_set_num_threads(1);
    mla_truth one = truth_of(&made.problem);
    for (int threads = 2; threads <= 7; threads += 5) {
        omp_set_num_threads(threads);
        mla_truth many = truth_of(&made.problem);
        cr_assert_eq(omp_get_max_threads(), threads, "OpenMP's setting is put back");
        cr_assert(same_truth(&one, &many), "%d threads", threads);
        mla_truth_free(&many);
    }
    mla_truth_free(&one);
    test_problem_free(&made);
}

Test(oracle, a_slice_of_tokens_has_the_bits_of_the_whole) {
    const test_shape shape = {.batch = 2, .heads = 3, .q_len = {2, 3}, .kv_len = {30, 7}, .padding = 1, .seed = 6};
    test_problem made = test_problem_make(&shape);
    const mla_contract contract = mla_contract_default();
    mla_truth whole = truth_of(&made.problem), part;
    cr_assert_eq(mla_oracle_run(&made.problem, &contract, 2, 3, &part).code, MLA_OK);
    mla_truth view = whole;
    view.rows = part.rows;
    view.out += 6 * MLA_HEAD_DIM_V, view.abs += 6 * MLA_HEAD_DIM_V, view.square += 6 * MLA_HEAD_DIM_V, view.bound += 6 * MLA_HEAD_DIM_V;
    view.sigma += 6 * MLA_HEAD_DIM_V, view.lse += 6, view.lse_bound += 6, view.doubts += 6;
    cr_assert(same_truth(&view, &part));
    mla_truth_free(&part);
    cr_assert_eq(mla_oracle_run(&made.problem, &contract, 4, 3, &part).code, MLA_EINVAL);
    cr_assert_null(part.out);
    mla_truth_free(&whole);
    test_problem_free(&made);
}

Test(oracle, square_sum_by_hand) {
    const test_shape shape = {.heads = 1, .q_len = {1}, .kv_len = {2}, .seed = 7};
    test_problem made = test_problem_make(&shape);
    memset(made.q, 0, MLA_HEAD_DIM * 2);
    test_problem_set_slot(&made, 0, (float[MLA_HEAD_DIM]){[3] = 2});
    test_problem_set_slot(&made, 1, (float[MLA_HEAD_DIM]){[3] = -4});
    mla_truth truth = truth_of(&made.problem);
    cr_assert_eq(truth.out[3], -1);
    cr_assert_eq(truth.abs[3], 3);
    cr_assert_eq(truth.square[3], 5);
    cr_assert_float_eq(truth.lse[0], log(2), 1e-15);
    mla_truth_free(&truth);
    test_problem_free(&made);
}

/* An empty row is 0 with bound 0 and lse -inf, whatever the convention; NaN beyond the sequences reaches nothing. */
Test(oracle, empty_rows) {
    const test_shape shape = {.batch = 3,
                              .heads = 2,
                              .q_len = {3, 1, 1},
                              .kv_len = {1, 0, 4},
                              .padding = 2,
                              .causal = true,
                              .lse_empty_positive = true,
                              .seed = 8};
    test_problem made = test_problem_make(&shape);
    mla_truth truth = truth_of(&made.problem);
    for (int64_t row = 0; row < truth.rows; row++) {
        const int64_t token = row / 2;
        const bool empty = token != 2 && token != 4;
        cr_assert_eq(truth.kind[row], empty ? MLA_ROW_EMPTY : MLA_ROW_BOUND, "row %d", (int)row);
        cr_assert_eq(truth.lse[row] == -INFINITY, empty);
        for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
            const int64_t at = row * MLA_HEAD_DIM_V + c;
            cr_assert(isfinite(truth.out[at]) && (truth.out[at] == 0) == empty);
            cr_assert((truth.bound[at] == 0) == empty);
        }
    }
    mla_truth_free(&truth);
    test_problem_free(&made);
}

/* A NaN key makes NaN of the rows that see it, and of no other. */
Test(oracle, a_visible_nan_flows) {
    const test_shape shape = {.heads = 1, .q_len = {2}, .kv_len = {6}, .causal = true, .seed = 9};
    test_problem made = test_problem_make(&shape);
    memset(made.kv + 5 * 1152, 0xFF, 1152);
    mla_truth truth = truth_of(&made.problem);
    cr_assert(isfinite(truth.out[0]) && isfinite(truth.lse[0]) && isfinite(truth.bound[511]));
    cr_assert(isnan(truth.out[MLA_HEAD_DIM_V]) && isnan(truth.lse[1]) && isnan(truth.bound[MLA_HEAD_DIM_V]));
    mla_truth_free(&truth);
    test_problem_free(&made);
}

Test(oracle, refuses_a_malformed_problem_or_contract) {
    const test_shape shape = {.heads = 1, .q_len = {1}, .kv_len = {1}, .seed = 10};
    test_problem made = test_problem_make(&shape);
    mla_contract contract = mla_contract_default();
    mla_truth truth;
    contract.tile = 0;
    cr_assert_eq(mla_oracle_run(&made.problem, &contract, 0, 1, &truth).code, MLA_EINVAL);
    contract.tile = 64;
    made.problem.heads = 0;
    cr_assert_eq(mla_oracle_run(&made.problem, &contract, 0, 1, &truth).code, MLA_EINVAL);
    mla_truth_free(&truth);
    made.problem.heads = 1;
    test_problem_free(&made);
}
