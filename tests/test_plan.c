/* Split plans: numbers worked out by hand, and properties over random problems. */
#include "../gpu/mla_gpu.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_BATCH 8

/* A problem with lengths alone: planning reads nothing else. */
typedef struct shape {
    mla_problem problem;
    int32_t qo_indptr[MAX_BATCH + 1], kv_indptr[MAX_BATCH + 1];
} shape;

static const mla_plan_options options = {.row_tile = 16, .kv_tile = 64, .resident_blocks = 8};

static void make_shape(shape *s, int32_t heads, int32_t batch, const int32_t *q_len, const int32_t *kv_len) {
    memset(s, 0, sizeof *s);
    for (int32_t b = 0; b < batch; b++) {
        s->qo_indptr[b + 1] = s->qo_indptr[b] + q_len[b];
        s->kv_indptr[b + 1] = s->kv_indptr[b] + kv_len[b];
    }
    s->problem = (mla_problem){.batch = batch,
                               .heads = heads,
                               .total_q = s->qo_indptr[batch],
                               .qo_indptr = s->qo_indptr,
                               .total_kv = s->kv_indptr[batch],
                               .kv_indptr = s->kv_indptr};
}

static mla_plan make_plan(const mla_problem *p, const mla_plan_options *o) {
    mla_plan plan;
    mla_status status = mla_plan_make(p, o, &plan);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    return plan;
}

static void expect_item(const mla_plan *plan, int32_t i, int64_t first_row, int32_t kv_begin, int32_t kv_end, int32_t slot) {
    const mla_plan_item *item = &plan->items[i];
    cr_expect(item->first_row == first_row && item->kv_begin == kv_begin && item->kv_end == kv_end && item->slot == slot,
              "item %d: row %lld, keys %d..%d, slot %d", i, (long long)item->first_row, item->kv_begin, item->kv_end, item->slot);
}

/* 100 keys in 3 splits of ceil(100 / 3) = 34; an empty sequence; one of 2 keys, where the third split would be empty; one padding token. */
Test(plan, fixed) {
    shape s;
    make_shape(&s, 16, 3, (int32_t[]){1, 1, 1}, (int32_t[]){100, 0, 2});
    s.problem.total_q++;
    s.problem.split_policy = MLA_SPLIT_FIXED;
    s.problem.split_arg = 3;
    mla_plan plan = make_plan(&s.problem, &options);
    cr_assert_eq(plan.num_items, 5);
    cr_assert_eq(plan.num_groups, 4);
    cr_expect_eq(plan.num_workers, 5);
    cr_expect_eq(plan.num_slots, 5);
    expect_item(&plan, 0, 0, 0, 34, 0);
    expect_item(&plan, 1, 0, 34, 68, 1);
    expect_item(&plan, 2, 0, 68, 100, 2);
    expect_item(&plan, 3, 32, 0, 1, 3);
    expect_item(&plan, 4, 32, 1, 2, 4);
    cr_expect(plan.groups[0].splits == 3 && plan.groups[0].first_slot == 0);
    cr_expect(plan.groups[1].splits == 0 && plan.groups[1].first_slot == -1 && plan.groups[1].sequence == 1);
    cr_expect(plan.groups[2].splits == 2 && plan.groups[2].first_slot == 3);
    cr_expect(plan.groups[3].splits == 0 && plan.groups[3].sequence == -1 && plan.groups[3].first_row == 48);
    mla_plan_free(&plan);
}

/* A lone item writes the output itself. */
Test(plan, one_split_has_no_slot) {
    shape s;
    make_shape(&s, 16, 1, (int32_t[]){1}, (int32_t[]){100});
    s.problem.split_policy = MLA_SPLIT_FIXED;
    s.problem.split_arg = 1;
    mla_plan plan = make_plan(&s.problem, &options);
    cr_assert_eq(plan.num_items, 1);
    expect_item(&plan, 0, 0, 0, 100, -1);
    cr_expect(plan.groups[0].splits == 1 && plan.groups[0].first_slot == -1);
    cr_expect_eq(plan.num_slots, 0);
    mla_plan_free(&plan);
}

