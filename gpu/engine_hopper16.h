/*
 * The engine of Hopper's wgmma for KV that must be converted, sm_90a: one warpgroup, 16 rows, tiles of 64 tokens, everything transposed: tokens are the rows of
 * the first product, columns of V those of the second, and the 16 rows of q are columns. Two blocks share an SM: one converts while the other multiplies.
 *
 * Bytes go from memory to registers (hopper16_strip.h), a tile ahead. Converted there, they are the operand of K q^T as they stand, and are stored once, as V.
 * LDS: q's rows, V's tile and the tile's weights, as groups of 64 columns (device_hopper.h). V's group has the dimensions of strip t at 16 t: its even ones in
 * the order of even_dim, then its odd ones. q has the order in which the strips' words meet it.
 * K q^T: warp w has tokens 16 w .. 16 w + 15, a lane two of them: lane / 4 and lane / 4 + 8.
 * Softmax: a lane holds two tokens' scores of four rows; the warps tell each other their maxima when one moves by much, and the sums at the end.
 * V^T P^T: warp w has dimensions 16 w .. 16 w + 15 of each group.
 */
#ifndef MLA_ENGINE_HOPPER16_H
#define MLA_ENGINE_HOPPER16_H

#include "engine_limits.h"
#include "hopper16_strip.h"

MLA_DEVICE_BEGIN

