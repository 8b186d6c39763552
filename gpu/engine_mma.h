/*
 * The engine of NVIDIA's mma.sync m16n8k16, sm_80 and later: 4 warps, 16 rows, tiles of 32 tokens. Two blocks share an SM of sm_90: one computes while the other
 * waits.
 *
 * LDS: a ring of KV tiles (engine_mma_ring.h) and a set of score blocks.
 * Q K^T: warp w multiplies token blocks 2 * (w % 2) and the next (8 tokens each) over half w / 2 of the 576 dimensions; q's fragments stay in registers.
 * Scores: a block of 16 rows x 8 tokens, in the layout of C, which is that of A: lane L, element e is row L / 4 + 8 * (e / 2),
 *         token 2 * (L % 4) + e % 2. So a block passes through LDS in lane order, and every warp adds the two halves.
 * P V:    every warp holds all of P and owns 128 columns; V comes transposed by ldmatrix from the tile that served as K.
 */
#ifndef MLA_ENGINE_MMA_H
#define MLA_ENGINE_MMA_H

#include "engine_mma_ring.h"

MLA_DEVICE_BEGIN

template <typename Kv> struct mla_engine_device {
    static constexpr int THREADS = MLA_MMA_THREADS, ROWS = MLA_MMA_ROWS, TOKENS = MLA_MMA_TOKENS;
    static constexpr int TILES = mla_ring<Kv>::TILES, AHEAD = mla_ring<Kv>::AHEAD;
    static constexpr int WARPS = THREADS / 32, BLOCKS = TOKENS / 8, PAIRS = BLOCKS / 2, PARTS = WARPS / PAIRS, LANE_ROWS = 2;
    static constexpr int STEPS = MLA_HEAD_DIM / PARTS / 16;
    static constexpr bool FETCHES_LATE = false, SCORES_IN_LDS = true, BARRIER_IN_SCORES = false, WAITS_IN_ORDER = false;
    static constexpr int COLUMNS = MLA_HEAD_DIM_V / WARPS;

    struct shared {
        typename mla_ring<Kv>::shared ring;
        float scores[PARTS][BLOCKS][32][4];
    };
    static_assert(sizeof(shared) <= MLA_MMA_LDS_BYTES, "engine_limits.h says less LDS than is used");

    shared &lds;
    const int lane, warp;
    mla_ring<Kv> ring;
    uint32_t q[STEPS][4];
    float acc[COLUMNS / 8][4];

    MLA_DEVICE explicit mla_engine_device(shared *block) : lds(*block), lane(mla_thread() % 32), warp(mla_thread() / 32) {}

    /* ---- staging ---- */

    MLA_DEVICE int staged_token() const { return ring.token; }
    MLA_DEVICE void foresee(const mla_problem &problem, int64_t slot) { ring.foresee(problem, slot); }
    MLA_DEVICE void fetch(const mla_problem &problem, int64_t slot, int tile) { ring.fetch(lds.ring, problem, slot, tile); }
    MLA_DEVICE void fetched() { mla_copy_commit(); }
    MLA_DEVICE void land(int tile) { ring.land(lds.ring, tile); }
    MLA_DEVICE bool present(int tile, int token) const { return mla_ring<Kv>::present(lds.ring, tile, token); }

    /* ---- products ---- */

    /* Step s of Q K^T multiplies two chunks, the first of them number key_chunk(s) of the eight that begin at key_chunks(s): a part has half of each eight. */
    static MLA_DEVICE constexpr int key_chunks(int s) { return s / 2 * 8; }
    MLA_DEVICE int key_chunk(int s) const { return warp / PAIRS * 4 + s % 2 * 2; }

    /* The first `rows` of 16 rows of q; the others repeat the last. */
    MLA_DEVICE void load_q(const mla_problem &problem, int64_t first_row, int rows) {
        int64_t at[LANE_ROWS]; /* pair of this lane in its rows, at step 0 */
        MLA_UNROLL
        for (int i = 0; i < LANE_ROWS; i++)
            at[i] = (first_row + (row(i) < rows ? row(i) : rows - 1)) * (MLA_HEAD_DIM / 2) + key_chunk(0) * 4 + lane % 4;
        mla_with_q_format<Kv::FP16>(problem.q_format, [&](auto format) {
            MLA_UNROLL
            for (int s = 0; s < STEPS; s++) {
                MLA_UNROLL
                for (int e = 0; e < 4; e++) {
                    q[s][e] = format.pair(problem.q, at[e % 2] + (key_chunks(s) + s % 2 * 2 + e / 2) * 4);
                }
            }
        });
    }

    template <int K_STEPS, int COLS>
    static MLA_DEVICE void multiply(const uint32_t (&a)[K_STEPS][4], const uint32_t (&b)[K_STEPS][COLS][2], float (&c)[COLS][4]) {
        if constexpr (Kv::FP16)
            mla_mma_16x8x16_fp16(a, b, c);
        else
            mla_mma_16x8x16(a, b, c);
    }

    MLA_DEVICE void scores(int tile) {
        const int block = warp % PAIRS * 2, part = warp / PAIRS, token = block * 8 + lane / 16 * 8 + lane % 8;
        const mla_chunk *key = lds.ring.kv[tile % TILES][token];
        const void *rows[STEPS];
        MLA_UNROLL
        for (int s = 0; s < STEPS; s++)
            rows[s] = &key[mla_place{key_chunk(s) + lane / 8 % 2, key_chunks(s)}.in(token)];
        uint32_t k[STEPS][4], b[STEPS][2][2];
        mla_ldmatrix(k, rows);
        MLA_UNROLL
        for (int s = 0; s < STEPS; s++) {
            MLA_UNROLL
            for (int i = 0; i < 4; i++)
                b[s][i / 2][i % 2] = k[s][i];
        }
        float c[2][4] = {};
        multiply(q, b, c);
        MLA_UNROLL
        for (int i = 0; i < 2; i++) {
            MLA_UNROLL
            for (int e = 0; e < 4; e++)
                lds.scores[part][block + i][lane][e] = c[i][e];
        }
    }

    /* This lane's share of the scores: element e of block b belongs to its row lane_row(b, e) and to token(b, e). */
    MLA_DEVICE void gather(int, float (&s)[BLOCKS][4]) const {
        MLA_UNROLL
        for (int b = 0; b < BLOCKS; b++) {
            MLA_UNROLL
            for (int e = 0; e < 4; e++)
                s[b][e] = lds.scores[0][b][lane][e] + lds.scores[1][b][lane][e];
        }
    }
    static MLA_DEVICE constexpr int lane_row(int, int e) { return e / 2; }
    MLA_DEVICE int row(int i) const { return lane / 4 + i * 8; }
    MLA_DEVICE int token(int b, int e) const { return b * 8 + lane % 4 * 2 + e % 2; }
    /* One lane of one warp speaks for its rows. */
    MLA_DEVICE bool speaks() const { return warp == 0 && lane % 4 == 0; }

    /* Over all that hold a part of the same row. */
    MLA_DEVICE void row_max(float (&v)[LANE_ROWS], const float (&)[LANE_ROWS]) const {
        MLA_UNROLL
        for (int i = 0; i < LANE_ROWS; i++) {
            v[i] = mla_max(v[i], mla_shuffle_xor(v[i], 1));
            v[i] = mla_max(v[i], mla_shuffle_xor(v[i], 2));
        }
    }
    MLA_DEVICE void row_sum(float (&v)[LANE_ROWS]) const {
        MLA_UNROLL
        for (int i = 0; i < LANE_ROWS; i++) {
            v[i] += mla_shuffle_xor(v[i], 1);
            v[i] += mla_shuffle_xor(v[i], 2);
        }
    }

    MLA_DEVICE void clear() {
        MLA_UNROLL
        for (int n = 0; n < COLUMNS / 8; n++) {
            MLA_UNROLL
            for (int e = 0; e < 4; e++)
                acc[n][e] = 0.0f;
        }
    }
    MLA_DEVICE void rescale(const float (&factor)[LANE_ROWS]) {
        MLA_UNROLL
        for (int n = 0; n < COLUMNS / 8; n++) {
            MLA_UNROLL
            for (int e = 0; e < 4; e++)
                acc[n][e] *= factor[e / 2];
        }
    }

    MLA_DEVICE void accumulate(int tile, const float (&p)[BLOCKS][4]) {
        constexpr int K_STEPS = TOKENS / 16, N_PAIRS = COLUMNS / 16;
        uint32_t a[K_STEPS][4], v[K_STEPS * N_PAIRS][4], b[K_STEPS][COLUMNS / 8][2];
        const void *rows[K_STEPS * N_PAIRS];
        MLA_UNROLL
        for (int s = 0; s < K_STEPS; s++) {
            const int token = s * 16 + lane % 16;
            MLA_UNROLL
            for (int n = 0; n < N_PAIRS; n++)
                rows[s * N_PAIRS + n] =
                    &lds.ring.kv[tile % TILES][token][mla_place{n % 4 * 2 + lane / 16, warp * (COLUMNS / 8) + n / 4 * 8}.in(token)];
            MLA_UNROLL
            for (int e = 0; e < 4; e++)
                a[s][e] = mla_operand_pair<Kv::FP16>(p[s * 2 + e / 2][e % 2 * 2], p[s * 2 + e / 2][e % 2 * 2 + 1]);
        }
        mla_ldmatrix_trans(v, rows);
        MLA_UNROLL
        for (int s = 0; s < K_STEPS; s++) {
            MLA_UNROLL
            for (int n = 0; n < COLUMNS / 8; n++) {
                b[s][n][0] = v[s * N_PAIRS + n / 2][n % 2 * 2];
                b[s][n][1] = v[s * N_PAIRS + n / 2][n % 2 * 2 + 1];
            }
        }
        multiply(a, b, acc);
    }

    MLA_DEVICE void accumulated() {}

    /* Calls write(row, column, values) for runs of neighbouring columns. */
    template <typename Write> MLA_DEVICE void output(Write write) const {
        const int64_t first = warp * COLUMNS + lane % 4 * 2;
        MLA_UNROLL
        for (int i = 0; i < LANE_ROWS; i++) {
            MLA_UNROLL
            for (int n = 0; n < COLUMNS / 8; n++) {
                const float values[2] = {acc[n][i * 2], acc[n][i * 2 + 1]};
                write(row(i), first + n * 8, values);
            }
        }
    }
};

MLA_DEVICE_END

#endif
