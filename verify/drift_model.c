#include "drift_model.h"

#include <stdlib.h>
#include <string.h>

#include "../gpu/splitk.h"
#include "../ref/try.h"

#define PREFIX "splitk@"

/* ---- engines ------------------------------------------------------------------------------------------------------------------------ */

bool mla_drift_knows(const mla_kernel *kernel) {
    return strncmp(kernel->name, PREFIX, strlen(PREFIX)) == 0;
}

/* Parts have half of each group of 64 dimensions. */
static uint16_t part_dim(uint16_t i) {
    return (uint16_t)(i % (MLA_HEAD_DIM / 2) / 32 * 64 + i / (MLA_HEAD_DIM / 2) * 32 + i % 32);
}

static const uint16_t *part_dim_order(void) {
    static uint16_t order[MLA_HEAD_DIM];
    for (uint16_t i = 0; i < MLA_HEAD_DIM; i++)
        order[i] = part_dim(i);
    return order;
}

/* cdna3 feeds half a 16-byte chunk of each of four lanes to a step: step i of a group of 32 dimensions takes entries 4i .. 4i + 3 of its four chunks. */
static const uint16_t *cdna3_dim_order(void) {
    static uint16_t order[MLA_HEAD_DIM];
    for (uint16_t i = 0; i < MLA_HEAD_DIM; i++)
        order[i] = part_dim((uint16_t)(i / 32 * 32 + i % 16 / 4 * 8 + i / 16 % 2 * 4 + i % 4));
    return order;
}

/* cdna4's steps of 32 tokens take four of each of two blocks of 16 in turn: a lane's eight. */
static const uint16_t *cdna4_token_order(void) {
    static uint16_t order[64];
    for (uint16_t i = 0; i < 64; i++)
        order[i] = (uint16_t)(i / 32 * 32 + i / 4 % 2 * 16 + i % 32 / 8 * 4 + i % 4);
    return order;
}

/* hopper16 begins with the last 64 dimensions. A step takes four of each 16: neighbours, or, as its conversion likes best, of eight a pair and the fourth after. */
static const uint16_t *strip_dim_order(mla_kv_format kv) {
    static uint16_t orders[2][MLA_HEAD_DIM];
    const bool pairs = kv == MLA_KV_MXFP4;
    for (uint16_t i = 0; i < MLA_HEAD_DIM; i++) {
        const int group = (i / 64 + 8) % 9, step = i / 16 % 4, strip = i % 16 / 4, e = i % 4;
        const int in_strip = pairs ? step / 2 * 8 + step % 2 * 2 + e % 2 + e / 2 * 4 : step * 4 + e;
        orders[pairs][i] = (uint16_t)(group * 64 + strip * 16 + in_strip);
    }
    return orders[pairs];
}

static void set_hopper16_layout(mla_model *model, mla_kv_format kv) {
    model->row_groups = 4;
    model->row_lanes = 32;
    model->lane_run = 1;
    model->dim_parts = 1;
    model->dim_order = strip_dim_order(kv);
}

static void set_layout(mla_model *model, const mla_engine *engine) {
    const bool cdna3 = strncmp(engine->name, "cdna3", 5) == 0, cdna4 = strncmp(engine->name, "cdna4", 5) == 0,
               hopper = strcmp(engine->name, "hopper") == 0;
    model->tile = engine->kv_tile;
    model->row_groups = hopper ? 2 : 1;
    model->row_lanes = 4 * model->row_groups;
    model->lane_run = cdna3 || cdna4 ? 4 : 2;
    model->dim_parts = hopper ? 1 : 2;
    model->dim_order = hopper ? NULL : cdna3 ? cdna3_dim_order() : part_dim_order();
    model->tile_token_order = cdna4 ? cdna4_token_order() : NULL;
}

/*
 * Host execution sums 16 products and the accumulator in double. NVIDIA's unit is Hopper's: 16 products and the accumulator aligned and cut at once, as on an
 * H200. AMD's is the published one of gfx942: eight products aligned and cut, then the accumulator, cut downwards.
 */
