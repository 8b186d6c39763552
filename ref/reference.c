/*
 * The fp32 reference: flash decode on the CPU.
 *
 * Query rows (query token, head) of a sequence form blocks of at most ROW_BLOCK rows, so that a key is dequantised once for many heads. A block's
 * keys are cut into splits, and a split into tiles: scores by sgemm, an online softmax in base 2, weights times values by sgemm. Each split leaves
 * a partial (m, l, unnormalised out), merged in the order of the splits. Blocks, splits and tiles follow from the problem alone, and every product
 * runs on one thread: the same bits for any number of threads. A wave of blocks is in flight at a time, which bounds memory.
 *
 * Within a block, a key that one query token sees and another does not gets weight 0 in the latter; a NaN in it would reach both.
 */
#include "blas_serial.h"
#include "fast_exp2.h"
#include "mla.h"
#include "wide_vectors.h"

#include <math.h>
#include <stdlib.h>

enum {
    ROW_BLOCK = 128, /* query rows a block, at most */
    TILE = 512, /* keys between rescales: so many that packing few rows of q, and adding to their sums, costs little beside the products */
    KEYS_PER_ROW = 8, /* keys a split, at least, for each of its rows: its partial is to be small beside its work, and stay in the cache */
    MAX_SPLITS = 128, /* splits a block */
    PARTIALS_PER_THREAD = 16,
};

static const float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

typedef struct row_block {
    int64_t first_row; /* query token * heads + head */
    int32_t rows, sequence;
    int64_t begin, end; /* union of the positions its rows see */
    int64_t split_keys;
    int32_t splits;
} row_block;

typedef struct work_item {
    row_block block;
    int32_t split;
    float *partial; /* of the block's split 0; split i follows at i * partial_size */
} work_item;

/* One split's m [rows], l [rows], out [rows, 512] in this order, rows being the block's. Base 2; m is -inf where no key is visible. */
static size_t partial_size(int32_t max_rows) {
    return (size_t)max_rows * (MLA_HEAD_DIM_V + 2);
}

typedef struct reference_run {
    const mla_problem *problem;
    const mla_output *output;
    int32_t max_rows; /* of any block */
    int64_t next_row; /* first row of the next block */
    int32_t sequence; /* of the last block */
    work_item *items;
    int64_t items_capacity, items_count;
    float *partials; /* [items_capacity, partial_size] */
    char *scratch;   /* [threads, scratch_size] */
    size_t scratch_size;
} reference_run;

/* ---- from the problem to blocks and splits ------------------------------------------------------------------------------------ */

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* End of the rows that share keys with `row`: its sequence's, or under sparse attention its query token's. Moves run->sequence along. */
static int64_t group_end(reference_run *run, int64_t row) {
    const mla_problem *problem = run->problem;
    const int64_t token = row / problem->heads;
    while (run->sequence < problem->batch && problem->qo_indptr[run->sequence + 1] <= token)
        run->sequence++;
    if (run->sequence == problem->batch)
        return problem->total_q * problem->heads;
    return (problem->paging == MLA_SPARSE ? token + 1 : problem->qo_indptr[run->sequence + 1]) * problem->heads;
}

static void set_key_range(const mla_problem *problem, row_block *block) {
    if (block->sequence == problem->batch)
        return;
    bool any = false;
    for (int64_t token = block->first_row / problem->heads; token * problem->heads < block->first_row + block->rows; token++) {
        const mla_range seen = mla_visible(problem, block->sequence, token);
        if (seen.begin == seen.end)
            continue;
        block->begin = any ? min64(block->begin, seen.begin) : seen.begin;
        block->end = any ? max64(block->end, seen.end) : seen.end;
        any = true;
    }
}

/* A sparse list stays whole: absent entries would make splits with few keys, and more rescales than the contract's count of tiles. */
static void set_splits(const mla_problem *problem, row_block *block) {
    const int64_t keys = block->end - block->begin;
    const int64_t least = max64((keys + MAX_SPLITS - 1) / MAX_SPLITS, (int64_t)KEYS_PER_ROW * block->rows);
    block->split_keys = problem->paging == MLA_SPARSE ? max64(keys, 1) : max64(1, (least + TILE - 1) / TILE) * TILE;
    block->splits = (int32_t)max64(1, (keys + block->split_keys - 1) / block->split_keys);
}

