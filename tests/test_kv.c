#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../ref/mla.h"

/* A problem of `slots` tokens at `kv`, enough to read rows. */
static mla_problem reader(mla_kv_format format, const void *kv) {
    return (mla_problem){.heads = 2, .q_format = MLA_BF16, .q_scale = 1, .kv_format = format, .kv_scale = 1, .kv = kv};
}

static void read_rows(const mla_problem *problem, int64_t slot, double *row) {
    float rounded[MLA_HEAD_DIM];
    mla_kv_row_f64(problem, slot, row);
    mla_kv_row_f32(problem, slot, rounded);
    for (int d = 0; d < MLA_HEAD_DIM; d++)
        cr_assert(isnan(row[d]) ? isnan(rounded[d]) : rounded[d] == (float)row[d], "float is double rounded once: entry %d", d);
}

Test(kv, table) {
    static const struct {
        const char *name;
        size_t token_bytes, scale_bytes;
        bool has_tensor_scale;
    } expected[] = {{"bf16", 1152, 0, false},  {"fp16", 1152, 0, false},   {"fp8", 576, 0, true},
                    {"fp8fnuz", 576, 0, true}, {"fp8b656", 656, 0, false}, {"mxfp4", 288, 18, false}};
    for (int i = 0; i < MLA_KV_FORMAT_COUNT; i++) {
        const mla_kv_format_info *info = mla_kv_format_get((mla_kv_format)i);
        mla_kv_format parsed;
        cr_assert_str_eq(info->name, expected[i].name);
        cr_assert_eq(info->token_bytes, expected[i].token_bytes);
        cr_assert_eq(info->scale_bytes, expected[i].scale_bytes);
        cr_assert_eq(info->has_tensor_scale, expected[i].has_tensor_scale);
        cr_assert_eq(mla_kv_format_parse(info->name, &parsed).code, MLA_OK);
        cr_assert_eq((int)parsed, i);
    }
    mla_kv_format parsed;
    cr_assert_str_eq(mla_kv_format_parse("e2m1", &parsed).message, "no KV format is called 'e2m1'");
}

Test(kv, sixteen_bit_rows) {
    static uint16_t kv[3 * MLA_HEAD_DIM];
    double row[MLA_HEAD_DIM];
    for (int i = 0; i < 3 * MLA_HEAD_DIM; i++)
        kv[i] = (uint16_t)(i * 37);
    const mla_kv_format formats[] = {MLA_KV_BF16, MLA_KV_FP16};
    const mla_format elements[] = {MLA_BF16, MLA_FP16};
    for (int f = 0; f < 2; f++) {
        const mla_problem problem = reader(formats[f], kv);
        for (int slot = 0; slot < 3; slot++) {
            read_rows(&problem, slot, row);
            for (int d = 0; d < MLA_HEAD_DIM; d++) {
                const double value = mla_decode(elements[f], kv[slot * MLA_HEAD_DIM + d]);
                cr_assert(isnan(value) ? isnan(row[d]) : row[d] == value, "slot %d entry %d", slot, d);
            }
        }
    }
}

Test(kv, every_fp8_code_times_the_tensor_scale) {
    static uint8_t kv[2 * MLA_HEAD_DIM];
    double row[MLA_HEAD_DIM];
    for (int d = 0; d < MLA_HEAD_DIM; d++)
        kv[MLA_HEAD_DIM + d] = (uint8_t)d;
    for (int fnuz = 0; fnuz < 2; fnuz++) {
        mla_problem problem = reader(fnuz ? MLA_KV_FP8FNUZ : MLA_KV_FP8, kv);
        problem.kv_scale = 0.1f;
        read_rows(&problem, 1, row);
        for (int d = 0; d < MLA_HEAD_DIM; d++) {
            const double code = mla_decode(fnuz ? MLA_FP8FNUZ : MLA_FP8, (uint32_t)d & 255);
            cr_assert(isnan(code) ? isnan(row[d]) : row[d] == code * (double)0.1f, "code %02X", d & 255);
        }
    }
}

