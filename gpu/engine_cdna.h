/*
 * The engines of AMD's matrix cores: cdna3 (gfx90a, gfx942) and cdna4 (gfx950) for 16 query rows; cdna3tall and cdna4tall for 64.
 *
 * LDS: a KV tile or two (engine_cdna_tile.h) and one set of score blocks.
 * A team of waves has rows of its own: 16 for the one team of cdna3 and cdna4, 32 for each of two teams of the tall ones.
 * Q K^T: a wave multiplies its team's rows with one block of 16 tokens over half of the dimensions.
 * Scores: blocks pass through LDS in lane order, and every wave of the team adds the two halves.
 * P V: every wave holds all of its team's P and owns an equal share of the columns, a lane a run of them.
 */
#ifndef MLA_ENGINE_CDNA_H
#define MLA_ENGINE_CDNA_H

#include "engine_cdna_tile.h"
#include "engine_limits.h"

MLA_DEVICE_BEGIN

struct mla_cdna3_shape {
    static constexpr int THREADS = MLA_CDNA3_THREADS, ROWS = MLA_CDNA3_ROWS, TOKENS = MLA_CDNA3_TOKENS, LDS_BYTES = MLA_CDNA3_LDS_BYTES;
    static constexpr int TEAMS = 1, TILES = 1;
};
struct mla_cdna4_shape {
    static constexpr int THREADS = MLA_CDNA4_THREADS, ROWS = MLA_CDNA4_ROWS, TOKENS = MLA_CDNA4_TOKENS, LDS_BYTES = MLA_CDNA4_LDS_BYTES;
    static constexpr int TEAMS = 1, TILES = 2;
};
struct mla_cdna3_tall_shape {
    static constexpr int THREADS = MLA_CDNA3TALL_THREADS, ROWS = MLA_CDNA3TALL_ROWS, TOKENS = MLA_CDNA3TALL_TOKENS;
    static constexpr int LDS_BYTES = MLA_CDNA3TALL_LDS_BYTES, TEAMS = 2, TILES = 1;
};
struct mla_cdna4_tall_shape {
    static constexpr int THREADS = MLA_CDNA4TALL_THREADS, ROWS = MLA_CDNA4TALL_ROWS, TOKENS = MLA_CDNA4TALL_TOKENS;
    static constexpr int LDS_BYTES = MLA_CDNA4TALL_LDS_BYTES, TEAMS = 2, TILES = 2;
};

