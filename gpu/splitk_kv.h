/*
 * KV and q formats on the device: how bytes become operands of the matrix unit. One policy class a KV format:
 *
 *   CHUNKS     16-byte chunks of a token in memory: all of them are read, once a row tile, and nothing else but SCALES
 *   DIRECT     these chunks are operands already
 *   FP16       operands are fp16, otherwise bf16
 *   SCALES     one e8m0 scale a chunk, in kv_block_scales
 *   convert    one stager's chunks of a token, stager + i * STAGERS, and their scales, to chunks of operands: calls put(place, chunk)
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

/* Chunk `lane + step` of a row. `step`, a multiple of 8, is known to the compiler where loops are unrolled, and left alone by the swizzle: no arithmetic at run time. */
struct mla_place {
    int lane, step;
    MLA_DEVICE int in(int row) const { return mla_swizzle(row, lane) + step; }
};

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
    return mla_bytes(mla_to_bits(low), mla_to_bits(high), 0x7632);
}

struct mla_float_pair {
    float low, high;
};

/* Two codes, bits 0-7 and 8-15, as bf16, exactly: exponent and mantissa are read with bf16's bias, then scaled to their own, subnormals too. */
template <typename Code> struct mla_e4m3_codes {
    static MLA_DEVICE uint32_t operands(uint32_t codes) { return odd_operands(mla_bytes(0, codes, 0x5040)); }
    /* The two codes in bits 8-15 and 24-31. */
    static MLA_DEVICE uint32_t odd_operands(uint32_t x) {
        return mla_mul_bf16x2((x >> 4 & 0x07F007F0) | (x & 0x80008000), Code::BIAS) | (Code::nan(x) >> 15) * 0x7FC0;
    }
    /* Of a word's four codes the first and third, the second and fourth. */
    static MLA_DEVICE void unzip(uint32_t codes, uint32_t &even, uint32_t &odd) {
        even = odd_operands(codes << 8);
        odd = odd_operands(codes);
    }
    static MLA_DEVICE mla_float_pair values(uint32_t codes) {
        const uint32_t pair = operands(codes);
        return {mla_float(static_cast<uint16_t>(pair)), mla_float(static_cast<uint16_t>(pair >> 16))};
    }
};
/* nan: bits 15 and 31 of x where the code above them, in bits 8-15 and 24-31, is not a number. */
struct mla_e4m3fnuz : mla_e4m3_codes<mla_e4m3fnuz> {
    static constexpr uint32_t BIAS = 0x7B007B00; /* 2^119 twice */
    static MLA_DEVICE uint32_t nan(uint32_t x) { return x & ~((x & 0x7F007F00) + 0x7F007F00) & 0x80008000; }
};
#if defined(MLA_HAS_E4M3)
struct mla_e4m3 {
    static MLA_DEVICE mla_float_pair values(uint32_t codes) {
        mla_float_pair pair;
        mla_e4m3_to_float(codes, pair.low, pair.high);
        return pair;
    }
    static MLA_DEVICE uint32_t operands(uint32_t codes) {
        const mla_float_pair pair = values(codes);
        return mla_exact_bf16x2(pair.low, pair.high);
    }
    static MLA_DEVICE void unzip(uint32_t codes, uint32_t &even, uint32_t &odd) {
        float values[4];
        mla_e4m3_to_float(codes, values);
        even = mla_exact_bf16x2(values[0], values[2]);
        odd = mla_exact_bf16x2(values[1], values[3]);
    }
};
#else
struct mla_e4m3 : mla_e4m3_codes<mla_e4m3> {
    static constexpr uint32_t BIAS = 0x7B807B80; /* 2^120 twice */
    static MLA_DEVICE uint32_t nan(uint32_t x) { return ((x & 0x7F007F00) + 0x01000100) & 0x80008000; }
};
#endif

/* ---- KV ---- */

template <bool fp16> struct mla_kv_16bit {
    static constexpr int CHUNKS = mla_key_chunks;
    static constexpr bool DIRECT = true, FP16 = fp16, SCALES = false;
    template <int STAGERS, int ROUNDS, typename Put>
    static MLA_DEVICE void convert(const mla_chunk (&raw)[ROUNDS], const uint8_t (&)[ROUNDS], int stager, Put put) {
        MLA_UNROLL
        for (int i = 0; i < ROUNDS; i++)
            if (CHUNKS % STAGERS == 0 || stager + i * STAGERS < CHUNKS)
                put(mla_place{stager + i * STAGERS % 8, i * STAGERS / 8 * 8}, raw[i]);
    }
};
typedef mla_kv_16bit<false> mla_kv_bf16;
typedef mla_kv_16bit<true> mla_kv_fp16;

/*
 * Stagers that would store into the same banks at once begin with different chunks, each with number mla_turn of those it makes of one. Eight neighbouring
 * threads store at once: of one token, or four of each of two whose swizzles differ.
 */
