#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../ref/mla.h"

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static bool same(double a, double b) {
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

/* sign, exponent field e of the given bias, fraction m of `fraction_bits`; no infinity or NaN */
static double by_fields(uint32_t code, int fraction_bits, int exponent_bits, int bias) {
    const int m = (int)(code & ((1u << fraction_bits) - 1)), e = (int)(code >> fraction_bits & ((1u << exponent_bits) - 1));
    const double fraction = m / (double)(1 << fraction_bits);
    const double value = e == 0 ? fraction * pow(2, 1 - bias) : (1 + fraction) * pow(2, e - bias);
    return code >> (fraction_bits + exponent_bits) & 1 ? -value : value;
}

static double half_by_fields(uint32_t code) {
    if ((code & 0x7FFF) == 0x7C00)
        return code & 0x8000 ? -INFINITY : INFINITY;
    return (code & 0x7C00) == 0x7C00 ? NAN : by_fields(code, 10, 5, 15);
}

Test(format, every_16_bit_code_decodes) {
    for (uint32_t code = 0; code < 0x10000; code++) {
        cr_assert(same(mla_decode(MLA_BF16, code), (double)float_of(code << 16)), "bf16 %04X", code);
        cr_assert(same(mla_decode(MLA_FP16, code), half_by_fields(code)), "fp16 %04X", code);
    }
}

Test(format, every_8_and_4_bit_code_decodes) {
    static const double e2m1[8] = {0, .5, 1, 1.5, 2, 3, 4, 6};
    for (uint32_t code = 0; code < 256; code++) {
        const double fn = (code & 0x7F) == 0x7F ? NAN : by_fields(code, 3, 4, 7), fnuz = code == 0x80 ? NAN : by_fields(code, 3, 4, 8);
        cr_assert(same(mla_decode(MLA_FP8, code), fn), "fp8 %02X", code);
        cr_assert(same(mla_decode(MLA_FP8FNUZ, code), fnuz), "fp8fnuz %02X", code);
        cr_assert(same(mla_decode(MLA_E8M0, code), code == 255 ? NAN : pow(2, (int)code - 127)), "e8m0 %02X", code);
        const double value = e2m1[code & 7];
        cr_assert(same(mla_decode(MLA_E2M1, code), code & 8 ? -value : value), "e2m1 %X, bits above the width ignored", code);
    }
}

Test(format, fp32_decodes_and_encodes_as_the_processor_does) {
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += 104729) {
        const float value = float_of((uint32_t)bits);
        cr_assert(same(mla_decode(MLA_FP32, (uint32_t)bits), (double)value), "%08X", (uint32_t)bits);
        if (isnan(value))
            continue;
        cr_assert_eq(mla_encode(MLA_FP32, (double)value, MLA_RNE), bits);
        const double between = (double)value * (1 + 0x1.7p-25);
        cr_assert_eq(mla_encode(MLA_FP32, between, MLA_RNE), bits_of((float)between), "%a", between);
    }
}

Test(format, table_agrees_with_the_codes) {
    static const uint32_t smallest[] = {1, 1, 1, 1, 1, 1, 0}, largest[] = {0x7F7F, 0x7BFF, 0x7F7FFFFF, 0x7E, 0x7F, 7, 0xFE};
    static const size_t bytes[] = {2, 2, 4, 1, 1, 1, 1};
    for (int i = 0; i < MLA_FORMAT_COUNT; i++) {
        const mla_format format = (mla_format)i;
        const mla_format_info *info = mla_format_get(format);
        mla_format parsed;
        cr_assert_eq(mla_format_parse(info->name, &parsed).code, MLA_OK);
        cr_assert_eq(parsed, format);
        cr_assert_eq(mla_format_bytes(format), bytes[i]);
        cr_assert_eq(mla_decode(format, smallest[i]), ldexp(1, info->min_exponent), "%s", info->name);
        cr_assert_eq(mla_decode(format, largest[i]), info->max_finite, "%s", info->name);
        if (format != MLA_E2M1)
            cr_assert(isnan(mla_decode(format, info->nan)), "%s", info->name);
    }
    mla_format parsed;
    const mla_status status = mla_format_parse("e5m2", &parsed);
    cr_assert_eq(status.code, MLA_EINVAL);
    cr_assert_str_eq(status.message, "no element format is called 'e5m2'");
}

