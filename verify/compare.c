/*
 * Every statistic here is an integer sum or a maximum in a total order, so threads and slabs may be merged in any order without changing a bit.
 */
#include "compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

typedef struct comparison {
    const mla_problem *problem;
    const mla_truth *truth;
    const mla_output *output;
    uint32_t poison_out, poison_lse;
} comparison;

mla_status mla_measure_init(mla_measure *measure, const mla_problem *problem) {
    memset(measure, 0, sizeof *measure);
    measure->batch = problem->batch;
    measure->sequences = calloc((size_t)problem->batch + 1, sizeof *measure->sequences);
    return measure->sequences ? mla_ok() : mla_error(MLA_ENOMEM, "no memory to measure %d sequences", problem->batch);
}

mla_status mla_measure_add_pictures(mla_measure *measure, const mla_problem *problem) {
    const int64_t rows = problem->total_q * problem->heads;
    measure->pictures = calloc(1, sizeof *measure->pictures);
    if (!measure->pictures)
        return mla_error(MLA_ENOMEM, "no memory for pictures");
    measure->pictures->rows_per_band = rows > MLA_BANDS ? (rows + MLA_BANDS - 1) / MLA_BANDS : 1;
    measure->pictures->bands = (int32_t)((rows + measure->pictures->rows_per_band - 1) / measure->pictures->rows_per_band);
    return mla_ok();
}

void mla_measure_free(mla_measure *measure) {
    free(measure->sequences);
    free(measure->pictures);
    measure->sequences = NULL;
    measure->pictures = NULL;
}

int64_t mla_counts_wrong(const mla_counts *counts) {
    return counts->unwritten + counts->anomalies + counts->outside + counts->inexact;
}

static uint32_t poison_code(mla_format format) {
    uint32_t code = 0;
    memset(&code, MLA_POISON, mla_format_bytes(format));
    return code;
}

/* Would a real number within `bound` of the finite `exact` round to the infinity `got`? */
static bool rounds_to_infinity(mla_format format, double got, double exact, double bound) {
    double farthest = exact + copysign(bound, got);
    return mla_decode(format, mla_encode(format, farthest, MLA_RNE)) == got;
}

/* The fault of a written element. */
static mla_fault classify(mla_format format, double got, double exact, double bound) {
    if (isnan(exact))
        return isnan(got) ? MLA_FAULT_NONE : MLA_FAULT_ANOMALY;
    if (isinf(exact))
        return got == exact ? MLA_FAULT_NONE : MLA_FAULT_ANOMALY;
    if (isnan(got))
        return MLA_FAULT_ANOMALY;
    if (isinf(got))
        return rounds_to_infinity(format, got, exact, bound) ? MLA_FAULT_NONE : MLA_FAULT_ANOMALY;
    return fabs(got - exact) <= bound ? MLA_FAULT_NONE : MLA_FAULT_OUTSIDE;
}

static double err_over_bound(double err, double bound) {
    if (err == 0)
        return 0;
    return bound > 0 ? err / bound : INFINITY;
}

/* 8 linear steps an octave: exact, where log2 would differ between machines. */
static int ulp_bin(double ulp) {
    if (!(ulp >= 0x1p-24))
        return 0;
    int exponent;
    double fraction = frexp(ulp, &exponent); /* ulp = fraction * 2^exponent, 1/2 <= fraction < 1 */
    int bin = 1 + 8 * (exponent + 23) + (int)((2 * fraction - 1) * 8);
    return bin < MLA_ULP_BINS ? bin : MLA_ULP_BINS - 1;
}

static double ulp_bin_upper_edge(int bin) {
    if (bin == 0)
        return 0x1p-24;
    return ldexp(1 + ((bin - 1) % 8 + 1) / 8.0, (bin - 1) / 8 - 24);
}

double mla_measure_ulp_quantile(const mla_measure *measure, double q) {
    int64_t total = 0, below = 0;
    for (int bin = 0; bin < MLA_ULP_BINS; bin++)
        total += measure->ulp_histogram[bin];
    for (int bin = 0; bin < MLA_ULP_BINS - 1; bin++) {
        below += measure->ulp_histogram[bin];
        if ((double)below >= q * (double)total)
            return fmin(ulp_bin_upper_edge(bin), measure->max_ulp);
    }
    return measure->max_ulp;
}

/* Is a worse than b: graver, or as grave with more of |e| / B, or equal to it and earlier? */
static bool is_worse(const mla_sample *a, const mla_sample *b) {
    if (!a->present || !b->present)
        return a->present;
    if (a->fault != b->fault)
        return a->fault > b->fault;
    if (a->err_over_bound != b->err_over_bound)
        return a->err_over_bound > b->err_over_bound;
    return a->index < b->index;
}