Test(kv, fp8b656_layout) {
    static uint8_t kv[2 * 656];
    uint8_t *token = kv + 656;
    double row[MLA_HEAD_DIM];
    const float scales[4] = {1, 0.25f, 3, NAN};
    memset(token, 0x38, 512); /* e4m3fn 1 */
    token[0] = 0xB8;          /* -1 */
    token[127] = 0x7E;        /* 448, the last of the first scale */
    token[128] = 0x40;        /* 2, the first of the second */
    memcpy(token + 512, scales, sizeof scales);
    for (int i = 0; i < 64; i++) {
        const uint16_t rope = (uint16_t)(0x3F80 + i); /* bf16 1 + i/128 */
        memcpy(token + 528 + 2 * i, &rope, sizeof rope);
    }
    const mla_problem problem = reader(MLA_KV_FP8B656, kv);
    read_rows(&problem, 1, row);
    cr_assert_eq(row[0], -1);
    cr_assert_eq(row[126], 1);
    cr_assert_eq(row[127], 448);
    cr_assert_eq(row[128], 0.5);
    cr_assert_eq(row[255], 0.25);
    cr_assert_eq(row[256], 3);
    for (int d = 384; d < 512; d++)
        cr_assert(isnan(row[d]));
    for (int i = 0; i < 64; i++)
        cr_assert_eq(row[512 + i], 1 + i / 128.0, "RoPE has no scale");
}

Test(kv, mxfp4_layout) {
    static uint8_t kv[3 * 288], scales[3 * 24];
    double row[MLA_HEAD_DIM];
    static const double e2m1[16] = {0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6};
    memset(scales, 0xFF, sizeof scales); /* what no row owns is NaN */
    for (int slot = 0; slot < 3; slot++) {
        for (int i = 0; i < 288; i++)
            kv[slot * 288 + i] = (uint8_t)(i * 5 + slot);
        for (int b = 0; b < 18; b++)
            scales[slot * 24 + b] = (uint8_t)(120 + b + slot);
    }
    mla_problem problem = reader(MLA_KV_MXFP4, kv);
    problem.kv_block_scales = scales;
    problem.kv_scale_stride = 24;
    for (int slot = 0; slot < 3; slot++) {
        read_rows(&problem, slot, row);
        for (int d = 0; d < MLA_HEAD_DIM; d++) {
            const uint8_t pair = (uint8_t)(d / 2 * 5 + slot);
            const double code = e2m1[d % 2 == 0 ? pair & 15 : pair >> 4];
            cr_assert_eq(row[d], ldexp(code, d / 32 + slot - 7), "slot %d entry %d", slot, d);
        }
    }
}

Test(kv, mxfp4_extreme_scales) {
    static uint8_t kv[288], scales[18];
    double row[MLA_HEAD_DIM];
    memset(kv, 0x71, sizeof kv); /* even entries .5, odd ones 6 */
    scales[1] = 254;
    scales[2] = 255;
    mla_problem problem = reader(MLA_KV_MXFP4, kv);
    problem.kv_block_scales = scales;
    problem.kv_scale_stride = 18;
    read_rows(&problem, 0, row);
    cr_assert_eq(row[0], 0x1p-128);
    cr_assert_eq(row[33], 0x1.8p129, "beyond float's range, not double's");
    for (int d = 64; d < 96; d++)
        cr_assert(isnan(row[d]));
}

Test(kv, rows_beyond_32_bits) {
    /* the address alone: a base so far below that slot 2^32 is `token` */
    static uint16_t token[MLA_HEAD_DIM] = {0x3F80};
    const int64_t slot = INT64_C(1) << 32;
    const mla_problem problem = reader(MLA_KV_BF16, (const void *)((uintptr_t)token - (uintptr_t)slot * 1152));
    float row[MLA_HEAD_DIM];
    mla_kv_row_f32(&problem, slot, row);
    cr_assert_eq(row[0], 1);
}

Test(kv, q_rows) {
    static uint8_t q[3 * 2 * MLA_HEAD_DIM];
    float row[MLA_HEAD_DIM];
    double exact[MLA_HEAD_DIM];
    for (size_t i = 0; i < sizeof q; i++)
        q[i] = (uint8_t)(i * 7 % 120);
    mla_problem problem = reader(MLA_KV_BF16, NULL);
    problem.q = q;
    problem.q_format = MLA_FP8;
    problem.q_scale = 0.3f;
    mla_q_row_f32(&problem, 2, 1, row);
    mla_q_row_f64(&problem, 2, 1, exact);
    for (int d = 0; d < MLA_HEAD_DIM; d++) {
        cr_assert_eq(exact[d], mla_decode(MLA_FP8, q[5 * MLA_HEAD_DIM + d]) * (double)0.3f);
        cr_assert_eq(row[d], (float)exact[d]);
    }
    problem.q_format = MLA_BF16;
    problem.q_scale = 1;
    mla_q_row_f64(&problem, 1, 0, exact);
    uint16_t code;
    memcpy(&code, q + 2 * (2 * MLA_HEAD_DIM + 9), sizeof code);
    cr_assert_eq(exact[9], mla_decode(MLA_BF16, code));
}