template <int STAGERS, int CHUNKS> MLA_DEVICE int mla_turn(int stager) {
    return STAGERS >= 8 ? stager * CHUNKS / 8 % CHUNKS : stager / 2 * 2 % CHUNKS;
}
/* Of two entries of an array in registers; a condition might become an index, which registers have not. */
MLA_DEVICE uint32_t mla_second_if(int second, uint32_t a, uint32_t b) {
    return a ^ ((a ^ b) & -static_cast<uint32_t>(second & 1));
}
/* Word w ^ turn of a chunk. */
MLA_DEVICE uint32_t mla_word(const mla_chunk &chunk, int w, int turn) {
    return mla_second_if(turn, mla_second_if(turn >> 1, chunk.w[w], chunk.w[w ^ 2]),
                         mla_second_if(turn >> 1, chunk.w[w ^ 1], chunk.w[w ^ 3]));
}

/* One chunk of sixteen codes makes two of operands, the first of them at `place`; operands(codes) makes two. */
template <int STAGERS, typename Operands, typename Put>
MLA_DEVICE void mla_convert_fp8(const mla_chunk &raw, mla_place place, Operands operands, Put put) {
    const int turn = mla_turn<STAGERS, 2>(place.lane / 2);
    MLA_UNROLL
    for (int half = 0; half < 2; half++) {
        mla_chunk chunk;
        MLA_UNROLL
        for (int i = 0; i < 4; i++)
            chunk.w[i] = operands(mla_word(raw, half * 2 + i / 2, turn * 2) >> i % 2 * 16);
        put(mla_place{place.lane + (half ^ turn), place.step}, chunk);
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
                mla_convert_fp8<STAGERS>(raw[i], mla_place{stager * 2, i * STAGERS * 2}, Code::operands, put);
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
        for (int i = ROUNDS - 1; i >= 0; i--) { /* the short ones first: their registers are free for the others */
            const int chunk = stager + i * STAGERS;
            const int block = i * STAGERS / 8 % 4; /* eight chunks share a scale */
            const float scale = mla_from_bits(
                mla_second_if(STAGERS > 8 ? stager / 8 : 0, mla_to_bits(scales[block]), mla_to_bits(scales[(block + 1) % 4])));
            if (i * STAGERS < SCALE_CHUNK)
                mla_convert_fp8<STAGERS>(
                    raw[i], mla_place{stager * 2, i * STAGERS * 2},
                    [scale](uint32_t codes) {
                        const mla_float_pair values = mla_e4m3::values(codes);
                        return mla_bf16x2(values.low * scale, values.high * scale);
                    },
                    put);
            else if (chunk > SCALE_CHUNK && chunk < CHUNKS)
                put(mla_place{MLA_HEAD_DIM_V / 8 + chunk - (SCALE_CHUNK + 1), 0}, raw[i]);
        }
    }
};

/* 32 codes of e2m1 a chunk, low nibble first, with one e8m0 scale: four chunks of operands. */
struct mla_kv_mxfp4 {
    static constexpr int CHUNKS = MLA_HEAD_DIM / 32;
    static constexpr bool DIRECT = false, FP16 = false, SCALES = true;

    /* 2^126 times the scale, as bf16: codes are read with bf16's bias, not their own. The largest is out of range: what is missing is in `rest`. */
    struct scaling {
        uint32_t factor, rest; /* two equal halves */
    };
    static MLA_DEVICE scaling scaling_of(uint32_t e8m0) {
        const uint32_t low = e8m0 < 128 ? e8m0 : 128, twice = 0x00010001;
        return {(e8m0 == 0xFF ? 0x7FC0 : (low + 126) << 7) * twice, ((e8m0 - low + 127) << 7) * twice};
    }
    /* Codes 2i and 2i + 1 of a word as bf16, 2^-126 of their values: a sign, two bits of exponent, one of mantissa. */
    static MLA_DEVICE uint32_t pair(uint32_t codes, int i) {
        const uint32_t x = mla_bytes(codes << 4, codes, i << 4 | (4 + i) << 12);
        return (x >> 6 & 0x01C001C0) | (x & 0x80008000);
    }
    template <int STAGERS, int ROUNDS, typename Put>
    static MLA_DEVICE void convert(const mla_chunk (&raw)[ROUNDS], const uint8_t (&scales)[ROUNDS], int stager, Put put) {
        MLA_UNROLL
        for (int i = 0; i < ROUNDS; i++) {
            const int chunk = stager + i * STAGERS;
            if (chunk >= CHUNKS)
                continue;
            const scaling scale = scaling_of(scales[i]);
            const int turn = mla_turn<STAGERS, 4>(stager);
            MLA_UNROLL
            for (int w = 0; w < 4; w++) {
                const uint32_t codes = mla_word(raw[i], w, turn);
                mla_chunk operands;
                MLA_UNROLL
                for (int p = 0; p < 4; p++)
                    operands.w[p] = mla_mul_bf16x2(mla_mul_bf16x2(pair(codes, p), scale.factor), scale.rest);
                put(mla_place{stager * 4 + (w ^ turn), i * STAGERS * 4}, operands);
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
        const mla_float_pair values = Code::values(static_cast<const uint16_t *>(q)[pair]);
        return mla_operand_pair<FP16>(values.low, values.high);
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
