#include "oracle_block.h"
#include "wide_vectors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TILE = MLA_ORACLE_TILE };

static const int64_t SCORE_BYTES = (int64_t)256 << 20; /* of a block's scores, unless one head takes more */
/* Accumulation's share of sigma^2 beyond which chi does not gate. */
static const double ORDER_SHARE = 0.05;
/* Mean square error of rounding the outputs themselves, against what is expected of numbers that lie anywhere, beyond which chi does not gate. */
static const double UNLUCKY = 1.15;
/* Tiny weights this small in sum are bounded by the largest |v|: no need to sum their values. */
static const double NEGLIGIBLE = 0x1p-40;

/* ---- sizes and memory ---------------------------------------------------------------------------------------------------------------- */

int64_t mla_oracle_positions(const mla_problem *problem, int64_t token) {
    const mla_range seen = mla_visible(problem, mla_sequence_of(problem, token), token);
    return seen.end - seen.begin;
}

/* Five doubles a score: four arrays of the block, and as much for one row's own. */
int32_t mla_oracle_block_heads(const mla_problem *problem, int64_t positions) {
    int64_t heads = positions > 0 ? SCORE_BYTES / (positions * 5 * (int64_t)sizeof(double)) : MLA_ORACLE_HEADS;
    if (heads > MLA_ORACLE_HEADS)
        heads = MLA_ORACLE_HEADS;
    if (heads > problem->heads)
        heads = problem->heads;
    return heads < 1 ? 1 : (int32_t)heads;
}

/* The next `count` doubles, aligned to 64 bytes; NULL while sizes are only counted. */
static double *take(double *base, size_t *used, size_t count) {
    double *taken = base ? base + *used : NULL;
    *used += (count + 7) / 8 * 8;
    return taken;
}

static void *take_bytes(double *base, size_t *used, size_t bytes) {
    return take(base, used, (bytes + sizeof(double) - 1) / sizeof(double));
}

/* Lays the arrays out from `base`; returns the doubles they take. */
static size_t scratch_layout(mla_oracle_scratch *scratch, const mla_oracle_sizes *sizes, double *base) {
    const size_t positions = (size_t)sizes->positions, scores = (size_t)sizes->scores;
    const size_t elements = (size_t)MLA_ORACLE_HEADS * MLA_HEAD_DIM_V;
    size_t used = 0;
    scratch->memory = base;
    scratch->q = take(base, &used, MLA_ORACLE_HEADS * MLA_HEAD_DIM);
    scratch->q_abs = take(base, &used, MLA_ORACLE_HEADS * MLA_HEAD_DIM);
    scratch->kv = take(base, &used, TILE * MLA_HEAD_DIM);
    scratch->kv_abs = take(base, &used, TILE * MLA_HEAD_DIM);
    scratch->weights = take(base, &used, scores);
    scratch->dots = take(base, &used, scores);
    scratch->alike_weights = take(base, &used, scores);
    scratch->noise = take(base, &used, scores);
    scratch->x = take(base, &used, positions);
    scratch->exps = take(base, &used, positions);
    scratch->lengths = take(base, &used, positions);
    scratch->stack = take(base, &used, (size_t)MLA_SUMS * MLA_ORACLE_HEADS * TILE);
    scratch->sums = take(base, &used, MLA_SUMS * elements);
    scratch->top_value = take(base, &used, elements);
    scratch->top_square = take(base, &used, elements);
    scratch->min = take(base, &used, MLA_HEAD_DIM_V);
    scratch->max = take(base, &used, MLA_HEAD_DIM_V);
    scratch->abs_sum = take(base, &used, MLA_HEAD_DIM_V);
    scratch->slots = take_bytes(base, &used, positions * sizeof *scratch->slots);
    scratch->bins = take_bytes(base, &used, (size_t)mla_repeat_bins(sizes->positions) * sizeof *scratch->bins);
    scratch->equal = take_bytes(base, &used, positions * sizeof *scratch->equal);
    scratch->alike = take_bytes(base, &used, positions * sizeof *scratch->alike);
    scratch->rows = take_bytes(base, &used, MLA_ORACLE_HEADS * sizeof *scratch->rows);
    return used;
}

