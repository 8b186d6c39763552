/*
 * The engine of Hopper's wgmma, sm_90a: two warpgroups, 64 rows, tiles of 64 tokens. For problems with more query rows a sequence than mma's tile has.
 *
 * LDS: q's rows, two KV tiles, of which one is worked on while the next arrives, a tile's weights. All as groups of 64 columns (device_hopper.h).
 * Q K^T: a warpgroup multiplies half of the tokens, while the next tile is asked for. Scores stay in its registers: four blocks of 8 tokens, for two rows a lane.
 * Softmax: the warpgroups tell each other their maxima, and the sums at the end.
 * P V: a warpgroup owns 256 columns, and takes all weights from LDS and V from the tile that served as K.
 */
#ifndef MLA_ENGINE_HOPPER_H
#define MLA_ENGINE_HOPPER_H

#include "device_hopper.h"
#include "engine_limits.h"
#include "splitk_kv.h"

MLA_DEVICE_BEGIN

template <typename Kv> struct mla_engine_device {
    static_assert(Kv::DIRECT, "bytes go to the matrix unit as they are");
    static constexpr int THREADS = MLA_HOPPER_THREADS, ROWS = MLA_HOPPER_ROWS, TOKENS = MLA_HOPPER_TOKENS;
    static constexpr int TILES = 2, AHEAD = 1, BLOCKS = TOKENS / 16, LANE_ROWS = 2;
    static constexpr bool FETCHES_LATE = true, SCORES_IN_LDS = false, BARRIER_IN_SCORES = false, WAITS_IN_ORDER = false;
    static constexpr int STAGERS = THREADS / TOKENS, ROUNDS = mla_key_chunks / STAGERS, GROUPS = MLA_HEAD_DIM / 64;
    static constexpr int GROUP_BYTES = TOKENS * 128, COLUMNS = MLA_HEAD_DIM_V / 2;
    static_assert(ROWS == TOKENS && STAGERS == 4, "q is laid out as a tile is");

    typedef mla_chunk matrix[GROUPS][TOKENS][8];
    struct shared {
        matrix q, kv[TILES];
        mla_chunk p[ROWS][8];
        float stats[2][ROWS];
        int32_t present[TILES][TOKENS];
    };
    static_assert(sizeof(shared) <= MLA_HOPPER_LDS_BYTES, "engine_limits.h says less LDS than is used");

    shared &lds;
    const int lane, warp, group;  /* warp within its warpgroup */
    const int staged_row, stager; /* of q */
    float score[BLOCKS][4];
    float acc[COLUMNS / 8][4];

    MLA_DEVICE explicit mla_engine_device(shared *block)
        : lds(*block), lane(mla_thread() % 32), warp(mla_thread() / 32 % 4), group(mla_thread() / 128), staged_row(mla_thread() / STAGERS),
          stager(mla_thread() % STAGERS) {}

    /* ---- staging ---- */

    MLA_DEVICE int staged_token() const { return staged_row; }
    MLA_DEVICE void foresee(const mla_problem &, int64_t) {}
    /* Where this thread's chunk of round i lies: stager + i * STAGERS. */
    MLA_DEVICE mla_chunk *place(matrix &m, int i) const {
        return &m[i / 2][staged_row][mla_wgmma_swizzle(staged_row, i % 2 * STAGERS + stager)];
    }

    /* Eight lanes copy a whole group of a token, 128 bytes, and a warp half of its eight tokens at once. Four lanes know a token's slot. */
    MLA_DEVICE void fetch(const mla_problem &problem, int64_t slot, int tile) {
        const int octet = lane / 8, chunk = lane % 8;
        MLA_UNROLL
        for (int half = 0; half < 2; half++) {
            const int64_t its_slot = mla_shuffle_slot(slot, (half * 4 + octet) * STAGERS);
            const int row = staged_row / 8 * 8 + half * 4 + octet;
            const mla_chunk *source = static_cast<const mla_chunk *>(problem.kv) + (its_slot >= 0 ? its_slot : 0) * Kv::CHUNKS + chunk;
            MLA_UNROLL
            for (int g = 0; g < GROUPS; g++)
                mla_copy16(&lds.kv[tile % TILES][g][row][mla_wgmma_swizzle(row, chunk)], source + g * 8, its_slot >= 0);
        }
        if (stager == 0)
            lds.present[tile % TILES][staged_row] = slot >= 0;
    }
    MLA_DEVICE void fetched() { mla_copy_commit(); }
    MLA_DEVICE void land(int) {
        mla_copy_wait<0>();
        mla_wgmma_publish();
    }
    MLA_DEVICE bool present(int tile, int token) const { return lds.present[tile % TILES][token] != 0; }

    /* The first `rows` of 64 rows of q; the others repeat the last. */
    MLA_DEVICE void load_q(const mla_problem &problem, int64_t first_row, int rows) {
        const int64_t first = (first_row + (staged_row < rows ? staged_row : rows - 1)) * mla_key_chunks + stager;
        mla_with_q_format<Kv::FP16>(problem.q_format, [&](auto format) {
            MLA_UNROLL
            for (int i = 0; i < ROUNDS; i++) {
                mla_chunk chunk;
                MLA_UNROLL
                for (int w = 0; w < 4; w++)
                    chunk.w[w] = format.pair(problem.q, (first + i * STAGERS) * 4 + w);
                *place(lds.q, i) = chunk;
            }
        });
        mla_wgmma_publish();
    }

    /* ---- products ---- */

    MLA_DEVICE void scores(int tile) {
        const uint64_t q = mla_wgmma_matrix(lds.q, GROUP_BYTES), k = mla_wgmma_matrix(&lds.kv[tile % TILES][0][group * 32], GROUP_BYTES);
        mla_wgmma_begin();
        MLA_UNROLL
        for (int s = 0; s < MLA_HEAD_DIM / 16; s++) {
            const int at = s / 4 * GROUP_BYTES + s % 4 * 32;
            mla_wgmma_64x32<Kv::FP16>(mla_wgmma_advance(q, at), mla_wgmma_advance(k, at), s > 0, score);
        }
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
    static MLA_DEVICE constexpr int lane_row(int, int e) { return e / 2; }
    MLA_DEVICE int row(int i) const { return warp * 16 + lane / 4 + i * 8; }
    MLA_DEVICE int token(int b, int e) const { return group * 32 + b * 8 + lane % 4 * 2 + e % 2; }
    /* One lane of one warpgroup speaks for its rows. */
    MLA_DEVICE bool speaks() const { return group == 0 && lane % 4 == 0; }

    /* What the other warpgroup says of this lane's rows. There is a barrier between any two of these: that of the weights. */
    MLA_DEVICE void exchange(const float (&own)[LANE_ROWS], float (&other)[LANE_ROWS]) {
        MLA_UNROLL
        for (int i = 0; i < LANE_ROWS; i++)
            if (lane % 4 == 0)
                lds.stats[group][row(i)] = own[i];
        mla_barrier();
        MLA_UNROLL
        for (int i = 0; i < LANE_ROWS; i++)
            other[i] = lds.stats[1 - group][row(i)];
    }
    MLA_DEVICE void row_max(float (&v)[LANE_ROWS], const float (&)[LANE_ROWS]) {
        float other[LANE_ROWS];
        MLA_UNROLL
        for (int i = 0; i < LANE_ROWS; i++) {
            v[i] = mla_max(v[i], mla_shuffle_xor(v[i], 1));
            v[i] = mla_max(v[i], mla_shuffle_xor(v[i], 2));
        }
        exchange(v, other);
        MLA_UNROLL
        for (int i = 0; i < LANE_ROWS; i++)
            v[i] = mla_max(v[i], other[i]);
    }
    MLA_DEVICE void row_sum(float (&v)[LANE_ROWS]) {
        float other[LANE_ROWS];
        MLA_UNROLL
        for (int i = 0; i < LANE_ROWS; i++) {
            v[i] += mla_shuffle_xor(v[i], 1);
            v[i] += mla_shuffle_xor(v[i], 2);
        }
        exchange(v, other);
        MLA_UNROLL
        for (int i = 0; i < LANE_ROWS; i++)
            v[i] += other[i];
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
        if (!mla_any(factor[0] != 1.0f || factor[1] != 1.0f))
            return;
        MLA_UNROLL
        for (int n = 0; n < COLUMNS / 8; n++) {
            MLA_UNROLL
            for (int e = 0; e < 4; e++)
                acc[n][e] *= factor[e / 2];
        }
    }

    MLA_DEVICE void accumulate(int tile, const float (&p)[BLOCKS][4]) {
        const uint64_t v = mla_wgmma_matrix(lds.kv[tile % TILES][group * (COLUMNS / 64)], GROUP_BYTES),
                       weights = mla_wgmma_matrix(lds.p, GROUP_BYTES);
        MLA_UNROLL
        for (int b = 0; b < BLOCKS; b++) {
            MLA_UNROLL
            for (int i = 0; i < LANE_ROWS; i++)
                lds.p[row(i)][mla_wgmma_swizzle(row(i), group * BLOCKS + b)].w[lane % 4] =
                    mla_operand_pair<Kv::FP16>(p[b][i * 2], p[b][i * 2 + 1]);
        }
        mla_wgmma_publish();
        mla_barrier();
        mla_wgmma_begin();
        MLA_UNROLL
        for (int s = 0; s < TOKENS / 16; s++)
            mla_wgmma_64x256<Kv::FP16>(mla_wgmma_advance(weights, s * 32), mla_wgmma_advance(v, s * 16 * 128), acc);
        mla_wgmma_commit();
        mla_wgmma_wait<0>();
        mla_wgmma_arrived(acc);
    }

    MLA_DEVICE void accumulated() {}

    /* Calls write(row, column, values) for runs of neighbouring columns. */
    template <typename Write> MLA_DEVICE void output(Write write) const {
        const int64_t first = group * COLUMNS + lane % 4 * 2;
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
