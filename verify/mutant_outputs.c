/* Transforms of what a kernel wrote. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mutant.h"

#define LN_2 0x1.62e42fefa39efp-1

/* ---- elements --------------------------------------------------------------------------------------------------------------------- */

static int64_t rows_of(const mla_specimen *s) {
    return s->problem->total_q * s->problem->heads;
}

static uint8_t *element(const mla_specimen *s, const mla_output *output, int64_t row, int64_t column) {
    return (uint8_t *)output->out + (size_t)(row * MLA_HEAD_DIM_V + column) * mla_format_bytes(s->problem->out_format);
}

static uint32_t read_code(const mla_specimen *s, const mla_output *output, int64_t row, int64_t column) {
    uint32_t code = 0;
    memcpy(&code, element(s, output, row, column), mla_format_bytes(s->problem->out_format));
    return code;
}

static void write_code(const mla_specimen *s, const mla_output *output, int64_t row, int64_t column, uint32_t code) {
    memcpy(element(s, output, row, column), &code, mla_format_bytes(s->problem->out_format));
}

static double read_value(const mla_specimen *s, const mla_output *output, int64_t row, int64_t column) {
    return mla_decode(s->problem->out_format, read_code(s, output, row, column));
}

static void write_value(const mla_specimen *s, const mla_output *output, int64_t row, int64_t column, double value) {
    write_code(s, output, row, column, mla_encode(s->problem->out_format, value, MLA_RNE));
}

static bool empty(const mla_specimen *s, int64_t row) {
    return s->truth->kind[row] == MLA_ROW_EMPTY;
}

/* A row with keys, from the middle on; 0 when there is none. */
static int64_t middle_row(const mla_specimen *s) {
    const int64_t rows = rows_of(s);
    for (int64_t i = 0; i < rows; i++)
        if (!empty(s, (rows / 2 + i) % rows))
            return (rows / 2 + i) % rows;
    return 0;
}

/* Where the true value is largest. */
static int64_t largest_column(const mla_specimen *s, int64_t row) {
    const double *out = s->truth->out + row * MLA_HEAD_DIM_V;
    int64_t largest = 0;
    for (int64_t c = 1; c < MLA_HEAD_DIM_V; c++)
        if (fabs(out[c]) > fabs(out[largest]))
            largest = c;
    return largest;
}

static void swap_elements(const mla_specimen *s, const mla_output *output, int64_t row, int64_t column, int64_t other_row,
                          int64_t other_column) {
    const uint32_t code = read_code(s, output, row, column);
    write_code(s, output, row, column, read_code(s, output, other_row, other_column));
    write_code(s, output, other_row, other_column, code);
}

static void swap_lse(const mla_output *output, int64_t row, int64_t other) {
    const float lse = output->lse[row];
    output->lse[row] = output->lse[other];
    output->lse[other] = lse;
}

/* ---- the wrong place ---------------------------------------------------------------------------------------------------------------- */

/* The first two heads of every query token. */
void mla_after_swap_heads(const mla_mutant *m, const mla_specimen *s, const mla_output *output) {
    (void)m;
    for (int64_t row = 0; row < rows_of(s); row += s->problem->heads) {
        for (int64_t c = 0; c < MLA_HEAD_DIM_V; c++)
            swap_elements(s, output, row, c, row + 1, c);
        swap_lse(output, row, row + 1);
    }
}

void mla_after_swap_lse(const mla_mutant *m, const mla_specimen *s, const mla_output *output) {
    (void)m;
    for (int64_t row = 0; row < rows_of(s); row += s->problem->heads)
        swap_lse(output, row, row + 1);
}

/* Column c holds column c + 1, the last the first. */
void mla_after_shift_columns(const mla_mutant *m, const mla_specimen *s, const mla_output *output) {
    (void)m;
    for (int64_t row = 0; row < rows_of(s); row++)
        for (int64_t c = 0; c + 1 < MLA_HEAD_DIM_V; c++)
            swap_elements(s, output, row, c, row, c + 1);
}

/* One pair of neighbours in every row. */
void mla_after_swap_columns(const mla_mutant *m, const mla_specimen *s, const mla_output *output) {
    (void)m;
    for (int64_t row = 0; row < rows_of(s); row++)
        swap_elements(s, output, row, 8, row, 9);
}

/* A row's second half is that of the row before it: of an earlier tile, or launch. */
void mla_after_earlier_row(const mla_mutant *m, const mla_specimen *s, const mla_output *output) {
    const int64_t row = middle_row(s);
    (void)m;
    if (row > 0)
        memcpy(element(s, output, row, MLA_HEAD_DIM_V / 2), element(s, output, row - 1, MLA_HEAD_DIM_V / 2),
               MLA_HEAD_DIM_V / 2 * mla_format_bytes(s->problem->out_format));
}

