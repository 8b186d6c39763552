/*
 * The walk: flash decode over one plan item, the same for every matrix unit.
 *
 * The engine stages tiles of tokens and multiplies; the walk says which tokens, which of them a row may see, and keeps the online softmax
 * (Milakov and Gimelshein, arXiv:1805.02867) in base 2. A lane holds some scores of LANE_ROWS rows, and the statistics of those rows.
 */
#ifndef MLA_SPLITK_WALK_H
#define MLA_SPLITK_WALK_H

#include "splitk_finish.h"
#include "visible_keys.h"

MLA_DEVICE_BEGIN

template <typename Engine> struct mla_walk {
    static constexpr int TOKENS = Engine::TOKENS, ROWS = Engine::LANE_ROWS, BLOCKS = Engine::BLOCKS;

    const mla_splitk_args &args;
    const mla_plan_item item;
    Engine &engine;
    const mla_score_map map;
    const int tiles;
    const mla_key_slots slots;
    int all_begin, all_end; /* positions every row sees */
    /* Slot of the tile to fetch next, looked up a tile early: that takes as long as a fetch. Where loads are waited for in order, of all that are under way
       (WAITS_IN_ORDER), its entry instead, and nobody looks at it until then. */
    int64_t next;
    int32_t entry;
    float m[ROWS], l[ROWS]; /* running maximum, in log2 units; this lane's part of the sum of weights */

    MLA_DEVICE mla_walk(const mla_splitk_args &arguments, const mla_plan_item &work, Engine &unit)
        : args(arguments), item(work), engine(unit), map(mla_score_map_of(arguments.problem)),
          tiles((work.kv_end - work.kv_begin + TOKENS - 1) / TOKENS),
          slots(mla_key_slots_of(arguments.problem, mla_uniform(work.sequence), work.first_row)) {
        MLA_UNROLL
        for (int i = 0; i < ROWS; i++) {
            m[i] = -mla_infinity;
            l[i] = 0.0f;
        }
        all_begin = mla_uniform(visible(item.rows - 1).begin);
        all_end = mla_uniform(visible(0).end);
    }

    /* ---- which tokens ---- */

    /* What row r of the item sees of the item's keys. Rows past the last see what the last does: they are never stored. */
    MLA_DEVICE mla_positions visible(int r) const {
        const int64_t row = item.first_row + (r < item.rows ? r : item.rows - 1);
        return mla_visible_keys(args.problem, item.sequence, row, {item.kv_begin, item.kv_end});
    }

    /* Of the token this thread stages of a tile. */
    MLA_DEVICE int position(int tile) const { return item.kv_begin + tile * TOKENS + engine.staged_token(); }
    MLA_DEVICE void look_up(int tile) {
        const int at = position(tile);
        if (Engine::WAITS_IN_ORDER)
            entry = at < item.kv_end ? mla_key_entry(args.problem, slots, at) : 0;
        else
            next = at < item.kv_end ? mla_key_slot(args.problem, slots, at) : -1;
    }
    /* Slot in the tile looked up last, -1 where there is none: past the item's keys, or absent from a sparse list. */
    MLA_DEVICE int64_t looked_up(int tile) const {
        if (!Engine::WAITS_IN_ORDER)
            return next;
        const int32_t known = entry;
        return position(tile) < item.kv_end ? mla_key_slot(args.problem, slots, position(tile), [known](int) { return known; }) : -1;
    }

    /* ---- softmax ---- */

    /* Calls visit(score, b, e) for each score this lane holds: element e of block b. */
    template <typename Visit> static MLA_DEVICE void each(float (&s)[BLOCKS][4], Visit visit) {
        MLA_UNROLL
        for (int b = 0; b < BLOCKS; b++) {
            MLA_UNROLL
            for (int e = 0; e < 4; e++)
                visit(s[b][e], b, e);
        }
    }

    /* Scores of a tile in log2 units; what a row may not see becomes -inf. */
    MLA_DEVICE void score(int tile, float (&s)[BLOCKS][4]) {
        engine.gather(tile, s);
        each(s, [&](float &x, int, int) { x = mla_mul(x, map.scale); });
        if (map.cap > 0.0f)
            each(s, [&](float &x, int, int) { x = mla_mul(mla_tanh(x), map.cap); });
        const int first = item.kv_begin + tile * TOKENS;
        const bool sparse = args.problem.paging == MLA_SPARSE;
        if (sparse || first < all_begin || first + TOKENS > all_end)
            hide(tile, first, sparse, s);
    }

    MLA_DEVICE void hide(int tile, int first, bool sparse, float (&s)[BLOCKS][4]) const {
        mla_positions seen[ROWS];
        MLA_UNROLL
        for (int i = 0; i < ROWS; i++)
            seen[i] = visible(engine.row(i));
        each(s, [&](float &x, int b, int e) {
            const int token = engine.token(b, e), position = first + token, i = Engine::lane_row(b, e);
            if (position < seen[i].begin || position >= seen[i].end || (sparse && !engine.present(tile, token)))
                x = -mla_infinity;
        });
    }

    /* Turns scores into weights, and brings sums and accumulators to the new maximum. A row that has seen nothing yet has m == -inf: its weights are 0. */
    MLA_DEVICE void weigh(float (&s)[BLOCKS][4]) {
        float top[ROWS], base[ROWS], shrink[ROWS];
        MLA_UNROLL
        for (int i = 0; i < ROWS; i++)
            top[i] = m[i];
        each(s, [&](float &x, int b, int e) { top[Engine::lane_row(b, e)] = mla_max(top[Engine::lane_row(b, e)], x); });
        engine.row_max(top, m);
        MLA_UNROLL
        for (int i = 0; i < ROWS; i++) {
            base[i] = top[i] == -mla_infinity ? 0.0f : top[i];
            shrink[i] = mla_exp2(m[i] - base[i]);
            m[i] = top[i];
            l[i] *= shrink[i];
        }
        engine.rescale(shrink);
        each(s, [&](float &x, int b, int e) {
            x = mla_exp2(x - base[Engine::lane_row(b, e)]);
            l[Engine::lane_row(b, e)] += x;
        });
    }

    /* ---- the loop ---- */

    /* Tiles past the last are never fetched, but every tile closes a group of copies. */
    MLA_DEVICE void fetch(int tile) {
        if (tile < tiles)
            engine.fetch(args.problem, looked_up(tile), tile);
        engine.fetched();
        look_up(tile + 1);
    }

    MLA_DEVICE void begin_tiles() {
        look_up(0);
        MLA_UNROLL
        for (int t = 0; t < Engine::AHEAD; t++) {
            engine.foresee(args.problem, looked_up(t));
            fetch(t);
        }
        engine.foresee(args.problem, looked_up(Engine::AHEAD));
        engine.load_q(args.problem, item.first_row, item.rows);
    }

    /*
     * A tile is whole after the barrier that follows its landing, which also says that nobody reads the tile before it any more. A single buffer must be
     * free before a tile lands. What lands after the last tile was never fetched, and nobody looks at it: without a branch, landing and products overlap.
     * Where `scores` only begins the products (FETCHES_LATE), the next tile is asked for meanwhile. Where they pass through LDS (SCORES_IN_LDS), they are
     * whole after a barrier. An engine that passes tiles in another way has the first barrier in its `scores` (BARRIER_IN_SCORES).
     */
    MLA_DEVICE void run() {
        mla_barrier();
        engine.clear();
        begin_tiles();
        engine.land(0);
        for (int t = 0; t < tiles; t++) {
            if (!Engine::BARRIER_IN_SCORES)
                mla_barrier();
            if (!Engine::FETCHES_LATE)
                fetch(t + Engine::AHEAD);
            engine.scores(t);
            if (Engine::FETCHES_LATE)
                fetch(t + Engine::AHEAD);
            if (Engine::SCORES_IN_LDS)
                mla_barrier();
            engine.foresee(args.problem, looked_up(t + Engine::AHEAD + 1));
            float s[BLOCKS][4];
            score(t, s);
            weigh(s);
            engine.accumulate(t, s);
            if (Engine::TILES == 1)
                mla_barrier();
            engine.land(t + 1);
        }
        finish();
    }

    /* ---- the end ---- */

    MLA_DEVICE void finish() {
        engine.accumulated();
        engine.row_sum(l);
        if (item.slot < 0)
            write_rows();
        else
            write_partial();
    }

    MLA_DEVICE void write_rows() {
        float scale[ROWS];
        MLA_UNROLL
        for (int i = 0; i < ROWS; i++) {
            const bool real = engine.row(i) < item.rows;
            const int64_t row = item.first_row + (real ? engine.row(i) : 0);
            const mla_row_end end_of = mla_finish_row(args.problem, row, m[i], l[i]);
            scale[i] = end_of.scale;
            if (real && engine.speaks())
                args.output.lse[row] = end_of.lse;
        }
        engine.rescale(scale);
        engine.output([this](int r, int64_t column, const auto &values) {
            if (r < item.rows)
                mla_store_out(args, item.first_row + r, column, values);
        });
    }

    MLA_DEVICE void write_partial() {
        const int64_t first = static_cast<int64_t>(item.slot) * args.row_tile;
        MLA_UNROLL
        for (int i = 0; i < ROWS; i++)
            if (engine.row(i) < item.rows && engine.speaks())
                mla_store_f32(args.partial_ml + (first + engine.row(i)) * 2, {m[i], l[i]});
        engine.output([this, first](int r, int64_t column, const auto &values) {
            if (r < item.rows)
                mla_store_f32(args.partial_out + (first + r) * MLA_HEAD_DIM_V + column, values);
        });
    }
};

MLA_DEVICE_END

#endif