bool mla_oracle_scratch_make(mla_oracle_scratch *scratch, const mla_oracle_sizes *sizes) {
    double *memory = aligned_alloc(64, scratch_layout(scratch, sizes, NULL) * sizeof(double));
    if (memory)
        scratch_layout(scratch, sizes, memory);
    return memory != NULL;
}

/* ---- scores -------------------------------------------------------------------------------------------------------------------------- */

static int load_keys(const mla_oracle_block *block, const int64_t *slots, int64_t first, double *kv) {
    const int keys = block->keys - first < TILE ? (int)(block->keys - first) : TILE;
    for (int t = 0; t < keys; t++)
        mla_kv_row_f64(block->problem, slots[first + t], kv + t * MLA_HEAD_DIM);
    return keys;
}

/* |values|, the nonzero ones at least `least`: an operand rounded to a type errs by its unit roundoff times no less than its smallest normal. */
WIDE_VECTORS static void magnitudes(const double *values, size_t count, double least, double *abs) {
    for (size_t i = 0; i < count; i++) {
        const double magnitude = fabs(values[i]);
        abs[i] = magnitude < least && magnitude > 0 ? least : magnitude;
    }
}

WIDE_VECTORS static void square_in_place(double *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        values[i] *= values[i];
}

static double length2(const double *row) {
    double lanes[8] = {0}, sum = 0;
    for (int d = 0; d < MLA_HEAD_DIM; d += 8)
        for (int lane = 0; lane < 8; lane++)
            lanes[lane] += row[d + lane] * row[d + lane];
    for (int lane = 0; lane < 8; lane++)
        sum += lanes[lane];
    return sum;
}

static void load_queries(const mla_oracle_block *block, mla_oracle_scratch *scratch) {
    const mla_problem *problem = block->problem;
    const double log2_scale = fabs((double)problem->sm_scale) * 0x1.71547652b82fep0;
    const double normal = mla_bound_smallest_normal(block->contract->q_scaled);
    for (int32_t h = 0; h < block->heads; h++)
        mla_q_row_f64(problem, block->token, block->head + h, scratch->q + (size_t)h * MLA_HEAD_DIM);
    magnitudes(scratch->q, (size_t)block->heads * MLA_HEAD_DIM, log2_scale > 0 ? normal / log2_scale : 0, scratch->q_abs);
}

/* [heads, tile] = scale * q k^T, a part of [heads, keys]. */
static void multiply_keys(const mla_oracle_block *block, const double *q, const double *kv, int tile, double scale, double *scores) {
    block->math->multiply_transposed(block->heads, tile, MLA_HEAD_DIM, scale, q, MLA_HEAD_DIM, kv, MLA_HEAD_DIM, scores, block->keys);
}

/* z_j = s <q, k_j>, a_j = |s| sum |q k_j|, and |k_j|^2. */
static void make_scores(const mla_oracle_block *block, mla_oracle_scratch *scratch) {
    const double scale = (double)block->problem->sm_scale, normal = mla_bound_smallest_normal(block->contract->kv_dequant);
    load_queries(block, scratch);
    for (int64_t first = 0; first < block->keys; first += TILE) {
        const int tile = load_keys(block, scratch->slots, first, scratch->kv);
        magnitudes(scratch->kv, (size_t)tile * MLA_HEAD_DIM, normal, scratch->kv_abs);
        multiply_keys(block, scratch->q, scratch->kv, tile, scale, scratch->weights + first);
        multiply_keys(block, scratch->q_abs, scratch->kv_abs, tile, fabs(scale), scratch->dots + first);
        for (int t = 0; t < tile; t++)
            scratch->lengths[first + t] = length2(scratch->kv + t * MLA_HEAD_DIM);
    }
}

