/* One row in MPFR by plain loops: the judge of the oracle. Shares nothing with it but the dequantised operands. */
#include "try.h"

#include <mpfr.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOTAL, WEIGHT, TERM, LSE, SCALARS };

enum { MOST_PRECISE = 1 << 20 };

/* Numbers of one precision in one allocation. */
static mpfr_t *numbers_make(int64_t count, int precision) {
    mpfr_t *numbers = malloc((size_t)(count > 0 ? count : 1) * sizeof *numbers);
    for (int64_t i = 0; numbers && i < count; i++) {
        mpfr_init2(numbers[i], precision);
        mpfr_set_zero(numbers[i], 1);
    }
    return numbers;
}

static void numbers_free(mpfr_t *numbers, int64_t count) {
    for (int64_t i = 0; numbers && i < count; i++)
        mpfr_clear(numbers[i]);
    free(numbers);
}

/* score = sm_scale <q, k>, then the soft-cap. `term` is scratch. */
static void exact_score(const mla_problem *problem, const double *q, const double *k, mpfr_t term, mpfr_t score) {
    mpfr_set_zero(score, 1);
    for (int d = 0; d < MLA_HEAD_DIM; d++) {
        mpfr_set_d(term, q[d], MPFR_RNDN);
        mpfr_mul_d(term, term, k[d], MPFR_RNDN);
        mpfr_add(score, score, term, MPFR_RNDN);
    }
    mpfr_mul_d(score, score, (double)problem->sm_scale, MPFR_RNDN);
    if (problem->softcap > 0) {
        mpfr_div_d(score, score, (double)problem->softcap, MPFR_RNDN);
        mpfr_tanh(score, score, MPFR_RNDN);
        mpfr_mul_d(score, score, (double)problem->softcap, MPFR_RNDN);
    }
}

/* weight = exp(score), total += weight. MPFR's exponents are wide enough to need no maximum. */
static void add_weight(mpfr_t score, mpfr_t total) {
    mpfr_exp(score, score, MPFR_RNDN);
    mpfr_add(total, total, score, MPFR_RNDN);
}

static void add_values(const double *v, mpfr_t weight, mpfr_t term, mpfr_t *out, mpfr_t *abs) {
    for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
        mpfr_mul_d(term, weight, v[c], MPFR_RNDN);
        mpfr_add(out[c], out[c], term, MPFR_RNDN);
        mpfr_abs(term, term, MPFR_RNDN);
        mpfr_add(abs[c], abs[c], term, MPFR_RNDN);
    }
}

/* Work space of a row: sums of values and of their magnitudes, scalars; and what the error of a precision depends on. */
typedef struct exact_row {
    mpfr_t *out, *abs; /* [512] */
    mpfr_t *scalars;   /* [SCALARS] */
    int precision;
    int64_t keys;
    double lowest, highest; /* of the scores, the sink's logit included */
    double magnitude;       /* largest |sm_scale| sum |q_d k_d|, or |sink| */
} exact_row;

static void exact_row_free(exact_row *row) {
    numbers_free(row->out, MLA_HEAD_DIM_V);
    numbers_free(row->abs, MLA_HEAD_DIM_V);
    numbers_free(row->scalars, SCALARS);
}

static mla_status exact_row_make(int precision, exact_row *row) {
    *row = (exact_row){.precision = precision, .lowest = INFINITY, .highest = -INFINITY};
    row->out = numbers_make(MLA_HEAD_DIM_V, precision);
    row->abs = numbers_make(MLA_HEAD_DIM_V, precision);
    row->scalars = numbers_make(SCALARS, precision);
    if (row->out && row->abs && row->scalars)
        return mla_ok();
    exact_row_free(row);
    return mla_error(MLA_ENOMEM, "exact: no memory for a row");
}

static void extend_scores(exact_row *row, double score, double magnitude) {
    row->lowest = fmin(row->lowest, score);
    row->highest = fmax(row->highest, score);
    row->magnitude = fmax(row->magnitude, magnitude);
}

static double magnitude_of(const mla_problem *problem, const double *q, const double *k) {
    double sum = 0;
    for (int d = 0; d < MLA_HEAD_DIM; d++)
        sum += fabs(q[d] * k[d]);
    return sum * fabs((double)problem->sm_scale);
}

/* The visible keys, one after another: sums of exp(x), of exp(x) v and of exp(x) |v|. */
static void sum_keys(const mla_problem *problem, int64_t q_token, int32_t head, exact_row *row) {
    const int32_t sequence = mla_sequence_of(problem, q_token);
    const mla_range seen = mla_visible(problem, sequence, q_token);
    mpfr_t *s = row->scalars;
    double q[MLA_HEAD_DIM], kv[MLA_HEAD_DIM];
    mla_q_row_f64(problem, q_token, head, q);
    for (int64_t position = seen.begin; position < seen.end; position++) {
        const int64_t slot = mla_kv_slot(problem, sequence, q_token, position);
        if (slot < 0)
            continue;
        mla_kv_row_f64(problem, slot, kv);
        exact_score(problem, q, kv, s[TERM], s[WEIGHT]);
        extend_scores(row, mpfr_get_d(s[WEIGHT], MPFR_RNDN), magnitude_of(problem, q, kv));
        add_weight(s[WEIGHT], s[TOTAL]);
        add_values(kv, s[WEIGHT], s[TERM], row->out, row->abs);
        row->keys++;
    }
}