static bool has_more_ulp(const mla_sample *a, const mla_sample *b) {
    if (!a->present || !b->present)
        return a->present;
    return a->ulp != b->ulp ? a->ulp > b->ulp : a->index < b->index;
}

static void keep_worse(mla_sample *kept, const mla_sample *sample) {
    if (is_worse(sample, kept))
        *kept = *sample;
}

static void keep_more_ulp(mla_sample *kept, const mla_sample *sample) {
    if (has_more_ulp(sample, kept))
        *kept = *sample;
}

static void count(mla_counts *counts, mla_fault fault) {
    counts->total++;
    counts->unwritten += fault == MLA_FAULT_UNWRITTEN;
    counts->anomalies += fault == MLA_FAULT_ANOMALY;
    counts->outside += fault == MLA_FAULT_OUTSIDE;
    counts->inexact += fault == MLA_FAULT_INEXACT;
}

/* ---- pictures ---------------------------------------------------------------------------------------------------------------------- */

static int octave(double x, int lowest, int octaves) {
    int exponent; /* 2^(exponent - 1) <= x < 2^exponent */
    frexp(x, &exponent);
    const int i = x > 0 ? exponent - 1 - lowest : 0;
    return i < 0 ? 0 : i < octaves ? i : octaves - 1;
}

static void draw_place(mla_pictures *pictures, const mla_sample *s) {
    const int64_t row = s->index / MLA_HEAD_DIM_V, block = s->place.column / (MLA_HEAD_DIM_V / MLA_BLOCKS);
    double *worst = &pictures->worst[row / pictures->rows_per_band][block];
    *worst = fmax(*worst, s->err_over_bound);
}

static void draw_error(mla_pictures *pictures, const mla_sample *s) {
    if (!(s->abs > 0))
        return;
    const int error = octave(s->ulp, MLA_ERROR_LOWEST, MLA_ERROR_OCTAVES);
    pictures->density[error][octave(fabs(s->exact) / s->abs, MLA_SHARE_LOWEST, MLA_SHARE_OCTAVES)]++;
}

static void merge_pictures(mla_pictures *to, const mla_pictures *from) {
    for (int band = 0; band < to->bands; band++)
        for (int block = 0; block < MLA_BLOCKS; block++)
            to->worst[band][block] = fmax(to->worst[band][block], from->worst[band][block]);
    for (int error = 0; error < MLA_ERROR_OCTAVES; error++)
        for (int share = 0; share < MLA_SHARE_OCTAVES; share++)
            to->density[error][share] += from->density[error][share];
}

/* ---- comparing --------------------------------------------------------------------------------------------------------------------- */

static void add_counts(mla_counts *to, const mla_counts *from) {
    to->total += from->total;
    to->unwritten += from->unwritten;
    to->anomalies += from->anomalies;
    to->outside += from->outside;
    to->inexact += from->inexact;
}

static uint32_t read_code(mla_format format, const void *codes, int64_t index) {
    if (mla_format_bytes(format) == 2)
        return ((const uint16_t *)codes)[index];
    return ((const uint32_t *)codes)[index];
}

/* Fills what follows from got, exact and bound. True when both are finite, so that an error can be measured. */
static bool sample_classify(mla_sample *s, mla_format format, uint32_t poison) {
    const bool unwritten = s->code == poison && !isnan(s->exact); /* a NaN of the inputs may come through with all its bits */
    s->fault = unwritten ? MLA_FAULT_UNWRITTEN : classify(format, s->got, s->exact, s->bound);
    bool measurable = s->fault < MLA_FAULT_ANOMALY && isfinite(s->got) && isfinite(s->exact);
    s->ulp = s->fault >= MLA_FAULT_ANOMALY ? INFINITY : 0;
    s->err_over_bound = s->ulp;
    if (measurable)
        s->err_over_bound = err_over_bound(fabs(s->got - s->exact), s->bound);
    return measurable;
}

static const double CANCELLED = 0x1p-20; /* |O| / A below which no bits are asked for */

static bool is_inexact(const mla_sample *s, mla_format format) {
    return s->fault == MLA_FAULT_NONE && fabs(s->exact) > CANCELLED * s->abs &&
           s->got != mla_decode(format, mla_encode(format, s->exact, MLA_RNE));
}

/* ---- chi -------------------------------------------------------------------------------------------------------------------------- */

static const double CHI_STEP = 0x1p-16, CHI_SQUARE_MAX = 0x1p20;

double mla_chi_gating(const mla_chi *chi) {
    return chi->rows > 0 ? sqrt((double)chi->square_sum * CHI_STEP / (double)chi->rows) : 0;
}

