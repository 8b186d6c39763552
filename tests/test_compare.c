#include <criterion/criterion.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "../verify/compare.h"

/* Two sequences of one query token each and one padding token; 2 heads: rows 0,1 | 2,3 | 4,5. */
#define TOKENS 3
#define HEADS 2
#define ROWS (TOKENS * HEADS)
#define ELEMENTS (ROWS * MLA_HEAD_DIM_V)

#define BF16_ONE 0x3F80
#define BF16_ONE_AND_AN_ULP 0x3F81 /* 1 + 2^-7 */
#define BF16_NAN 0x7FC0
#define BF16_INF 0x7F80

static const int32_t qo_indptr[3] = {0, 1, 2};
static mla_problem problem;
static mla_truth truth;
static uint16_t out[ELEMENTS];
static float lse[ROWS];
static const mla_output output = {.out = out, .lse = lse};
static mla_measure measure;

/* A kernel that is right everywhere: out 1 with bound and sigma 2^-8 and A 4; lse 0.5 with bound 2^-10. */
static void setup(void) {
    problem = (mla_problem){.batch = 2, .heads = HEADS, .total_q = TOKENS, .qo_indptr = qo_indptr, .out_format = MLA_BF16};
    truth = (mla_truth){.tokens = TOKENS, .rows = ROWS};
    truth.out = malloc(ELEMENTS * sizeof(double));
    truth.abs = malloc(ELEMENTS * sizeof(double));
    truth.bound = malloc(ELEMENTS * sizeof(double));
    truth.sigma = malloc(ELEMENTS * sizeof(double));
    truth.lse = malloc(ROWS * sizeof(double));
    truth.lse_bound = malloc(ROWS * sizeof(double));
    truth.kind = calloc(ROWS, 1);
    truth.doubts = calloc(ROWS, 1);
    for (int i = 0; i < ELEMENTS; i++) {
        out[i] = BF16_ONE;
        truth.out[i] = 1;
        truth.abs[i] = 4;
        truth.bound[i] = 0x1p-8;
        truth.sigma[i] = 0x1p-8;
    }
    for (int r = 0; r < ROWS; r++) {
        lse[r] = 0.5f;
        truth.lse[r] = 0.5;
        truth.lse_bound[r] = 0x1p-10;
    }
    cr_assert_eq(mla_measure_init(&measure, &problem).code, MLA_OK);
}

static void teardown(void) {
    mla_truth_free(&truth);
    mla_measure_free(&measure);
}

static void compare(void) {
    mla_compare(&problem, &truth, &output, &measure);
}

TestSuite(compare, .init = setup, .fini = teardown);

static void expect_counts(const mla_counts *counts, int64_t unwritten, int64_t anomalies, int64_t outside) {
    cr_expect_eq(counts->unwritten, unwritten, "unwritten %ld", (long)counts->unwritten);
    cr_expect_eq(counts->anomalies, anomalies, "anomalies %ld", (long)counts->anomalies);
    cr_expect_eq(counts->outside, outside, "outside %ld", (long)counts->outside);
}

static void expect_place(const mla_place *place, int32_t sequence, int32_t q, int32_t head, int32_t column) {
    cr_expect_eq(place->sequence, sequence, "sequence %d", place->sequence);
    cr_expect_eq(place->q, q, "q %d", place->q);
    cr_expect_eq(place->head, head, "head %d", place->head);
    cr_expect_eq(place->column, column, "column %d", place->column);
}

Test(compare, a_right_kernel_measures_zero) {
    compare();
    expect_counts(&measure.out, 0, 0, 0);
    expect_counts(&measure.lse, 0, 0, 0);
    cr_expect_eq(measure.out.total, ELEMENTS);
    cr_expect_eq(measure.lse.total, ROWS);
    cr_expect_eq(measure.rows, ROWS);
    cr_expect_eq(measure.max_err_over_bound, 0);
    cr_expect_eq(measure.max_ulp, 0);
    cr_expect_eq(measure.max_lse_err, 0);
    cr_expect_eq(measure.worst.fault, MLA_FAULT_NONE);
}