/* ---- quantisers ---- */

/* A fixed sequence over several binades and both signs. */
static void fill(float *x, int count, float amplitude) {
    uint32_t state = 12345;
    for (int i = 0; i < count; i++) {
        state = state * 1664525 + 1013904223;
        x[i] = amplitude * ((float)(state >> 8) * 0x1p-23f - 1) * ldexpf(1, -(int)(state & 7));
    }
}

Test(kv, fp8_tensor_scale) {
    cr_assert_eq(mla_fp8_scale(MLA_FP8, 448), 1);
    cr_assert_eq(mla_fp8_scale(MLA_FP8FNUZ, 480), 2);
    cr_assert_eq(mla_fp8_scale(MLA_FP8, 1), 1 / 448.0f);
    cr_assert_eq(mla_fp8_scale(MLA_FP8, 0), 1e-12f / 448);
    cr_assert(isnan(mla_fp8_scale(MLA_FP8, NAN)));
}

Test(kv, fp8_quantizer_rounds_to_bf16_first_and_clamps) {
    /* 1 + 2^-4 + 2^-9 is nearer to 1.125, but bf16 makes it the tie 1 + 2^-4, which goes to the even 1 */
    const float x[] = {1 + 0x1p-4f + 0x1p-9f, -1, 1e30f, -INFINITY, NAN, -0.0f};
    const uint8_t fn[] = {0x38, 0xB8, 0x7E, 0xFE, 0x7F, 0x80}, fnuz[] = {0x40, 0xC0, 0x7F, 0xFF, 0x80, 0x00};
    uint8_t codes[6];
    mla_fp8_quantize(MLA_FP8, x, 6, 1, codes);
    cr_assert_arr_eq(codes, fn, 6);
    mla_fp8_quantize(MLA_FP8FNUZ, x, 6, 1, codes);
    cr_assert_arr_eq(codes, fnuz, 6);
    mla_fp8_quantize(MLA_FP8, (const float[]){3}, 1, 1.5f, codes);
    cr_assert_eq(codes[0], 0x40, "divided by the scale: 2");
}

Test(kv, fp8_quantizer_is_close) {
    enum { COUNT = 1000 };
    float x[COUNT];
    uint8_t codes[COUNT];
    fill(x, COUNT, 30);
    const float scale = mla_fp8_scale(MLA_FP8, 30);
    mla_fp8_quantize(MLA_FP8, x, COUNT, scale, codes);
    for (int i = 0; i < COUNT; i++) {
        const double back = mla_decode(MLA_FP8, codes[i]) * (double)scale;
        /* half a unit of e4m3, half a unit of bf16, the division; below the normals half the smallest subnormal */
        const double limit = fabs((double)x[i]) * (0x1p-4 + 0x1p-8) + 0x1p-10 * (double)scale;
        cr_assert(fabs(back - (double)x[i]) <= limit, "%g became %g", (double)x[i], back);
    }
}

static void through_656(const float *row, double *back, float *scales) {
    uint8_t token[656];
    mla_fp8b656_quantize(row, token);
    memcpy(scales, token + 512, 4 * sizeof *scales);
    const mla_problem problem = reader(MLA_KV_FP8B656, token);
    mla_kv_row_f64(&problem, 0, back);
}

Test(kv, fp8b656_scales_by_hand) {
    float row[MLA_HEAD_DIM] = {0}, scales[4];
    double back[MLA_HEAD_DIM];
    row[5] = -448;       /* 448/448 = 1 */
    row[128] = 449;      /* just above: 2 */
    row[256] = 0x1p-24f; /* the floor of 1e-4, whose power is 2^-13: 2^-11 of it */
    row[500] = 7;        /* 2^-6 */
    row[575] = 1.5f;
    through_656(row, back, scales);
    const float expected[4] = {1, 2, 0x1p-13f, 0x1p-6f};
    for (int b = 0; b < 4; b++)
        cr_assert_eq(scales[b], expected[b], "block %d", b);
    cr_assert_eq(back[5], -448);
    cr_assert_eq(back[128], 448, "224.5 rounds to 224");
    cr_assert_eq(back[256], 0, "2^-11 is less than half of the smallest e4m3fn, 2^-9");
    cr_assert_eq(back[500], 7);
    cr_assert_eq(back[575], 1.5);
}