/* noise = b_j^2 = s^2 sum (q k_j)^2. */
static void make_products(const mla_oracle_block *block, mla_oracle_scratch *scratch) {
    const double scale = (double)block->problem->sm_scale, normal = mla_bound_smallest_normal(block->contract->kv_dequant);
    square_in_place(scratch->q_abs, (size_t)block->heads * MLA_HEAD_DIM);
    for (int64_t first = 0; first < block->keys; first += TILE) {
        const int tile = load_keys(block, scratch->slots, first, scratch->kv);
        magnitudes(scratch->kv, (size_t)tile * MLA_HEAD_DIM, normal, scratch->kv_abs);
        square_in_place(scratch->kv_abs, (size_t)tile * MLA_HEAD_DIM);
        multiply_keys(block, scratch->q_abs, scratch->kv_abs, tile, scale * scale, scratch->noise + first);
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

static void count_repeats(const mla_oracle_block *block, mla_oracle_scratch *scratch) {
    mla_repeats_count(scratch->x, block->keys, MLA_EQUAL_SCORES, scratch->bins, scratch->equal);
    if (block->bound.p_error > 0)
        mla_repeats_count(scratch->x, block->keys, MLA_ALIKE_SCORES * block->bound.p_error, scratch->bins, scratch->alike);
}

/* Row h of the block: scores become weights in place; what its bounds share goes to scratch->rows. */
static void weigh_row(const mla_oracle_block *block, int32_t h, mla_oracle_scratch *scratch) {
    const int64_t keys = block->keys, at = h * keys;
    const double scale = (double)block->problem->sm_scale, *q = scratch->q + (size_t)h * MLA_HEAD_DIM;
    mla_oracle_row *row = &scratch->rows[h];
    row->softmax = soften_row(block->math, block->problem, block->head + h, keys, scratch->weights + at, scratch->x, scratch->exps);
    count_repeats(block, scratch);
    row->errors = mla_bound_sum_errors(&block->bound, scratch->equal);
    const double *z = scratch->weights + at;
    const mla_key_sums sums = mla_bound_keys(&block->bound, &row->softmax, &row->errors, z, scratch->x, scratch->alike, scratch->exps,
                                             scratch->dots + at, scratch->alike_weights + at);
    row->sigma =
        mla_sigma_row_make(&block->sigma, &row->softmax, scratch->exps, z, scratch->x, scratch->lengths, scale * scale * length2(q),
                           scratch->equal, mla_sigma_has_noise(&block->sigma) ? scratch->noise + at : NULL);
    row->bound = mla_bound_row_make(&block->bound, &row->softmax, &row->errors, &sums);
    memcpy(scratch->weights + at, scratch->exps, (size_t)keys * sizeof(double));
    block->truth->lse[block->first_row + h] = row->softmax.lse;
    block->truth->lse_bound[block->first_row + h] = row->bound.lse_bound;
    block->truth->kind[block->first_row + h] = row->bound.hull ? MLA_ROW_HULL : MLA_ROW_BOUND;
}

/* ---- values ------------------------------------------------------------------------------------------------------------------------------ */

static bool has_tiny_weights(const mla_oracle_block *block, const mla_oracle_scratch *scratch) {
    double most = 0;
    for (int32_t h = 0; h < block->heads; h++)
        most = fmax(most, scratch->rows[h].bound.tiny);
    return most > NEGLIGIBLE;
}

/* Which sums this block needs, and where they stand. */
static void choose_sums(mla_oracle_block *block, const mla_oracle_scratch *scratch) {
    const bool rounded = block->bound.p_error > 0, noisy = mla_sigma_has_noise(&block->sigma);
    const bool wanted[MLA_SUMS] = {[MLA_SUM_OUT] = true,           [MLA_SUM_SQUARE_VALUE] = rounded && block->bound.rowsum_of_rounded_p,
                                   [MLA_SUM_NOISE_VALUE] = noisy,  [MLA_SUM_ABS] = true,
                                   [MLA_SUM_NUMERATOR] = true,     [MLA_SUM_TINY] = has_tiny_weights(block, scratch),
                                   [MLA_SUM_SQUARE] = true,        [MLA_SUM_ALIKE] = rounded,
                                   [MLA_SUM_NOISE_SQUARE] = noisy, [MLA_SUM_SPREAD] = block->sigma.q > 0};
    block->made = 0;
    for (int sum = 0; sum < MLA_SUMS; sum++)
        block->place[sum] = wanted[sum] ? block->made++ : -1;
}

WIDE_VECTORS static void extend_range(const double *restrict v, double *restrict min, double *restrict max, double *restrict abs_sum) {
    for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
        min[c] = v[c] < min[c] ? v[c] : min[c];
        max[c] = v[c] > max[c] ? v[c] : max[c];
        abs_sum[c] += fabs(v[c]);
    }
}

/* The weights of one sum, one row, keys [first, first + tile). */
static void stack_row(const mla_oracle_block *block, const mla_oracle_scratch *scratch, int sum, int32_t h, int64_t first, int tile,
                      double *to) {
    const mla_oracle_row *row = &scratch->rows[h];
    const int64_t at = h * block->keys + first;
    const double *p = scratch->weights + at, *dots = scratch->dots + at;
    const double *from = sum == MLA_SUM_NUMERATOR ? dots : sum == MLA_SUM_ALIKE ? scratch->alike_weights + at : p;
    if (sum == MLA_SUM_NOISE_VALUE || sum == MLA_SUM_NOISE_SQUARE)
        from = scratch->noise + at;
    memcpy(to, from, (size_t)tile * sizeof(double));
    if (sum == MLA_SUM_SQUARE || sum == MLA_SUM_SQUARE_VALUE)
        square_in_place(to, (size_t)tile);
    if (sum == MLA_SUM_TINY)
        for (int t = 0; t < tile; t++)
            to[t] = mla_bound_tiny(&block->bound, &row->softmax, &row->errors, p[t], dots[t]);
}

/* Adds weights times operand to the sums [from, to). */
static void add_sums(const mla_oracle_block *block, mla_oracle_scratch *scratch, int from, int to, int64_t first, int tile,
                     const double *operand) {
    const int32_t heads = block->heads;
    int32_t rows = 0, place = -1;
    for (int sum = from; sum < to; sum++) {
        if (block->place[sum] < 0)
            continue;
        place = place < 0 ? block->place[sum] : place;
        for (int32_t h = 0; h < heads; h++)
            stack_row(block, scratch, sum, h, first, tile, scratch->stack + (size_t)rows++ * (size_t)tile);
    }
    if (rows > 0)
        block->math->multiply_add(rows, MLA_HEAD_DIM_V, tile, scratch->stack, tile, operand, MLA_HEAD_DIM,
                                  scratch->sums + (size_t)place * (size_t)heads * MLA_HEAD_DIM_V, MLA_HEAD_DIM_V);
}

/* v and v^2 of the keys with the largest weight in row h. */
static void add_top(const mla_oracle_block *block, mla_oracle_scratch *scratch, int32_t h, int64_t first, int tile) {
    double *value = scratch->top_value + (size_t)h * MLA_HEAD_DIM_V, *square = scratch->top_square + (size_t)h * MLA_HEAD_DIM_V;
    for (int t = 0; t < tile; t++) {
        const double *v = scratch->kv + t * MLA_HEAD_DIM;
        if (!mla_sigma_is_top(&scratch->rows[h].sigma, scratch->weights[h * block->keys + first + t]))
            continue;
        for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
            value[c] += v[c];
            square[c] += v[c] * v[c];
        }
    }
}

