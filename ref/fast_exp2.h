/*
 * 2^x in fp32 without libm, so that loops over it vectorise.
 *
 * x = n + f with n the nearest integer and |f| <= 1/2 (exact), 2^f by the polynomial of degree 6 with the least relative error on [-1/2, 1/2]
 * among those with p(0) = 1 (0.04 units of 2^-24, fitted by iteratively reweighted least squares). Rounding adds to that: 1.74 units at
 * most, measured over every float from -126 to -1e-6. 2^0 is exactly 1.
 */
#ifndef MLA_FAST_EXP2_H
#define MLA_FAST_EXP2_H

#include <stdint.h>
#include <string.h>

/* For x <= 127. Below -126.5 the result is 0; NaN gives NaN; -infinity gives 0. */
static inline float mla_fast_exp2(float x) {
    const float clamped = x < -127.0f ? -127.0f : x;
    const float shifted = clamped + 0x1.8p23f; /* rounds to the nearest integer, left in the low bits */
    const float f = clamped - (shifted - 0x1.8p23f);
    float p = 0x1.41fbbcp-13f;
    p = p * f + 0x1.5f3e52p-10f;
    p = p * f + 0x1.3b2d4cp-7f;
    p = p * f + 0x1.c6aee8p-5f;
    p = p * f + 0x1.ebfbdcp-3f;
    p = p * f + 0x1.62e430p-1f;
    p = p * f + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23; /* n = -127 gives the bits of 0 */
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

#endif