template <typename Kv, typename Unit, typename Shape> struct mla_cdna_engine {
    static constexpr int THREADS = Shape::THREADS, ROWS = Shape::ROWS, TOKENS = Shape::TOKENS, TILES = Shape::TILES, AHEAD = 1;
    static constexpr int TEAM = THREADS / 64 / Shape::TEAMS, TOKEN_BLOCKS = TOKENS / 16, PARTS = TEAM / TOKEN_BLOCKS;
    static constexpr int LANE_ROWS = ROWS / Shape::TEAMS / 16, BLOCKS = LANE_ROWS * TOKEN_BLOCKS;
    static constexpr int COLUMNS = MLA_HEAD_DIM_V / TEAM, RUN = Unit::RUN, GROUP = 16 * RUN, GROUPS = COLUMNS / GROUP;
    static constexpr bool FETCHES_LATE = false, SCORES_IN_LDS = true, BARRIER_IN_SCORES = false, WAITS_IN_ORDER = true;
    static_assert(PARTS == 2, "a block has two parts, of alternating halves of 64 dimensions");

    typedef mla_cdna_tile<Kv, Unit, THREADS, TOKENS> kv_tile;
    static constexpr int STEPS = mla_key_chunks / PARTS / 4 * kv_tile::STEPS_A_CHUNK, K_STEPS = kv_tile::K_STEPS;

    struct shared {
        typename kv_tile::shared tiles[TILES];
        mla_f32x4 scores[PARTS][Shape::TEAMS][BLOCKS][64];
    };
    static_assert(sizeof(shared) <= Shape::LDS_BYTES, "engine_limits.h says less LDS than is used");

    shared &lds;
    kv_tile coming;
    typename kv_tile::operand q[STEPS][LANE_ROWS];
    mla_f32x4 acc[LANE_ROWS][GROUPS]
                 [RUN]; /* element e: row 4 * (lane / 16) + e of a block of rows, column t of this lane's run of a group of columns */

    MLA_DEVICE explicit mla_cdna_engine(shared *block) : lds(*block) {}

    /* Where a thread stands. Found anew in each function: what follows from it would fill registers from one tile to the next. */
    struct seat {
        int lane, wave, team; /* wave within its team */

        MLA_DEVICE explicit seat(int thread) : lane(thread % 64), wave(thread / 64 % TEAM), team(thread / 64 / TEAM) {}
        /* This lane's first chunk in Q K^T: a part has four of each eight. */
        MLA_DEVICE int key_chunk() const { return wave / TOKEN_BLOCKS * 4 + lane / 16; }
        MLA_DEVICE int key_token() const { return wave % TOKEN_BLOCKS * 16 + lane % 16; }
    };
    static MLA_DEVICE seat here() { return seat(mla_late(mla_thread())); }

    /* ---- staging ---- */

    MLA_DEVICE int staged_token() const { return kv_tile::token_of(mla_thread()); }
    MLA_DEVICE void foresee(const mla_problem &, int64_t) {}
    MLA_DEVICE void fetch(const mla_problem &problem, int64_t slot, int) { coming.fetch(problem, slot); }
    MLA_DEVICE void fetched() {}
    MLA_DEVICE void land(int tile) { coming.land(lds.tiles[tile % TILES]); }
    MLA_DEVICE bool present(int tile, int token) const { return lds.tiles[tile % TILES].present[token] != 0; }

    /* ---- products ---- */

    /* The first `rows` of the rows of q; the others are zero. */
    MLA_DEVICE void load_q(const mla_problem &problem, int64_t first_row, int rows) {
        const int chunk = here().key_chunk();
        MLA_UNROLL
        for (int i = 0; i < LANE_ROWS; i++)
            kv_tile::query(problem, first_row + row(i), row(i) < rows, chunk, i, q);
    }

    MLA_DEVICE void scores(int tile) {
        typename kv_tile::operand k[STEPS];
        mla_f32x4 c[LANE_ROWS] = {};
        const seat at = here();
        kv_tile::keys(lds.tiles[tile % TILES], at.key_token(), at.key_chunk(), k);
        Unit::template multiply<Kv::FP16>(k, q, c);
        MLA_UNROLL
        for (int i = 0; i < LANE_ROWS; i++)
            lds.scores[at.wave / TOKEN_BLOCKS][at.team][i * TOKEN_BLOCKS + at.wave % TOKEN_BLOCKS][at.lane] = c[i];
    }

    /* This lane's share of the scores: element e of block b belongs to its row lane_row(b, e) and to token(b, e). */
    MLA_DEVICE void gather(int, float (&s)[BLOCKS][4]) const {
        const seat at = here();
        MLA_UNROLL
        for (int b = 0; b < BLOCKS; b++) {
            mla_f32x4 sum = lds.scores[0][at.team][b][at.lane];
            MLA_UNROLL
            for (int part = 1; part < PARTS; part++)
                sum += lds.scores[part][at.team][b][at.lane];
            MLA_UNROLL
            for (int e = 0; e < 4; e++)
                s[b][e] = sum[e];
        }
    }
    static MLA_DEVICE constexpr int lane_row(int b, int) { return b / TOKEN_BLOCKS; }
    MLA_DEVICE int row(int i) const { return (here().team * LANE_ROWS + i) * 16 + here().lane % 16; }
    MLA_DEVICE int token(int b, int e) const { return b % TOKEN_BLOCKS * 16 + here().lane / 16 * 4 + e; }
    /* One lane of one wave speaks for its rows. */
    MLA_DEVICE bool speaks() const { return here().wave == 0 && here().lane < 16; }

    /* Over all that hold a part of the same row. */
    MLA_DEVICE void row_max(float (&v)[LANE_ROWS], const float (&)[LANE_ROWS]) const {
        MLA_UNROLL
        for (int i = 0; i < LANE_ROWS; i++) {
            v[i] = mla_max(v[i], mla_shuffle_xor(v[i], 16));
            v[i] = mla_max(v[i], mla_shuffle_xor(v[i], 32));
        }
    }
    MLA_DEVICE void row_sum(float (&v)[LANE_ROWS]) const {
        MLA_UNROLL
        for (int i = 0; i < LANE_ROWS; i++) {
            v[i] += mla_shuffle_xor(v[i], 16);
            v[i] += mla_shuffle_xor(v[i], 32);
        }
    }

    MLA_DEVICE void clear() {
        MLA_UNROLL
        for (int i = 0; i < LANE_ROWS * GROUPS * RUN; i++)
            acc[i / RUN / GROUPS][i / RUN % GROUPS][i % RUN] = mla_f32x4{};
    }
    /* Lane r holds the factors of row r of each block of rows. */
    MLA_DEVICE void rescale(const float (&factor)[LANE_ROWS]) {
        const int quarter = here().lane / 16;
        MLA_UNROLL
        for (int i = 0; i < LANE_ROWS; i++) {
            mla_f32x4 factors;
            MLA_UNROLL
            for (int e = 0; e < 4; e++)
                factors[e] = mla_shuffle(factor[i], quarter * 4 + e);
            MLA_UNROLL
            for (int t = 0; t < GROUPS * RUN; t++)
                acc[i][t / RUN][t % RUN] *= factors;
        }
    }

    MLA_DEVICE void accumulate(int tile, const float (&p)[BLOCKS][4]) {
        const seat at = here();
        MLA_UNROLL
        for (int g = 0; g < GROUPS * K_STEPS; g++) {
            const int s = g % K_STEPS;
            typename kv_tile::operand v[1][RUN];
            if (g > 0 && LANE_ROWS > 1)
                mla_in_order();
            kv_tile::values(lds.tiles[tile % TILES], s, at.wave * COLUMNS + g / K_STEPS * GROUP, at.lane, v[0]);
            MLA_UNROLL
            for (int i = 0; i < LANE_ROWS; i++) {
                const typename kv_tile::operand a[1] = {kv_tile::weights(&p[i * TOKEN_BLOCKS], s)};
                Unit::template multiply<Kv::FP16>(a, v, acc[i][g / K_STEPS]);
            }
        }
    }

    MLA_DEVICE void accumulated() {}

    /* Calls write(row, column, values) for runs of neighbouring columns. */
    template <typename Write> MLA_DEVICE void output(Write write) const {
        const seat at = here();
        MLA_UNROLL
        for (int i = 0; i < LANE_ROWS * GROUPS * 4; i++) {
            const int block = i / 4 / GROUPS, g = i / 4 % GROUPS, e = i % 4;
            float values[RUN];
            MLA_UNROLL
            for (int t = 0; t < RUN; t++)
                values[t] = acc[block][g][t][e];
            write((at.team * LANE_ROWS + block) * 16 + at.lane / 16 * 4 + e, at.wave * COLUMNS + g * GROUP + at.lane % 16 * RUN, values);
        }
    }
};

#if defined(MLA_ENGINE_CDNA4)
template <typename Kv> using mla_engine_device = mla_cdna_engine<Kv, mla_cdna4_unit, mla_cdna4_shape>;
#elif defined(MLA_ENGINE_CDNA4TALL)
template <typename Kv> using mla_engine_device = mla_cdna_engine<Kv, mla_cdna4_unit, mla_cdna4_tall_shape>;
#elif defined(MLA_ENGINE_CDNA3TALL)
template <typename Kv> using mla_engine_device = mla_cdna_engine<Kv, mla_cdna3_unit, mla_cdna3_tall_shape>;
#else
template <typename Kv> using mla_engine_device = mla_cdna_engine<Kv, mla_cdna3_unit, mla_cdna3_shape>;
#endif

MLA_DEVICE_END

#endif