static void clear_sums(const mla_oracle_block *block, mla_oracle_scratch *scratch) {
    const size_t bytes = (size_t)block->heads * MLA_HEAD_DIM_V * sizeof(double);
    memset(scratch->sums, 0, (size_t)block->made * bytes);
    memset(scratch->top_value, 0, bytes);
    memset(scratch->top_square, 0, bytes);
    memset(scratch->abs_sum, 0, MLA_HEAD_DIM_V * sizeof(double));
    for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
        scratch->min[c] = INFINITY;
        scratch->max[c] = -INFINITY;
    }
}

static void sum_values(const mla_oracle_block *block, mla_oracle_scratch *scratch) {
    clear_sums(block, scratch);
    for (int64_t first = 0; first < block->keys; first += TILE) {
        const int tile = load_keys(block, scratch->slots, first, scratch->kv);
        const size_t count = (size_t)tile * MLA_HEAD_DIM;
        for (int t = 0; t < tile; t++)
            extend_range(scratch->kv + t * MLA_HEAD_DIM, scratch->min, scratch->max, scratch->abs_sum);
        for (int32_t h = 0; h < block->heads; h++)
            add_top(block, scratch, h, first, tile);
        add_sums(block, scratch, MLA_SUM_OUT, MLA_SUM_ABS, first, tile, scratch->kv);
        magnitudes(scratch->kv, count, 0, scratch->kv_abs);
        add_sums(block, scratch, MLA_SUM_ABS, MLA_SUM_SQUARE, first, tile, scratch->kv_abs);
        square_in_place(scratch->kv_abs, count);
        add_sums(block, scratch, MLA_SUM_SQUARE, MLA_SUMS, first, tile, scratch->kv_abs);
    }
}

