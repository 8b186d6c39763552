#include "mla.h"

#include <math.h>
#include <string.h>

/* Runs for every element: frexp and ldexp by the bits of a double. Subnormal doubles are below every format's range. */
double mla_ulp(mla_format format, double r) {
    const mla_format_info *info = mla_format_get(format);
    if (!isfinite(r))
        return fabs(r);
    uint64_t bits;
    memcpy(&bits, &r, sizeof bits);
    const int exponent = (int)(bits >> 52 & 0x7FF) - 1022 - info->digits; /* r = f 2^(exponent + digits), 1/2 <= f < 1 */
    const uint64_t ulp_bits = (uint64_t)((exponent < info->min_exponent ? info->min_exponent : exponent) + 1023) << 52;
    double ulp;
    memcpy(&ulp, &ulp_bits, sizeof ulp);
    return ulp;
}

/* Specials come before the formula, in this order (SLEEF's): both NaN, one NaN, an infinity. */
double mla_ulp_error(mla_format format, double got, double r) {
    if (isnan(got) && isnan(r))
        return 0;
    if (isnan(got) || isnan(r))
        return INFINITY;
    if (isinf(got) || isinf(r))
        return got == r ? 0 : INFINITY;
    return fabs(got - r) / mla_ulp(format, r);
}

/* A map of codes to integers that keeps the order of their values; -0 and 0 coincide. */
static int64_t ordered_key(mla_format format, uint32_t code) {
    const int bits = mla_format_get(format)->bits;
    const uint32_t sign = 1u << (bits - 1);
    const double value = mla_decode(format, code);
    code &= 0xFFFFFFFFu >> (32 - bits);
    return value == 0 ? 0 : value < 0 ? -(int64_t)(code & ~sign) : (int64_t)code;
}

uint32_t mla_ulp_distance(mla_format format, uint32_t code, double r) {
    const uint32_t rounded_code = mla_encode(format, r, MLA_RNE);
    const double got = mla_decode(format, code), rounded = isnan(r) ? r : mla_decode(format, rounded_code);
    if (isnan(got) && isnan(rounded))
        return 0;
    if (isnan(got) || isnan(rounded))
        return UINT32_MAX;
    if ((isinf(got) || isinf(rounded)) && got != rounded)
        return UINT32_MAX;
    const int64_t distance = ordered_key(format, code) - ordered_key(format, rounded_code);
    return (uint32_t)(distance < 0 ? -distance : distance);
}