/* ---- stale or zero -------------------------------------------------------------------------------------------------------------------- */

static void fill(const mla_mutant *m, const mla_specimen *s, const mla_output *output, int64_t row, int64_t column, int64_t count) {
    memset(element(s, output, row, column), (int)m->amount, (size_t)count * mla_format_bytes(s->problem->out_format));
}

void mla_after_fill_element(const mla_mutant *m, const mla_specimen *s, const mla_output *output) {
    const int64_t row = middle_row(s);
    fill(m, s, output, row, largest_column(s, row), 1);
}

void mla_after_fill_column(const mla_mutant *m, const mla_specimen *s, const mla_output *output) {
    const int64_t column = largest_column(s, middle_row(s));
    for (int64_t row = 0; row < rows_of(s); row++)
        fill(m, s, output, row, column, 1);
}

void mla_after_fill_row(const mla_mutant *m, const mla_specimen *s, const mla_output *output) {
    fill(m, s, output, middle_row(s), 0, MLA_HEAD_DIM_V);
}

void mla_after_fill_head(const mla_mutant *m, const mla_specimen *s, const mla_output *output) {
    for (int64_t row = s->problem->heads / 2; row < rows_of(s); row += s->problem->heads)
        fill(m, s, output, row, 0, MLA_HEAD_DIM_V);
}

void mla_after_fill_all(const mla_mutant *m, const mla_specimen *s, const mla_output *output) {
    fill(m, s, output, 0, 0, rows_of(s) * MLA_HEAD_DIM_V);
}

void mla_after_fill_lse(const mla_mutant *m, const mla_specimen *s, const mla_output *output) {
    memset(&output->lse[middle_row(s)], (int)m->amount, sizeof *output->lse);
}

/* ---- the wrong value -------------------------------------------------------------------------------------------------------------------- */

/* What attention tends to over many random keys, without reading one. */
void mla_after_scaled_q(const mla_mutant *m, const mla_specimen *s, const mla_output *output) {
    double q[MLA_HEAD_DIM];
    (void)m;
    for (int64_t row = 0; row < rows_of(s); row++) {
        mla_q_row_f64(s->problem, row / s->problem->heads, (int32_t)(row % s->problem->heads), q);
        for (int64_t c = 0; c < MLA_HEAD_DIM_V && !empty(s, row); c++)
            write_value(s, output, row, c, q[c] * (double)s->problem->sm_scale);
    }
}

static void write_mean(const mla_specimen *s, int64_t token, int64_t *slots, const mla_output *output) {
    const int64_t keys = mla_visible_slots(s->problem, token, slots);
    double sum[MLA_HEAD_DIM_V] = {0}, row[MLA_HEAD_DIM];
    for (int64_t j = 0; j < keys; j++) {
        mla_kv_row_f64(s->problem, slots[j], row);
        for (int c = 0; c < MLA_HEAD_DIM_V; c++)
            sum[c] += row[c];
    }
    for (int32_t h = 0; h < s->problem->heads && keys > 0; h++)
        for (int c = 0; c < MLA_HEAD_DIM_V; c++)
            write_value(s, output, token * s->problem->heads + h, c, sum[c] / (double)keys);
}

/* The longest range of keys that a query token may see. */
static int64_t longest_range(const mla_problem *p) {
    int64_t longest = 0;
    for (int64_t t = 0; t < p->total_q; t++) {
        const mla_range seen = mla_visible(p, mla_sequence_of(p, t), t);
        longest = seen.end - seen.begin > longest ? seen.end - seen.begin : longest;
    }
    return longest;
}

/* Memory that is not there leaves the output as it is. */
void mla_after_mean_of_v(const mla_mutant *m, const mla_specimen *s, const mla_output *output) {
    int64_t *slots = malloc((size_t)(longest_range(s->problem) + 1) * sizeof *slots);
    (void)m;
    for (int64_t t = 0; t < s->problem->total_q && slots; t++)
        write_mean(s, t, slots, output);
    free(slots);
}

void mla_after_scale_out(const mla_mutant *m, const mla_specimen *s, const mla_output *output) {
    for (int64_t row = 0; row < rows_of(s); row++)
        for (int64_t c = 0; c < MLA_HEAD_DIM_V; c++)
            write_value(s, output, row, c, read_value(s, output, row, c) * (1 + m->amount));
}