/* e = 2^-7: 2 bounds of 2^-8, one ulp of 1 (2^-7), a quarter of an ulp of A = 4 (2^-5). */
Test(compare, one_ulp_off) {
    out[3 * MLA_HEAD_DIM_V + 17] = BF16_ONE_AND_AN_ULP;
    compare();
    expect_counts(&measure.out, 0, 0, 1);
    cr_expect_eq(measure.max_err_over_bound, 2);
    cr_expect_eq(measure.max_ulp, 1);
    cr_expect_eq(measure.max_cond_ulp, 0.25);
    expect_place(&measure.worst.place, 1, 0, 1, 17);
    expect_place(&measure.worst_ulp.place, 1, 0, 1, 17);
    cr_expect_eq(measure.worst.code, BF16_ONE_AND_AN_ULP);
    cr_expect_eq(measure.worst.got, 1.0078125);
    cr_expect_eq(measure.worst.exact, 1);
    cr_expect_eq(measure.worst.bound, 0x1p-8);
    cr_expect_eq(measure.worst.abs, 4);
    expect_counts(&measure.sequences[1], 0, 0, 1);
    expect_counts(&measure.sequences[0], 0, 0, 0);
}

/* Within its bound, and one ulp off: wrong only where the bits are known. What cancels (|O| / A < 2^-20) may be off. */
Test(compare, where_bits_are_known_one_ulp_is_inexact) {
    out[5] = out[7] = BF16_ONE_AND_AN_ULP;
    truth.bound[5] = truth.bound[7] = 1;
    truth.abs[7] = 0x1p21;
    compare();
    cr_expect_eq(measure.out.inexact, 0);
    teardown();
    setup();
    out[5] = out[7] = BF16_ONE_AND_AN_ULP;
    truth.bound[5] = truth.bound[7] = 1;
    truth.abs[7] = 0x1p21;
    measure.bitwise = true;
    compare();
    expect_counts(&measure.out, 0, 0, 0);
    cr_expect_eq(measure.out.inexact, 1);
    cr_expect_eq(mla_counts_wrong(&measure.sequences[0]), 1);
    cr_expect_eq(measure.worst.fault, MLA_FAULT_INEXACT);
    cr_expect_eq(measure.worst.place.column, 5);
}

/* A truth between two codes: the nearer one, 1, is right. */
Test(compare, the_right_bits_are_those_of_the_truth_rounded_once) {
    truth.out[5] = 1 + 0x1p-9;
    measure.bitwise = true;
    compare();
    cr_expect_eq(measure.out.inexact, 0);
}

Test(compare, an_error_of_exactly_the_bound_is_inside) {
    out[5] = BF16_ONE_AND_AN_ULP;
    truth.bound[5] = 0x1p-7;
    out[6] = BF16_ONE_AND_AN_ULP;
    truth.bound[6] = nextafter(0x1p-7, 0);
    compare();
    expect_counts(&measure.out, 0, 0, 1);
    cr_expect_eq(measure.worst.place.column, 6);
    cr_expect_gt(measure.max_err_over_bound, 1);
}

Test(compare, nan_and_infinity_are_anomalies_against_a_finite_truth) {
    out[1] = BF16_NAN;
    out[2] = BF16_INF;
    out[3] = BF16_INF | 0x8000;
    lse[1] = NAN;
    lse[2] = INFINITY;
    compare();
    expect_counts(&measure.out, 0, 3, 0);
    expect_counts(&measure.lse, 0, 2, 0);
    cr_expect_eq(measure.max_err_over_bound, 0, "anomalies stay out of the maxima");
    cr_expect_eq(measure.max_ulp, 0);
    cr_expect_eq(measure.worst.fault, MLA_FAULT_ANOMALY);
    cr_expect_eq(measure.worst.place.column, 1);
    cr_expect_eq(measure.worst_lse.place.head, 1);
}

Test(compare, a_truth_that_is_not_finite_wants_its_like) {
    truth.out[0] = truth.out[1] = NAN;
    out[0] = BF16_NAN;
    truth.out[2] = truth.out[3] = truth.out[4] = INFINITY;
    out[2] = BF16_INF;
    out[3] = BF16_INF | 0x8000;
    compare();
    expect_counts(&measure.out, 0, 3, 0); /* 1: finite for NaN; 3: the other infinity; 4: finite for infinity */
}

/* fp16 overflows from 65520 on, the middle between 65504 and 2^16. */
Test(compare, infinity_is_right_where_the_truth_overflows) {
    const double exact[5] = {70000, 65519, 65519, 70000, -70000}, bound[5] = {1, 0.5, 1, 1, 1};
    const uint16_t got[5] = {0x7C00, 0x7C00, 0x7C00, 0xFC00, 0xFC00};
    problem.out_format = MLA_FP16;
    for (int i = 0; i < ELEMENTS; i++)
        out[i] = 0x3C00; /* 1 */
    for (int i = 0; i < 5; i++) {
        truth.out[i] = exact[i];
        truth.bound[i] = bound[i];
        out[i] = got[i];
    }
    compare();
    expect_counts(&measure.out, 0, 2, 0); /* 1: 65519.5 still rounds to 65504; 3: the wrong sign */
    cr_expect_eq(measure.worst.place.column, 1);
}