/* out and abs become means, LSE the logarithm: it leaves the sink out, the denominator has it. */
static void normalise(const mla_problem *problem, int32_t head, exact_row *row) {
    mpfr_t *s = row->scalars;
    mpfr_log(s[LSE], s[TOTAL], MPFR_RNDN);
    if (problem->sink) {
        const double sink = (double)problem->sink[head];
        extend_scores(row, sink, fabs(sink));
        mpfr_set_d(s[TERM], sink, MPFR_RNDN);
        add_weight(s[TERM], s[TOTAL]);
    }
    for (int c = 0; c < MLA_HEAD_DIM_V && row->keys > 0; c++) {
        mpfr_div(row->out[c], row->out[c], s[TOTAL], MPFR_RNDN);
        mpfr_div(row->abs[c], row->abs[c], s[TOTAL], MPFR_RNDN);
    }
}

static mla_status compute_row(const mla_problem *problem, int64_t q_token, int32_t head, int precision, exact_row *row) {
    if (q_token < 0 || q_token >= problem->total_q || head < 0 || head >= problem->heads)
        return mla_error(MLA_EINVAL, "exact: no row of query token %lld, head %d", (long long)q_token, head);
    TRY(exact_row_make(precision, row));
    sum_keys(problem, q_token, head, row);
    normalise(problem, head, row);
    return mla_ok();
}

mla_status mla_exact_row(const mla_problem *problem, int64_t q_token, int32_t head, int precision, double *out, double *abs, double *lse) {
    if (precision < 53 || precision > MOST_PRECISE)
        return mla_error(MLA_EINVAL, "exact: precision = %d is not in 53 .. %d", precision, MOST_PRECISE);
    exact_row row = {.keys = 0};
    TRY(compute_row(problem, q_token, head, precision, &row));
    for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
        out[c] = mpfr_get_d(row.out[c], MPFR_RNDN);
        abs[c] = mpfr_get_d(row.abs[c], MPFR_RNDN);
    }
    *lse = mpfr_get_d(row.scalars[LSE], MPFR_RNDN);
    exact_row_free(&row);
    return mla_ok();
}

/* ---- rounded to float ------------------------------------------------------------------------------------------------------------------ */

/* Does everything within `error` of value round to one float? Zeros are +0. `edge` is scratch. */
static bool round_decided(mpfr_t value, mpfr_t error, mpfr_t edge, float *rounded) {
    mpfr_sub(edge, value, error, MPFR_RNDD);
    const float low = mpfr_get_flt(edge, MPFR_RNDN);
    mpfr_add(edge, value, error, MPFR_RNDU);
    *rounded = low == 0 ? 0 : low;
    return low == mpfr_get_flt(edge, MPFR_RNDN);
}

/* What no precision decides is a tie, and half the bits hold it exactly. */
static float round_tie(mpfr_t value) {
    mpfr_prec_round(value, mpfr_get_prec(value) / 2, MPFR_RNDN);
    return mpfr_get_flt(value, MPFR_RNDN);
}

/*
 * error = scale times the error of the means, relative to the mean magnitude; also lse's, absolute. With r = 2^-precision a score is off by at most
 * 600 r times its magnitude (576 products and sums, sm_scale, three for the soft-cap), its weight by that and r; N of them in numerator and
 * denominator add 2 N r.
 */
static void set_error(const exact_row *row, mpfr_t scale, mpfr_t error) {
    mpfr_mul_d(error, scale, 2048 * (row->magnitude + 1) + 4 * (double)row->keys, MPFR_RNDU);
    mpfr_div_2ui(error, error, (unsigned long)row->precision, MPFR_RNDU);
}

/* False: the precision does not decide. With `last` it always does. */
static bool round_row(const mla_problem *problem, exact_row *row, bool last, float *out, float *lse) {
    mpfr_t *s = row->scalars;
    bool decided = true;
    for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
        set_error(row, row->abs[c], s[WEIGHT]);
        if (round_decided(row->out[c], s[WEIGHT], s[TERM], &out[c]))
            continue;
        decided = false;
        if (last)
            out[c] = round_tie(row->out[c]);
    }
    if (problem->lse_base == MLA_LSE_2) {
        mpfr_const_log2(s[TERM], MPFR_RNDN);
        mpfr_div(s[LSE], s[LSE], s[TERM], MPFR_RNDN);
    }
    mpfr_set_ui(s[TERM], 1, MPFR_RNDN);
    set_error(row, s[TERM], s[WEIGHT]);
    if (!round_decided(s[LSE], s[WEIGHT], s[TERM], lse)) {
        decided = false;
        if (last)
            *lse = round_tie(s[LSE]);
    }
    return decided || last;
}

/*
 * Precision is doubled until it decides (Ziv 1991). It need not grow without end: sum w_j (v_j - r) with w_j = exp(x_j) and rational x_j and r is 0
 * only where the v_j of each set of equal scores have mean r (Lindemann and Weierstrass), and otherwise no smaller than the smallest weight, save for
 * cancellation between different exponentials. Two more such factors are allowed for that.
 */
mla_status mla_exact_row_f32(const mla_problem *problem, int64_t q_token, int32_t head, float *out, float *lse) {
    bool decided = false;
    for (int precision = 256; !decided; precision *= 2) {
        exact_row row = {.keys = 0};
        TRY(compute_row(problem, q_token, head, precision, &row));
        const double needed = 320 + 3 * 1.4427 * (row.highest - row.lowest);
        decided = row.keys == 0 || round_row(problem, &row, !(precision < needed) || precision >= MOST_PRECISE, out, lse);
        if (row.keys == 0) {
            memset(out, 0, MLA_HEAD_DIM_V * sizeof *out);
            *lse = problem->lse_empty_positive ? INFINITY : -INFINITY;
        }
        exact_row_free(&row);
    }
    return mla_ok();
}