/* Two query tokens of 16 heads, causal over 10 keys with a window of 4: token 0 sees keys 5..9, token 1 sees 6..10, a tile of 32 rows both. */
Test(plan, clips_to_what_is_visible) {
    shape s;
    make_shape(&s, 16, 1, (int32_t[]){2}, (int32_t[]){10});
    s.problem.causal = true;
    s.problem.window = 4;
    s.problem.split_policy = MLA_SPLIT_SIZE;
    s.problem.split_arg = 8;
    mla_plan plan = make_plan(&s.problem, &options);
    cr_assert_eq(plan.num_items, 4);
    expect_item(&plan, 0, 0, 5, 8, 0);
    expect_item(&plan, 1, 0, 8, 9, 1);
    expect_item(&plan, 2, 16, 6, 8, 2);
    expect_item(&plan, 3, 16, 8, 10, 3);
    mla_plan_free(&plan);
    plan = make_plan(&s.problem, &(mla_plan_options){.row_tile = 32, .kv_tile = 64, .resident_blocks = 8});
    cr_assert_eq(plan.num_items, 2);
    expect_item(&plan, 0, 0, 5, 8, 0);
    expect_item(&plan, 1, 0, 8, 10, 1);
    mla_plan_free(&plan);
}

/* Tiles of 64: 300 keys are 5, 100 keys are 2. Seven tiles over three workers: 3, 2, 2. */
Test(plan, balanced) {
    shape s;
    make_shape(&s, 16, 2, (int32_t[]){1, 1}, (int32_t[]){300, 100});
    s.problem.split_policy = MLA_SPLIT_BALANCED;
    mla_plan plan = make_plan(&s.problem, &(mla_plan_options){.row_tile = 16, .kv_tile = 64, .resident_blocks = 3});
    cr_assert_eq(plan.num_items, 3);
    cr_assert_eq(plan.num_workers, 3);
    expect_item(&plan, 0, 0, 0, 192, 0);
    expect_item(&plan, 1, 0, 192, 300, 1);
    expect_item(&plan, 2, 16, 0, 100, -1);
    mla_plan_free(&plan);
}

/* The public contest's shapes on a device that runs 264 blocks at once: splits that fill it once, at most 32. */
Test(plan, adaptive_fills_the_device_once) {
    int32_t kv_lens[] = {1024, 8192}, batches[] = {4, 32, 64, 256, 1024};
    static int32_t qo_indptr[1025], kv_indptr[1025];
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 5; i++) {
            for (int32_t b = 0; b <= batches[i]; b++) {
                qo_indptr[b] = b;
                kv_indptr[b] = b * kv_lens[k];
            }
            mla_problem p = {.batch = batches[i], .heads = 16, .total_q = batches[i], .qo_indptr = qo_indptr, .kv_indptr = kv_indptr};
            int32_t splits = (int32_t[]){32, 8, 4, 1, 1}[i];
            mla_plan plan = make_plan(&p, &(mla_plan_options){.row_tile = 16, .kv_tile = 32, .resident_blocks = 264});
            cr_expect_eq(plan.num_items, batches[i] * splits, "%d x %d: %d items", batches[i], kv_lens[k], plan.num_items);
            cr_expect_eq(plan.items[0].kv_end, kv_lens[k] / splits);
            mla_plan_free(&plan);
        }
    }
}

/*
 * Nine groups of 10 tiles, 8 blocks at once. 1 split: two waves of 10 + 3. 2: 18 items, three of 5 + 3. 3: 27, four of 4 + 3. Even 7 are worse:
 * 63 items, eight waves of 2 + 3.
 */
Test(plan, adaptive_counts_whole_waves) {
    int32_t qo_indptr[10], kv_indptr[10];
    for (int32_t b = 0; b <= 9; b++) {
        qo_indptr[b] = b;
        kv_indptr[b] = b * 640;
    }
    mla_problem p = {.batch = 9, .heads = 16, .total_q = 9, .qo_indptr = qo_indptr, .kv_indptr = kv_indptr};
    mla_plan plan = make_plan(&p, &options);
    cr_expect_eq(plan.num_items, 18);
    mla_plan_free(&plan);
}

/*
 * 100 tiles beside one, 8 blocks at once. 4 splits: the longest item takes 25 + 3. 8: two waves of 7 + 3, the longest 13 + 3. 9: three waves of 6 + 3.
 * The short sequence's 64 keys are cut into 8 as well.
 */
