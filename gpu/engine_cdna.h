/*
 * The engines of AMD's matrix cores: cdna3 (gfx90a, gfx942; mfma 16x16x16) and cdna4 (gfx950; mfma 16x16x32). 4 waves, 16 rows, tiles of 32 or 64 tokens.
 *
 * LDS: one KV tile (cdna4: two) and one set of score blocks. Tokens of a tile are rows of 72 swizzled chunks. The next tile is under way in
 *      registers, 16-byte loads, while the present one is worked on.
 * Q K^T: a wave multiplies one block of 16 tokens over all dimensions (cdna3: over half of them), as K times q^T. A lane's operands are whole chunks of its token and
 *      of its row: which dimensions meet in one step does not matter, as long as both sides agree.
 * Scores: a block of 16 tokens x 16 rows in the layout of C, which is that of A turned around: lane L, element e is row L % 16, token 4 * (L / 16) + e. So a
 *      block passes through LDS in lane order. Two blocks are the steps of P V (cdna4: one step, whose tokens are ordered accordingly).
 * P V: every wave holds all of P and owns 128 columns. A lane reads a chunk of each of its tokens and repacks: lane j of column step t is column 8 * j + t.
 */
#ifndef MLA_ENGINE_CDNA_H
#define MLA_ENGINE_CDNA_H

#include "engine_limits.h"
#include "splitk_kv.h"

MLA_DEVICE_BEGIN

#if defined(MLA_ENGINE_CDNA4)
struct mla_cdna {
    static constexpr int THREADS = MLA_CDNA4_THREADS, ROWS = MLA_CDNA4_ROWS, TOKENS = MLA_CDNA4_TOKENS, TILES = 2;
    static constexpr int LDS_BYTES = MLA_CDNA4_LDS_BYTES;
};
typedef mla_bf16x8 mla_operand;
#else
struct mla_cdna {
    static constexpr int THREADS = MLA_CDNA3_THREADS, ROWS = MLA_CDNA3_ROWS, TOKENS = MLA_CDNA3_TOKENS, TILES = 1;
    static constexpr int LDS_BYTES = MLA_CDNA3_LDS_BYTES;
};
typedef mla_bf16x4 mla_operand;
#endif

template <bool FP16, int STEPS, int COLS>
MLA_DEVICE void mla_multiply(const mla_operand (&a)[STEPS], const mla_operand (&b)[STEPS][COLS], mla_f32x4 (&c)[COLS]) {
#if defined(MLA_ENGINE_CDNA4)
    if constexpr (FP16)
        mla_mfma_16x16x32_fp16(a, b, c);
    else
        mla_mfma_16x16x32(a, b, c);
#else
    if constexpr (FP16)
        mla_mfma_16x16x16_fp16(a, b, c);
    else
        mla_mfma_16x16x16(a, b, c);
#endif
}

