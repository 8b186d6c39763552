/*
 * A kernel for the verifier in one page: copy this file, put your launch into `run`, state your arithmetic in `contract`.
 *
 *     cc -O2 -shared -fPIC -o mine.so mine.c -lm          mla-verify run --kernel ./mine.so
 *
 * This one is as plain as attention gets: one row at a time, scores in the workspace, two passes, fp32 throughout.
 */
#include "mla_gpu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static float from_bf16(uint16_t code) {
    uint32_t bits = (uint32_t)code << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To nearest even; the values here are finite. */
static uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static bool supports(const mla_kernel *kernel, const mla_problem *p, char *reason, size_t reason_size) {
    (void)kernel;
    const char *no = p->q_format != MLA_BF16 || p->kv_format != MLA_KV_BF16 ? "q and kv must be bf16"
                     : p->out_format != MLA_BF16                            ? "out must be bf16"
                     : p->paging != MLA_CONTIGUOUS                          ? "kv must be contiguous"
                     : p->softcap > 0 || p->sink || p->window               ? "no softcap, sink or window"
                                                                            : NULL;
    if (no)
        snprintf(reason, reason_size, "%s", no);
    return !no;
}

/* One float for each score of the longest row. */
static size_t workspace(const mla_kernel *kernel, const mla_problem *p) {
    (void)kernel;
    int32_t longest = 0;
    for (int32_t b = 0; b < p->batch; b++) {
        int32_t tokens = p->kv_indptr[b + 1] - p->kv_indptr[b];
        longest = tokens > longest ? tokens : longest;
    }
    return (size_t)longest * sizeof(float);
}

/* Scores of q against keys [0, n) and their maximum. */
static float scores_of(const uint16_t *q, const uint16_t *keys, int64_t n, float scale, float *scores) {
    float maximum = -INFINITY;
    for (int64_t j = 0; j < n; j++) {
        float dot = 0;
        for (int d = 0; d < MLA_HEAD_DIM; d++)
            dot += from_bf16(q[d]) * from_bf16(keys[j * MLA_HEAD_DIM + d]);
        scores[j] = dot * scale;
        maximum = fmaxf(maximum, scores[j]);
    }
    return maximum;
}

/* softmax(scores) V, and lse in the problem's convention. No keys: zeros. */
static void attend(const mla_problem *p, const uint16_t *q, const uint16_t *keys, int64_t n, float *scores, uint16_t *out, float *lse) {
    float maximum = scores_of(q, keys, n, p->sm_scale, scores), sum = 0, value[MLA_HEAD_DIM_V] = {0};
    for (int64_t j = 0; j < n; j++) {
        float weight = expf(scores[j] - maximum);
        sum += weight;
        for (int c = 0; c < MLA_HEAD_DIM_V; c++)
            value[c] += weight * from_bf16(keys[j * MLA_HEAD_DIM + c]);
    }
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        out[c] = to_bf16(n > 0 ? value[c] / sum : 0);
    if (n > 0)
        *lse = (maximum + logf(sum)) * (p->lse_base == MLA_LSE_2 ? 1.44269504f : 1);
    else
        *lse = p->lse_empty_positive ? INFINITY : -INFINITY;
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
        for (int64_t row = t * p->heads; row < (t + 1) * p->heads; row++)
            attend(p, (const uint16_t *)p->q + row * MLA_HEAD_DIM, (const uint16_t *)p->kv + first * MLA_HEAD_DIM, n, launch->workspace,
                   (uint16_t *)launch->output->out + row * MLA_HEAD_DIM_V, launch->output->lse + row);
    }
    return 0;
}

static const mla_kernel example = {
    .abi_version = MLA_KERNEL_ABI,
    .name = "example",
    .space = MLA_SPACE_HOST,
    .contract = {.acc_rounding = MLA_RNE,
                 .acc_bits = 24,
                 .mma_k = 1,
                 .scores = MLA_FP32,
                 .n_scores = 1,
                 .q_scaled = MLA_NONE,
                 .kv_dequant = MLA_NONE,
                 .p = MLA_FP32, /* P is never rounded */
                 .p_rounding = MLA_RNE,
                 .p_scale = 1,
                 .partial = MLA_FP32,
                 .exp_error = 4,
                 .tanh_error = 8,
                 .log_error = 4,
                 .out_rounding = MLA_RNE,
                 .tile = 1 << 30, /* the maximum is known before the first weight: nothing is rescaled */
                 .max_splits = 1},
    .supports = supports,
    .workspace = workspace,
    .run = run,
};

__attribute__((visibility("default"))) const mla_kernel *mla_plugin_kernel(void);

const mla_kernel *mla_plugin_kernel(void) {
    return &example;
}
