/* One row in MPFR by plain loops: the judge of the oracle. Shares nothing with it but the dequantised operands. */
#include "mla.h"

#include <mpfr.h>
#include <math.h>
#include <stdlib.h>

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

/* Work space of a row: sums of values and of their magnitudes, the weights' total, scratch. */
typedef struct exact_row {
    mpfr_t *out, *abs; /* [512] */
    mpfr_t *scalars;   /* [3]: total, weight, term */
} exact_row;

/* The visible keys, one after another: O = sum exp(x) v / sum exp(x). Returns their number. */
static int64_t sum_keys(const mla_problem *problem, int64_t q_token, int32_t head, exact_row *row) {
    const int32_t sequence = mla_sequence_of(problem, q_token);
    const mla_range seen = mla_visible(problem, sequence, q_token);
    double q[MLA_HEAD_DIM], kv[MLA_HEAD_DIM];
    int64_t keys = 0;
    mla_q_row_f64(problem, q_token, head, q);
    for (int64_t position = seen.begin; position < seen.end; position++) {
        const int64_t slot = mla_kv_slot(problem, sequence, q_token, position);
        if (slot < 0)
            continue;
        mla_kv_row_f64(problem, slot, kv);
        exact_score(problem, q, kv, row->scalars[2], row->scalars[1]);
        add_weight(row->scalars[1], row->scalars[0]);
        add_values(kv, row->scalars[1], row->scalars[2], row->out, row->abs);
        keys++;
    }
    return keys;
}

/* lse leaves the sink out, the denominator has it. */
static void finish_row(const mla_problem *problem, int32_t head, int64_t keys, exact_row *row, double *out, double *abs, double *lse) {
    mpfr_t *total = &row->scalars[0], *term = &row->scalars[2];
    mpfr_log(*term, *total, MPFR_RNDN);
    *lse = mpfr_get_d(*term, MPFR_RNDN);
    if (problem->sink) {
        mpfr_set_d(*term, (double)problem->sink[head], MPFR_RNDN);
        add_weight(*term, *total);
    }
    for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
        if (keys > 0) {
            mpfr_div(row->out[c], row->out[c], *total, MPFR_RNDN);
            mpfr_div(row->abs[c], row->abs[c], *total, MPFR_RNDN);
        }
        out[c] = mpfr_get_d(row->out[c], MPFR_RNDN);
        abs[c] = mpfr_get_d(row->abs[c], MPFR_RNDN);
    }
}

mla_status mla_exact_row(const mla_problem *problem, int64_t q_token, int32_t head, int precision, double *out, double *abs, double *lse) {
    if (q_token < 0 || q_token >= problem->total_q || head < 0 || head >= problem->heads)
        return mla_error(MLA_EINVAL, "exact: no row of query token %lld, head %d", (long long)q_token, head);
    if (precision < 53 || precision > 1 << 20)
        return mla_error(MLA_EINVAL, "exact: precision = %d is not in 53 .. %d", precision, 1 << 20);
    exact_row row = {numbers_make(MLA_HEAD_DIM_V, precision), numbers_make(MLA_HEAD_DIM_V, precision), numbers_make(3, precision)};
    const bool allocated = row.out && row.abs && row.scalars;
    if (allocated)
        finish_row(problem, head, sum_keys(problem, q_token, head, &row), &row, out, abs, lse);
    numbers_free(row.out, MLA_HEAD_DIM_V);
    numbers_free(row.abs, MLA_HEAD_DIM_V);
    numbers_free(row.scalars, 3);
    return allocated ? mla_ok() : mla_error(MLA_ENOMEM, "exact: no memory for a row");
}