template <typename Kv> struct mla_engine_device {
    static constexpr int THREADS = MLA_HOPPER16_THREADS, ROWS = MLA_HOPPER16_ROWS, TOKENS = MLA_HOPPER16_TOKENS;
    static constexpr int TILES = 2, AHEAD = 1, BLOCKS = 2, LANE_ROWS = 4, WARPS = THREADS / 32;
    static constexpr bool FETCHES_LATE = false, SCORES_IN_LDS = false, BARRIER_IN_SCORES = true, WAITS_IN_ORDER = false;
    static constexpr int Q_GROUP_BYTES = ROWS * 128, V_GROUP_BYTES = TOKENS * 128;

    typedef mla_strip<Kv> strip;
    struct shared {
        mla_chunk q[mla_groups][ROWS][8];
        mla_chunk v[mla_value_groups][TOKENS][8];
        mla_chunk p[ROWS][8];
        float stats[ROWS][WARPS];
        int32_t present[TILES][TOKENS];
    };
    static_assert(sizeof(shared) <= MLA_HOPPER16_LDS_BYTES, "engine_limits.h says less LDS than is used");

    shared &lds;
    const int lane, warp, octet_lane, t; /* octet_lane: lane / 4, names tokens and columns of V; t: lane % 4, names strips and rows */
    strip strips[2];                     /* of the next tile to multiply */
    typename strip::source coming[2];    /* of the tile after it */
    float score[BLOCKS][4];
    float acc[mla_value_groups][2][4];

    MLA_DEVICE explicit mla_engine_device(shared *block)
        : lds(*block), lane(mla_thread() % 32), warp(mla_thread() / 32), octet_lane(lane / 4), t(lane % 4) {}

    /* ---- staging ---- */

    MLA_DEVICE int lane_token(int i) const { return warp * 16 + octet_lane + i * 8; }

    MLA_DEVICE int staged_token() const { return lane_token(t % 2); }
    /* The first tile is loaded when it is asked for, the others while the tile before them is converted: each register as it becomes free. */
    MLA_DEVICE void foresee(const mla_problem &problem, int64_t slot) {
        MLA_UNROLL
        for (int i = 0; i < 2; i++)
            coming[i] = strip::source_of(problem, mla_of_four(slot, i), t);
    }
    MLA_DEVICE void fetch(const mla_problem &problem, int64_t slot, int tile) {
        if (problem.paging == MLA_SPARSE && t < 2)
            lds.present[tile % TILES][staged_token()] = slot >= 0;
        if (tile > 0)
            return;
        MLA_UNROLL
        for (int g = 0; g < mla_groups; g++)
            load(g);
    }
    MLA_DEVICE void load(int group) {
        MLA_UNROLL
        for (int i = 0; i < 2; i++)
            strips[i].load(coming[i], group);
    }
    MLA_DEVICE void fetched() {}
    MLA_DEVICE void land(int) {}
    MLA_DEVICE bool present(int tile, int token) const { return lds.present[tile % TILES][token] != 0; }

    /* Where q's pair k = 8 h + 2 t, 8 h + 2 t + 1 of step j lies, are the two dimensions that word h * 4 + j of strip t has. */
    MLA_DEVICE void load_q(const mla_problem &problem, int64_t first_row, int rows) {
        const int strip_of = mla_thread() % 4, step = mla_thread() / 4 % 4;
        const int low = strip_of * 16 + strip::even_dim(step * 2), high = strip_of * 16 + strip::even_dim(step * 2 + 1);
        mla_with_q_format<false>(problem.q_format, [&](auto format) {
            MLA_UNROLL
            for (int half = 0; half < 2; half++) {
                const int row = mla_thread() / 16 + half * 8;
                const int64_t first = (first_row + (row < rows ? row : rows - 1)) * MLA_HEAD_DIM;
                MLA_UNROLL
                for (int g = 0; g < mla_groups; g++) {
                    const uint32_t a = format.pair(problem.q, (first + g * 64 + low) / 2),
                                   b = format.pair(problem.q, (first + g * 64 + high) / 2);
                    lds.q[g][row][mla_wgmma_swizzle(row, step * 2)].w[strip_of] = mla_bytes(a, b, 0x5410);
                    lds.q[g][row][mla_wgmma_swizzle(row, step * 2 + 1)].w[strip_of] = mla_bytes(a, b, 0x7632);
                }
            }
        });
        mla_wgmma_publish();
        mla_barrier();
    }

    /* ---- products ---- */

    /* Two tokens' words of a group, as four steps' operands. */
    struct operands {
        uint32_t step[4][4];
    };

    /*
     * The last group, which is no part of V, and, where registers suffice, the first are converted while the products with V of the tile before are under
     * way. When these have ended everywhere, V's tile may be written.
     */
    MLA_DEVICE void scores(int) {
        const bool rare = strip::RARE && mla_any(strips[0].is_rare() || strips[1].is_rare());
        operands k[2]; /* of two groups in turn */
        convert(mla_groups - 1, rare, k[1]);
        if (strip::ROOMY)
            convert(0, rare, k[0]);
        accumulated();
        mla_barrier();
        multiply(mla_groups - 1, k[1]);
        MLA_UNROLL
        for (int g = 0; g < mla_value_groups; g++) {
            if (g > 0)
                mla_wgmma_wait<1>();
            if (g > 0 || !strip::ROOMY)
                convert(g, rare, k[g % 2]);
            keep(g, k[g % 2]);
            multiply(g, k[g % 2]);
        }
    }
    MLA_DEVICE void convert(int group, bool rare, operands &k) {
        uint32_t words[2][8];
        MLA_UNROLL
        for (int i = 0; i < 2; i++)
            strips[i].operands(group, words[i]);
        if (rare)
            mend(group, words);
        MLA_UNROLL
        for (int j = 0; j < 4; j++) {
            MLA_UNROLL
            for (int i = 0; i < 4; i++)
                k.step[j][i] = words[i % 2][i / 2 * 4 + j];
        }
        load(group);
    }
    MLA_DEVICE void mend(int group, uint32_t (&words)[2][8]) {
        __syncwarp(); /* keeps the compiler from issuing this as predicated instructions where nothing is rare */
        MLA_UNROLL
        for (int i = 0; i < 2; i++)
            strips[i].mend(group, words[i]);
    }
    MLA_DEVICE void keep(int group, const operands &k) {
        const int token = warp * 16 + lane % 16;
        MLA_UNROLL
        for (int j = 0; j < 4; j++)
            mla_stmatrix(&lds.v[group][token][mla_wgmma_swizzle(token, j * 2 ^ lane / 16)], k.step[j]);
    }
    MLA_DEVICE void multiply(int group, const operands &k) {
        const uint64_t q = mla_wgmma_matrix(lds.q, Q_GROUP_BYTES);
        mla_wgmma_begin();
        MLA_UNROLL
        for (int j = 0; j < 4; j++)
            mla_wgmma_64x16_of_registers(k.step[j], mla_wgmma_advance(q, group * Q_GROUP_BYTES + j * 32), group < mla_groups - 1 || j > 0,
                                         score);
        mla_wgmma_commit();
    }

    /* This lane's share of the scores: element e of block b belongs to its row lane_row(b, e) and to token(b, e). */
    MLA_DEVICE void gather(int, float (&s)[BLOCKS][4]) {
        mla_wgmma_wait<0>();
        mla_wgmma_arrived(score);
        MLA_UNROLL
        for (int b = 0; b < BLOCKS; b++) {
            MLA_UNROLL
            for (int e = 0; e < 4; e++)
                s[b][e] = score[b][e];
        }
    }
    static MLA_DEVICE constexpr int lane_row(int b, int e) { return b * 2 + e % 2; }
    MLA_DEVICE int row(int i) const { return i / 2 * 8 + t * 2 + i % 2; }
    MLA_DEVICE int token(int, int e) const { return lane_token(e / 2); }
    /* One lane of one warp speaks for its rows. */
    MLA_DEVICE bool speaks() const { return warp == 0 && octet_lane == 0; }

    /* Joins what all lanes have of the same row. There is a barrier between any two of these: that of the weights. */
    template <typename Join> MLA_DEVICE void join(float (&v)[LANE_ROWS], Join both) {
        MLA_UNROLL
        for (int i = 0; i < LANE_ROWS; i++) {
            MLA_UNROLL
            for (int apart = 4; apart < 32; apart *= 2)
                v[i] = both(v[i], mla_shuffle_xor(v[i], apart));
            if (octet_lane == 0)
                lds.stats[row(i)][warp] = v[i];
        }
        mla_barrier();
        MLA_UNROLL
        for (int i = 0; i < LANE_ROWS; i++) {
            const float *of = lds.stats[row(i)];
            v[i] = both(both(of[0], of[1]), both(of[2], of[3]));
        }
    }
    /* The maximum stays what it was, which costs a barrier and no exchange, until it would move by more than MAX_SLACK: weights and sums have room. */
    MLA_DEVICE void row_max(float (&v)[LANE_ROWS], const float (&before)[LANE_ROWS]) {
        bool moves = false;
        MLA_UNROLL
        for (int i = 0; i < LANE_ROWS; i++)
            moves |= v[i] > before[i] + MLA_HOPPER16_MAX_SLACK;
        if (mla_barrier_any(moves))
            return join(v, mla_max);
        MLA_UNROLL
        for (int i = 0; i < LANE_ROWS; i++)
            v[i] = before[i];
    }
    MLA_DEVICE void row_sum(float (&v)[LANE_ROWS]) {
        join(v, [](float a, float b) { return a + b; });
    }

    MLA_DEVICE void clear() {
        MLA_UNROLL
        for (int g = 0; g < mla_value_groups; g++) {
            MLA_UNROLL
            for (int b = 0; b < 2; b++) {
                MLA_UNROLL
                for (int e = 0; e < 4; e++)
                    acc[g][b][e] = 0.0f;
            }
        }
    }
    MLA_DEVICE void rescale(const float (&factor)[LANE_ROWS]) {
        if (!mla_any(factor[0] != 1.0f || factor[1] != 1.0f || factor[2] != 1.0f || factor[3] != 1.0f))
            return;
        MLA_UNROLL
        for (int g = 0; g < mla_value_groups; g++) {
            MLA_UNROLL
            for (int b = 0; b < 2; b++) {
                MLA_UNROLL
                for (int e = 0; e < 4; e++)
                    acc[g][b][e] *= factor[lane_row(b, e)];
            }
        }
    }

    MLA_DEVICE void accumulate(int, const float (&p)[BLOCKS][4]) {
        const uint64_t v = mla_wgmma_matrix(lds.v, V_GROUP_BYTES), weights = mla_wgmma_matrix(lds.p, 0);
        MLA_UNROLL
        for (int b = 0; b < BLOCKS; b++) {
            MLA_UNROLL
            for (int e = 0; e < 4; e++) {
                const int r = row(lane_row(b, e));
                mla_chunk *octet = &lds.p[r][mla_wgmma_swizzle(r, warp * 2 + e / 2)];
                reinterpret_cast<uint16_t *>(octet)[octet_lane] = mla_bf16(p[b][e]);
            }
        }
        mla_wgmma_publish();
        mla_barrier();
        mla_wgmma_begin();
        MLA_UNROLL
        for (int s = 0; s < TOKENS / 16; s++) {
            MLA_UNROLL
            for (int g = 0; g < mla_value_groups; g++)
                mla_wgmma_64x16_of_columns(mla_wgmma_advance(v, g * V_GROUP_BYTES + s * 16 * 128), mla_wgmma_advance(weights, s * 32),
                                           acc[g]);
        }
        mla_wgmma_commit();
    }
    MLA_DEVICE void accumulated() {
        mla_wgmma_wait<0>();
        MLA_UNROLL
        for (int g = 0; g < mla_value_groups; g++)
            mla_wgmma_arrived(acc[g]);
    }

    /* Calls write(row, column, values) for runs of neighbouring columns. */
    template <typename Write> MLA_DEVICE void output(Write write) const {
        const int64_t first = octet_lane / 2 * 16 + strip::even_dim(warp * 2 + octet_lane % 2);
        MLA_UNROLL
        for (int i = 0; i < LANE_ROWS; i++) {
            MLA_UNROLL
            for (int g = 0; g < mla_value_groups; g++) {
                const float values[2] = {acc[g][i / 2][i % 2], acc[g][i / 2][i % 2 + 2]};
                write(row(i), first + g * 64, values);
            }
        }
    }
};

MLA_DEVICE_END

#endif
