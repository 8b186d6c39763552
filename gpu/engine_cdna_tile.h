/*
 * What the engines of AMD's matrix cores share: the units, cdna3 (gfx90a, gfx942; mfma 16x16x16) and cdna4 (gfx950; mfma 16x16x32), a tile of tokens in LDS, how it
 * is staged, and how it is read as operands.
 *
 * Staging: eight neighbouring threads load one token in 16-byte chunks, into registers, while the tile before is worked on.
 * LDS: a token is a row of 72 chunks. A unit says which row, and the swizzle of its chunks, such that no access meets bank conflicts; tests/test_banks.cpp counts them.
 * Q K^T: a block of 16 tokens is multiplied as K times q^T. A lane's operands are whole chunks of its token and of its row: which dimensions meet in one step does
 *        not matter, as long as both sides agree.
 * P V: a block of scores is 16 tokens x 16 rows in the layout of C, which is that of A turned around: lane L, element e is row L % 16, token 4 * (L / 16) + e. Two
 *      blocks are the steps of P V (cdna4: one step, whose tokens are ordered accordingly). A lane reads a run of neighbouring columns of each of its tokens and
 *      repacks: lane j of column step t is column t of j's run.
 */
#ifndef MLA_ENGINE_CDNA_TILE_H
#define MLA_ENGINE_CDNA_TILE_H

#include "splitk_kv.h"

MLA_DEVICE_BEGIN

struct mla_cdna3_unit {
    typedef mla_bf16x4 operand;
    static constexpr int RUN = 8; /* neighbouring columns that a lane reads of a token in P V */

    static MLA_DEVICE constexpr int row(int token) { return token; }
    static MLA_DEVICE constexpr int swizzle(int row) { return (row & 3) << 1; }

    template <bool FP16, int STEPS, int COLS>
    static MLA_DEVICE void multiply(const operand (&a)[STEPS], const operand (&b)[STEPS][COLS], mla_f32x4 (&c)[COLS]) {
        if constexpr (FP16)
            mla_mfma_16x16x16_fp16(a, b, c);
        else
            mla_mfma_16x16x16(a, b, c);
    }
};

struct mla_cdna4_unit {
    typedef mla_bf16x8 operand;
    static constexpr int RUN = 4;

    /* In P V a phase reads two tokens that are four apart: in rows of different parity they lie in different halves of the 64 banks. */
    static MLA_DEVICE constexpr int row(int token) { return token ^ (token >> 2 & 1); }
    static MLA_DEVICE constexpr int swizzle(int row) { return row & 7; }

    template <bool FP16, int STEPS, int COLS>
    static MLA_DEVICE void multiply(const operand (&a)[STEPS], const operand (&b)[STEPS][COLS], mla_f32x4 (&c)[COLS]) {
        if constexpr (FP16)
            mla_mfma_16x16x32_fp16(a, b, c);
        else
            mla_mfma_16x16x32(a, b, c);
    }
};

/* N neighbouring columns of one token: half a chunk or a whole one. */
template <int N> struct alignas(2 * N) mla_run { uint32_t w[N / 2]; };

