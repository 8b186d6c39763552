#include "double_double.h"

#include <math.h>
#include <string.h>

static const mla_dd ONE = {1, 0};

/*
 * exp(r) - 1 for |r| <= 0.35: Taylor's series at r / 256, whose eleventh term is below 2^-120 of the first, then eight times
 * exp(2 y) - 1 = t (t + 2) for t = exp(y) - 1. Each of these adds about 10 u^2 to the relative error.
 */
static mla_dd expm1_reduced(mla_dd r) {
    const mla_dd y = mla_dd_scale(r, 0x1p-8);
    mla_dd sum = ONE;
    for (int n = 11; n >= 2; n--)
        sum = mla_dd_add(ONE, mla_dd_divide(mla_dd_multiply(y, sum), (mla_dd){n, 0}));
    mla_dd t = mla_dd_multiply(y, sum);
    for (int doubling = 0; doubling < 8; doubling++)
        t = mla_dd_multiply(t, mla_dd_add_double(t, 2));
    return t;
}

/* exp(x) = 2^k exp(r), r = x - k ln 2: the error of k ln 2 is below 1024 * 2^-107. */
mla_dd mla_dd_exp(mla_dd x) {
    if (!(x.hi >= -600))
        return (mla_dd){x.hi < -600 ? 0 : x.hi, 0};
    if (x.hi > 709)
        return (mla_dd){INFINITY, 0};
    const double k = floor(x.hi / MLA_DD_LN_2.hi + 0.5);
    const mla_dd r = mla_dd_subtract(x, mla_dd_multiply_double(MLA_DD_LN_2, k));
    return mla_dd_scale(mla_dd_add(ONE, expm1_reduced(r)), ldexp(1, (int)k));
}

mla_dd mla_dd_expm1(mla_dd x) {
    return fabs(x.hi) <= 0.34 ? expm1_reduced(x) : mla_dd_subtract(mla_dd_exp(x), ONE);
}

/* 2 atanh(s) = 2 s (1 + s^2 / 3 + s^4 / 5 + ...): for |s| <= 0.172 the term after s^42 / 43 is below 2^-111. */
static mla_dd twice_atanh(mla_dd s) {
    const mla_dd square = mla_dd_multiply(s, s);
    mla_dd sum = {0, 0};
    for (int n = 43; n >= 1; n -= 2)
        sum = mla_dd_add(mla_dd_multiply(square, sum), mla_dd_divide(ONE, (mla_dd){n, 0}));
    return mla_dd_multiply(mla_dd_scale(s, 2), sum);
}

/* log(x) = k ln 2 + log(f), f in [0.707, 1.414]; log(f) = 2 atanh((f - 1) / (f + 1)). */
mla_dd mla_dd_log(mla_dd x) {
    if (!(x.hi > 0) || isinf(x.hi))
        return (mla_dd){x.hi == 0 ? -INFINITY : x.hi > 0 ? x.hi : NAN, 0};
    int k;
    if (frexp(x.hi, &k) < 0x1.6a09ep-1)
        k--;
    const mla_dd f = {ldexp(x.hi, -k), ldexp(x.lo, -k)};
    const mla_dd s = mla_dd_divide(mla_dd_add_double(f, -1), mla_dd_add_double(f, 1));
    return mla_dd_add(mla_dd_multiply_double(MLA_DD_LN_2, k), twice_atanh(s));
}

/* tanh |x| = t / (t + 2), t = exp(2 |x|) - 1; from 40 on it is 1 to within 2^-114. */
mla_dd mla_dd_tanh(mla_dd x) {
    const mla_dd magnitude = x.hi < 0 ? mla_dd_negate(x) : x;
    const mla_dd t = mla_dd_expm1(mla_dd_scale(magnitude, 2));
    const mla_dd tanh_magnitude = magnitude.hi >= 40 ? ONE : mla_dd_divide(t, mla_dd_add_double(t, 2));
    return x.hi < 0 ? mla_dd_negate(tanh_magnitude) : tanh_magnitude;
}

/*
 * By way of the double that is rounded to odd: it is x where x is a double, otherwise whichever neighbour of x has an odd last bit. Rounding that to a
 * type of 51 bits or fewer gives what rounding x gives (Boldo and Melquiond 2008).
 */
float mla_dd_to_float(mla_dd x) {
    uint64_t bits;
    double odd = x.hi;
    memcpy(&bits, &x.hi, sizeof bits);
    if (x.lo != 0 && isfinite(x.hi) && bits % 2 == 0) {
        bits += (x.lo > 0) == (x.hi > 0) ? 1 : UINT64_MAX;
        memcpy(&odd, &bits, sizeof odd);
    }
    const float rounded = (float)odd;
    return rounded == 0 ? 0 : rounded;
}