static mla_unit unit_of(mla_space space) {
    if (space == MLA_SPACE_HOST)
        return (mla_unit){.sum = MLA_FP32, .rounding = MLA_RNE, .k = 16};
    if (space == MLA_SPACE_CUDA)
        return (mla_unit){.sum = MLA_FP32, .rounding = MLA_RZ, .k = 16, .bits = 25};
    return (mla_unit){.sum = MLA_FP32, .rounding = MLA_RNE, .k = 8, .bits = 24, .apart = true, .cut = MLA_CUT_DOWN};
}

mla_model mla_drift_model_of_engine(const mla_engine *engine, mla_space space, const mla_contract *contract, const mla_problem *host) {
    mla_model model = mla_model_of_contract(contract, host);
    set_layout(&model, engine);
    if (strcmp(engine->name, "hopper16") == 0)
        set_hopper16_layout(&model, host->kv_format);
    model.qk = model.pv = unit_of(space);
    model.max_slack = engine->max_slack;
    model.dim_chains = space == MLA_SPACE_CUDA && strcmp(engine->name, "mma") == 0 ? 2 : 1;
    model.kv_operands = contract->p;
    model.exp2 = space == MLA_SPACE_HOST ? MLA_EXP2_LIBM : MLA_EXP2_NEAREST;
    model.fma = space != MLA_SPACE_HOST;
    return model;
}

mla_model mla_drift_model(const mla_kernel *kernel, const mla_problem *host) {
    const mla_contract contract = mla_kernel_contract(kernel, host);
    return mla_drift_knows(kernel) ? mla_drift_model_of_engine(mla_splitk_engine(kernel, host), kernel->space, &contract, host)
                                   : mla_model_of_contract(&contract, host);
}

/* ---- splits ------------------------------------------------------------------------------------------------------------------------- */

static mla_status allocate(mla_drift_splits *splits, int64_t rows, int64_t ranges) {
    *splits = (mla_drift_splits){.ranges = malloc((size_t)(ranges + 1) * sizeof *splits->ranges),
                                 .first = malloc((size_t)(rows + 1) * sizeof *splits->first)};
    splits->view = (mla_model_splits){splits->ranges, splits->first, NULL};
    if (!splits->ranges || !splits->first)
        return mla_error(MLA_ENOMEM, "no memory for the splits of %lld rows", (long long)rows);
    splits->first[0] = 0;
    return mla_ok();
}

/* Groups cover the rows in order; the items of a group are consecutive. */
static mla_status splits_of_plan(const mla_problem *host, const mla_plan *plan, mla_drift_splits *splits) {
    const int64_t rows = host->total_q * host->heads;
    int64_t ranges = 0, next = 0;
    for (int32_t i = 0; i < plan->num_items; i++)
        ranges += plan->items[i].rows;
    TRY(allocate(splits, rows, ranges));
    for (int32_t g = 0, item = 0; g < plan->num_groups; g++) {
        const mla_plan_group *group = &plan->groups[g];
        for (int64_t r = group->first_row; r < group->first_row + group->rows; r++) {
            for (int32_t s = 0; s < group->splits; s++)
                splits->ranges[next++] = (mla_range){plan->items[item + s].kv_begin, plan->items[item + s].kv_end};
            splits->first[r + 1] = next;
        }
        item += group->splits;
    }
    return mla_ok();
}

static mla_status one_split_a_row(const mla_problem *host, mla_drift_splits *splits) {
    const int64_t rows = host->total_q * host->heads;
    int64_t next = 0;
    TRY(allocate(splits, rows, rows));
    for (int64_t r = 0; r < rows; r++) {
        const int32_t sequence = mla_sequence_of(host, r / host->heads);
        const mla_range seen = sequence < 0 ? (mla_range){0, 0} : mla_visible(host, sequence, r / host->heads);
        if (seen.begin < seen.end)
            splits->ranges[next++] = seen;
        splits->first[r + 1] = next;
    }
    return mla_ok();
}