double mla_chi_doubted(const mla_chi *chi) {
    return chi->doubted_rows > 0 ? sqrt((double)chi->doubted_sum * CHI_STEP / (double)chi->doubted_rows) : 0;
}

static bool has_more_chi(const mla_row_chi *a, const mla_row_chi *b) {
    return a->chi != b->chi ? a->chi > b->chi : a->row < b->row;
}

static void keep_more_chi(mla_row_chi *kept, const mla_row_chi *row) {
    if (has_more_chi(row, kept))
        *kept = *row;
}

/* Unused entries have chi 0, which no suspect has. */
static void keep_suspect(mla_chi *chi, mla_row_chi row) {
    for (mla_row_chi *kept = chi->suspects; kept < chi->suspects + MLA_CHI_SUSPECTS; kept++)
        if (has_more_chi(&row, kept)) {
            const mla_row_chi moved = *kept;
            *kept = row;
            row = moved;
        }
}

/* A row of `squares` = sum of (error / sigma)^2. */
static void add_chi(mla_chi *chi, int64_t row, mla_place place, double squares, unsigned doubts) {
    const double square = squares / MLA_HEAD_DIM_V;
    const mla_row_chi entry = {.row = row, .place = place, .chi = sqrt(square)};
    const int64_t steps = (int64_t)(fmin(square, CHI_SQUARE_MAX) / CHI_STEP + 0.5);
    if (doubts) {
        chi->doubted_rows++;
        chi->doubted_sum += steps;
        chi->doubts |= doubts;
        keep_more_chi(&chi->doubted_worst, &entry);
        return;
    }
    chi->rows++;
    chi->square_sum += steps;
    keep_more_chi(&chi->worst, &entry);
    if (entry.chi > MLA_CHI_ROW) {
        chi->suspected++;
        keep_suspect(chi, entry);
    }
}

static void merge_chi(mla_chi *to, const mla_chi *from) {
    to->rows += from->rows;
    to->square_sum += from->square_sum;
    to->doubted_rows += from->doubted_rows;
    to->doubted_sum += from->doubted_sum;
    to->doubts |= from->doubts;
    to->suspected += from->suspected;
    keep_more_chi(&to->worst, &from->worst);
    keep_more_chi(&to->doubted_worst, &from->doubted_worst);
    for (int i = 0; i < MLA_CHI_SUSPECTS && from->suspects[i].chi > 0; i++)
        keep_suspect(to, from->suspects[i]);
}

/* ---- elements and rows --------------------------------------------------------------------------------------------------------------- */

/* (error / sigma)^2, NaN where there is none. */
static double compare_element(const comparison *c, int64_t r, mla_place place, mla_measure *part) {
    mla_format format = c->problem->out_format;
    int64_t here = r * MLA_HEAD_DIM_V + place.column;
    mla_sample s = {.present = true, .place = place};
    s.index = c->truth->first_token * c->problem->heads * MLA_HEAD_DIM_V + here;
    s.code = read_code(format, c->output->out, s.index);
    s.got = mla_decode(format, s.code);
    s.exact = c->truth->out[here];
    s.bound = c->truth->bound[here];
    s.abs = c->truth->abs[here];
    double square = NAN;
    if (sample_classify(&s, format, c->poison_out)) {
        if (part->bitwise && is_inexact(&s, format))
            s.fault = MLA_FAULT_INEXACT;
        s.ulp = mla_ulp_error(format, s.got, s.exact);
        part->ulp_histogram[ulp_bin(s.ulp)]++;
        part->max_ulp = fmax(part->max_ulp, s.ulp);
        part->max_cond_ulp = fmax(part->max_cond_ulp, fabs(s.got - s.exact) / mla_ulp(format, s.abs));
        part->max_err_over_bound = fmax(part->max_err_over_bound, s.err_over_bound);
        keep_more_ulp(&part->worst_ulp, &s);
        const double deviation = c->truth->sigma ? (s.got - s.exact) / c->truth->sigma[here] : NAN;
        square = deviation * deviation;
        if (part->pictures)
            draw_error(part->pictures, &s);
    }
    part->loose_elements += s.abs > 0 && s.bound >= s.abs;
    if (part->pictures)
        draw_place(part->pictures, &s);
    keep_worse(&part->worst, &s);
    count(&part->out, s.fault);
    return square;
}

/* An empty row's lse must be the convention's infinity; the truth's is -inf whatever the convention. */
static double exact_lse(const comparison *c, int64_t r) {
    bool positive = c->truth->kind[r] == MLA_ROW_EMPTY && c->problem->lse_empty_positive;
    return positive ? INFINITY : c->truth->lse[r];
}

