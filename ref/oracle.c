/*
 * Truth in fp64. A block is one query token and some of its heads, so all its rows see the same keys, and a key that none of them sees is never
 * read. Scores of a block are kept as doubles: a first pass over the keys makes them, the softmax and the bound turn them into weights in place, a
 * second pass sums the values. Blocks follow from the problem alone and every product runs on one thread: the same bits for any number of threads.
 */
#include "blas_serial.h"
#include "bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    TILE = 128,      /* keys dequantised at a time */
    BLOCK_HEADS = 32 /* at most */
};

static const int64_t SCORE_BYTES = (int64_t)256 << 20; /* of a block's scores, unless one head takes more */

/* Largest of any block. */
typedef struct oracle_sizes {
    int64_t positions;
    int64_t scores; /* heads * positions of a block */
    int64_t blocks; /* of a token */
} oracle_sizes;

/* One thread's. */
typedef struct oracle_scratch {
    double *memory;         /* owns all below */
    double *q, *q_abs;      /* [heads, 576] */
    double *kv, *kv_abs;    /* [TILE, 576] */
    double *weights;        /* [2 * heads, keys]: z, later p; then a, later the weights of |v| in the bound */
    double *x, *exps;       /* [keys], one row's */
    double *squares;        /* [heads, TILE]: p^2 */
    double *sums;           /* [2 * heads, 512]: of |v|, weighted by p, then by the bound's weights */
    mla_value_range *range; /* [512] */
    int64_t *slots;         /* [keys] */
} oracle_scratch;

/* A query token and the heads [head, head + heads) of it. */
typedef struct oracle_block {
    const mla_arithmetic *math;
    const mla_problem *problem;
    const mla_contract *contract;
    mla_truth *truth;
    int64_t token, first_row; /* the row in truth */
    int32_t head, heads;
    int64_t keys;
} oracle_block;

/* ---- sizes ------------------------------------------------------------------------------------------------------------------------- */

static int64_t positions_of(const mla_problem *problem, int64_t token) {
    const mla_range seen = mla_visible(problem, mla_sequence_of(problem, token), token);
    return seen.end - seen.begin;
}

/* Three doubles a score: z, a, and as much for one row's x and exps and the slots. */
static int32_t heads_per_block(const mla_problem *problem, int64_t positions) {
    int64_t heads = positions > 0 ? SCORE_BYTES / (positions * 3 * (int64_t)sizeof(double)) : BLOCK_HEADS;
    if (heads > BLOCK_HEADS)
        heads = BLOCK_HEADS;
    if (heads > problem->heads)
        heads = problem->heads;
    return heads < 1 ? 1 : (int32_t)heads;
}

static int64_t blocks_per_token(const mla_problem *problem, int64_t positions) {
    const int32_t heads = heads_per_block(problem, positions);
    return (problem->heads + heads - 1) / heads;
}

static oracle_sizes largest_sizes(const mla_problem *problem, const mla_truth *truth) {
    oracle_sizes sizes = {0};
    for (int64_t token = truth->first_token; token < truth->first_token + truth->tokens; token++) {
        const int64_t positions = positions_of(problem, token), scores = positions * heads_per_block(problem, positions);
        const int64_t blocks = blocks_per_token(problem, positions);
        sizes.positions = positions > sizes.positions ? positions : sizes.positions;
        sizes.scores = scores > sizes.scores ? scores : sizes.scores;
        sizes.blocks = blocks > sizes.blocks ? blocks : sizes.blocks;
    }
    return sizes;
}

/* ---- memory ------------------------------------------------------------------------------------------------------------------------- */

/* The next `count` doubles, aligned to 64 bytes; NULL while sizes are only counted. */
static double *take(double *base, size_t *used, size_t count) {
    double *taken = base ? base + *used : NULL;
    *used += (count + 7) / 8 * 8;
    return taken;
}

/* Lays the arrays out from `base`; returns the doubles they take. */
static size_t scratch_layout(oracle_scratch *scratch, const oracle_sizes *sizes, double *base) {
    const size_t positions = (size_t)sizes->positions;
    size_t used = 0;
    scratch->memory = base;
    scratch->q = take(base, &used, BLOCK_HEADS * MLA_HEAD_DIM);
    scratch->q_abs = take(base, &used, BLOCK_HEADS * MLA_HEAD_DIM);
    scratch->kv = take(base, &used, TILE * MLA_HEAD_DIM);
    scratch->kv_abs = take(base, &used, TILE * MLA_HEAD_DIM);
    scratch->squares = take(base, &used, BLOCK_HEADS * TILE);
    scratch->sums = take(base, &used, 2 * BLOCK_HEADS * MLA_HEAD_DIM_V);
    scratch->range = (mla_value_range *)take(base, &used, MLA_HEAD_DIM_V * sizeof(mla_value_range) / sizeof(double));
    scratch->weights = take(base, &used, 2 * (size_t)sizes->scores);
    scratch->x = take(base, &used, positions);
    scratch->exps = take(base, &used, positions);
    scratch->slots = (int64_t *)take(base, &used, positions);
    return used;
}

