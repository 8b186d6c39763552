/*
 * KV formats. A row is 576 elements times scales, each scale shared by a block of consecutive elements. A new format is an entry of the table and,
 * where its bytes lie in a new way, a case in read_elements.
 */
#include "mla.h"

#include <string.h>

typedef struct kv_entry {
    mla_kv_format_info info;
    mla_format element;
    int block; /* elements that share a scale */
} kv_entry;

#define MAX_BLOCKS 18 /* mxfp4: 576 / 32 */

static const kv_entry kv_formats[MLA_KV_FORMAT_COUNT] = {
    [MLA_KV_BF16] = {{"bf16", 1152, 0, false}, MLA_BF16, MLA_HEAD_DIM},
    [MLA_KV_FP16] = {{"fp16", 1152, 0, false}, MLA_FP16, MLA_HEAD_DIM},
    [MLA_KV_FP8] = {{"fp8", 576, 0, true}, MLA_FP8, MLA_HEAD_DIM},
    [MLA_KV_FP8FNUZ] = {{"fp8fnuz", 576, 0, true}, MLA_FP8FNUZ, MLA_HEAD_DIM},
    [MLA_KV_FP8B656] = {{"fp8b656", 656, 0, false}, MLA_FP8, 128},
    [MLA_KV_MXFP4] = {{"mxfp4", 288, 18, false}, MLA_E2M1, 32},
};

const mla_kv_format_info *mla_kv_format_get(mla_kv_format format) {
    return &kv_formats[format].info;
}

mla_status mla_kv_format_parse(const char *name, mla_kv_format *format) {
    for (int i = 0; i < MLA_KV_FORMAT_COUNT; i++)
        if (strcmp(name, kv_formats[i].info.name) == 0) {
            *format = (mla_kv_format)i;
            return mla_ok();
        }
    return mla_error(MLA_EINVAL, "no KV format is called '%s'", name);
}

static void read_656(const uint8_t *token, float *elements, float *scales) {
    mla_decode_f32(MLA_FP8, token, MLA_HEAD_DIM_V, elements);
    memcpy(scales, token + MLA_HEAD_DIM_V, 4 * sizeof *scales);
    scales[4] = 1;
    mla_decode_f32(MLA_BF16, token + MLA_HEAD_DIM_V + 16, MLA_HEAD_DIM - MLA_HEAD_DIM_V, elements + MLA_HEAD_DIM_V);
}

static void read_mxfp4(const uint8_t *token, const uint8_t *block_scales, float *elements, float *scales) {
    uint8_t codes[MLA_HEAD_DIM];
    for (int i = 0; i < MLA_HEAD_DIM / 2; i++) {
        codes[2 * i] = token[i] & 15;
        codes[2 * i + 1] = token[i] >> 4;
    }
    mla_decode_f32(MLA_E2M1, codes, MLA_HEAD_DIM, elements);
    mla_decode_f32(MLA_E8M0, block_scales, MAX_BLOCKS, scales);
}

/* The elements before scaling and the scale of each block; both are exact in float. */
static void read_elements(const mla_problem *problem, int64_t slot, float *elements, float *scales) {
    const kv_entry *entry = &kv_formats[problem->kv_format];
    const uint8_t *token = (const uint8_t *)problem->kv + slot * (int64_t)entry->info.token_bytes;
    switch (problem->kv_format) {
    case MLA_KV_FP8B656:
        read_656(token, elements, scales);
        return;
    case MLA_KV_MXFP4:
        read_mxfp4(token, problem->kv_block_scales + slot * problem->kv_scale_stride, elements, scales);
        return;
    default:
        mla_decode_f32(entry->element, token, MLA_HEAD_DIM, elements);
        scales[0] = entry->info.has_tensor_scale ? problem->kv_scale : 1;
    }
}

static int block_end(int begin, int block) {
    return begin + block < MLA_HEAD_DIM ? begin + block : MLA_HEAD_DIM;
}

void mla_kv_row_f32(const mla_problem *problem, int64_t slot, float *row) {
    const int block = kv_formats[problem->kv_format].block;
    float scales[MAX_BLOCKS] = {0};
    read_elements(problem, slot, row, scales);
    for (int begin = 0; begin < MLA_HEAD_DIM; begin += block) {
        const float scale = scales[begin / block];
        if (scale == 1)
            continue;
        for (int d = begin; d < block_end(begin, block); d++)
            row[d] *= scale;
    }
}

void mla_kv_row_f64(const mla_problem *problem, int64_t slot, double *row) {
    const int block = kv_formats[problem->kv_format].block;
    float elements[MLA_HEAD_DIM], scales[MAX_BLOCKS] = {0};
    read_elements(problem, slot, elements, scales);
    for (int begin = 0; begin < MLA_HEAD_DIM; begin += block) {
        const double scale = (double)scales[begin / block];
        for (int d = begin; d < block_end(begin, block); d++)
            row[d] = (double)elements[d] * scale;
    }
}

static void read_q(const mla_problem *problem, int64_t q_token, int32_t head, float *row) {
    const int64_t first = (q_token * problem->heads + head) * MLA_HEAD_DIM;
    const uint8_t *codes = (const uint8_t *)problem->q + first * (int64_t)mla_format_bytes(problem->q_format);
    mla_decode_f32(problem->q_format, codes, MLA_HEAD_DIM, row);
}

void mla_q_row_f32(const mla_problem *problem, int64_t q_token, int32_t head, float *row) {
    read_q(problem, q_token, head, row);
    for (int d = 0; d < MLA_HEAD_DIM; d++)
        row[d] *= problem->q_scale;
}

void mla_q_row_f64(const mla_problem *problem, int64_t q_token, int32_t head, double *row) {
    float codes[MLA_HEAD_DIM];
    read_q(problem, q_token, head, codes);
    for (int d = 0; d < MLA_HEAD_DIM; d++)
        row[d] = (double)codes[d] * (double)problem->q_scale;
}