Test(plan, adaptive_heeds_the_longest) {
    shape s;
    make_shape(&s, 16, 2, (int32_t[]){1, 1}, (int32_t[]){6400, 64});
    mla_plan plan = make_plan(&s.problem, &options);
    cr_expect_eq(plan.num_items, 16);
    cr_expect_eq(plan.items[0].kv_end, 800);
    mla_plan_free(&plan);
}

/* ---- properties ------------------------------------------------------------------------------------------------------------- */

static uint64_t random_state;

/* 0 .. limit - 1, from a linear congruential generator (Knuth's MMIX constants). */
static int32_t draw(int32_t limit) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((random_state >> 33) % (uint64_t)limit);
}

static void draw_shape(shape *s) {
    int32_t q_len[MAX_BATCH], kv_len[MAX_BATCH], batch = 1 + draw(MAX_BATCH), heads = 1 + draw(40);
    for (int32_t b = 0; b < batch; b++) {
        q_len[b] = draw(5);
        kv_len[b] = draw(4) ? draw(700) : draw(4);
    }
    make_shape(s, heads, batch, q_len, kv_len);
    s->problem.total_q += draw(3);
    if (draw(4) == 0) {
        s->problem.paging = MLA_SPARSE;
        s->problem.topk = 1 + draw(300);
    } else {
        s->problem.causal = draw(2);
        s->problem.window = draw(2) ? 1 + draw(200) : 0;
    }
    s->problem.split_policy = (mla_split_policy)draw(4);
    if (s->problem.split_policy == MLA_SPLIT_FIXED)
        s->problem.split_arg = 1 + draw(50);
    if (s->problem.split_policy == MLA_SPLIT_SIZE)
        s->problem.split_arg = 1 + draw(300);
}

static void expect_groups_cover_rows(const mla_problem *p, const mla_plan *plan) {
    int64_t row = 0;
    for (int32_t g = 0; g < plan->num_groups; g++) {
        const mla_plan_group *group = &plan->groups[g];
        int64_t last = group->first_row + group->rows - 1;
        cr_assert_eq(group->first_row, row);
        cr_assert(group->rows >= 1 && group->rows <= plan->row_tile);
        cr_assert_eq(group->sequence, mla_sequence_of(p, row / p->heads));
        cr_assert_eq(group->sequence, mla_sequence_of(p, last / p->heads));
        if (p->paging == MLA_SPARSE && group->sequence >= 0)
            cr_assert_eq(row / p->heads, last / p->heads, "a group crosses a query token");
        row = last + 1;
    }
    cr_assert_eq(row, p->total_q * p->heads);
}

/* The items of a group: consecutive keys, consecutive slots. */
static void expect_items_fit_groups(const mla_plan *plan) {
    int32_t item = 0, slot = 0;
    for (int32_t g = 0; g < plan->num_groups; g++) {
        const mla_plan_group *group = &plan->groups[g];
        cr_assert_eq(group->first_slot, group->splits > 1 ? slot : -1);
        for (int32_t i = 0; i < group->splits; i++, item++) {
            const mla_plan_item *it = &plan->items[item];
            cr_assert(it->group == g && it->sequence == group->sequence && it->first_row == group->first_row && it->rows == group->rows);
            cr_assert_eq(it->slot, group->splits > 1 ? slot++ : -1);
            cr_assert_lt(it->kv_begin, it->kv_end);
            cr_assert(i == 0 || it->kv_begin == it[-1].kv_end);
        }
    }
    cr_assert_eq(item, plan->num_items);
    cr_assert_eq(slot, plan->num_slots);
}

/* Every visible key of every row lies in exactly one item (items are disjoint), and the ends of the range are some row's. */
static void expect_keys_covered(const mla_problem *p, const mla_plan *plan) {
    int32_t item = 0;
    for (int32_t g = 0; g < plan->num_groups; item += plan->groups[g++].splits) {
        const mla_plan_group *group = &plan->groups[g];
        int64_t begin = INT64_MAX, end = 0;
        for (int64_t row = group->first_row; row < group->first_row + group->rows; row++) {
            mla_range r = mla_visible(p, group->sequence, row / p->heads);
            if (r.begin == r.end)
                continue;
            begin = r.begin < begin ? r.begin : begin;
            end = r.end > end ? r.end : end;
        }
        cr_assert_eq(group->splits > 0, end > 0);
        if (group->splits > 0)
            cr_assert(plan->items[item].kv_begin == begin && plan->items[item + group->splits - 1].kv_end == end);
    }
}

