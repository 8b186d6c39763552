/*
 * KV and q formats on the device: how bytes become operands of the matrix unit. One policy class a KV format:
 *
 *   CHUNKS     16-byte chunks of a token in memory: all of them are read, once a row tile, and nothing else but SCALES
 *   DIRECT     these chunks are operands already
 *   FP16       operands are fp16, otherwise bf16
 *   SCALES     one e8m0 scale a chunk, in kv_block_scales
 *   convert    one stager's chunks of a token, stager + i * STAGERS, and their scales, to chunks of operands: calls put(chunk index, chunk)
 *
 * A per-tensor scale is folded into the score's factor and the output's; block scales are multiplied in here.
 */
#ifndef MLA_SPLITK_KV_H
#define MLA_SPLITK_KV_H

#include "device.h"
#include "mla_gpu.h"

MLA_DEVICE_BEGIN

/* Sixteen bytes; as operands, eight of one row. In LDS, chunk c of row r lies at c ^ (r & 7): then neither product meets bank conflicts. */
struct alignas(16) mla_chunk {
    uint32_t w[4];
};

constexpr int mla_key_chunks = MLA_HEAD_DIM / 8;

MLA_DEVICE int mla_swizzle(int row, int chunk) {
    return chunk ^ (row & 7);
}

/* A chunk from memory, zeros where there is none. */
MLA_DEVICE mla_chunk mla_load_chunk(const mla_chunk *from, bool there) {
    mla_chunk chunk = {};
    if (there)
        chunk = *from;
    return chunk;
}

/* ---- codes to floats and operands ---- */

MLA_DEVICE float mla_from_bits(uint32_t bits) {
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}
MLA_DEVICE uint32_t mla_to_bits(float value) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Two floats, rounded to operands. */
template <bool FP16> MLA_DEVICE uint32_t mla_operand_pair(float low, float high) {
    return FP16 ? mla_fp16x2(low, high) : mla_bf16x2(low, high);
}

/* Two floats that are exact in bf16. */
MLA_DEVICE uint32_t mla_exact_bf16x2(float low, float high) {
    return mla_to_bits(low) >> 16 | (mla_to_bits(high) & 0xFFFF0000);
}

/* Exponent and mantissa are read with float's bias, then scaled to their own: exact for subnormals too. */
MLA_DEVICE float mla_e4m3_value(uint32_t code, float bias, bool nan) {
    const float magnitude = mla_from_bits((code & 0x7F) << 20) * bias;
    return mla_from_bits(nan ? 0x7FC00000 : mla_to_bits(magnitude) | (code & 0x80) << 24);
}
struct mla_e4m3 {
    static MLA_DEVICE float value(uint32_t code) { return mla_e4m3_value(code, 0x1p120f, (code & 0x7F) == 0x7F); }
};
struct mla_e4m3fnuz {
    static MLA_DEVICE float value(uint32_t code) { return mla_e4m3_value(code, 0x1p119f, code == 0x80); }
};

/* ---- KV ---- */

template <bool fp16> struct mla_kv_16bit {
    static constexpr int CHUNKS = mla_key_chunks;
    static constexpr bool DIRECT = true, FP16 = fp16, SCALES = false;
    template <int STAGERS, int ROUNDS, typename Put>
    static MLA_DEVICE void convert(const mla_chunk (&raw)[ROUNDS], const uint8_t (&)[ROUNDS], int stager, Put put) {
        MLA_UNROLL
        for (int i = 0; i < ROUNDS; i++)
            put(stager + i * STAGERS, raw[i]);
    }
};
typedef mla_kv_16bit<false> mla_kv_bf16;
typedef mla_kv_16bit<true> mla_kv_fp16;

/* One chunk of sixteen codes makes two of operands: pair(low, high) of the codes' values. */
template <typename Code, typename Pair, typename Put> MLA_DEVICE void mla_convert_fp8(const mla_chunk &raw, int chunk, Pair pair, Put put) {
    MLA_UNROLL
    for (int half = 0; half < 2; half++) {
        mla_chunk operands;
        MLA_UNROLL
        for (int i = 0; i < 4; i++) {
            const uint32_t codes = raw.w[half * 2 + i / 2] >> i % 2 * 16;
            operands.w[i] = pair(Code::value(codes & 0xFF), Code::value(codes >> 8 & 0xFF));
        }
        put(chunk * 2 + half, operands);
    }
}

template <typename Code> struct mla_kv_per_tensor {
    static constexpr int CHUNKS = MLA_HEAD_DIM / 16;
    static constexpr bool DIRECT = false, FP16 = false, SCALES = false;
    template <int STAGERS, int ROUNDS, typename Put>
    static MLA_DEVICE void convert(const mla_chunk (&raw)[ROUNDS], const uint8_t (&)[ROUNDS], int stager, Put put) {
        MLA_UNROLL
        for (int i = 0; i < ROUNDS; i++)
            if (stager + i * STAGERS < CHUNKS)
                mla_convert_fp8<Code>(raw[i], stager + i * STAGERS, mla_exact_bf16x2, put);
    }
};
typedef mla_kv_per_tensor<mla_e4m3> mla_kv_fp8;
typedef mla_kv_per_tensor<mla_e4m3fnuz> mla_kv_fp8fnuz;