Test(compare, poison_is_unwritten_unless_the_truth_is_nan) {
    out[7] = 0xFFFF;
    truth.out[8] = NAN;
    out[8] = 0xFFFF;
    memset(&lse[5], 0xFF, sizeof lse[5]);
    compare();
    expect_counts(&measure.out, 1, 0, 0);
    expect_counts(&measure.lse, 1, 0, 0);
    expect_counts(&measure.sequences[2], 1, 0, 0); /* padding */
    cr_expect_eq(measure.worst.fault, MLA_FAULT_UNWRITTEN);
    cr_expect_eq(measure.worst.place.column, 7);
    expect_place(&measure.worst_lse.place, -1, 0, 1, -1);
}

Test(compare, fp32_poison_is_four_bytes) {
    static float wide[ELEMENTS];
    const mla_output wide_output = {.out = wide, .lse = lse};
    problem.out_format = MLA_FP32;
    for (int i = 0; i < ELEMENTS; i++)
        wide[i] = 1;
    memset(&wide[9], 0xFF, sizeof wide[9]);
    wide[10] = 1 + 0x1p-7f;
    const uint32_t half_poison = 0xFFFF0000; /* a NaN somebody wrote */
    memcpy(&wide[11], &half_poison, sizeof half_poison);
    mla_compare(&problem, &truth, &wide_output, &measure);
    expect_counts(&measure.out, 1, 1, 1);
    cr_expect_eq(measure.max_ulp, 0x1p16); /* ulp of 1 in fp32 is 2^-23 */
    cr_expect_eq(measure.max_err_over_bound, 2);
}

Test(compare, a_bound_that_is_nan_gates_nothing_through) {
    truth.bound[0] = NAN;
    out[0] = BF16_ONE_AND_AN_ULP;
    truth.lse_bound[0] = NAN;
    lse[0] = 0.75f;
    compare();
    expect_counts(&measure.out, 0, 0, 1);
    expect_counts(&measure.lse, 0, 0, 1);
    cr_expect_eq(measure.max_err_over_bound, INFINITY);
}

static void make_empty(int r, float written_lse) {
    truth.kind[r] = MLA_ROW_EMPTY;
    truth.lse[r] = -INFINITY;
    truth.lse_bound[r] = 0;
    lse[r] = written_lse;
    for (int column = 0; column < MLA_HEAD_DIM_V; column++) {
        int i = r * MLA_HEAD_DIM_V + column;
        truth.out[i] = truth.abs[i] = truth.bound[i] = 0;
        out[i] = column % 2 ? 0x8000 : 0; /* -0 and 0 */
    }
}

Test(compare, an_empty_row_is_zero_of_either_sign) {
    make_empty(0, -INFINITY);
    compare();
    expect_counts(&measure.out, 0, 0, 0);
    expect_counts(&measure.lse, 0, 0, 0);
    cr_expect_eq(measure.empty_rows, 1);
}

Test(compare, an_empty_row_is_nothing_but_zero) {
    make_empty(0, -INFINITY);
    out[4] = 1; /* the smallest subnormal, 2^-133: one ulp of 0 */
    compare();
    expect_counts(&measure.out, 0, 0, 1);
    cr_expect_eq(measure.max_err_over_bound, INFINITY);
    cr_expect_eq(measure.max_ulp, 1);
}

Test(compare, the_lse_of_an_empty_row_is_the_conventions_infinity) {
    const float written[4] = {INFINITY, -INFINITY, 0, NAN};
    for (int r = 0; r < 4; r++)
        make_empty(r, written[r]);
    compare();
    expect_counts(&measure.lse, 0, 3, 0);
    cr_expect_eq(measure.worst_lse.index, 0, "+inf where -inf is due");
    mla_measure_free(&measure);
    problem.lse_empty_positive = true;
    cr_assert_eq(mla_measure_init(&measure, &problem).code, MLA_OK);
    compare();
    expect_counts(&measure.lse, 0, 3, 0);
    cr_expect_eq(measure.worst_lse.index, 1, "-inf where +inf is due");
}