static bool is_interleaved(const mla_fingerprint *f) {
    for (int i = 0; i < f->num_splits; i++)
        if (f->splits[i].tokens != f->splits[i].end - f->splits[i].begin)
            return true;
    return false;
}

/* Appends the fingerprint's tokens to the list, which begins with every position of the longest sequence. *at: where they begin. */
static mla_status list_tokens(const mla_problem *host, const mla_fingerprint *f, mla_drift_splits *splits, int64_t *at) {
    int64_t longest = 0;
    for (int32_t b = 0; b < host->batch; b++)
        longest = mla_kv_len(host, b) > longest ? mla_kv_len(host, b) : longest;
    const int64_t tokens = f->keys.end - f->keys.begin, before = splits->positions ? splits->listed : longest;
    int64_t *grown = realloc(splits->positions, (size_t)(before + tokens) * sizeof *grown);
    if (!grown)
        return mla_error(MLA_ENOMEM, "no memory for %lld tokens", (long long)tokens);
    for (int64_t i = 0; i < longest && !splits->positions; i++)
        grown[i] = i;
    memcpy(grown + before, f->tokens, (size_t)tokens * sizeof *grown);
    splits->positions = grown;
    splits->listed = before + tokens;
    *at = before;
    return mla_ok();
}

/* Rows [begin, end) get the fingerprint's splits, the others keep theirs. `at`: where its tokens are listed, -1: nowhere. */
static void fill_splits(const mla_drift_splits *old, int64_t begin, int64_t end, const mla_fingerprint *f, int64_t at, int64_t rows,
                        mla_drift_splits *grown) {
    int64_t next = 0;
    for (int64_t r = 0; r < rows; r++) {
        int64_t listed = at;
        for (int i = 0; r >= begin && r < end && i < f->num_splits; listed += f->splits[i++].tokens)
            grown->ranges[next++] =
                at < 0 ? (mla_range){f->splits[i].begin, f->splits[i].end} : (mla_range){listed, listed + f->splits[i].tokens};
        for (int64_t i = old->first[r]; (r < begin || r >= end) && i < old->first[r + 1]; i++)
            grown->ranges[next++] = old->ranges[i];
        grown->first[r + 1] = next;
    }
}

mla_status mla_drift_splits_set(const mla_problem *host, int32_t sequence, const mla_fingerprint *f, mla_drift_splits *splits) {
    const int64_t rows = host->total_q * host->heads, first = (int64_t)host->qo_indptr[sequence] * host->heads;
    const int64_t end = (int64_t)host->qo_indptr[sequence + 1] * host->heads;
    mla_drift_splits grown;
    int64_t at = -1;
    if (is_interleaved(f))
        TRY(list_tokens(host, f, splits, &at));
    const mla_status status = allocate(&grown, rows, splits->first[rows] + (end - first) * f->num_splits);
    if (status.code != MLA_OK) {
        mla_drift_splits_free(&grown);
        return status;
    }
    fill_splits(splits, first, end, f, at, rows, &grown);
    free(splits->ranges);
    free(splits->first);
    splits->ranges = grown.ranges;
    splits->first = grown.first;
    splits->view = (mla_model_splits){grown.ranges, grown.first, splits->positions};
    return mla_ok();
}

mla_status mla_drift_splits_make(const mla_kernel *kernel, const mla_device *device, const mla_problem *host, mla_drift_splits *splits) {
    *splits = (mla_drift_splits){0};
    if (!mla_drift_knows(kernel))
        return one_split_a_row(host, splits);
    const mla_plan_options options = mla_engine_plan_options(mla_splitk_engine(kernel, host), device);
    mla_plan plan;
    TRY(mla_plan_make(host, &options, &plan));
    const mla_status status = splits_of_plan(host, &plan, splits);
    mla_plan_free(&plan);
    return status;
}

void mla_drift_splits_free(mla_drift_splits *splits) {
    free(splits->ranges);
    free(splits->first);
    free(splits->positions);
    *splits = (mla_drift_splits){0};
}
