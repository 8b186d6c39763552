#include "mla.h"

#include <math.h>
#include <string.h>

#define FP8_BLOCK 128
#define MXFP4_BLOCK 32

/* NaN is passed over. */
static float largest_magnitude(const float *x, int count) {
    float amax = 0;
    for (int i = 0; i < count; i++)
        amax = fmaxf(amax, fabsf(x[i]));
    return amax;
}

/* ---- fp8 with one scale a tensor ---- */

float mla_fp8_scale(mla_format format, float amax) {
    const float floored = amax < 1e-12f ? 1e-12f : amax;
    return floored / (float)mla_format_get(format)->max_finite;
}

void mla_fp8_quantize(mla_format format, const float *x, size_t count, float scale, uint8_t *codes) {
    const float limit = (float)mla_format_get(format)->max_finite;
    for (size_t begin = 0; begin < count; begin += FP8_BLOCK) {
        const size_t length = count - begin < FP8_BLOCK ? count - begin : FP8_BLOCK;
        float scaled[FP8_BLOCK];
        uint16_t rounded[FP8_BLOCK];
        for (size_t i = 0; i < length; i++)
            scaled[i] = x[begin + i] / scale;
        mla_encode_f32(MLA_BF16, scaled, length, rounded);
        mla_decode_f32(MLA_BF16, rounded, length, scaled);
        for (size_t i = 0; i < length; i++)
            scaled[i] = scaled[i] > limit ? limit : scaled[i] < -limit ? -limit : scaled[i];
        mla_encode_f32(format, scaled, length, codes + begin);
    }
}

/* ---- fp8 with a scale a block: FlashMLA's 656-byte token ---- */

/* The smallest power of two that is not below x > 0. */
static float power_of_two_above(float x) {
    if (!isfinite(x))
        return x;
    int exponent;
    const float fraction = frexpf(x, &exponent);
    return ldexpf(1, fraction == 0.5f ? exponent - 1 : exponent);
}

void mla_fp8b656_quantize(const float *row, uint8_t *token) {
    float scales[MLA_HEAD_DIM_V / FP8_BLOCK];
    for (int b = 0; b < MLA_HEAD_DIM_V / FP8_BLOCK; b++) {
        const float *x = row + b * FP8_BLOCK;
        float scaled[FP8_BLOCK];
        scales[b] = power_of_two_above(fmaxf(largest_magnitude(x, FP8_BLOCK) / 448, 1e-4f));
        for (int i = 0; i < FP8_BLOCK; i++)
            scaled[i] = x[i] / scales[b];
        mla_encode_f32(MLA_FP8, scaled, FP8_BLOCK, token + b * FP8_BLOCK);
    }
    uint16_t rope[MLA_HEAD_DIM - MLA_HEAD_DIM_V];
    mla_encode_f32(MLA_BF16, row + MLA_HEAD_DIM_V, MLA_HEAD_DIM - MLA_HEAD_DIM_V, rope);
    memcpy(token + MLA_HEAD_DIM_V, scales, sizeof scales);
    memcpy(token + MLA_HEAD_DIM_V + sizeof scales, rope, sizeof rope);
}

/* ---- mxfp4 ---- */

/*
 * aiter's even rounding of the scale: a largest magnitude of 1.75 times a power of two or more goes up to the next, and two binades are taken off since the
 * largest e2m1 is 1.5 * 2^2. What then still exceeds 6 saturates. A block that is not finite as a whole gets the NaN scale.
 */
static uint8_t mxfp4_scale(const float *x) {
    for (int i = 0; i < MXFP4_BLOCK; i++)
        if (!isfinite(x[i]))
            return 0xFF;
    const float amax = largest_magnitude(x, MXFP4_BLOCK);
    uint32_t bits;
    memcpy(&bits, &amax, sizeof bits);
    const uint32_t exponent = (bits + 0x200000) >> 23;
    return exponent > 2 ? (uint8_t)(exponent - 2) : 0;
}

void mla_mxfp4_quantize(const float *row, uint8_t *pairs, uint8_t *scales) {
    float scaled[MLA_HEAD_DIM];
    uint8_t codes[MLA_HEAD_DIM];
    for (int b = 0; b < MLA_HEAD_DIM / MXFP4_BLOCK; b++) {
        scales[b] = mxfp4_scale(row + b * MXFP4_BLOCK);
        const float scale = (float)mla_decode(MLA_E8M0, scales[b]);
        for (int i = b * MXFP4_BLOCK; i < (b + 1) * MXFP4_BLOCK; i++)
            scaled[i] = row[i] / scale;
    }
    mla_encode_f32(MLA_E2M1, scaled, MLA_HEAD_DIM, codes);
    for (int i = 0; i < MLA_HEAD_DIM / 2; i++)
        pairs[i] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
}