static void compare_lse(const comparison *c, int64_t r, mla_place place, mla_measure *part) {
    mla_sample s = {.present = true, .place = place};
    s.index = c->truth->first_token * c->problem->heads + r;
    s.code = read_code(MLA_FP32, c->output->lse, s.index);
    s.got = mla_decode(MLA_FP32, s.code) * (c->problem->lse_base == MLA_LSE_2 ? 0x1.62e42fefa39efp-1 /* ln 2 */ : 1);
    s.exact = exact_lse(c, r);
    s.bound = c->truth->lse_bound[r];
    if (sample_classify(&s, MLA_FP32, c->poison_lse)) {
        part->max_lse_err = fmax(part->max_lse_err, fabs(s.got - s.exact));
        part->max_lse_over_bound = fmax(part->max_lse_over_bound, s.err_over_bound);
    }
    keep_worse(&part->worst_lse, &s);
    count(&part->lse, s.fault);
}

static mla_place place_of(const mla_problem *problem, int64_t row) {
    int64_t token = row / problem->heads;
    int32_t sequence = mla_sequence_of(problem, token);
    int32_t first = problem->qo_indptr[sequence < 0 ? problem->batch : sequence];
    return (mla_place){.sequence = sequence, .q = (int32_t)(token - first), .head = (int32_t)(row % problem->heads)};
}

static void compare_row(const comparison *c, int64_t r, mla_measure *part) {
    const int64_t row = c->truth->first_token * c->problem->heads + r;
    mla_place place = place_of(c->problem, row);
    double squares = 0;
    for (place.column = 0; place.column < MLA_HEAD_DIM_V; place.column++)
        squares += compare_element(c, r, place, part);
    place.column = -1;
    if (c->truth->kind[r] != MLA_ROW_EMPTY && isfinite(squares))
        add_chi(&part->chi, row, place, squares, c->truth->doubts[r]);
    if (c->output->lse)
        compare_lse(c, r, place, part);
    part->rows++;
    part->empty_rows += c->truth->kind[r] == MLA_ROW_EMPTY;
    part->hull_rows += c->truth->kind[r] == MLA_ROW_HULL;
}

static void merge(mla_measure *to, const mla_measure *from) {
    add_counts(&to->out, &from->out);
    add_counts(&to->lse, &from->lse);
    to->rows += from->rows;
    to->empty_rows += from->empty_rows;
    to->hull_rows += from->hull_rows;
    to->loose_elements += from->loose_elements;
    merge_chi(&to->chi, &from->chi);
    to->max_err_over_bound = fmax(to->max_err_over_bound, from->max_err_over_bound);
    to->max_ulp = fmax(to->max_ulp, from->max_ulp);
    to->max_cond_ulp = fmax(to->max_cond_ulp, from->max_cond_ulp);
    to->max_lse_err = fmax(to->max_lse_err, from->max_lse_err);
    to->max_lse_over_bound = fmax(to->max_lse_over_bound, from->max_lse_over_bound);
    keep_worse(&to->worst, &from->worst);
    keep_worse(&to->worst_lse, &from->worst_lse);
    keep_more_ulp(&to->worst_ulp, &from->worst_ulp);
    for (int bin = 0; bin < MLA_ULP_BINS; bin++)
        to->ulp_histogram[bin] += from->ulp_histogram[bin];
    if (to->pictures)
        merge_pictures(to->pictures, from->pictures);
}

/* One query token: its rows share a sequence. */
static void compare_token(const comparison *c, int64_t token, mla_measure *measure) {
    mla_measure part = {.bitwise = measure->bitwise};
    mla_pictures pictures;
    if (measure->pictures) {
        pictures = (mla_pictures){.rows_per_band = measure->pictures->rows_per_band};
        part.pictures = &pictures;
    }
    for (int32_t head = 0; head < c->problem->heads; head++)
        compare_row(c, token * c->problem->heads + head, &part);
    int32_t sequence = mla_sequence_of(c->problem, c->truth->first_token + token);
#pragma omp critical(mla_compare)
    {
        merge(measure, &part);
        mla_counts *counts = &measure->sequences[sequence < 0 ? measure->batch : sequence];
        add_counts(counts, &part.out);
        add_counts(counts, &part.lse);
    }
}

void mla_compare(const mla_problem *problem, const mla_truth *truth, const mla_output *output, mla_measure *measure) {
    comparison c = {problem, truth, output, poison_code(problem->out_format), poison_code(MLA_FP32)};
    measure->lse_absent = !output->lse;
#pragma omp parallel for schedule(static)
    for (int64_t token = 0; token < truth->tokens; token++)
        compare_token(&c, token, measure);
}