static bool scratch_make(oracle_scratch *scratch, const oracle_sizes *sizes) {
    double *memory = aligned_alloc(64, scratch_layout(scratch, sizes, NULL) * sizeof(double));
    if (memory)
        scratch_layout(scratch, sizes, memory);
    return memory != NULL;
}

static mla_status truth_make(const mla_problem *problem, int64_t first_token, int64_t tokens, mla_truth *truth) {
    *truth = (mla_truth){.first_token = first_token, .tokens = tokens, .rows = tokens * problem->heads};
    const size_t rows = truth->rows > 0 ? (size_t)truth->rows : 1, elements = rows * MLA_HEAD_DIM_V;
    truth->out = calloc(elements, sizeof(double));
    truth->abs = calloc(elements, sizeof(double));
    truth->square = calloc(elements, sizeof(double));
    truth->bound = calloc(elements, sizeof(double));
    truth->lse = calloc(rows, sizeof(double));
    truth->lse_bound = calloc(rows, sizeof(double));
    truth->kind = calloc(rows, sizeof(uint8_t));
    if (truth->out && truth->abs && truth->square && truth->bound && truth->lse && truth->lse_bound && truth->kind)
        return mla_ok();
    mla_truth_free(truth);
    return mla_error(MLA_ENOMEM, "oracle: no memory for %lld rows", (long long)rows);
}

void mla_truth_free(mla_truth *truth) {
    free(truth->out);
    free(truth->abs);
    free(truth->square);
    free(truth->bound);
    free(truth->lse);
    free(truth->lse_bound);
    free(truth->kind);
    *truth = (mla_truth){0};
}

/* ---- scores -------------------------------------------------------------------------------------------------------------------------- */

static int load_keys(const oracle_block *block, const int64_t *slots, int64_t first, double *kv) {
    const int keys = block->keys - first < TILE ? (int)(block->keys - first) : TILE;
    for (int t = 0; t < keys; t++)
        mla_kv_row_f64(block->problem, slots[first + t], kv + t * MLA_HEAD_DIM);
    return keys;
}

/* |values|, the nonzero ones at least `least`: an operand rounded to a type errs by its unit roundoff times no less than its smallest normal. */
static void magnitudes(const double *values, size_t count, double least, double *abs) {
    for (size_t i = 0; i < count; i++) {
        const double magnitude = fabs(values[i]);
        abs[i] = magnitude < least && magnitude > 0 ? least : magnitude;
    }
}

static void load_queries(const oracle_block *block, oracle_scratch *scratch) {
    const mla_problem *problem = block->problem;
    const double log2_scale = fabs((double)problem->sm_scale) * 0x1.71547652b82fep0;
    const double normal = mla_bound_smallest_normal(block->contract->q_scaled);
    for (int32_t h = 0; h < block->heads; h++)
        mla_q_row_f64(problem, block->token, block->head + h, scratch->q + (size_t)h * MLA_HEAD_DIM);
    magnitudes(scratch->q, (size_t)block->heads * MLA_HEAD_DIM, log2_scale > 0 ? normal / log2_scale : 0, scratch->q_abs);
}

/* [heads, tile] = scale * q k^T, a part of [heads, keys]. */
static void multiply_keys(const oracle_block *block, const double *q, const double *kv, int tile, double scale, double *scores) {
    block->math->multiply_transposed(block->heads, tile, MLA_HEAD_DIM, scale, q, MLA_HEAD_DIM, kv, MLA_HEAD_DIM, scores, block->keys);
}

/* z_j = s <q, k_j> and a_j = |s| sum |q k_j| for every row of the block. */
static void make_scores(const oracle_block *block, oracle_scratch *scratch) {
    const double scale = (double)block->problem->sm_scale, normal = mla_bound_smallest_normal(block->contract->kv_dequant);
    double *z = scratch->weights, *a = z + block->heads * block->keys;
    load_queries(block, scratch);
    for (int64_t first = 0; first < block->keys; first += TILE) {
        const int tile = load_keys(block, scratch->slots, first, scratch->kv);
        magnitudes(scratch->kv, (size_t)tile * MLA_HEAD_DIM, normal, scratch->kv_abs);
        multiply_keys(block, scratch->q, scratch->kv, tile, scale, z + first);
        multiply_keys(block, scratch->q_abs, scratch->kv_abs, tile, fabs(scale), a + first);
    }
}

/* ---- softmax --------------------------------------------------------------------------------------------------------------------------- */