/* 0.5 in natural log is 0.5 / ln 2 = 0.72134752 in base 2; 0.5 taken for base 2 is 0.34657359. */
Test(compare, lse_is_compared_in_natural_log) {
    problem.lse_base = MLA_LSE_2;
    for (int r = 0; r < ROWS; r++)
        lse[r] = 0.72134752f;
    lse[2] = 0.5f;
    compare();
    expect_counts(&measure.lse, 0, 0, 1);
    expect_place(&measure.worst_lse.place, 1, 0, 0, -1);
    cr_expect_float_eq(measure.worst_lse.got, 0.34657359, 1e-7);
    cr_expect_float_eq(measure.max_lse_err, 0.15342641, 1e-7);
    cr_expect_float_eq(measure.max_lse_over_bound, 0.15342641 * 1024, 1e-4);
}

Test(compare, the_gravest_fault_is_the_worst_and_of_equals_the_first) {
    out[100] = out[50] = 0x4000; /* 2: |e| / B = 256 */
    compare();
    cr_expect_eq(measure.worst.place.column, 50);
    out[200] = out[150] = BF16_NAN;
    compare();
    cr_expect_eq(measure.worst.place.column, 150);
    out[300] = out[250] = 0xFFFF;
    compare();
    cr_expect_eq(measure.worst.place.column, 250);
    cr_expect_eq(measure.max_err_over_bound, 256);
}

/* 256 errors of 0, 255 of one ulp, one of four ulps, in row 0 alone. */
Test(compare, ulp_quantiles) {
    truth.tokens = 1;
    problem.heads = 1;
    for (int i = 256; i < 511; i++)
        out[i] = BF16_ONE_AND_AN_ULP;
    out[511] = BF16_ONE_AND_AN_ULP + 3;
    compare();
    cr_expect_eq(mla_measure_ulp_quantile(&measure, 0.5), 0x1p-24);
    cr_expect_eq(mla_measure_ulp_quantile(&measure, 0.51), 1.125); /* upper edge of [1, 1.125) */
    cr_expect_eq(mla_measure_ulp_quantile(&measure, 0.998), 1.125);
    cr_expect_eq(mla_measure_ulp_quantile(&measure, 1), 4); /* capped by the maximum */
}

Test(compare, ulps_beyond_the_histogram_stay_in_its_last_bin) {
    truth.out[0] = 0x1p-133;
    out[0] = BF16_ONE; /* 2^133 ulps of 2^-133 */
    compare();
    cr_expect_eq(measure.ulp_histogram[MLA_ULP_BINS - 1], 1);
    cr_expect_eq(mla_measure_ulp_quantile(&measure, 1), measure.max_ulp);
    cr_expect_eq(measure.max_ulp, 0x1p133 - 1);
}

Test(compare, hull_rows_are_counted) {
    truth.kind[1] = truth.kind[4] = MLA_ROW_HULL;
    compare();
    cr_expect_eq(measure.hull_rows, 2);
    cr_expect_eq(measure.empty_rows, 0);
}

/* ---- chi ---------------------------------------------------------------------------------------------------------------------------- */

/* An ulp is 2 sigma: with `count` columns of the row off by one, chi^2 is 4 count / 512. */
static void move_columns(int row, int count) {
    for (int c = 0; c < count; c++)
        out[row * MLA_HEAD_DIM_V + c] = BF16_ONE_AND_AN_ULP;
}

Test(compare, chi_of_rows_and_case) {
    move_columns(1, 32);  /* 1/2 */
    move_columns(2, 288); /* 3/2 */
    move_columns(5, 512); /* 2 */
    truth.doubts[5] = MLA_CHI_ORDER | MLA_CHI_REPEATED;
    compare();
    cr_expect_eq(measure.chi.rows, 5);
    cr_expect_float_eq(mla_chi_gating(&measure.chi), sqrt((0.25 + 2.25) / 5), 1e-9);
    cr_expect_eq(measure.chi.worst.row, 2);
    cr_expect_eq(measure.chi.worst.chi, 1.5);
    expect_place(&measure.chi.worst.place, 1, 0, 0, -1);
    cr_expect_eq(measure.chi.suspected, 1);
    cr_expect_eq(measure.chi.suspects[0].row, 2);
    cr_expect_eq(measure.chi.suspects[1].chi, 0);
    cr_expect_eq(measure.chi.doubted_rows, 1);
    cr_expect_eq(mla_chi_doubted(&measure.chi), 2);
    cr_expect_eq(measure.chi.doubted_worst.row, 5);
    cr_expect_eq(measure.chi.doubts, MLA_CHI_ORDER | MLA_CHI_REPEATED);
}

Test(compare, chi_leaves_out_empty_rows_and_rows_with_anomalies) {
    out[0] = BF16_NAN;
    truth.kind[1] = MLA_ROW_EMPTY;
    move_columns(2, 128);
    compare();
    cr_expect_eq(measure.chi.rows, 4);
    cr_expect_float_eq(mla_chi_gating(&measure.chi), 0.5, 1e-9);
}

