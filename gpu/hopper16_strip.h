/*
 * KV that must be converted, as the engine hopper16 takes it: a lane has a strip of a token, 16 of each group of 64 dimensions, from memory to operands
 * in its own registers. Lane t of the four that share a token has dimensions 16 t .. 16 t + 15 of a group. One class a KV format:
 *
 *   source                    where the strip lies; source_of(problem, slot, t), for an absent token (slot -1) a strip of zeros
 *   load(source, group)       begins to load what `group` needs, once it was converted: the last group of all is converted first, then V's in order
 *   operands(group, words)    word h * 4 + j: dimensions even_dim(2 j) + h and even_dim(2 j + 1) + h of the strip, as bf16
 *   even_dim(i)               the order of the strip's even dimensions, i = 0 .. 7, that its conversion likes best
 *   is_rare(), mend(group, words)    some value needs more than `operands` does, and the words of this group what is missing; RARE: there are such values
 *   ROOMY                     leaves registers enough for two groups' words beside V's accumulators
 */
#ifndef MLA_HOPPER16_STRIP_H
#define MLA_HOPPER16_STRIP_H

#include "device_hopper.h"
#include "splitk_kv.h"

MLA_DEVICE_BEGIN

constexpr int mla_groups = MLA_HEAD_DIM / 64, mla_value_groups = MLA_HEAD_DIM_V / 64;

/* An absent token: zeros, at least as long as any token. */
static __device__ const mla_chunk mla_zero_token[MLA_HEAD_DIM / 8] = {};

template <typename Kv> MLA_DEVICE const mla_chunk *mla_token_at(const mla_problem &problem, int64_t slot) {
    const mla_chunk *token = static_cast<const mla_chunk *>(problem.kv) + slot * Kv::CHUNKS;
    return slot >= 0 ? token : mla_zero_token;
}

template <typename Kv> struct mla_strip;

template <typename Code> struct mla_strip<mla_kv_per_tensor<Code>> {
    typedef const mla_chunk *source;
    mla_chunk codes[mla_groups];

    static constexpr bool ROOMY = true, RARE = false;

    static MLA_DEVICE source source_of(const mla_problem &problem, int64_t slot, int t) {
        return mla_token_at<mla_kv_per_tensor<Code>>(problem, slot) + t;
    }
    MLA_DEVICE void load(source from, int group) { mla_load_once(from + group * 4, codes[group].w); }
    MLA_DEVICE bool is_rare() const { return false; }
    MLA_DEVICE void mend(int, uint32_t (&)[8]) const {}
    MLA_DEVICE void operands(int group, uint32_t (&words)[8]) const {
        MLA_UNROLL
        for (int j = 0; j < 4; j++)
            Code::unzip(codes[group].w[j], words[j], words[4 + j]);
    }
    static MLA_DEVICE int even_dim(int i) { return 2 * i; }
};

template <> struct mla_strip<mla_kv_fp8b656> {
    struct source {
        const mla_chunk *token;
        int t;
    };
    mla_chunk codes[mla_value_groups], rope[2];
    float scale; /* lane t has the t-th of the token's four */

    static constexpr bool ROOMY = false, RARE = false;

    static MLA_DEVICE source source_of(const mla_problem &problem, int64_t slot, int t) {
        return {mla_token_at<mla_kv_fp8b656>(problem, slot), t};
    }
    MLA_DEVICE void load(source from, int group) {
        const mla_chunk *after_codes = from.token + mla_kv_fp8b656::SCALE_CHUNK;
        if (group < mla_value_groups)
            mla_load_once(from.token + group * 4 + from.t, codes[group].w);
        if (group == mla_value_groups - 1) {
            scale = reinterpret_cast<const float *>(after_codes)[from.t];
            mla_load_once(after_codes + 1 + from.t * 2, rope[0].w);
            mla_load_once(after_codes + 2 + from.t * 2, rope[1].w);
        }
    }
    MLA_DEVICE bool is_rare() const { return false; }
    MLA_DEVICE void mend(int, uint32_t (&)[8]) const {}
    MLA_DEVICE void operands(int group, uint32_t (&words)[8]) const {
        const float of_group = mla_of_four(scale, group / 2 % 4);
        MLA_UNROLL
        for (int j = 0; j < 4; j++) {
            if (group < mla_value_groups) {
                float values[4];
                mla_e4m3_to_float(codes[group].w[j], values);
                words[j] = mla_bf16x2(values[0] * of_group, values[2] * of_group);
                words[4 + j] = mla_bf16x2(values[1] * of_group, values[3] * of_group);
            } else {
                const uint32_t first = rope[j / 2].w[j % 2 * 2], second = rope[j / 2].w[j % 2 * 2 + 1];
                words[j] = mla_bytes(first, second, 0x5410);
                words[4 + j] = mla_bytes(first, second, 0x7632);
            }
        }
    }
    static MLA_DEVICE int even_dim(int i) { return 2 * i; }
};