template <typename Kv> struct mla_engine_device {
    static constexpr int THREADS = mla_cdna::THREADS, ROWS = mla_cdna::ROWS, TOKENS = mla_cdna::TOKENS;
    static constexpr int TILES = mla_cdna::TILES, AHEAD = 1;
    static constexpr int WAVES = THREADS / 64, BLOCKS = TOKENS / 16, PARTS = WAVES / BLOCKS, LANE_ROWS = 1;
    static constexpr int COLUMNS = MLA_HEAD_DIM_V / WAVES;
    static constexpr bool ASYNC_SCORES = false;
    static constexpr int STAGERS = THREADS / TOKENS; /* threads that stage one token, neighbours in a wave */
    static constexpr int ROUNDS = (Kv::CHUNKS + STAGERS - 1) / STAGERS;
    static constexpr int DEPTH = sizeof(mla_operand) / sizeof(uint16_t); /* operands of a lane in one step */
    static constexpr int STEPS_A_CHUNK = 8 / DEPTH;
    static constexpr int CHUNKS = mla_key_chunks / PARTS / 4,
                         STEPS = CHUNKS * STEPS_A_CHUNK; /* of a lane in Q K^T: its quarter of the chunks */

    struct shared {
        mla_chunk kv[TILES][TOKENS][mla_key_chunks];
        mla_f32x4 scores[PARTS][BLOCKS][64];
        int32_t present[TILES][TOKENS];
    };
    static_assert(sizeof(shared) <= mla_cdna::LDS_BYTES, "engine_limits.h says less LDS than is used");

    shared &lds;
    const int lane, wave;
    mla_chunk staged[ROUNDS];
    uint8_t staged_scales[ROUNDS];
    bool staged_present;
    mla_operand q[STEPS][1];
    mla_f32x4 acc[8]; /* column step t, element e: row 4 * (lane / 16) + e, column 8 * (lane % 16) + t of the wave's */

    MLA_DEVICE explicit mla_engine_device(shared *block) : lds(*block), lane(mla_thread() % 64), wave(mla_thread() / 64) {}

    /* ---- staging ---- */

    MLA_DEVICE int staged_token() const { return mla_thread() / STAGERS; }

    MLA_DEVICE void foresee(const mla_problem &, int64_t) {}

    /* Begins to load this thread's part of its token; slot -1 is an absent token: zeros. */
    MLA_DEVICE void fetch(const mla_problem &problem, int64_t slot, int) {
        const int stager = mla_thread() % STAGERS;
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
    MLA_DEVICE void fetched() {}

    /* Puts what was fetched last into the tile, as operands; a barrier makes the tile whole. */
    MLA_DEVICE void land(int tile) {
        const int token = staged_token(), stager = mla_thread() % STAGERS;
        mla_chunk *row = lds.kv[tile % TILES][token];
        Kv::template convert<STAGERS>(staged, staged_scales, stager,
                                      [row, token](mla_place place, const mla_chunk &chunk) { row[place.in(token)] = chunk; });
        if (stager == 0)
            lds.present[tile % TILES][token] = staged_present;
    }

    MLA_DEVICE bool present(int tile, int token) const { return lds.present[tile % TILES][token] != 0; }

    /* ---- products ---- */

    static MLA_DEVICE mla_operand operand_of(const mla_chunk &chunk, int step) {
        mla_operand o = {};
        MLA_UNROLL
        for (int e = 0; e < DEPTH; e++)
            o[e] = static_cast<uint16_t>(chunk.w[(step * DEPTH + e) / 2] >> e % 2 * 16);
        return o;
    }

    MLA_DEVICE int key_chunk(int n) const { return (wave / BLOCKS * CHUNKS + n) * 4 + lane / 16; }

    /* The first `rows` of 16 rows of q; the others are zero. */
    MLA_DEVICE void load_q(const mla_problem &problem, int64_t first_row, int rows) {
        mla_with_q_format<Kv::FP16>(problem.q_format, [&](auto format) {
            MLA_UNROLL
            for (int n = 0; n < CHUNKS; n++) {
                mla_chunk chunk = {};
                if (row(0) < rows) {
                    MLA_UNROLL
                    for (int w = 0; w < 4; w++)
                        chunk.w[w] = format.pair(problem.q, ((first_row + row(0)) * mla_key_chunks + key_chunk(n)) * 4 + w);
                }
                MLA_UNROLL
                for (int i = 0; i < STEPS_A_CHUNK; i++)
                    q[n * STEPS_A_CHUNK + i][0] = operand_of(chunk, i);
            }
        });
    }

    MLA_DEVICE void scores(int tile) {
        const int block = wave % BLOCKS, part = wave / BLOCKS, token = block * 16 + lane % 16;
        mla_operand k[STEPS];
        MLA_UNROLL
        for (int n = 0; n < CHUNKS; n++) {
            const mla_chunk chunk = lds.kv[tile % TILES][token][mla_swizzle(token, key_chunk(n))];
            MLA_UNROLL
            for (int i = 0; i < STEPS_A_CHUNK; i++)
                k[n * STEPS_A_CHUNK + i] = operand_of(chunk, i);
        }
        mla_f32x4 c[1] = {};
        mla_multiply<Kv::FP16>(k, q, c);
        lds.scores[part][block][lane] = c[0];
    }

    /* This lane's share of the scores: element e of block b belongs to its row lane_row(e) and to token(b, e). */
    MLA_DEVICE void gather(int, float (&s)[BLOCKS][4]) const {
        MLA_UNROLL
        for (int b = 0; b < BLOCKS; b++) {
            mla_f32x4 sum = lds.scores[0][b][lane];
            MLA_UNROLL
            for (int part = 1; part < PARTS; part++)
                sum += lds.scores[part][b][lane];
            MLA_UNROLL
            for (int e = 0; e < 4; e++)
                s[b][e] = sum[e];
        }
    }
    static MLA_DEVICE constexpr int lane_row(int) { return 0; }
    MLA_DEVICE int row(int) const { return lane % 16; }
    MLA_DEVICE int token(int b, int e) const { return b * 16 + lane / 16 * 4 + e; }
    /* One lane of one wave speaks for its row. */
    MLA_DEVICE bool speaks() const { return wave == 0 && lane < 16; }

    /* Over all that hold a part of the same row. */
    MLA_DEVICE void row_max(float (&v)[LANE_ROWS]) const {
        v[0] = mla_max(v[0], mla_shuffle_xor(v[0], 16));
        v[0] = mla_max(v[0], mla_shuffle_xor(v[0], 32));
    }
    MLA_DEVICE void row_sum(float (&v)[LANE_ROWS]) const {
        v[0] += mla_shuffle_xor(v[0], 16);
        v[0] += mla_shuffle_xor(v[0], 32);
    }

    MLA_DEVICE void clear() {
        MLA_UNROLL
        for (int t = 0; t < 8; t++)
            acc[t] = mla_f32x4{};
    }
    /* Lane r holds row r's factor. */
    MLA_DEVICE void rescale(const float (&factor)[LANE_ROWS]) {
        mla_f32x4 factors;
        MLA_UNROLL
        for (int e = 0; e < 4; e++)
            factors[e] = mla_shuffle(factor[0], lane / 16 * 4 + e);
        MLA_UNROLL
        for (int t = 0; t < 8; t++)
            acc[t] *= factors;
    }

    MLA_DEVICE void accumulate(int tile, const float (&p)[BLOCKS][4]) {
        constexpr int K_STEPS = TOKENS / 4 / DEPTH, BLOCKS_A_STEP = BLOCKS / K_STEPS;
        mla_operand a[K_STEPS], v[K_STEPS][8];
        MLA_UNROLL
        for (int b = 0; b < BLOCKS; b++) {
            MLA_UNROLL
            for (int e = 0; e < 4; e++) {
                const int s = b / BLOCKS_A_STEP, at = b % BLOCKS_A_STEP * 4 + e;
                const mla_chunk chunk = lds.kv[tile % TILES][token(b, e)][mla_swizzle(token(b, e), wave * (COLUMNS / 8) + lane % 16)];
                a[s][at] = static_cast<uint16_t>(mla_operand_pair<Kv::FP16>(p[b][e], 0.0f));
                MLA_UNROLL
                for (int t = 0; t < 8; t++)
                    v[s][t][at] = static_cast<uint16_t>(chunk.w[t / 2] >> t % 2 * 16);
            }
        }
        mla_multiply<Kv::FP16>(a, v, acc);
    }

    /* Calls write(row, column, values) for runs of neighbouring columns. */
    template <typename Write> MLA_DEVICE void output(Write write) const {
        MLA_UNROLL
        for (int e = 0; e < 4; e++) {
            float values[8];
            MLA_UNROLL
            for (int t = 0; t < 8; t++)
                values[t] = acc[t][e];
            write(lane / 16 * 4 + e, wave * COLUMNS + lane % 16 * 8, values);
        }
    }
};

MLA_DEVICE_END

#endif