/* 32 chunks of e4m3, one of four float scales, eight of bf16. Stager 0 has the scales and hands them to the others. */
struct mla_kv_fp8b656 {
    static constexpr int SCALE_CHUNK = MLA_HEAD_DIM_V / 16, CHUNKS = SCALE_CHUNK + 1 + (MLA_HEAD_DIM - MLA_HEAD_DIM_V) / 8;
    static constexpr bool DIRECT = false, FP16 = false, SCALES = false;
    template <int STAGERS, int ROUNDS, typename Put>
    static MLA_DEVICE void convert(const mla_chunk (&raw)[ROUNDS], const uint8_t (&)[ROUNDS], int stager, Put put) {
        float scales[4];
        MLA_UNROLL
        for (int k = 0; k < 4; k++)
            scales[k] = mla_shuffle(mla_from_bits(raw[SCALE_CHUNK / STAGERS].w[k]), mla_thread() % MLA_WAVE - stager);
        MLA_UNROLL
        for (int i = 0; i < ROUNDS; i++) {
            const int chunk = stager + i * STAGERS;
            const float scale = scales[i * STAGERS / 8 % 4];
            if (i * STAGERS < SCALE_CHUNK)
                mla_convert_fp8<mla_e4m3>(
                    raw[i], chunk, [scale](float low, float high) { return mla_bf16x2(low * scale, high * scale); }, put);
            else if (chunk > SCALE_CHUNK && chunk < CHUNKS)
                put(MLA_HEAD_DIM_V / 8 + chunk - (SCALE_CHUNK + 1), raw[i]);
        }
    }
};

/* 32 codes of e2m1 a chunk, low nibble first, with one e8m0 scale: four chunks of operands. */
struct mla_kv_mxfp4 {
    static constexpr int CHUNKS = MLA_HEAD_DIM / 32;
    static constexpr bool DIRECT = false, FP16 = false, SCALES = true;

    static MLA_DEVICE float scale_value(uint32_t e8m0) {
        return mla_from_bits(e8m0 == 0 ? 0x00400000 : e8m0 == 0xFF ? 0x7FC00000 : e8m0 << 23);
    }
    static MLA_DEVICE float value(uint32_t code, float scale) {
        const float magnitude = mla_from_bits((code & 7) << 22) * 0x1p126f * scale;
        return mla_from_bits(mla_to_bits(magnitude) | (code & 8) << 28);
    }
    template <int STAGERS, int ROUNDS, typename Put>
    static MLA_DEVICE void convert(const mla_chunk (&raw)[ROUNDS], const uint8_t (&scales)[ROUNDS], int stager, Put put) {
        MLA_UNROLL
        for (int i = 0; i < ROUNDS; i++) {
            const int chunk = stager + i * STAGERS;
            if (chunk >= CHUNKS)
                continue;
            const float scale = scale_value(scales[i]);
            MLA_UNROLL
            for (int w = 0; w < 4; w++) {
                mla_chunk operands;
                MLA_UNROLL
                for (int pair = 0; pair < 4; pair++) {
                    const uint32_t codes = raw[i].w[w] >> pair * 8;
                    operands.w[pair] = mla_exact_bf16x2(value(codes & 15, scale), value(codes >> 4 & 15, scale));
                }
                put(chunk * 4 + w, operands);
            }
        }
    }
};

/* ---- q ---- */

/* Two neighbouring entries of q as operands: 16-bit codes are the kernel's operands, fp8 is exact in either. */
struct mla_q_16bit {
    static MLA_DEVICE uint32_t pair(const void *q, int64_t pair) { return static_cast<const uint32_t *>(q)[pair]; }
};
template <typename Code, bool FP16> struct mla_q_fp8 {
    static MLA_DEVICE uint32_t pair(const void *q, int64_t pair) {
        const uint32_t codes = static_cast<const uint16_t *>(q)[pair];
        const float low = Code::value(codes & 0xFF), high = Code::value(codes >> 8);
        return mla_operand_pair<FP16>(low, high);
    }
};

/* Calls use(policy) for q's format. */
template <bool FP16, typename Use> MLA_DEVICE void mla_with_q_format(mla_format format, Use use) {
    if (format == MLA_FP8)
        use(mla_q_fp8<mla_e4m3, FP16>());
    else if (format == MLA_FP8FNUZ)
        use(mla_q_fp8<mla_e4m3fnuz, FP16>());
    else
        use(mla_q_16bit());
}

MLA_DEVICE_END

#endif