/* A word's eight codes make four pairs: i and i + 4. */
template <> struct mla_strip<mla_kv_mxfp4> {
    struct source {
        const uint32_t *codes;
        const uint8_t *scales;
    };
    uint32_t codes[mla_groups][2];
    uint32_t scales[mla_groups];

    static constexpr bool ROOMY = true, RARE = true;

    static MLA_DEVICE source source_of(const mla_problem &problem, int64_t slot, int t) {
        const uint8_t *scales = problem.kv_block_scales + slot * problem.kv_scale_stride;
        return {mla_token_at<mla_kv_mxfp4>(problem, slot)->w + t * 2,
                (slot >= 0 ? scales : reinterpret_cast<const uint8_t *>(mla_zero_token)) + t / 2};
    }
    MLA_DEVICE void load(source from, int group) {
        mla_load_once(from.codes + group * 8, codes[group]);
        scales[group] = from.scales[group * 2];
    }
    /* The codes in bits 0-3, or 4-7, of both halves as bf16, 2^-126 of their values: one multiplication moves the sign to bit 15 and the magnitude to 6-8. */
    static MLA_DEVICE uint32_t first_pair(uint32_t word) { return (word & 0x000F000F) * (1 << 12 | 1 << 6) & 0x81C081C0; }
    static MLA_DEVICE uint32_t second_pair(uint32_t word) { return (word & 0x00F000F0) * (1 << 8 | 1 << 2) & 0x81C081C0; }
    MLA_DEVICE bool is_rare() const {
        uint32_t largest = 0;
        MLA_UNROLL
        for (int g = 0; g < mla_groups; g++)
            largest = scales[g] > largest ? scales[g] : largest;
        return largest > 128;
    }
    MLA_DEVICE void operands(int group, uint32_t (&words)[8]) const {
        MLA_UNROLL
        for (int half = 0; half < 2; half++) {
            const uint32_t low = codes[group][half], high = low >> 8;
            words[half * 2] = first_pair(low);
            words[half * 2 + 4] = second_pair(low);
            words[half * 2 + 1] = first_pair(high);
            words[half * 2 + 5] = second_pair(high);
        }
        const uint32_t factor = min(scales[group], 128u) * 0x00800080 + 0x3F003F00;
        MLA_UNROLL
        for (int i = 0; i < 8; i++)
            words[i] = mla_mul_bf16x2(words[i], factor);
    }
    MLA_DEVICE void mend(int group, uint32_t (&words)[8]) const {
        const uint32_t rest = scales[group] == 0xFF ? 0x7FC07FC0 : mla_kv_mxfp4::scaling_of(scales[group]).rest;
        MLA_UNROLL
        for (int i = 0; i < 8; i++)
            words[i] = mla_mul_bf16x2(words[i], rest);
    }
    static MLA_DEVICE int even_dim(int i) { return i / 4 * 8 + i / 2 % 2 * 2 + i % 2 * 4; }
};

MLA_DEVICE_END

#endif