/* The block at run->next_row, which exists. Blocks of a group are of nearly equal size. */
static row_block next_block(reference_run *run) {
    const int64_t rows = group_end(run, run->next_row) - run->next_row;
    const int64_t blocks = (rows + ROW_BLOCK - 1) / ROW_BLOCK;
    row_block block = {.first_row = run->next_row, .rows = (int32_t)((rows + blocks - 1) / blocks), .sequence = run->sequence};
    set_key_range(run->problem, &block);
    set_splits(run->problem, &block);
    return block;
}

/* As many whole blocks as fit; none when all rows are done. */
static void fill_wave(reference_run *run) {
    run->items_count = 0;
    while (run->next_row < run->problem->total_q * run->problem->heads) {
        const row_block block = next_block(run);
        if (run->items_count + block.splits > run->items_capacity)
            return;
        float *partial = run->partials + (size_t)run->items_count * partial_size(run->max_rows);
        for (int32_t split = 0; split < block.splits; split++)
            run->items[run->items_count++] = (work_item){block, split, partial};
        run->next_row += block.rows;
    }
}

/* ---- one split ------------------------------------------------------------------------------------------------------------------- */

/* A thread's own. Scores are [key, row]: a step over rows is a vector operation, and the softmax needs no sum across a vector. */
typedef struct tile_scratch {
    float q[ROW_BLOCK * MLA_HEAD_DIM];
    float kv[TILE * MLA_HEAD_DIM];
    float scores[TILE * ROW_BLOCK];
    float shift[ROW_BLOCK], rescale[ROW_BLOCK], tile_sum[ROW_BLOCK];
    mla_range seen[ROW_BLOCK];
} tile_scratch;

static void load_rows(const mla_problem *problem, const row_block *block, tile_scratch *scratch) {
    for (int32_t r = 0; r < block->rows; r++) {
        const int64_t row = block->first_row + r, token = row / problem->heads;
        mla_q_row_f32(problem, token, (int32_t)(row % problem->heads), scratch->q + (size_t)r * MLA_HEAD_DIM);
        scratch->seen[r] = mla_visible(problem, block->sequence, token);
    }
}

/* Dequantises the present keys from *position on, TILE at most; moves *position behind them. */
static int load_keys(const mla_problem *problem, const row_block *block, int64_t *position, int64_t end, float *kv) {
    const int64_t token = block->first_row / problem->heads;
    int keys = 0;
    for (; *position < end && keys < TILE; (*position)++) {
        const int64_t slot = mla_kv_slot(problem, block->sequence, token, *position);
        if (slot >= 0)
            mla_kv_row_f32(problem, slot, kv + (size_t)keys++ * MLA_HEAD_DIM);
    }
    return keys;
}

/* c tanh(z / c) log2(e), with tanh(t) = 1 - 2 / (e^2t + 1): at most 4 units of 2^-24 from tanh. */
WIDE_VECTORS static void cap_scores(float *scores, size_t count, float softcap) {
    const float inner = 2.0f * LOG2_E / softcap, outer = softcap * LOG2_E;
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        const float t = scores[i] * inner;
        scores[i] = outer * (1.0f - 2.0f / (mla_fast_exp2(t > 126.0f ? 126.0f : t) + 1.0f));
    }
}

/* -inf where the row does not see the key at first + t. Sparse rows see every key that was loaded. */
static void mask_scores(const mla_problem *problem, const row_block *block, tile_scratch *scratch, int64_t first, int keys) {
    if (problem->paging == MLA_SPARSE)
        return;
    for (int32_t r = 0; r < block->rows; r++) {
        const mla_range seen = scratch->seen[r];
        for (int64_t t = 0; t < min64(seen.begin - first, keys); t++)
            scratch->scores[t * block->rows + r] = -INFINITY;
        for (int64_t t = max64(seen.end - first, 0); t < keys; t++)
            scratch->scores[t * block->rows + r] = -INFINITY;
    }
}

/* Scores times log2(e), masked. `first` is the position of the first key. */
static void score_tile(const mla_problem *problem, const row_block *block, tile_scratch *scratch, int64_t first, int keys) {
    const float scale = problem->softcap > 0 ? problem->sm_scale : problem->sm_scale * LOG2_E;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, keys, block->rows, MLA_HEAD_DIM, scale, scratch->kv, MLA_HEAD_DIM, scratch->q,
                MLA_HEAD_DIM, 0, scratch->scores, block->rows);
    if (problem->softcap > 0)
        cap_scores(scratch->scores, (size_t)keys * (size_t)block->rows, problem->softcap);
    mask_scores(problem, block, scratch, first, keys);
}