Test(compare, suspects_are_sorted_and_of_equals_the_first_row_leads) {
    for (int row = 0; row < ROWS; row++)
        move_columns(row, row == 3 ? 512 : 400);
    compare();
    cr_expect_eq(measure.chi.suspected, 6);
    const int64_t expected[ROWS] = {3, 0, 1, 2, 4, 5};
    for (int i = 0; i < ROWS; i++)
        cr_expect_eq(measure.chi.suspects[i].row, expected[i], "%d: %ld", i, (long)measure.chi.suspects[i].row);
    cr_expect_eq(measure.chi.suspects[ROWS].chi, 0);
}

Test(compare, chi_without_gating_rows_is_zero) {
    memset(truth.doubts, MLA_CHI_HULL, ROWS);
    move_columns(0, 512);
    compare();
    cr_expect_eq(mla_chi_gating(&measure.chi), 0);
    cr_expect_eq(measure.chi.worst.chi, 0);
    cr_expect_eq(measure.chi.suspected, 0);
}

Test(compare, elements_that_zero_would_pass_are_counted) {
    truth.bound[7] = truth.bound[8] = 4;
    truth.bound[9] = 3.9;
    truth.bound[10] = truth.abs[10] = 0;
    compare();
    cr_expect_eq(measure.loose_elements, 2);
}

static void scatter_faults(void) {
    for (int i = 0; i < ELEMENTS; i++) {
        unsigned x = (unsigned)i * 2654435761u >> 16;
        if (x % 7 == 0)
            out[i] = (uint16_t)(BF16_ONE + x % 5);
        if (x % 1001 == 0)
            out[i] = x % 2 ? BF16_NAN : 0xFFFF;
    }
    lse[4] = 0.501f;
    lse[5] = NAN;
    truth.doubts[3] = MLA_CHI_NARROW;
}

static void expect_same(const mla_measure *a, const mla_measure *b) {
    cr_expect_arr_eq(&a->out, &b->out, sizeof a->out);
    cr_expect_arr_eq(&a->lse, &b->lse, sizeof a->lse);
    cr_expect_arr_eq(a->ulp_histogram, b->ulp_histogram, sizeof a->ulp_histogram);
    cr_expect_arr_eq(a->sequences, b->sequences, (size_t)(a->batch + 1) * sizeof *a->sequences);
    cr_expect_eq(a->rows, b->rows);
    cr_expect_eq(a->max_err_over_bound, b->max_err_over_bound);
    cr_expect_eq(a->max_ulp, b->max_ulp);
    cr_expect_eq(a->max_cond_ulp, b->max_cond_ulp);
    cr_expect_eq(a->max_lse_over_bound, b->max_lse_over_bound);
    cr_expect_eq(a->worst.index, b->worst.index);
    cr_expect_eq(a->worst_ulp.index, b->worst_ulp.index);
    cr_expect_eq(a->worst_lse.index, b->worst_lse.index);
    cr_expect_eq(a->chi.square_sum, b->chi.square_sum);
    cr_expect_eq(a->chi.rows, b->chi.rows);
    cr_expect_eq(a->chi.doubted_sum, b->chi.doubted_sum);
    cr_expect_arr_eq(a->chi.suspects, b->chi.suspects, sizeof a->chi.suspects);
}

/* The last token first, then the two others, as slabs of their own, on any number of threads. */
Test(compare, slabs_and_threads_change_nothing) {
    scatter_faults();
    omp_set_num_threads(1);
    compare();
    mla_measure other;
    for (int round = 0; round < 20; round++) {
        omp_set_num_threads(1 + round % 4);
        cr_assert_eq(mla_measure_init(&other, &problem).code, MLA_OK);
        mla_truth last = truth, first = truth;
        last.first_token = 2;
        last.tokens = 1;
        first.tokens = 2;
        last.out += 2 * HEADS * MLA_HEAD_DIM_V;
        last.abs += 2 * HEADS * MLA_HEAD_DIM_V;
        last.bound += 2 * HEADS * MLA_HEAD_DIM_V;
        last.sigma += 2 * HEADS * MLA_HEAD_DIM_V;
        last.lse += 2 * HEADS;
        last.lse_bound += 2 * HEADS;
        last.kind += 2 * HEADS;
        last.doubts += 2 * HEADS;
        mla_compare(&problem, &last, &output, &other);
        mla_compare(&problem, &first, &output, &other);
        expect_same(&measure, &other);
        mla_measure_free(&other);
    }
}
