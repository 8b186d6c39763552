/*
 * Element formats. One table describes them all: a new format is one entry (and its name in mla_format).
 *
 * Codes count upward with magnitude: counted from zero, a magnitude code's low digits - 1 bits are the fraction and the rest the exponent, so
 * neighbouring values have neighbouring codes across binades and from subnormals to normals. Both directions use that alone.
 */
#include "mla.h"
#include "wide_vectors.h"

#include <math.h>
#include <string.h>

typedef struct format_entry {
    mla_format_info info;
    uint32_t max_code;  /* magnitude code of max_finite; infinity, where there is one, is the next */
    bool has_sign;      /* the top bit */
    bool has_zero;      /* else code 0 is the smallest positive value */
    bool negative_zero; /* else that code is a NaN, or there is no sign */
} format_entry;

static const format_entry formats[MLA_FORMAT_COUNT] = {
    [MLA_BF16] = {{"bf16", 16, 8, -133, 0x1.FEp127, true, 0x7FC0}, 0x7F7F, true, true, true},
    [MLA_FP16] = {{"fp16", 16, 11, -24, 65504, true, 0x7E00}, 0x7BFF, true, true, true},
    [MLA_FP32] = {{"fp32", 32, 24, -149, 0x1.FFFFFEp127, true, 0x7FC00000}, 0x7F7FFFFF, true, true, true},
    [MLA_FP8] = {{"fp8", 8, 4, -9, 448, false, 0x7F}, 0x7E, true, true, true},
    [MLA_FP8FNUZ] = {{"fp8fnuz", 8, 4, -10, 240, false, 0x80}, 0x7F, true, true, false},
    [MLA_E2M1] = {{"e2m1", 4, 2, -1, 6, false, 0}, 7, true, true, true},
    [MLA_E8M0] = {{"e8m0", 8, 1, -127, 0x1p127, false, 0xFF}, 0xFE, false, false, false},
};

const mla_format_info *mla_format_get(mla_format format) {
    return &formats[format].info;
}

mla_status mla_format_parse(const char *name, mla_format *format) {
    for (int i = 0; i < MLA_FORMAT_COUNT; i++)
        if (strcmp(name, formats[i].info.name) == 0) {
            *format = (mla_format)i;
            return mla_ok();
        }
    return mla_error(MLA_EINVAL, "no element format is called '%s'", name);
}

size_t mla_format_bytes(mla_format format) {
    int bytes = formats[format].info.bits / 8;
    return bytes > 1 ? (size_t)bytes : 1;
}

static uint32_t sign_bit(const format_entry *entry) {
    return entry->has_sign ? 1u << (entry->info.bits - 1) : 0;
}

/* ---- one value, any format ---- */

double mla_decode(mla_format format, uint32_t code) {
    const format_entry *entry = &formats[format];
    const uint32_t sign = sign_bit(entry);
    code &= 0xFFFFFFFFu >> (32 - entry->info.bits);
    uint32_t magnitude = code & ~sign;
    if (magnitude > entry->max_code + entry->info.has_infinity || (code == entry->info.nan && entry->info.nan != 0))
        return NAN;

    double value = INFINITY;
    if (magnitude <= entry->max_code) {
        const int fraction_bits = entry->info.digits - 1;
        magnitude += !entry->has_zero;
        uint32_t fraction = magnitude & ((1u << fraction_bits) - 1), exponent = magnitude >> fraction_bits;
        value = exponent == 0 ? ldexp(fraction, entry->info.min_exponent)
                              : ldexp((1u << fraction_bits) + fraction, entry->info.min_exponent + (int)exponent - 1);
    }
    return code & sign ? -value : value;
}

/* value / 2^exponent rounded to an integer of at most 52 bits; value > 0. */
static uint64_t round_to_unit(double value, int exponent, mla_rounding rounding) {
    int value_exponent;
    const uint64_t significand = (uint64_t)ldexp(frexp(value, &value_exponent), 53);
    int dropped = exponent - (value_exponent - 53);
    if (dropped > 54)
        dropped = 54; /* less than half a unit already */
    const uint64_t kept = significand >> dropped, rest = significand - (kept << dropped), half = UINT64_C(1) << (dropped - 1);
    const bool up = rounding == MLA_RNE && (rest > half || (rest == half && kept % 2 == 1));
    return kept + up;
}