/* Scores become weights; m and l move on; rescale [rows] is what the sums so far are to be multiplied by. A NaN score leaves m and makes l NaN. */
WIDE_VECTORS static void soften_tile(tile_scratch *scratch, int32_t rows, int keys, float *m, float *l) {
    float *shift = scratch->shift, *tile_sum = scratch->tile_sum;
    for (int32_t r = 0; r < rows; r++)
        shift[r] = m[r];
    for (int t = 0; t < keys; t++) {
        const float *scores = scratch->scores + (size_t)t * (size_t)rows;
#pragma omp simd
        for (int32_t r = 0; r < rows; r++)
            shift[r] = scores[r] > shift[r] ? scores[r] : shift[r];
    }
    for (int32_t r = 0; r < rows; r++) {
        const float old = m[r];
        m[r] = shift[r];
        shift[r] = m[r] == -INFINITY ? 0 : m[r];
        scratch->rescale[r] = mla_fast_exp2(old - shift[r]);
        tile_sum[r] = 0;
    }
    for (int t = 0; t < keys; t++) {
        float *scores = scratch->scores + (size_t)t * (size_t)rows;
#pragma omp simd
        for (int32_t r = 0; r < rows; r++) {
            scores[r] = mla_fast_exp2(scores[r] - shift[r]);
            tile_sum[r] += scores[r];
        }
    }
    for (int32_t r = 0; r < rows; r++)
        l[r] = l[r] * scratch->rescale[r] + tile_sum[r];
}

static void rescale_rows(const float *rescale, int32_t rows, float *out) {
    for (int32_t r = 0; r < rows; r++) {
        if (rescale[r] == 1.0f)
            continue;
        for (int c = 0; c < MLA_HEAD_DIM_V; c++)
            out[(size_t)r * MLA_HEAD_DIM_V + (size_t)c] *= rescale[r];
    }
}

static void run_split(const reference_run *run, const work_item *item, tile_scratch *scratch) {
    const mla_problem *problem = run->problem;
    const row_block *block = &item->block;
    float *m = item->partial + (size_t)item->split * partial_size(run->max_rows), *l = m + block->rows, *out = l + block->rows;
    for (int32_t r = 0; r < block->rows; r++)
        m[r] = -INFINITY;
    memset(l, 0, (size_t)block->rows * (MLA_HEAD_DIM_V + 1) * sizeof *l);
    int64_t position = block->begin + item->split * block->split_keys;
    const int64_t end = min64(position + block->split_keys, block->end);
    if (position < end)
        load_rows(problem, block, scratch);
    while (position < end) {
        const int64_t first = position;
        const int keys = load_keys(problem, block, &position, end, scratch->kv);
        if (keys == 0)
            break;
        score_tile(problem, block, scratch, first, keys);
        soften_tile(scratch, block->rows, keys, m, l);
        rescale_rows(scratch->rescale, block->rows, out);
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, block->rows, MLA_HEAD_DIM_V, keys, 1, scratch->scores, block->rows,
                    scratch->kv, MLA_HEAD_DIM, 1, out, MLA_HEAD_DIM_V);
    }
}

/* ---- merging the splits of a row --------------------------------------------------------------------------------------------------- */

static float merged_max(const reference_run *run, const work_item *item, int32_t r) {
    float m = -INFINITY;
    for (int32_t split = 0; split < item->block.splits; split++)
        m = fmaxf(m, item->partial[(size_t)split * partial_size(run->max_rows) + (size_t)r]);
    return m;
}

/* Sums the row's partials, relative to the maximum m; returns l. */
static float merge_row(const reference_run *run, const work_item *item, int32_t r, float m, float *out) {
    const size_t rows = (size_t)item->block.rows;
    const float shift = m == -INFINITY ? 0 : m;
    float l = 0;
    memset(out, 0, MLA_HEAD_DIM_V * sizeof *out);
    for (int32_t split = 0; split < item->block.splits; split++) {
        const float *partial = item->partial + (size_t)split * partial_size(run->max_rows);
        const float *part = partial + 2 * rows + (size_t)r * MLA_HEAD_DIM_V;
        const float weight = mla_fast_exp2(partial[r] - shift);
        l += partial[rows + (size_t)r] * weight;
        for (int c = 0; c < MLA_HEAD_DIM_V; c++)
            out[c] += part[c] * weight;
    }
    return l;
}

/* What the sums are to be multiplied by: 1 / (l + the sink's weight), relative to the larger of m and the sink. */
static float normaliser(const mla_problem *problem, int64_t row, float m, float l) {
    if (!problem->sink)
        return 1.0f / l;
    const float sink = problem->sink[row % problem->heads] * LOG2_E, larger = fmaxf(m, sink);
    const float weight = mla_fast_exp2(m - larger);
    return weight / (l * weight + mla_fast_exp2(sink - larger));
}

