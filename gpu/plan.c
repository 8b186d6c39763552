/*
 * Split plans. All four policies are one procedure: a grid of cutting points divides each group's key range into units, and the units, in order,
 * are dealt to workers in consecutive shares equal to within one. BALANCED's units are the kernel's tiles and its workers the blocks that run at once; the
 * other policies' units are the splits themselves, one worker each.
 */
#include "mla_gpu.h"

#include <stdlib.h>

#define ADAPTIVE_MAX_SPLITS 32
#define ITEM_TILES 3 /* what an item costs beside its tiles, in tiles: look-ups, q, the first tile's way from memory, its result */

/* Cutting points at origin + i * step. */
typedef struct cuts {
    int64_t origin, step;
} cuts;

typedef struct planner {
    const mla_problem *problem;
    const mla_plan_options *options;
    mla_range *ranges;    /* [num_groups], keys that any row of the group may see */
    int64_t live_groups;  /* those with a key */
    int64_t units;        /* of all groups */
    int64_t group_splits; /* FIXED and ADAPTIVE */
} planner;

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t ceil_div(int64_t a, int64_t b) {
    return a / b + (a % b != 0);
}

static mla_status check_input(const mla_problem *problem, const mla_plan_options *options) {
    if (options->row_tile < 1 || options->kv_tile < 1 || options->resident_blocks < 1)
        return mla_error(MLA_EINVAL, "plan options: row_tile %d, kv_tile %d, resident_blocks %d must be positive", options->row_tile,
                         options->kv_tile, options->resident_blocks);
    bool counted = problem->split_policy == MLA_SPLIT_FIXED || problem->split_policy == MLA_SPLIT_SIZE;
    if (counted && problem->split_arg < 1)
        return mla_error(MLA_EINVAL, "split_arg %d must be positive", problem->split_arg);
    if (problem->total_q > INT64_MAX / MLA_MAX_HEADS)
        return mla_error(MLA_EUNSUPPORTED, "total_q = %lld has more rows than 64 bits count", (long long)problem->total_q);
    return mla_ok();
}

/* Rows that may share a group: a sequence's, or under sparse attention a query token's, whose keys are its own. */
static int64_t rows_together(const mla_problem *p, int32_t sequence) {
    return p->paging == MLA_SPARSE ? p->heads : (int64_t)mla_q_len(p, sequence) * p->heads;
}

static int64_t padding_rows(const mla_problem *p) {
    return (p->total_q - p->qo_indptr[p->batch]) * p->heads;
}

static int64_t count_groups(const mla_problem *p, int32_t row_tile) {
    int64_t count = ceil_div(padding_rows(p), row_tile);
    for (int32_t b = 0; b < p->batch; b++) {
        int64_t blocks = p->paging == MLA_SPARSE ? mla_q_len(p, b) : 1;
        count += blocks * ceil_div(rows_together(p, b), row_tile);
    }
    return count;
}

static mla_range union_of_visible(const mla_problem *p, int32_t sequence, int64_t first_row, int32_t rows) {
    mla_range all = {0, 0};
    for (int64_t t = first_row / p->heads; t <= (first_row + rows - 1) / p->heads; t++) {
        mla_range r = mla_visible(p, sequence, t);
        if (r.begin >= r.end)
            continue;
        if (all.begin == all.end)
            all = r;
        all.begin = min64(all.begin, r.begin);
        all.end = r.end > all.end ? r.end : all.end;
    }
    return all;
}

/* Appends the groups of rows [first_row, first_row + rows); sequence -1 is padding. */
static void add_groups(planner *m, mla_plan *plan, int32_t sequence, int64_t first_row, int64_t rows) {
    for (int64_t row = first_row, end = first_row + rows; row < end;) {
        int32_t n = (int32_t)min64(m->options->row_tile, end - row);
        mla_range range = sequence < 0 ? (mla_range){0, 0} : union_of_visible(m->problem, sequence, row, n);
        plan->groups[plan->num_groups] = (mla_plan_group){.first_row = row, .rows = n, .first_slot = -1, .splits = 0, .sequence = sequence};
        m->ranges[plan->num_groups++] = range;
        m->live_groups += range.begin < range.end;
        row += n;
    }
}

static mla_status make_groups(planner *m, mla_plan *plan) {
    const mla_problem *p = m->problem;
    int64_t count = count_groups(p, m->options->row_tile);
    if (count > INT32_MAX)
        return mla_error(MLA_EUNSUPPORTED, "a plan of %lld row groups does not fit 32-bit indices", (long long)count);
    plan->groups = malloc((size_t)(count + 1) * sizeof *plan->groups);
    m->ranges = calloc((size_t)(count + 1), sizeof *m->ranges);
    if (!plan->groups || !m->ranges)
        return mla_error(MLA_ENOMEM, "no memory for a plan of %lld row groups", (long long)count);
    for (int32_t b = 0; b < p->batch; b++) {
        int64_t together = rows_together(p, b), end = (int64_t)p->qo_indptr[b + 1] * p->heads;
        for (int64_t row = (int64_t)p->qo_indptr[b] * p->heads; row < end; row += together)
            add_groups(m, plan, b, row, together);
    }
    add_groups(m, plan, -1, (int64_t)p->qo_indptr[p->batch] * p->heads, padding_rows(p));
    return mla_ok();
}

