/* Roundings, and the accumulation of a matrix unit. */
#include "model.h"

#include <math.h>
#include <string.h>

static double round_to_float(mla_rounding rounding, double value) {
    const float nearest = (float)value;
    if (rounding == MLA_RZ && fabs((double)nearest) > fabs(value))
        return nextafterf(nearest, 0.0f);
    return nearest;
}

double mla_round(mla_format format, mla_rounding rounding, double value) {
    if (format == MLA_NONE)
        return value;
    if (format == MLA_FP32)
        return round_to_float(rounding, value);
    return mla_decode(format, mla_encode(format, value, rounding));
}

void mla_round_all(mla_format format, mla_rounding rounding, double *values, int count) {
    if (format == MLA_FP32 && rounding == MLA_RNE)
        for (int i = 0; i < count; i++)
            values[i] = (float)values[i];
    else if (format != MLA_NONE)
        for (int i = 0; i < count; i++)
            values[i] = mla_round(format, rounding, values[i]);
}

/* Exponent of a finite number's leading bit; of zero, and of what is subnormal even in double, far below any other. */
static int exponent_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    const int biased = (int)(bits >> 52 & 0x7FF);
    return biased == 0 ? -2000 : biased - 1023;
}

static double power_of_two(int exponent) {
    if (exponent < -1022 || exponent > 1023)
        return ldexp(1, exponent);
    const uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

typedef struct grid {
    double cells, cell; /* 1 / cell, and the distance between multiples */
    mla_cut cut;
} grid;

static grid grid_below(const mla_unit *unit, int exponent) {
    return (grid){power_of_two(unit->bits - exponent), power_of_two(exponent - unit->bits), unit->cut};
}

static double cut_to(const grid *g, double value) {
    const double cells = value * g->cells;
    return (g->cut == MLA_CUT_ZERO ? trunc(cells) : floor(cells)) * g->cell;
}

/* The sums are exact in double: all addends are multiples of one cell, and few. */
static double add_aligned(const mla_unit *unit, double c, const double *a, const double *b, size_t stride, int n) {
    int top = unit->apart ? -4000 : exponent_of(c);
    for (int i = 0; i < n; i++) {
        const double v = b[(size_t)i * stride];
        const int e = a[i] == 0 || v == 0 ? -4000 : exponent_of(a[i]) + exponent_of(v);
        top = e > top ? e : top;
    }
    if (top <= -2000)
        return c;
    const grid all = grid_below(unit, top);
    double sum = unit->apart ? 0 : cut_to(&all, c);
    for (int i = 0; i < n; i++)
        sum += cut_to(&all, a[i] * b[(size_t)i * stride]);
    if (!unit->apart)
        return sum;
    const int sum_exponent = exponent_of(sum), c_exponent = exponent_of(c);
    const grid both = grid_below(unit, sum_exponent > c_exponent ? sum_exponent : c_exponent);
    return sum == 0 ? c : cut_to(&both, sum) + cut_to(&both, c);
}

static bool is_aligned(const mla_unit *unit) {
    return unit->bits > 0 && unit->sum != MLA_NONE;
}

double mla_unit_accumulate(const mla_unit *unit, double c, const double *a, const double *b, size_t stride, int n) {
    for (int first = 0; first < n; first += unit->k) {
        const int count = n - first < unit->k ? n - first : unit->k;
        const double *step = b + (size_t)first * stride;
        if (is_aligned(unit))
            c = add_aligned(unit, c, a + first, step, stride, count);
        else
            for (int i = 0; i < count; i++)
                c += a[first + i] * step[(size_t)i * stride];
        c = mla_round(unit->sum, unit->rounding, c);
    }
    return c;
}

void mla_unit_step(const mla_unit *unit, double *sums, const double *a, const double *b, int n) {
    if (is_aligned(unit))
        for (int c = 0; c < MLA_HEAD_DIM_V; c++)
            sums[c] = add_aligned(unit, sums[c], a, b + c, MLA_HEAD_DIM_V, n);
    else
        for (int i = 0; i < n; i++)
            for (int c = 0; c < MLA_HEAD_DIM_V; c++)
                sums[c] += a[i] * b[i * MLA_HEAD_DIM_V + c];
    mla_round_all(unit->sum, unit->rounding, sums, MLA_HEAD_DIM_V);
}
