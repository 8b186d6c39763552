/*
 * A kernel with a fault that is hard to see: it declares that P is rounded to bf16 to nearest, and with -DTRUNCATE_P takes the upper half of the
 * float instead, as hand-written packing does. One row at a time, tiles of 64 tokens, in fp32.
 *
 *     cc -O2 -DTRUNCATE_P -shared -fPIC -o truncating.so tests/plugin_truncating.c -lm
 */
#include "../gpu/mla_gpu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TILE 64

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float from_bf16(uint16_t code) {
    return from_bits((uint32_t)code << 16);
}

static uint16_t to_bf16(float value) {
    const uint32_t bits = to_bits(value);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static float round_p(float p) {
#ifdef TRUNCATE_P
    return from_bits(to_bits(p) & 0xFFFF0000);
#else
    return from_bf16(to_bf16(p));
#endif
}

static bool supports(const mla_kernel *kernel, const mla_problem *p, char *reason, size_t reason_size) {
    (void)kernel;
    const char *no = p->q_format != MLA_BF16 || p->kv_format != MLA_KV_BF16               ? "q and kv must be bf16"
                     : p->out_format != MLA_BF16                                          ? "out must be bf16"
                     : p->paging != MLA_CONTIGUOUS                                        ? "kv must be contiguous"
                     : p->softcap > 0 || p->sink || p->window || p->lse_base != MLA_LSE_E ? "no softcap, sink, window or base-2 lse"
                                                                                          : NULL;
    if (no)
        snprintf(reason, reason_size, "%s", no);
    return !no;
}

/* The running softmax of one row. */
typedef struct row {
    float max, sum, value[MLA_HEAD_DIM_V];
} row;

static void add_tile(row *r, const uint16_t *q, const uint16_t *keys, int64_t count, float scale) {
    float scores[TILE], max = r->max;
    for (int64_t j = 0; j < count; j++) {
        float dot = 0;
        for (int d = 0; d < MLA_HEAD_DIM; d++)
            dot += from_bf16(q[d]) * from_bf16(keys[j * MLA_HEAD_DIM + d]);
        scores[j] = dot * scale;
        max = fmaxf(max, scores[j]);
    }
    const float shrink = expf(r->max - max);
    r->max = max;
    r->sum *= shrink;
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        r->value[c] *= shrink;
    for (int64_t j = 0; j < count; j++) {
        const float weight = expf(scores[j] - max), p = round_p(weight);
        r->sum += weight;
        for (int c = 0; c < MLA_HEAD_DIM_V; c++)
            r->value[c] += p * from_bf16(keys[j * MLA_HEAD_DIM + c]);
    }
}

static void attend(const mla_problem *p, const uint16_t *q, const uint16_t *keys, int64_t n, uint16_t *out, float *lse) {
    row r = {.max = -INFINITY};
    for (int64_t j = 0; j < n; j += TILE)
        add_tile(&r, q, keys + j * MLA_HEAD_DIM, n - j < TILE ? n - j : TILE, p->sm_scale);
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        out[c] = n > 0 ? to_bf16(r.value[c] / r.sum) : 0;
    *lse = n > 0 ? r.max + logf(r.sum) : p->lse_empty_positive ? INFINITY : -INFINITY;
}

static int run(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t reason_size) {
    (void)kernel, (void)reason, (void)reason_size;
    const mla_problem *p = launch->problem;
    int32_t b = 0;
    for (int64_t t = 0; t < p->total_q; t++) {
        while (b < p->batch && t >= p->qo_indptr[b + 1])
            b++;
        int64_t n = 0, first = 0; /* rows beyond the last sequence are empty */
        if (b < p->batch) {
            first = p->kv_indptr[b];
            n = p->kv_indptr[b + 1] - first - (p->causal ? p->qo_indptr[b + 1] - 1 - t : 0);
        }
        for (int64_t i = t * p->heads; i < (t + 1) * p->heads; i++)
            attend(p, (const uint16_t *)p->q + i * MLA_HEAD_DIM, (const uint16_t *)p->kv + first * MLA_HEAD_DIM, n,
                   (uint16_t *)launch->output->out + i * MLA_HEAD_DIM_V, launch->output->lse + i);
    }
    return 0;
}

static const mla_kernel truncating = {
    .abi_version = MLA_KERNEL_ABI,
    .name = "truncating",
    .space = MLA_SPACE_HOST,
    .contract = {.acc_rounding = MLA_RNE,
                 .acc_bits = 24,
                 .mma_k = 1,
                 .scores = MLA_FP32,
                 .n_scores = 1,
                 .q_scaled = MLA_NONE,
                 .kv_dequant = MLA_NONE,
                 .p = MLA_BF16,
                 .p_rounding = MLA_RNE,
                 .p_scale = 1,
                 .partial = MLA_FP32,
                 .exp_error = 4,
                 .tanh_error = 8,
                 .log_error = 4,
                 .out_rounding = MLA_RNE,
                 .tile = TILE,
                 .max_splits = 1},
    .supports = supports,
    .run = run,
};

__attribute__((visibility("default"))) const mla_kernel *mla_plugin_kernel(void);

const mla_kernel *mla_plugin_kernel(void) {
    return &truncating;
}