Test(kv, fp8b656_quantizing_again_changes_nothing) {
    float row[MLA_HEAD_DIM], scales[4];
    double once[MLA_HEAD_DIM], twice[MLA_HEAD_DIM];
    fill(row, MLA_HEAD_DIM, 11);
    through_656(row, once, scales);
    for (int d = 0; d < MLA_HEAD_DIM; d++) {
        const double limit = d < 512 ? fabs((double)row[d]) * 0x1p-4 + 0x1p-10 * (double)scales[d / 128] : fabs((double)row[d]) * 0x1p-8;
        cr_assert(fabs(once[d] - (double)row[d]) <= limit, "entry %d", d);
        row[d] = (float)once[d];
    }
    through_656(row, twice, scales);
    cr_assert_arr_eq(once, twice, sizeof once);
}

Test(kv, fp8b656_carries_nan_through) {
    float row[MLA_HEAD_DIM] = {0}, scales[4];
    double back[MLA_HEAD_DIM];
    row[3] = row[570] = NAN;
    through_656(row, back, scales);
    cr_assert(isnan(back[3]) && isnan(back[570]));
    cr_assert_eq(back[4], 0);
}

static void through_mxfp4(const float *row, double *back, uint8_t *scales) {
    uint8_t pairs[288];
    mla_mxfp4_quantize(row, pairs, scales);
    mla_problem problem = reader(MLA_KV_MXFP4, pairs);
    problem.kv_block_scales = scales;
    problem.kv_scale_stride = 18;
    mla_kv_row_f64(&problem, 0, back);
}

Test(kv, mxfp4_scales_by_hand) {
    float row[MLA_HEAD_DIM] = {0};
    uint8_t scales[18];
    double back[MLA_HEAD_DIM];
    row[0] = 6;          /* 1.5 * 2^2: scale 1 */
    row[1] = -2.5f;      /* a tie of 2 and 3: 2, whose code is even */
    row[32] = 6.99f;     /* mantissa below 1.75: scale 1, saturates at 6 */
    row[64] = 7;         /* 1.75 goes up: scale 2, 3.5 is a tie of 3 and 4: 4 */
    row[96] = 0x1p-126f; /* scale would be 2^-128: 2^-127, and 2 of it */
    row[128] = 0x1p127f; /* scale 2^125 */
    row[160] = NAN;
    row[192] = INFINITY;
    through_mxfp4(row, back, scales);
    const uint8_t expected[8] = {127, 127, 128, 0, 252, 255, 255, 0};
    cr_assert_arr_eq(scales, expected, sizeof expected);
    cr_assert_eq(back[0], 6);
    cr_assert_eq(back[1], -2);
    cr_assert_eq(back[32], 6);
    cr_assert_eq(back[64], 8);
    cr_assert_eq(back[96], 0x1p-126);
    cr_assert_eq(back[128], 0x1p127);
    for (int d = 160; d < 224; d++)
        cr_assert(isnan(back[d]), "a block that is not finite is NaN as a whole");
    cr_assert_eq(back[224], 0);
}

Test(kv, mxfp4_is_close) {
    float row[MLA_HEAD_DIM];
    uint8_t scales[18];
    double back[MLA_HEAD_DIM];
    fill(row, MLA_HEAD_DIM, 5);
    through_mxfp4(row, back, scales);
    for (int d = 0; d < MLA_HEAD_DIM; d++) {
        /* steps of at most a unit up to 6, and nothing reaches 7 */
        const double unit = mla_decode(MLA_E8M0, scales[d / 32]);
        cr_assert(fabs(back[d] - (double)row[d]) <= unit, "entry %d: %g became %g", d, (double)row[d], back[d]);
        cr_assert(fabs((double)row[d]) < 2 * unit || fabs(back[d] - (double)row[d]) <= fabs((double)row[d]) / 4, "entry %d", d);
    }
}