/* ---- elements ------------------------------------------------------------------------------------------------------------------------------ */

/* 0 where the sum was not made. */
static double sum_of(const mla_oracle_block *block, const mla_oracle_scratch *scratch, mla_oracle_sum sum, int32_t h, size_t c) {
    const size_t row = (size_t)block->place[sum] * (size_t)block->heads + (size_t)h;
    return block->place[sum] < 0 ? 0 : scratch->sums[row * MLA_HEAD_DIM_V + c];
}

/* Where l sums rounded weights, errors of tiny ones count by the distance of their v from O, which is at most |v| + |O|. */
static double tiny_shift(const mla_oracle_block *block, const mla_oracle_row *row, double tiny, double out) {
    return tiny + (block->bound.rowsum_of_rounded_p ? row->bound.tiny * fabs(out) : 0);
}

static double tiny_of(const mla_oracle_block *block, const mla_oracle_scratch *scratch, int32_t h, size_t c) {
    const double largest = fmax(fabs(scratch->min[c]), fabs(scratch->max[c]));
    return block->place[MLA_SUM_TINY] >= 0 ? sum_of(block, scratch, MLA_SUM_TINY, h, c) : scratch->rows[h].bound.tiny * largest;
}

static mla_element_sums element_sums(const mla_oracle_block *block, const mla_oracle_scratch *scratch, int32_t h, size_t c) {
    return (mla_element_sums){.out = sum_of(block, scratch, MLA_SUM_OUT, h, c),
                              .abs = sum_of(block, scratch, MLA_SUM_ABS, h, c),
                              .numerator = sum_of(block, scratch, MLA_SUM_NUMERATOR, h, c),
                              .alike = sum_of(block, scratch, MLA_SUM_ALIKE, h, c),
                              .tiny = tiny_of(block, scratch, h, c),
                              .value = {scratch->min[c], scratch->max[c], scratch->abs_sum[c]}};
}

mla_variance mla_oracle_block_variance(const mla_oracle_block *block, const mla_oracle_scratch *scratch, int32_t h, size_t c) {
    const size_t at = (size_t)h * MLA_HEAD_DIM_V + c;
    const mla_bound_row *bound = &scratch->rows[h].bound;
    const double out = sum_of(block, scratch, MLA_SUM_OUT, h, c);
    const mla_sigma_sums sums = {.out = out,
                                 .square = sum_of(block, scratch, MLA_SUM_SQUARE, h, c),
                                 .square_value = sum_of(block, scratch, MLA_SUM_SQUARE_VALUE, h, c),
                                 .spread = sum_of(block, scratch, MLA_SUM_SPREAD, h, c),
                                 .noise_square = sum_of(block, scratch, MLA_SUM_NOISE_SQUARE, h, c),
                                 .noise_value = sum_of(block, scratch, MLA_SUM_NOISE_VALUE, h, c),
                                 .top_value = scratch->top_value[at],
                                 .top_square = scratch->top_square[at],
                                 .tiny = tiny_shift(block, &scratch->rows[h], tiny_of(block, scratch, h, c), out),
                                 .underflow = bound->value_underflow * scratch->abs_sum[c] + bound->underflow,
                                 .q = (double)block->problem->sm_scale * scratch->q[(size_t)h * MLA_HEAD_DIM + c]};
    return mla_sigma_element(&block->sigma, &scratch->rows[h].sigma, &sums);
}