/* Estimated time of N splits a group, in tiles: the last wave counts as a full one. `longest` and `all`: tiles of the longest group and of all together. */
static int64_t adaptive_time(const planner *m, int64_t splits, int64_t longest, int64_t all) {
    int64_t items = m->live_groups * splits, waves = ceil_div(items, m->options->resident_blocks);
    int64_t by_waves = waves * (ceil_div(all, items) + ITEM_TILES), by_longest = ceil_div(longest, splits) + ITEM_TILES;
    return by_waves > by_longest ? by_waves : by_longest;
}

static int64_t adaptive_splits(const planner *m, int32_t num_groups) {
    int64_t longest = 0, all = 0, best = 1;
    for (int32_t g = 0; g < num_groups; g++) {
        int64_t tiles = ceil_div(m->ranges[g].end - m->ranges[g].begin, m->options->kv_tile);
        longest = tiles > longest ? tiles : longest;
        all += tiles;
    }
    for (int64_t splits = 2; all > 0 && splits <= ADAPTIVE_MAX_SPLITS; splits++)
        if (adaptive_time(m, splits, longest, all) < adaptive_time(m, best, longest, all))
            best = splits;
    return best;
}

static cuts cuts_of(const planner *m, mla_range range) {
    switch (m->problem->split_policy) {
    case MLA_SPLIT_SIZE:
        return (cuts){0, m->problem->split_arg};
    case MLA_SPLIT_BALANCED:
        return (cuts){0, m->options->kv_tile};
    default:
        return (cuts){range.begin, ceil_div(range.end - range.begin, m->group_splits)};
    }
}

static int64_t unit_of(cuts c, int64_t key) {
    return (key - c.origin) / c.step;
}

static int64_t units_of(cuts c, mla_range range) {
    return range.begin < range.end ? unit_of(c, range.end - 1) - unit_of(c, range.begin) + 1 : 0;
}

/* Every worker boundary adds at most one cut to the groups' own. */
static mla_status allocate_items(planner *m, mla_plan *plan) {
    for (int32_t g = 0; g < plan->num_groups; g++)
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): mla_error never returns MLA_OK */
        m->units += units_of(cuts_of(m, m->ranges[g]), m->ranges[g]);
    bool balanced = m->problem->split_policy == MLA_SPLIT_BALANCED;
    int64_t workers = balanced ? min64(m->options->resident_blocks, m->units) : m->units;
    int64_t items = min64(m->units, m->live_groups + workers);
    if (items > INT32_MAX || workers >= INT32_MAX)
        return mla_error(MLA_EUNSUPPORTED, "a plan of %lld items does not fit 32-bit indices", (long long)items);
    plan->items = malloc((size_t)(items + 1) * sizeof *plan->items);
    plan->worker_indptr = malloc((size_t)(workers + 1) * sizeof *plan->worker_indptr);
    if (!plan->items || !plan->worker_indptr)
        return mla_error(MLA_ENOMEM, "no memory for a plan of %lld items", (long long)items);
    plan->num_workers = (int32_t)workers;
    return mla_ok();
}

/* A group of one item needs no partial. */
static void assign_slots(mla_plan *plan, int32_t group, int32_t first_item) {
    mla_plan_group *g = &plan->groups[group];
    g->splits = plan->num_items - first_item;
    if (g->splits < 2)
        return;
    g->first_slot = plan->num_slots;
    for (int32_t i = first_item; i < plan->num_items; i++)
        plan->items[i].slot = plan->num_slots++;
}

static void deal(const planner *m, mla_plan *plan) {
    int32_t worker = 0;
    int64_t left = 0; /* units the present worker still takes */
    for (int32_t i = 0; i < plan->num_groups; i++) {
        const mla_plan_group *g = &plan->groups[i];
        mla_range range = m->ranges[i];
        cuts c = cuts_of(m, range);
        int32_t first_item = plan->num_items;
        for (int64_t units = units_of(c, range), begin = range.begin; units > 0;) {
            if (left == 0) {
                left = m->units / plan->num_workers + (worker < m->units % plan->num_workers);
                plan->worker_indptr[worker++] = plan->num_items;
            }
            int64_t taken = min64(left, units);
            int64_t end = min64(range.end, c.origin + (unit_of(c, begin) + taken) * c.step);
            plan->items[plan->num_items++] = (mla_plan_item){.sequence = g->sequence,
                                                             .rows = g->rows,
                                                             .first_row = g->first_row,
                                                             .kv_begin = (int32_t)begin,
                                                             .kv_end = (int32_t)end,
                                                             .slot = -1,
                                                             .group = i};
            begin = end;
            units -= taken;
            left -= taken;
        }
        assign_slots(plan, i, first_item);
    }
    plan->worker_indptr[plan->num_workers] = plan->num_items;
}

mla_status mla_plan_make(const mla_problem *host, const mla_plan_options *options, mla_plan *plan) {
    *plan = (mla_plan){.row_tile = options->row_tile};
    planner m = {.problem = host, .options = options};
    mla_status status = check_input(host, options);
    if (status.code == MLA_OK)
        status = make_groups(&m, plan);
    if (status.code == MLA_OK)
        m.group_splits = host->split_policy == MLA_SPLIT_FIXED ? host->split_arg : adaptive_splits(&m, plan->num_groups);
    if (status.code == MLA_OK)
        status = allocate_items(&m, plan);
    if (status.code == MLA_OK)
        deal(&m, plan);
    else
        mla_plan_free(plan);
    free(m.ranges);
    return status;
}

void mla_plan_free(mla_plan *plan) {
    free(plan->items);
    free(plan->groups);
    free(plan->worker_indptr);
    *plan = (mla_plan){0};
}
