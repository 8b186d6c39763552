/*
 * Double-double numbers, hi + lo with |lo| <= ulp(hi) / 2: about 106 bits out of correctly rounded double operations alone, so that a result is
 * the same bits on any processor, compiler and libm. Internal to ref/.
 *
 * Relative errors, u = 2^-53, from Joldes, Muller and Popescu, Tight and rigorous error bounds for basic building blocks of double-word arithmetic
 * (2017): sum 3 u^2, product 7 u^2, product with a double 2 u^2, quotient 15 u^2 (and higher powers). They need a build without contraction into
 * fma (-ffp-contract=off), and nothing that overflows; what underflows errs by 2^-1074 a step.
 */
#ifndef MLA_DOUBLE_DOUBLE_H
#define MLA_DOUBLE_DOUBLE_H

#include "mla.h"

typedef struct mla_dd {
    double hi, lo;
} mla_dd;

static const mla_dd MLA_DD_LN_2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};

/* a + b where |a| >= |b| or a == 0, exactly (Dekker 1971). */
static inline mla_dd mla_dd_fast_two_sum(double a, double b) {
    const double sum = a + b;
    return (mla_dd){sum, b - (sum - a)};
}

/* a + b, exactly (Knuth). */
static inline mla_dd mla_dd_two_sum(double a, double b) {
    const double sum = a + b, from_b = sum - a, from_a = sum - from_b;
    return (mla_dd){sum, (a - from_a) + (b - from_b)};
}

/* a * b, exactly, from halves of at most 26 bits (Veltkamp, Dekker 1971). |a|, |b| < 2^996. */
static inline mla_dd mla_dd_two_product(double a, double b) {
    const double split = 0x1p27 + 1, product = a * b;
    const double a_up = split * a, b_up = split * b;
    const double a_hi = a_up - (a_up - a), b_hi = b_up - (b_up - b);
    const double a_lo = a - a_hi, b_lo = b - b_hi;
    return (mla_dd){product, ((a_hi * b_hi - product) + a_hi * b_lo + a_lo * b_hi) + a_lo * b_lo};
}

static inline mla_dd mla_dd_add(mla_dd x, mla_dd y) {
    const mla_dd high = mla_dd_two_sum(x.hi, y.hi), low = mla_dd_two_sum(x.lo, y.lo);
    const mla_dd sum = mla_dd_fast_two_sum(high.hi, high.lo + low.hi);
    return mla_dd_fast_two_sum(sum.hi, low.lo + sum.lo);
}

static inline mla_dd mla_dd_negate(mla_dd x) {
    return (mla_dd){-x.hi, -x.lo};
}

static inline mla_dd mla_dd_subtract(mla_dd x, mla_dd y) {
    return mla_dd_add(x, mla_dd_negate(y));
}

static inline mla_dd mla_dd_add_double(mla_dd x, double y) {
    const mla_dd high = mla_dd_two_sum(x.hi, y);
    return mla_dd_fast_two_sum(high.hi, x.lo + high.lo);
}

static inline mla_dd mla_dd_multiply(mla_dd x, mla_dd y) {
    const mla_dd high = mla_dd_two_product(x.hi, y.hi);
    return mla_dd_fast_two_sum(high.hi, high.lo + (x.hi * y.lo + x.lo * y.hi));
}

static inline mla_dd mla_dd_multiply_double(mla_dd x, double y) {
    const mla_dd high = mla_dd_two_product(x.hi, y);
    const mla_dd sum = mla_dd_fast_two_sum(high.hi, x.lo * y);
    return mla_dd_fast_two_sum(sum.hi, sum.lo + high.lo);
}

static inline mla_dd mla_dd_divide(mla_dd x, mla_dd y) {
    const double quotient = x.hi / y.hi;
    const mla_dd taken = mla_dd_multiply_double(y, quotient);
    return mla_dd_fast_two_sum(quotient, ((x.hi - taken.hi) + (x.lo - taken.lo)) / y.hi);
}

/* Times a power of two. */
static inline mla_dd mla_dd_scale(mla_dd x, double power) {
    return (mla_dd){x.hi * power, x.lo * power};
}

/*
 * Relative error at most 2^-94. exp: 0 below -600, infinity above 709. log: -infinity at 0, NaN below, an argument near 1 included. tanh: 1 from 40 on.
 * NaN gives NaN.
 */
mla_dd mla_dd_exp(mla_dd x);
mla_dd mla_dd_expm1(mla_dd x);
mla_dd mla_dd_log(mla_dd x);
mla_dd mla_dd_tanh(mla_dd x);

/* Rounded once to float, to nearest, ties to even. A zero is +0. */
float mla_dd_to_float(mla_dd x);

#endif