/* Sums over a row's columns. */
typedef struct row_shares {
    double order;   /* accumulation's share of sigma^2 */
    double out;     /* mla_sigma_luck of out's rounding */
    double partial; /* the same of partials' */
} row_shares;

/* Why a row's chi would not gate. */
static unsigned doubts_of(const mla_oracle_row *row, const row_shares *shares) {
    const bool estimated = !(shares->order <= ORDER_SHARE * MLA_HEAD_DIM_V);
    const bool unlucky = !(fmax(shares->out, shares->partial) <= UNLUCKY * MLA_HEAD_DIM_V);
    return row->sigma.doubts | (estimated ? MLA_CHI_ORDER : 0) | (unlucky ? MLA_CHI_REPEATED : 0) | (row->bound.hull ? MLA_CHI_HULL : 0);
}

/* Row h's elements of the truth. */
static void finish_row(const mla_oracle_block *block, const mla_oracle_scratch *scratch, int32_t h) {
    const mla_oracle_row *row = &scratch->rows[h];
    const mla_truth *truth = block->truth;
    row_shares shares = {0};
    for (size_t c = 0; c < MLA_HEAD_DIM_V; c++) {
        const size_t at = (size_t)(block->first_row + h) * MLA_HEAD_DIM_V + c;
        const mla_element_sums sums = element_sums(block, scratch, h, c);
        const mla_variance variance = mla_oracle_block_variance(block, scratch, h, c);
        const double total = mla_variance_total(&variance);
        truth->out[at] = sums.out;
        truth->abs[at] = sums.abs;
        truth->square[at] = sum_of(block, scratch, MLA_SUM_SQUARE, h, c);
        truth->bound[at] = mla_bound_element(&block->bound, &row->softmax, &row->bound, &sums);
        truth->sigma[at] = sqrt(total);
        shares.order += variance.order / total;
        shares.out += mla_sigma_luck(block->problem->out_format, block->contract->out_rounding, sums.out);
        shares.partial += block->sigma.partial > 0 ? mla_sigma_luck(block->contract->partial, MLA_RNE, sums.out) : 0;
    }
    truth->doubts[block->first_row + h] = (uint8_t)doubts_of(row, &shares);
}

/* ---- the block ------------------------------------------------------------------------------------------------------------------------------- */

static void mark_empty(const mla_oracle_block *block) {
    for (int64_t row = block->first_row; row < block->first_row + block->heads; row++) {
        block->truth->lse[row] = -INFINITY;
        block->truth->kind[row] = MLA_ROW_EMPTY;
    }
}

void mla_oracle_block_run(mla_oracle_block *block, mla_oracle_scratch *scratch) {
    block->keys = mla_visible_slots(block->problem, block->token, scratch->slots);
    if (block->keys == 0) {
        mark_empty(block);
        return;
    }
    block->bound = mla_bound_model_make(block->math, block->problem, block->contract, block->keys);
    block->sigma = mla_sigma_model_make(block->math, block->problem, block->contract, block->keys);
    make_scores(block, scratch);
    if (mla_sigma_has_products(&block->sigma))
        make_products(block, scratch);
    for (int32_t h = 0; h < block->heads; h++)
        weigh_row(block, h, scratch);
    choose_sums(block, scratch);
    sum_values(block, scratch);
    for (int32_t h = 0; h < block->heads; h++)
        finish_row(block, scratch, h);
}