/* x_j from z_j, then exps_j = exp(x_j - m). A NaN score makes the sum NaN. */
static mla_softmax soften_row(const mla_arithmetic *math, const mla_problem *problem, int32_t head, int64_t keys, const double *z,
                              double *x, double *exps) {
    const double cap = (double)problem->softcap;
    mla_softmax softmax = {.max = -INFINITY, .sink = problem->sink ? (double)problem->sink[head] : -INFINITY};
    for (int64_t j = 0; j < keys; j++) {
        x[j] = cap > 0 ? cap * math->tanh(z[j] / cap) : z[j];
        softmax.max = x[j] > softmax.max ? x[j] : softmax.max;
    }
    for (int64_t j = 0; j < keys; j++) {
        exps[j] = math->exp(x[j] - softmax.max);
        softmax.sum += exps[j];
    }
    softmax.lse = softmax.max + math->log(softmax.sum);
    softmax.top = fmax(softmax.max, softmax.sink);
    const double keys_total = softmax.sum * math->exp(softmax.max - softmax.top), sink_total = math->exp(softmax.sink - softmax.top);
    softmax.total = keys_total + sink_total;
    softmax.share = keys_total / softmax.total;
    softmax.p_sink = sink_total / softmax.total;
    return softmax;
}

/* Row h of the block: scores become weights in place; what its bounds share goes to the caller. */
static mla_softmax weigh_row(const oracle_block *block, const mla_bound_model *model, int32_t h, oracle_scratch *scratch,
                             mla_bound_row *bound) {
    double *z = scratch->weights + h * block->keys, *a = scratch->weights + (block->heads + h) * block->keys;
    const mla_softmax softmax = soften_row(block->math, block->problem, block->head + h, block->keys, z, scratch->x, scratch->exps);
    const mla_key_sums sums = mla_bound_keys(model, &softmax, z, scratch->x, scratch->exps, a);
    memcpy(z, scratch->exps, (size_t)block->keys * sizeof *z);
    *bound = mla_bound_row_make(model, &softmax, &sums);
    const int64_t row = block->first_row + h;
    block->truth->lse[row] = softmax.lse;
    block->truth->lse_bound[row] = bound->lse_bound;
    block->truth->kind[row] = bound->hull ? MLA_ROW_HULL : MLA_ROW_BOUND;
    return softmax;
}

/* ---- values ------------------------------------------------------------------------------------------------------------------------------ */

static void extend_range(const double *kv, int tile, mla_value_range *range) {
    for (int t = 0; t < tile; t++)
        for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
            const double v = kv[t * MLA_HEAD_DIM + c];
            range[c].min = v < range[c].min ? v : range[c].min;
            range[c].max = v > range[c].max ? v : range[c].max;
            range[c].abs_sum += fabs(v);
        }
}

/* sums [rows, 512] += weights [rows, tile] * values [tile, 512]; weights has `stride` doubles a row. */
static void add_values(const oracle_block *block, int32_t rows, int tile, const double *weights, int64_t stride, const double *values,
                       double *sums) {
    block->math->multiply_add(rows, MLA_HEAD_DIM_V, tile, weights, stride, values, MLA_HEAD_DIM, sums, MLA_HEAD_DIM_V);
}

static void square_in_place(double *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        values[i] *= values[i];
}

/* O, A, Q^2 and the numerators of the bound. */
static void sum_values(const oracle_block *block, oracle_scratch *scratch) {
    const size_t at = (size_t)block->first_row * MLA_HEAD_DIM_V, elements = (size_t)block->heads * MLA_HEAD_DIM_V;
    memset(scratch->sums, 0, 2 * elements * sizeof(double));
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        scratch->range[c] = (mla_value_range){INFINITY, -INFINITY, 0};
    for (int64_t first = 0; first < block->keys; first += TILE) {
        const int tile = load_keys(block, scratch->slots, first, scratch->kv);
        const double *p = scratch->weights + first;
        extend_range(scratch->kv, tile, scratch->range);
        add_values(block, block->heads, tile, p, block->keys, scratch->kv, block->truth->out + at);
        magnitudes(scratch->kv, (size_t)tile * MLA_HEAD_DIM, 0, scratch->kv_abs);
        add_values(block, 2 * block->heads, tile, p, block->keys, scratch->kv_abs, scratch->sums);
        for (int32_t h = 0; h < block->heads; h++)
            memcpy(scratch->squares + h * tile, p + h * block->keys, (size_t)tile * sizeof(double));
        square_in_place(scratch->squares, (size_t)block->heads * (size_t)tile);
        square_in_place(scratch->kv_abs, (size_t)tile * MLA_HEAD_DIM);
        add_values(block, block->heads, tile, scratch->squares, tile, scratch->kv_abs, block->truth->square + at);
    }
    memcpy(block->truth->abs + at, scratch->sums, elements * sizeof(double));
}