static void expect_workers(const mla_problem *p, const mla_plan *plan) {
    int64_t least = INT64_MAX, most = 0;
    cr_assert_eq(plan->worker_indptr[0], 0);
    cr_assert_eq(plan->worker_indptr[plan->num_workers], plan->num_items);
    for (int32_t w = 0; w < plan->num_workers; w++) {
        int64_t tiles = 0;
        cr_assert_lt(plan->worker_indptr[w], plan->worker_indptr[w + 1], "worker %d has no item", w);
        for (int32_t i = plan->worker_indptr[w]; i < plan->worker_indptr[w + 1]; i++)
            tiles += (plan->items[i].kv_end + options.kv_tile - 1) / options.kv_tile - plan->items[i].kv_begin / options.kv_tile;
        least = tiles < least ? tiles : least;
        most = tiles > most ? tiles : most;
    }
    if (p->split_policy == MLA_SPLIT_BALANCED) {
        cr_assert_leq(plan->num_workers, options.resident_blocks);
        cr_assert(plan->num_workers == 0 || most - least <= 1, "workers hold %lld to %lld tiles", (long long)least, (long long)most);
    } else {
        cr_assert_eq(plan->num_workers, plan->num_items);
    }
}

Test(plan, properties) {
    random_state = 1;
    for (int i = 0; i < 3000; i++) {
        shape s;
        draw_shape(&s);
        mla_plan plan = make_plan(&s.problem, &options);
        expect_groups_cover_rows(&s.problem, &plan);
        expect_items_fit_groups(&plan);
        expect_keys_covered(&s.problem, &plan);
        expect_workers(&s.problem, &plan);
        mla_plan_free(&plan);
    }
}

Test(plan, fixed_never_exceeds_its_count) {
    random_state = 2;
    for (int i = 0; i < 500; i++) {
        shape s;
        draw_shape(&s);
        s.problem.split_policy = MLA_SPLIT_FIXED;
        s.problem.split_arg = 1 + draw(50);
        mla_plan plan = make_plan(&s.problem, &options);
        for (int32_t g = 0; g < plan.num_groups; g++)
            cr_assert_leq(plan.groups[g].splits, s.problem.split_arg);
        mla_plan_free(&plan);
    }
}

/* A sequence is cut as if it were alone. */
Test(plan, size_does_not_depend_on_the_batch) {
    int32_t q_len[] = {3, 1, 2}, kv_len[] = {500, 129, 64};
    shape all;
    make_shape(&all, 24, 3, q_len, kv_len);
    all.problem.split_policy = MLA_SPLIT_SIZE;
    all.problem.split_arg = 128;
    mla_plan together = make_plan(&all.problem, &options);
    int32_t item = 0;
    for (int32_t b = 0; b < 3; b++) {
        shape one;
        make_shape(&one, 24, 1, &q_len[b], &kv_len[b]);
        one.problem.split_policy = MLA_SPLIT_SIZE;
        one.problem.split_arg = 128;
        mla_plan alone = make_plan(&one.problem, &(mla_plan_options){.row_tile = 16, .kv_tile = 64, .resident_blocks = 300});
        for (int32_t i = 0; i < alone.num_items; i++, item++) {
            const mla_plan_item *x = &alone.items[i], *y = &together.items[item];
            cr_assert_eq(y->sequence, b);
            cr_assert(x->kv_begin == y->kv_begin && x->kv_end == y->kv_end && x->rows == y->rows);
            cr_assert_eq(x->first_row + (int64_t)all.qo_indptr[b] * 24, y->first_row);
        }
        mla_plan_free(&alone);
    }
    cr_expect_eq(item, together.num_items);
    mla_plan_free(&together);
}

/* ---- limits --------------------------------------------------------------------------------------------------------------------- */