/* Magnitude code of a finite value >= 0; beyond max_code when it overflows. */
static uint64_t encode_magnitude(const format_entry *entry, double value, mla_rounding rounding) {
    const mla_format_info *info = &entry->info;
    if (value == 0)
        return 0;
    int exponent;
    (void)frexp(value, &exponent);
    const int unit = exponent - info->digits > info->min_exponent ? exponent - info->digits : info->min_exponent;
    const uint64_t code = ((uint64_t)(unit - info->min_exponent) << (info->digits - 1)) + round_to_unit(value, unit, rounding);
    return entry->has_zero || code == 0 ? code : code - 1;
}

uint32_t mla_encode(mla_format format, double value, mla_rounding rounding) {
    const format_entry *entry = &formats[format];
    if (isnan(value) || (value < 0 && !entry->has_sign))
        return entry->info.nan;

    const uint32_t infinity = entry->max_code + entry->info.has_infinity;
    uint64_t code = infinity;
    if (isfinite(value)) {
        const uint32_t limit = rounding == MLA_RNE ? infinity : entry->max_code;
        code = encode_magnitude(entry, fabs(value), rounding);
        if (code > limit)
            code = limit;
    }
    if (signbit(value) && (code != 0 || entry->negative_zero))
        code |= sign_bit(entry);
    return (uint32_t)code;
}

/*
 * ---- many values ----
 *
 * A signed format no wider than 16 bits is a float with fewer fraction bits and another exponent bias. So a magnitude code moved up to float's
 * fraction is the value but for a power of two, subnormals included, and a float's own bits, rounded by integer addition, are the code
 * but for an offset. The loops become vector code once the entry is a constant, if what depends on a float operation is chosen by a mask: a
 * compiler that honours floating-point traps makes a branch of a condition there.
 */

static float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* 2^exponent, -126 <= exponent <= 127 */
static float power_of_two(int exponent) {
    return float_of_bits((uint32_t)(exponent + 127) << 23);
}

static uint32_t mask_of(bool condition) {
    return -(uint32_t)condition;
}

static inline float decode_narrow(const format_entry *entry, uint32_t code) {
    const int shift = 24 - entry->info.digits;
    const uint32_t sign = sign_bit(entry);
    const uint32_t magnitude = code & (sign - 1), negative = (code & sign) << (32 - entry->info.bits);
    const float value = float_of_bits(magnitude << shift) * power_of_two(entry->info.min_exponent + 149 - shift);
    const bool nan = !entry->negative_zero && code == sign;
    const uint32_t special = mask_of(magnitude > entry->max_code) & 0x7F800000u; /* infinity where the fraction is 0, else NaN */
    return float_of_bits(bits_of_float(value) | negative | special | (mask_of(nan) & 0x7FC00000u));
}

static inline uint32_t encode_narrow(const format_entry *entry, float value) {
    const mla_format_info *info = &entry->info;
    const int shift = 24 - info->digits, normal_exponent = info->min_exponent + info->digits - 1;
    const uint32_t bits = bits_of_float(value), magnitude = bits & 0x7FFFFFFFu;
    const int32_t infinity = (int32_t)(entry->max_code + info->has_infinity);

    /* Below the normals: adding 2^23 units makes the hardware round to whole units. */
    const float units = power_of_two(info->min_exponent + 23);
    const uint32_t subnormal = bits_of_float(float_of_bits(magnitude) + units) - bits_of_float(units);
    const uint32_t half = (1u << (shift - 1)) - 1 + ((magnitude >> shift) & 1);
    const uint32_t normal = ((magnitude + half) >> shift) - ((uint32_t)(normal_exponent + 126) << (info->digits - 1));

    const uint32_t below = mask_of((int32_t)magnitude < (int32_t)bits_of_float(power_of_two(normal_exponent)));
    int32_t code = (int32_t)((subnormal & below) | (normal & ~below));
    code = code > infinity ? infinity : code;
    const uint32_t sign = code == 0 && !entry->negative_zero ? 0 : (bits >> 31) << (info->bits - 1);
    const uint32_t nan = mask_of((int32_t)magnitude > 0x7F800000);
    return (((uint32_t)code | sign) & ~nan) | (info->nan & nan);
}