static void bound_row(const oracle_block *block, const mla_bound_model *model, const mla_softmax *softmax, const mla_bound_row *bound,
                      int32_t h, const oracle_scratch *scratch) {
    const size_t at = (size_t)(block->first_row + h) * MLA_HEAD_DIM_V;
    const double *numerator = scratch->sums + (size_t)(block->heads + h) * MLA_HEAD_DIM_V;
    for (size_t c = 0; c < MLA_HEAD_DIM_V; c++)
        block->truth->bound[at + c] = mla_bound_element(model, softmax, bound, block->truth->out[at + c], numerator[c], scratch->range[c]);
}

static void run_block(const oracle_block *block, oracle_scratch *scratch) {
    mla_softmax softmax[BLOCK_HEADS];
    mla_bound_row bound[BLOCK_HEADS];
    const mla_bound_model model = mla_bound_model_make(block->math, block->problem, block->contract, block->keys);
    make_scores(block, scratch);
    for (int32_t h = 0; h < block->heads; h++)
        softmax[h] = weigh_row(block, &model, h, scratch, &bound[h]);
    sum_values(block, scratch);
    for (int32_t h = 0; h < block->heads; h++)
        bound_row(block, &model, &softmax[h], &bound[h], h, scratch);
}

/* ---- the run ------------------------------------------------------------------------------------------------------------------------------- */

/* out and bounds are 0 from their allocation. */
static void mark_empty(const oracle_block *block) {
    for (int64_t row = block->first_row; row < block->first_row + block->heads; row++) {
        block->truth->lse[row] = -INFINITY;
        block->truth->kind[row] = MLA_ROW_EMPTY;
    }
}

/* Block `index` of the token, if it has that many. */
static void run_token_block(const mla_arithmetic *math, const mla_problem *problem, const mla_contract *contract, int64_t token,
                            int64_t index, mla_truth *truth, oracle_scratch *scratch) {
    const int32_t most = heads_per_block(problem, positions_of(problem, token));
    const int64_t head = index * most;
    if (head >= problem->heads)
        return;
    oracle_block block = {.math = math, .problem = problem, .contract = contract, .truth = truth, .token = token, .head = (int32_t)head};
    block.heads = problem->heads - block.head < most ? problem->heads - block.head : most;
    block.first_row = (token - truth->first_token) * problem->heads + head;
    block.keys = mla_visible_slots(problem, token, scratch->slots);
    if (block.keys > 0)
        run_block(&block, scratch);
    else
        mark_empty(&block);
}

static bool run_blocks(const mla_arithmetic *math, const mla_problem *problem, const mla_contract *contract, mla_truth *truth) {
    const oracle_sizes sizes = largest_sizes(problem, truth);
    const mla_blas_serial blas = mla_blas_serial_begin();
    bool failed = false;
#pragma omp parallel num_threads(blas.threads) reduction(|| : failed)
    {
        oracle_scratch scratch;
        const bool ready = scratch_make(&scratch, &sizes);
        failed = !ready;
#pragma omp for collapse(2) schedule(dynamic)
        for (int64_t token = 0; token < truth->tokens; token++)
            for (int64_t index = 0; index < sizes.blocks; index++)
                if (ready)
                    run_token_block(math, problem, contract, truth->first_token + token, index, truth, &scratch);
        if (ready)
            free(scratch.memory);
    }
    mla_blas_serial_end(blas);
    return !failed;
}

mla_status mla_oracle_run_with(const mla_arithmetic *math, const mla_problem *problem, const mla_contract *contract, int64_t first_token,
                               int64_t tokens, mla_truth *truth) {
    *truth = (mla_truth){0};
    mla_status status = mla_problem_check(problem);
    if (status.code == MLA_OK)
        status = mla_contract_check(contract);
    if (status.code != MLA_OK)
        return status;
    if (first_token < 0 || tokens < 0 || first_token > problem->total_q - tokens)
        return mla_error(MLA_EINVAL, "oracle: tokens [%lld, +%lld) are not within total_q = %lld", (long long)first_token,
                         (long long)tokens, (long long)problem->total_q);
    status = truth_make(problem, first_token, tokens, truth);
    if (status.code != MLA_OK)
        return status;
    if (run_blocks(math, problem, contract, truth))
        return mla_ok();
    mla_truth_free(truth);
    return mla_error(MLA_ENOMEM, "oracle: no memory for the scores of a block");
}

mla_status mla_oracle_run(const mla_problem *problem, const mla_contract *contract, int64_t first_token, int64_t tokens, mla_truth *truth) {
    return mla_oracle_run_with(&mla_arithmetic_fast, problem, contract, first_token, tokens, truth);
}