template <typename Kv, typename Unit, int THREADS, int TOKENS> struct mla_cdna_tile {
    typedef typename Unit::operand operand;
    static constexpr int STAGERS = THREADS / TOKENS; /* threads that stage one token, neighbours in a wave */
    static constexpr int ROUNDS = (Kv::CHUNKS + STAGERS - 1) / STAGERS;
    static constexpr int DEPTH = sizeof(operand) / sizeof(uint16_t); /* operands of a lane in one step */
    static constexpr int STEPS_A_CHUNK = 8 / DEPTH;
    static constexpr int RUN = Unit::RUN, BLOCKS = TOKENS / 16, K_STEPS = TOKENS / 4 / DEPTH, BLOCKS_A_STEP = BLOCKS / K_STEPS;

    struct shared {
        mla_chunk kv[TOKENS][mla_key_chunks];
        int32_t present[TOKENS];
    };

    mla_chunk staged[ROUNDS];
    uint8_t staged_scales[ROUNDS];
    bool staged_present;

    /* ---- staging ---- */

    static MLA_DEVICE int token_of(int thread) { return thread / STAGERS; }

    /* Begins to load this thread's part of its token; slot -1 is an absent token: zeros. */
    MLA_DEVICE void fetch(const mla_problem &problem, int64_t slot) {
        const int stager = mla_late(mla_thread()) % STAGERS;
        const mla_chunk *source = static_cast<const mla_chunk *>(problem.kv) + slot * Kv::CHUNKS;
        const uint8_t *scales = problem.kv_block_scales + slot * problem.kv_scale_stride;
        MLA_UNROLL
        for (int i = 0; i < ROUNDS; i++) {
            const int c = stager + i * STAGERS;
            const bool there = slot >= 0 && c < Kv::CHUNKS;
            staged[i] = mla_load_chunk(&source[c], there);
            staged_scales[i] = Kv::SCALES && there ? scales[c] : 0;
        }
        staged_present = slot >= 0;
    }

    /* Puts what was fetched last into the tile, as operands; a barrier makes the tile whole. */
    MLA_DEVICE void land(shared &tile) {
        const int thread = mla_late(mla_thread()), token = token_of(thread), stager = thread % STAGERS;
        Kv::template convert<STAGERS>(staged, staged_scales, stager,
                                      [token, &tile](mla_place place, const mla_chunk &chunk) { *chunk_of(tile, token, place) = chunk; });
        if (stager == 0)
            tile.present[token] = staged_present;
    }

    static MLA_DEVICE mla_chunk *chunk_of(shared &tile, int token, mla_place place) {
        const int row = Unit::row(token);
        return &tile.kv[row][(place.lane ^ Unit::swizzle(row)) + place.step];
    }

    /* ---- Q K^T ---- */

    /* Chunks first, first + 8, ... of a token as operands. */
    template <int STEPS> static MLA_DEVICE void keys(shared &tile, int token, int first, operand (&k)[STEPS]) {
        MLA_UNROLL
        for (int n = 0; n < STEPS / STEPS_A_CHUNK; n++)
            __builtin_memcpy(&k[n * STEPS_A_CHUNK], chunk_of(tile, token, mla_place{first, n * 8}), sizeof(mla_chunk));
    }

    /* The same of row `row` of q as column `col` of the products, zeros unless it is there. */
    template <int STEPS, int COLS>
    static MLA_DEVICE void query(const mla_problem &problem, int64_t row, bool there, int first, int col, operand (&q)[STEPS][COLS]) {
        const int64_t pair = (row * mla_key_chunks + first) * 4;
        mla_with_q_format<Kv::FP16>(problem.q_format, [&](auto format) {
            MLA_UNROLL
            for (int n = 0; n < STEPS / STEPS_A_CHUNK; n++) {
                mla_chunk chunk = {};
                operand operands[STEPS_A_CHUNK];
                if (there) {
                    MLA_UNROLL
                    for (int w = 0; w < 4; w++)
                        chunk.w[w] = format.pair(problem.q, pair + (n * 32 + w));
                }
                __builtin_memcpy(operands, &chunk, sizeof chunk);
                MLA_UNROLL
                for (int i = 0; i < STEPS_A_CHUNK; i++)
                    q[n * STEPS_A_CHUNK + i][col] = operands[i];
            }
        });
    }

    /* ---- P V ---- */

    /* Step `step`: the operands of a lane are elements of consecutive blocks. */
    static MLA_DEVICE operand weights(const float (*p)[4], int step) {
        operand a = {};
        MLA_UNROLL
        for (int i = 0; i < DEPTH; i++)
            a[i] = static_cast<uint16_t>(mla_operand_pair<Kv::FP16>(p[step * BLOCKS_A_STEP + i / 4][i % 4], 0.0f));
        return a;
    }

    /* Of operand i of step `step`. */
    static MLA_DEVICE constexpr int value_token(int step, int i, int lane) {
        return (step * BLOCKS_A_STEP + i / 4) * 16 + lane / 16 * 4 + i % 4;
    }

    /* Lane `lane`'s run of the 16 that begin with column `first`, a multiple of 64. */
    static MLA_DEVICE const mla_run<RUN> *run_of(shared &tile, int token, int first, int lane) {
        const int column = lane % 16 * RUN;
        const mla_chunk *chunk = chunk_of(tile, token, mla_place{column / 8, first / 8});
        return reinterpret_cast<const mla_run<RUN> *>(&chunk->w[column % 8 / 2]);
    }

    /* Its columns of the tokens that it multiplies in step `step`. */
    static MLA_DEVICE void values(shared &tile, int step, int first, int lane, operand (&v)[RUN]) {
        MLA_UNROLL
        for (int i = 0; i < DEPTH; i++) {
            mla_run<RUN> run;
            __builtin_memcpy(&run, run_of(tile, value_token(step, i, lane), first, lane), sizeof run);
            MLA_UNROLL
            for (int t = 0; t < RUN; t++)
                v[t][i] = static_cast<uint16_t>(run.w[t / 2] >> t % 2 * 16);
        }
    }
};

MLA_DEVICE_END

#endif
