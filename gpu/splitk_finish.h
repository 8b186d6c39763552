/* How a row ends: its normaliser, its log-sum-exp, and the store in the output's format. Shared by the split-K kernel, the combine and bmm. */
#ifndef MLA_SPLITK_FINISH_H
#define MLA_SPLITK_FINISH_H

#include "device.h"
#include "mla_gpu.h"

MLA_DEVICE_BEGIN

constexpr float mla_infinity = __builtin_inff();
constexpr float mla_log2_e = 1.44269504088896340736f, mla_ln_2 = 0.69314718055994530942f;

struct mla_row_end {
    float scale; /* turns the unnormalised sum of p v, in units of kv_scale, into the output */
    float lse;
};

/*
 * A row whose scores have the maximum m (log2 units) and whose weights sum to l; l == 0: no key was visible. The sink's logit takes weight in the
 * denominator alone. It may exceed m by far, so both are taken relative to the larger.
 */
MLA_DEVICE mla_row_end mla_finish_row(const mla_problem &problem, int64_t row, float m, float l) {
    if (l == 0.0f)
        return {0.0f, problem.lse_empty_positive ? mla_infinity : -mla_infinity};
    float weight = 1.0f, total = l;
    if (problem.sink) {
        const float sink = mla_mul(problem.sink[row % problem.heads], mla_log2_e), top = mla_max(m, sink);
        weight = mla_exp2(m - top);
        total = l * weight + mla_exp2(sink - top);
    }
    const float lse = m + mla_log2(l);
    return {weight / total * problem.kv_scale, problem.lse_base == MLA_LSE_2 ? lse : lse * mla_ln_2};
}

/* Stores N neighbouring values of one row, N even. */
template <int N> MLA_DEVICE void mla_store_f32(float *to, const float (&values)[N]) {
    constexpr int WIDTH = N % 4 == 0 ? 4 : 2;
    struct alignas(4 * WIDTH) run {
        float v[WIDTH];
    };
    MLA_UNROLL
    for (int i = 0; i < N; i += WIDTH) {
        run r;
        MLA_UNROLL
        for (int e = 0; e < WIDTH; e++)
            r.v[e] = values[i + e];
        *reinterpret_cast<run *>(to + i) = r;
    }
}

template <int N> MLA_DEVICE void mla_store_pairs(uint16_t *to, const uint32_t (&pairs)[N]) {
    struct alignas(4 * N) run {
        uint32_t w[N];
    } r;
    MLA_UNROLL
    for (int i = 0; i < N; i++)
        r.w[i] = pairs[i];
    *reinterpret_cast<run *>(to) = r;
}

/* The same into the output of a kernel with these arguments, rounded to its format: `values` start at `column` of `row`. */
template <typename Args, int N> MLA_DEVICE void mla_store_out(const Args &args, int64_t row, int64_t column, const float (&values)[N]) {
    const int64_t at = row * MLA_HEAD_DIM_V + column;
    if (args.problem.out_format == MLA_FP32)
        return mla_store_f32(static_cast<float *>(args.output.out) + at, values);
    const bool fp16 = args.problem.out_format == MLA_FP16;
    uint32_t pairs[N / 2];
    MLA_UNROLL
    for (int i = 0; i < N / 2; i++)
        pairs[i] = fp16 ? mla_fp16x2(values[2 * i], values[2 * i + 1]) : mla_bf16x2(values[2 * i], values[2 * i + 1]);
    mla_store_pairs(static_cast<uint16_t *>(args.output.out) + at, pairs);
}

MLA_DEVICE_END

#endif