/* The truth, cut instead of rounded. */
void mla_after_toward_zero(const mla_mutant *m, const mla_specimen *s, const mla_output *output) {
    (void)m;
    for (int64_t row = 0; row < rows_of(s); row++)
        for (int64_t c = 0; c < MLA_HEAD_DIM_V; c++)
            write_code(s, output, row, c, mla_encode(s->problem->out_format, s->truth->out[row * MLA_HEAD_DIM_V + c], MLA_RZ));
}

/* amount: bits that the format has and the output does not. */
void mla_after_fewer_bits(const mla_mutant *m, const mla_specimen *s, const mla_output *output) {
    const double step = ldexp(1, (int)m->amount - mla_format_get(s->problem->out_format)->digits);
    for (int64_t row = 0; row < rows_of(s); row++)
        for (int64_t c = 0; c < MLA_HEAD_DIM_V; c++) {
            int exponent;
            const double fraction = frexp(read_value(s, output, row, c), &exponent);
            write_value(s, output, row, c, ldexp(rint(fraction / step) * step, exponent));
        }
}

/* Every magnitude one code up, but zeros and what is not finite. */
void mla_after_next_code(const mla_mutant *m, const mla_specimen *s, const mla_output *output) {
    (void)m;
    for (int64_t row = 0; row < rows_of(s); row++)
        for (int64_t c = 0; c < MLA_HEAD_DIM_V; c++) {
            const double value = read_value(s, output, row, c);
            if (isfinite(value) && value != 0)
                write_code(s, output, row, c, read_code(s, output, row, c) + 1);
        }
}

/* ---- the log-sum-exp ---------------------------------------------------------------------------------------------------------------------- */

/* Base 2 for base e, and the other way round. */
void mla_after_other_base(const mla_mutant *m, const mla_specimen *s, const mla_output *output) {
    (void)m;
    for (int64_t row = 0; row < rows_of(s); row++)
        output->lse[row] = (float)((double)output->lse[row] * (s->problem->lse_base == MLA_LSE_2 ? LN_2 : 1 / LN_2));
}

static double dot(const double *a, const double *b) {
    double sum = 0;
    for (int d = 0; d < MLA_HEAD_DIM; d++)
        sum += a[d] * b[d];
    return sum;
}

/* The largest score of a row with keys. */
static double largest_score(const mla_problem *p, int64_t row, int64_t *slots) {
    const int64_t keys = mla_visible_slots(p, row / p->heads, slots);
    double q[MLA_HEAD_DIM], k[MLA_HEAD_DIM], largest = -INFINITY;
    mla_q_row_f64(p, row / p->heads, (int32_t)(row % p->heads), q);
    for (int64_t j = 0; j < keys; j++) {
        mla_kv_row_f64(p, slots[j], k);
        largest = fmax(largest, (double)p->sm_scale * dot(q, k));
    }
    return p->softcap > 0 ? (double)p->softcap * tanh(largest / (double)p->softcap) : largest;
}

/* ln of the sum alone. Memory that is not there leaves the output as it is. */
void mla_after_lse_without_max(const mla_mutant *m, const mla_specimen *s, const mla_output *output) {
    int64_t *slots = malloc((size_t)(longest_range(s->problem) + 1) * sizeof *slots);
    (void)m;
    for (int64_t row = 0; row < rows_of(s) && slots; row++)
        if (!empty(s, row))
            output->lse[row] =
                (float)((double)output->lse[row] - largest_score(s->problem, row, slots) / (s->problem->lse_base == MLA_LSE_2 ? LN_2 : 1));
    free(slots);
}

void mla_after_lse_with_sink(const mla_mutant *m, const mla_specimen *s, const mla_output *output) {
    (void)m;
    for (int64_t row = 0; row < rows_of(s); row++) {
        const double sink = (double)s->problem->sink[row % s->problem->heads], lse = s->truth->lse[row], top = fmax(sink, lse);
        const double both = top + log(exp(lse - top) + exp(sink - top));
        output->lse[row] = (float)(s->problem->lse_base == MLA_LSE_2 ? both / LN_2 : both);
    }
}

/* 0 / 0, where there is no key. */
void mla_after_empty_nan(const mla_mutant *m, const mla_specimen *s, const mla_output *output) {
    (void)m;
    for (int64_t row = 0; row < rows_of(s); row++)
        for (int64_t c = 0; c < MLA_HEAD_DIM_V && empty(s, row); c++)
            write_value(s, output, row, c, (double)NAN);
}

void mla_after_empty_sign(const mla_mutant *m, const mla_specimen *s, const mla_output *output) {
    (void)m;
    for (int64_t row = 0; row < rows_of(s); row++)
        if (empty(s, row))
            output->lse[row] = -output->lse[row];
}