#define INLINE static inline __attribute__((always_inline)) /* so that the entry is a constant in the loop */

/* bf16 is the upper half of a float. */
INLINE void decode_bf16(const uint16_t *codes, size_t count, float *values) {
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        values[i] = float_of_bits((uint32_t)codes[i] << 16);
}

INLINE void decode_bytes(const format_entry *entry, const uint8_t *codes, size_t count, float *values) {
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        values[i] = decode_narrow(entry, codes[i]);
}

INLINE void decode_halves(const format_entry *entry, const uint16_t *codes, size_t count, float *values) {
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        values[i] = decode_narrow(entry, codes[i]);
}

INLINE void encode_bytes(const format_entry *entry, const float *values, size_t count, uint8_t *codes) {
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        codes[i] = (uint8_t)encode_narrow(entry, values[i]);
}

INLINE void encode_halves(const format_entry *entry, const float *values, size_t count, uint16_t *codes) {
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        codes[i] = (uint16_t)encode_narrow(entry, values[i]);
}

WIDE_VECTORS void mla_decode_f32(mla_format format, const void *codes, size_t count, float *values) {
    const uint8_t *bytes = codes;
    switch (format) {
    case MLA_BF16:
        decode_bf16(codes, count, values);
        return;
    case MLA_FP16:
        decode_halves(&formats[MLA_FP16], codes, count, values);
        return;
    case MLA_FP8:
        decode_bytes(&formats[MLA_FP8], codes, count, values);
        return;
    case MLA_FP8FNUZ:
        decode_bytes(&formats[MLA_FP8FNUZ], codes, count, values);
        return;
    case MLA_E2M1:
        decode_bytes(&formats[MLA_E2M1], codes, count, values);
        return;
    case MLA_FP32:
        if (count > 0)
            memcpy(values, codes, count * sizeof *values);
        return;
    default:
        for (size_t i = 0; i < count; i++)
            values[i] = (float)mla_decode(format, bytes[i]);
    }
}

void mla_decode_f64(mla_format format, const void *codes, size_t count, double *values) {
    float block[256];
    const uint8_t *bytes = codes;
    for (size_t begin = 0; begin < count; begin += 256) {
        const size_t length = count - begin < 256 ? count - begin : 256;
        mla_decode_f32(format, bytes + begin * mla_format_bytes(format), length, block);
        for (size_t i = 0; i < length; i++)
            values[begin + i] = (double)block[i];
    }
}

WIDE_VECTORS void mla_encode_f32(mla_format format, const float *values, size_t count, void *codes) {
    uint8_t *bytes = codes;
    switch (format) {
    case MLA_BF16:
        encode_halves(&formats[MLA_BF16], values, count, codes);
        return;
    case MLA_FP16:
        encode_halves(&formats[MLA_FP16], values, count, codes);
        return;
    case MLA_FP8:
        encode_bytes(&formats[MLA_FP8], values, count, codes);
        return;
    case MLA_FP8FNUZ:
        encode_bytes(&formats[MLA_FP8FNUZ], values, count, codes);
        return;
    case MLA_E2M1:
        encode_bytes(&formats[MLA_E2M1], values, count, codes);
        return;
    case MLA_FP32:
        if (count > 0)
            memcpy(codes, values, count * sizeof *values);
        return;
    default:
        for (size_t i = 0; i < count; i++)
            bytes[i] = (uint8_t)mla_encode(format, (double)values[i], MLA_RNE);
    }
}