/* Finite codes of magnitude, from 0 up: how many there are. */
static uint32_t finite_magnitudes(mla_format format) {
    uint32_t code = 0;
    while (code < 1u << mla_format_get(format)->bits && isfinite(mla_decode(format, code)) &&
           (code == 0 || mla_decode(format, code) > mla_decode(format, code - 1)))
        code++;
    return code;
}

static const mla_format small_formats[] = {MLA_BF16, MLA_FP16, MLA_FP8, MLA_FP8FNUZ, MLA_E2M1, MLA_E8M0};
#define SMALL_FORMATS (sizeof small_formats / sizeof *small_formats)

static void expect(mla_format format, double value, mla_rounding rounding, uint32_t code) {
    const uint32_t got = mla_encode(format, value, rounding);
    cr_assert_eq(got, code, "%s %a %s: got %X, expected %X", mla_format_get(format)->name, value, rounding == MLA_RNE ? "rne" : "rz", got,
                 code);
}

static uint32_t negated(mla_format format, uint32_t code) {
    if (format == MLA_E8M0)
        return 0xFF;
    return format == MLA_FP8FNUZ && code == 0 ? 0 : code | 1u << (mla_format_get(format)->bits - 1);
}

static void expect_both_signs(mla_format format, double value, uint32_t nearest, uint32_t toward_zero) {
    expect(format, value, MLA_RNE, nearest);
    expect(format, value, MLA_RZ, toward_zero);
    if (format == MLA_E8M0 && value == 0)
        return;
    expect(format, -value, MLA_RNE, negated(format, nearest));
    expect(format, -value, MLA_RZ, negated(format, toward_zero));
}

Test(format, every_value_and_midpoint_between_neighbours_rounds_correctly) {
    static const uint32_t counts[SMALL_FORMATS] = {0x7F80, 0x7C00, 0x7F, 0x80, 8, 0xFF};
    for (size_t f = 0; f < SMALL_FORMATS; f++) {
        const mla_format format = small_formats[f];
        const uint32_t count = finite_magnitudes(format);
        cr_assert_eq(count, counts[f], "%s", mla_format_get(format)->name);
        for (uint32_t code = 0; code < count; code++) {
            const double value = mla_decode(format, code);
            expect_both_signs(format, value, code, code);
            if (code + 1 == count)
                continue;
            const double middle = (value + mla_decode(format, code + 1)) / 2;
            /* A power of two's significand is odd only as the lower neighbour: e8m0 goes up. */
            const uint32_t even = format == MLA_E8M0 || code % 2 == 1 ? code + 1 : code;
            expect_both_signs(format, middle, even, code);
            expect_both_signs(format, nextafter(middle, 0), code, code);
            expect_both_signs(format, nextafter(middle, INFINITY), code + 1, code);
        }
    }
}

Test(format, overflow) {
    /* rne overflows from the midpoint of the largest value and the next binade: 65504 and 65536 */
    expect_both_signs(MLA_FP16, 65519.99, 0x7BFF, 0x7BFF);
    expect_both_signs(MLA_FP16, 65520, 0x7C00, 0x7BFF);
    expect_both_signs(MLA_BF16, 0x1.FEFFFFp127, 0x7F7F, 0x7F7F);
    expect_both_signs(MLA_BF16, 0x1.FFp127, 0x7F80, 0x7F7F);
    expect_both_signs(MLA_FP32, 0x1.FFFFFEFFFp127, 0x7F7FFFFF, 0x7F7FFFFF);
    expect_both_signs(MLA_FP32, 0x1.FFFFFFp127, 0x7F800000, 0x7F7FFFFF);
    const double large[] = {500, 1e6, 0x1p200, 0x1.FFFFFFFFFFFFFp1023, INFINITY};
    for (int i = 0; i < 5; i++) {
        expect_both_signs(MLA_FP8, large[i], 0x7E, 0x7E);
        expect_both_signs(MLA_FP8FNUZ, large[i], 0x7F, 0x7F);
        expect_both_signs(MLA_E2M1, large[i], 7, 7);
    }
    expect(MLA_E8M0, INFINITY, MLA_RNE, 0xFE);
    expect_both_signs(MLA_BF16, INFINITY, 0x7F80, 0x7F80);
    expect_both_signs(MLA_FP16, INFINITY, 0x7C00, 0x7C00);
    expect_both_signs(MLA_FP32, 0x1p1000, 0x7F800000, 0x7F7FFFFF);
}