static void finish_row(const reference_run *run, const work_item *item, int32_t r) {
    const mla_problem *problem = run->problem;
    const int64_t row = item->block.first_row + r;
    float out[MLA_HEAD_DIM_V];
    const float m = merged_max(run, item, r), l = merge_row(run, item, r, m, out);
    float *lse = run->output->lse + row;
    if (l == 0.0f) {
        *lse = problem->lse_empty_positive ? INFINITY : -INFINITY;
    } else {
        const float factor = normaliser(problem, row, m, l), log2_sum = m + log2f(l);
        for (int c = 0; c < MLA_HEAD_DIM_V; c++)
            out[c] *= factor;
        *lse = problem->lse_base == MLA_LSE_2 ? log2_sum : log2_sum * LN_2;
    }
    const size_t row_bytes = MLA_HEAD_DIM_V * mla_format_bytes(problem->out_format);
    mla_encode_f32(problem->out_format, out, MLA_HEAD_DIM_V, (char *)run->output->out + (size_t)row * row_bytes);
}

/* Every item of a block finishes its share of the block's rows. */
static void finish_share(const reference_run *run, const work_item *item) {
    const int64_t rows = item->block.rows, splits = item->block.splits;
    for (int64_t r = rows * item->split / splits; r < rows * (item->split + 1) / splits; r++)
        finish_row(run, item, (int32_t)r);
}

/* ---- the run ------------------------------------------------------------------------------------------------------------------------ */

/* Every barrier costs a short problem a share of its time: the last wave ends with the region's own. */
static void run_waves(reference_run *run, int threads) {
    const int64_t rows = run->problem->total_q * run->problem->heads;
    fill_wave(run);
#pragma omp parallel num_threads(threads)
    {
        tile_scratch *scratch = (tile_scratch *)(run->scratch + (size_t)omp_get_thread_num() * run->scratch_size);
        for (;;) {
#pragma omp for schedule(dynamic)
            for (int64_t i = 0; i < run->items_count; i++)
                run_split(run, &run->items[i], scratch);
#pragma omp for schedule(dynamic) nowait
            for (int64_t i = 0; i < run->items_count; i++)
                finish_share(run, &run->items[i]);
            if (run->next_row >= rows)
                break;
#pragma omp barrier
#pragma omp single
            fill_wave(run);
        }
    }
}

/* What any block may take. */
static void set_sizes(reference_run *run, int threads) {
    const mla_problem *problem = run->problem;
    int64_t tokens = problem->total_q - problem->qo_indptr[problem->batch], splits = 1;
    for (int32_t b = 0; b < problem->batch; b++) {
        row_block whole = {.end = mla_kv_len(problem, b)};
        set_splits(problem, &whole);
        tokens = max64(tokens, mla_q_len(problem, b));
        splits = max64(splits, whole.splits);
    }
    run->max_rows = (int32_t)max64(1, min64(ROW_BLOCK, tokens * problem->heads));
    run->items_capacity = max64(splits, (int64_t)PARTIALS_PER_THREAD * threads);
    run->scratch_size = (sizeof(tile_scratch) + 63) / 64 * 64;
}

mla_status mla_reference_run(const mla_problem *problem, const mla_output *output) {
    const mla_status status = mla_problem_check(problem);
    if (status.code != MLA_OK)
        return status;
    if (problem->total_q > 0 && (!output->out || !output->lse))
        return mla_error(MLA_EINVAL, "output: out or lse is NULL");
    const mla_blas_serial blas = mla_blas_serial_begin();
    reference_run run = {.problem = problem, .output = output};
    set_sizes(&run, blas.threads);
    run.items = malloc((size_t)run.items_capacity * sizeof *run.items);
    run.partials = malloc((size_t)run.items_capacity * partial_size(run.max_rows) * sizeof *run.partials);
    run.scratch = aligned_alloc(64, run.scratch_size * (size_t)blas.threads);
    const bool allocated = run.items && run.partials && run.scratch;
    if (allocated)
        run_waves(&run, blas.threads);
    mla_blas_serial_end(blas);
    free(run.items);
    free(run.partials);
    free(run.scratch);
    return allocated ? mla_ok() : mla_error(MLA_ENOMEM, "reference: no memory for %d threads", blas.threads);
}

mla_contract mla_reference_contract(void) {
    mla_contract contract = mla_contract_default();
    contract.p = MLA_FP32;
    contract.exp_error = 2;
    contract.tanh_error = 4;
    contract.tile = TILE;
    contract.max_splits = MAX_SPLITS;
    return contract;
}