/* 65,536 sequences of 1024 heads and 30,000 keys: rows beyond 2^26, keys near 2^31, in well under a second. */
Test(plan, large_batches_are_fast) {
    enum { BATCH = 65536 };
    int32_t *qo_indptr = malloc((BATCH + 1) * sizeof *qo_indptr), *kv_indptr = malloc((BATCH + 1) * sizeof *kv_indptr);
    for (int32_t b = 0; b <= BATCH; b++) {
        qo_indptr[b] = b;
        kv_indptr[b] = b * 30000;
    }
    mla_problem p = {.batch = BATCH,
                     .heads = 1024,
                     .total_q = BATCH,
                     .qo_indptr = qo_indptr,
                     .kv_indptr = kv_indptr,
                     .split_policy = MLA_SPLIT_BALANCED};
    clock_t start = clock();
    mla_plan plan = make_plan(&p, &(mla_plan_options){.row_tile = 64, .kv_tile = 64, .resident_blocks = 304});
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    cr_expect_lt(seconds, 2.0, "took %g s", seconds);
    cr_expect_eq(plan.num_groups, BATCH * 16);
    cr_expect_eq(plan.num_workers, 304);
    cr_expect_eq(plan.groups[plan.num_groups - 1].first_row, (int64_t)BATCH * 1024 - 64);
    mla_plan_free(&plan);
    free(qo_indptr);
    free(kv_indptr);
}

/* The last query tokens of a long causal sequence; a size that takes positions beyond a million. */
Test(plan, long_sequences) {
    shape s;
    make_shape(&s, 128, 1, (int32_t[]){2}, (int32_t[]){1000000});
    s.problem.causal = true;
    s.problem.split_policy = MLA_SPLIT_SIZE;
    s.problem.split_arg = INT32_MAX;
    mla_plan plan = make_plan(&s.problem, &options);
    cr_assert_eq(plan.num_items, 16);
    expect_item(&plan, 0, 0, 0, 999999, -1);
    expect_item(&plan, 15, 240, 0, 1000000, -1);
    mla_plan_free(&plan);
}

static void expect_refused(const mla_problem *p, const mla_plan_options *o, mla_code code, const char *word) {
    mla_plan plan;
    mla_status status = mla_plan_make(p, o, &plan);
    cr_expect_eq(status.code, code);
    cr_expect(strstr(status.message, word), "'%s' does not say '%s'", status.message, word);
    cr_expect(!plan.items && !plan.groups && !plan.worker_indptr);
}

Test(plan, what_does_not_fit_is_refused) {
    shape s;
    make_shape(&s, 1, 1, (int32_t[]){2}, (int32_t[]){INT32_MAX});
    s.problem.split_policy = MLA_SPLIT_SIZE;
    s.problem.split_arg = 1;
    expect_refused(&s.problem, &(mla_plan_options){.row_tile = 1, .kv_tile = 64, .resident_blocks = 8}, MLA_EUNSUPPORTED,
                   "4294967294 items");
    s.problem.total_q = (int64_t)1 << 40;
    expect_refused(&s.problem, &options, MLA_EUNSUPPORTED, "row groups");
    s.problem.total_q = INT64_MAX;
    expect_refused(&s.problem, &options, MLA_EUNSUPPORTED, "total_q");
}

Test(plan, malformed_options_are_refused) {
    shape s;
    make_shape(&s, 1, 1, (int32_t[]){1}, (int32_t[]){1});
    expect_refused(&s.problem, &(mla_plan_options){.row_tile = 0, .kv_tile = 64, .resident_blocks = 8}, MLA_EINVAL, "row_tile");
    expect_refused(&s.problem, &(mla_plan_options){.row_tile = 16, .kv_tile = 0, .resident_blocks = 8}, MLA_EINVAL, "kv_tile");
    s.problem.split_policy = MLA_SPLIT_FIXED;
    expect_refused(&s.problem, &options, MLA_EINVAL, "split_arg");
}

Test(plan, nothing_to_do) {
    shape s;
    make_shape(&s, 16, 2, (int32_t[]){0, 0}, (int32_t[]){10, 0});
    mla_plan plan = make_plan(&s.problem, &options);
    cr_expect(plan.num_groups == 0 && plan.num_items == 0 && plan.num_workers == 0);
    cr_expect_eq(plan.worker_indptr[0], 0);
    mla_plan_free(&plan);
}