Test(format, zeros_underflow_and_nan) {
    for (int i = 0; i < MLA_FORMAT_COUNT; i++) {
        const mla_format format = (mla_format)i;
        expect(format, NAN, MLA_RNE, mla_format_get(format)->nan);
        expect(format, -NAN, MLA_RZ, mla_format_get(format)->nan);
        expect_both_signs(format, 0, 0, 0);
        if (format == MLA_E8M0)
            continue;
        expect_both_signs(format, 0x1p-1074, 0, 0);
        const double half = ldexp(0.5, mla_format_get(format)->min_exponent);
        expect_both_signs(format, half, 0, 0);
        expect_both_signs(format, nextafter(half, 1), 1, 0);
    }
    expect(MLA_E8M0, -0.0, MLA_RNE, 0);
    expect(MLA_E8M0, 0x1p-1074, MLA_RZ, 0);
    expect(MLA_E8M0, -1, MLA_RNE, 0xFF);
}

Test(format, bulk_decoding_equals_single_for_every_code) {
    static uint16_t halves[0x10000];
    static float floats[0x10000];
    static double doubles[0x10000];
    for (size_t f = 0; f < SMALL_FORMATS; f++) {
        const mla_format format = small_formats[f];
        const size_t count = mla_format_bytes(format) == 1 ? 256 : 0x10000;
        for (size_t i = 0; i < count; i++) {
            halves[i] = (uint16_t)i;
            if (count == 256)
                ((uint8_t *)halves)[i] = (uint8_t)i;
        }
        mla_decode_f32(format, halves, count, floats);
        mla_decode_f64(format, halves, count, doubles);
        for (uint32_t code = 0; code < count; code++) {
            const double value = mla_decode(format, code);
            cr_assert(same((double)floats[code], value), "%s %X", mla_format_get(format)->name, code);
            cr_assert(same(doubles[code], value), "%s %X", mla_format_get(format)->name, code);
        }
    }
}

#define CHUNK 1021

static float chunk[CHUNK];
static size_t chunk_length;

static void flush_chunk(void) {
    for (int i = 0; i < MLA_FORMAT_COUNT; i++) {
        const mla_format format = (mla_format)i;
        const size_t bytes = mla_format_bytes(format);
        uint32_t codes[CHUNK];
        mla_encode_f32(format, chunk, chunk_length, codes);
        for (size_t k = 0; k < chunk_length; k++) {
            uint32_t code = 0;
            memcpy(&code, (const uint8_t *)codes + k * bytes, bytes);
            if (format == MLA_FP32 && isnan(chunk[k]))
                continue;
            cr_assert_eq(code, mla_encode(format, (double)chunk[k], MLA_RNE), "%s %a: got %X", mla_format_get(format)->name,
                         (double)chunk[k], code);
        }
    }
    chunk_length = 0;
}

static void add_to_chunk(float value) {
    if (chunk_length == CHUNK)
        flush_chunk();
    chunk[chunk_length++] = value;
}

Test(format, bulk_encoding_equals_single_all_over_float) {
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += 49979)
        add_to_chunk(float_of((uint32_t)bits));
    flush_chunk();
}

static void add_neighbourhood(float value) {
    add_to_chunk(nextafterf(value, -INFINITY));
    add_to_chunk(value);
    add_to_chunk(nextafterf(value, INFINITY));
}

/* Ties of normal values lie where float's last 12 bits are zero (fp16's) or more of them. */
Test(format, bulk_encoding_equals_single_at_ties) {
    for (uint32_t high = 0; high < 0x100000; high += 5)
        add_neighbourhood(float_of(high << 12));
    for (int halves = 0; halves <= 2 * 1024; halves++)
        add_neighbourhood(ldexpf((float)halves, -25)); /* of fp16's subnormal unit */
    for (int halves = 0; halves <= 2 * 16; halves++)
        add_neighbourhood(ldexpf((float)halves, -11)); /* of fp8fnuz's, and of fp8's */
    flush_chunk();
}

Test(format, bulk_touches_no_more_than_count) {
    for (size_t count = 0; count < 40; count++) {
        uint16_t codes[64];
        float values[64];
        memset(codes, 0x3F, sizeof codes);
        for (int i = 0; i < 64; i++)
            values[i] = 7;
        mla_decode_f32(MLA_BF16, codes, count, values);
        for (size_t i = 0; i < 64; i++)
            cr_assert_eq(values[i], i < count ? float_of(0x3F3F0000) : 7);
        mla_encode_f32(MLA_FP8, values, count, codes);
        for (size_t i = 0; i < 128; i++)
            if (i >= count)
                cr_assert_eq(((uint8_t *)codes)[i], 0x3F);
    }
}
