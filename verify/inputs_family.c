#include "inputs_family.h"

#include <math.h>
#include <string.h>

#include "inputs_topk.h"

/*
 * A score is s <q, k>, and planned q carries 1 / (24 s): a bias of c along the signs moves it by 64 * q_signs * c / 24 = 4 c.
 * The noise of steered scores is about 0.3: rising and falling must not be smooth ramps, whose rounding errors are coherent.
 */
#define SCORE_OF_BIAS 4.0f

static const mla_recipe recipes[MLA_INPUT_COUNT] = {
    [MLA_INPUT_NORMAL] = {1, 1, 0, 1, 1, false},
    [MLA_INPUT_UNIFORM] = {1, 1, 0, 1, 1, false},
    [MLA_INPUT_RISING] = {0.25f, 0.25f, 1.5f, 1, 0.25f, true},
    [MLA_INPUT_FALLING] = {0.25f, 0.25f, 1.5f, 1, 0.25f, true},
    [MLA_INPUT_NEGATIVE] = {0.25f, 0.25f, 1.5f, 1, 0.25f, true},
    [MLA_INPUT_NEEDLE] = {0.25f, 0.25f, 1.5f, 1, 0.25f, true},
    [MLA_INPUT_PEAKED] = {3.25f, 3.25f, 0, 1, 1, true}, /* scores N(0, 3.25^2): a few keys dominate */
    [MLA_INPUT_FLAT] = {0, 0, 0, 1, 1, false},
    [MLA_INPUT_SUBNORMAL] = {1, 1, 0, 1, 1, false}, /* k: below */
    [MLA_INPUT_LARGE] = {100, 100, 0, 1, 1, true},  /* times 1, 2, 4, 8 by head: scores reach thousands */
    [MLA_INPUT_CANCEL] = {0, 3, 0, 1, 1, true},     /* scores come from the RoPE part alone */
    [MLA_INPUT_EXACT] = {0, 0, 0, 1, 0, true},
};

/* Amplitudes that make KV codes subnormal: about 16 units for bf16, 128 for fp16; 1 for fp8, whose kv_scale does the rest. */
static const struct {
    int latent, rope;
} subnormal_exponents[MLA_KV_FORMAT_COUNT] = {
    [MLA_KV_BF16] = {-129, -129},  [MLA_KV_FP16] = {-17, -17},     [MLA_KV_FP8] = {0, 0},
    [MLA_KV_FP8FNUZ] = {0, 0},     [MLA_KV_FP8B656] = {-22, -129}, /* the format's smallest scale is 2^-13 */
    [MLA_KV_MXFP4] = {-130, -130},                                 /* the format's smallest scale is 2^-127 */
};

/* ---- biases along the signs ---- */

/* ln n to within 0.06, without libm: the logarithm is linear between powers of two. */
static float log_estimate(int64_t n) {
    int exponent;
    const double fraction = frexp((double)n, &exponent);
    return (float)((exponent - 2 + 2 * fraction) * 0.6931471805599453);
}

/* Planted tokens score ln N + 2 above the rest: of k together, each then holds about 1/k of the weight (less under a soft-cap or a sink). */
static float needle_bias(int64_t kv_len) {
    return (log_estimate(kv_len) + 2) / SCORE_OF_BIAS;
}

static bool is_planted(const mla_sequence *sequence, int64_t j) {
    for (int i = 0; i < sequence->planted_count; i++)
        if (sequence->planted[i] == j)
            return true;
    return false;
}

/* The score a token is given, over 4. */
static float bias_of(const mla_values *values, const mla_sequence *sequence, int64_t j) {
    const float along = sequence->kv_len > 1 ? (float)j / (float)(sequence->kv_len - 1) : 0;
    switch (values->test->input) {
    case MLA_INPUT_RISING:
        return 2.4f * along;
    case MLA_INPUT_FALLING:
        return 2.4f * (1 - along);
    case MLA_INPUT_NEGATIVE:
        return -3 + 0.3f * along;
    case MLA_INPUT_NEEDLE:
        return is_planted(sequence, j) ? sequence->planted_bias : 0;
    default:
        return 0;
    }
}

static float largest_bias(const mla_case *test) {
    int64_t longest = 1;
    for (int32_t b = 0; b < test->batch; b++)
        longest = test->kv_len[b] > longest ? test->kv_len[b] : longest;
    switch (test->input) {
    case MLA_INPUT_RISING:
    case MLA_INPUT_FALLING:
        return 2.4f;
    case MLA_INPUT_NEGATIVE:
        return 3;
    case MLA_INPUT_NEEDLE:
        return needle_bias(longest);
    default:
        return 0;
    }
}

/* ---- needle: where ---- */

/* Appends a token of 0 .. n-1 that is not there yet. */
static int add_distinct(int64_t token, int64_t n, int64_t *tokens, int count) {
    if (token < 0 || token >= n)
        return count;
    for (int i = 0; i < count; i++)
        if (tokens[i] == token)
            return count;
    tokens[count] = token;
    return count + 1;
}

/* Ends, edges of tiles and splits, and the keys on either side of where masks begin to hide: the last of row 0, the first of the last row. */
static int plant(int64_t n, int64_t causal_end, int64_t window_begin, int64_t planted[MLA_MAX_PLANTED]) {
    const int64_t candidates[MLA_MAX_PLANTED] = {
        0, n - 1, 15, 16, 31, 32, 63, 64, 127, 128, n / 2 - 1, n / 2, causal_end - 1, causal_end, window_begin, window_begin - 1,
    };
    int count = 0;
    for (int i = 0; i < MLA_MAX_PLANTED; i++)
        count = add_distinct(candidates[i], n, planted, count);
    return count;
}

/* ---- exact: which tokens live ---- */

/*
 * q is one-hot in a RoPE column; there a live token holds 1 and a dead one -6, so live scores are s q alike and dead ones 7 s q lower, with
 * s q in [32, 64). A column belongs to one query token t of the sequence (t mod 64) and to some heads; its live tokens, a power of two up to 64
 * and at most half of what the token sees (but at least one), are spread over the keys that all rows of the column see. V holds -3 .. 3: sums
 * stay below 256, so every mean is exact in bf16. Rows that see no key stay empty, whatever the other rows of the sequence see.
 */
#define LIVE 1.0f
#define DEAD (-6.0f)
#define SPARSE_COLUMNS 4 /* a list must hold the live tokens of all its columns: MLA_MAX_LISTINGS / 4 each */

static int32_t columns_per_token(const mla_values *values, int32_t q_len) {
    const int32_t columns = q_len > 0 && q_len < MLA_ROPE ? MLA_ROPE / q_len : 1;
    return values->test->paging == MLA_SPARSE && columns > SPARSE_COLUMNS ? SPARSE_COLUMNS : columns;
}

static int32_t live_count(int64_t seen) {
    int32_t count = 1;
    while (count < 64 && 4 * count <= seen)
        count *= 2;
    return seen > 0 ? count : 0;
}

/* Keys that all rows t, t + 64, ... of the sequence see which see any. */
static mla_range common_range(const mla_values *values, int32_t sequence, int32_t t) {
    const mla_problem *p = values->problem;
    mla_range common = {0, 0};
    for (; t < mla_q_len(p, sequence); t += MLA_ROPE) {
        const mla_range range = mla_visible(p, sequence, p->qo_indptr[sequence] + t);
        if (range.begin == range.end)
            continue;
        const bool first = common.begin == common.end;
        common.end = first ? range.end : common.end;
        common.begin = range.begin;
    }
    return common;
}

/* A sparse list shorter than the number of columns gives all of them the same live token. */
static void choose_live(const mla_values *values, mla_sequence *sequence, int32_t t, int32_t columns) {
    const mla_case *test = values->test;
    mla_range seen = {0, sequence->kv_len};
    int32_t count, shared = 0;
    if (test->paging == MLA_SPARSE) {
        const int32_t listed = mla_topk_listed(test, values->problem->qo_indptr[sequence->index] + t, sequence->kv_len);
        const int32_t each = listed / columns > MLA_MAX_LISTINGS / 2 ? MLA_MAX_LISTINGS / 2 : listed / columns;
        shared = listed < columns;
        count = shared ? listed > 0 : live_count(each);
    } else {
        seen = common_range(values, sequence->index, t);
        count = live_count(seen.end - seen.begin);
    }
    for (int32_t i = 0; i < columns; i++) {
        mla_live_set *live = &sequence->live[t * columns + i];
        const int64_t length = seen.end - seen.begin;
        const uint64_t index = (uint64_t)sequence->index * MLA_ROPE + (uint64_t)(t * columns + (shared ? 0 : i));
        *live = (mla_live_set){.begin = seen.begin, .length = length, .count = count};
        if (columns > 1 && i < 2 && !shared) /* these reach the first and the last key */
            live->offset = i == 0 ? 0 : length - 1;
        else
            live->offset = mla_random_below(test->seed, MLA_STREAM_LIVE, index, (uint32_t)length);
    }
}

static int64_t live_token(const mla_live_set *live, int32_t i) {
    return live->begin + (i * live->length + live->offset) / live->count;
}

/* Is there an i in 0 .. count - 1 with j == live_token(i)? */
static bool is_live(const mla_live_set *live, int64_t j) {
    if (live->count == 0 || j < live->begin || j >= live->begin + live->length)
        return false;
    const int64_t low = (j - live->begin) * live->count - live->offset;
    const int64_t i = low > 0 ? (low + live->length - 1) / live->length : 0;
    return i < live->count && i * live->length < low + live->count;
}

/* ---- setting up ---- */

static void make_tables(mla_values *values) {
    const mla_family family = values->test->input;
    if (family == MLA_INPUT_UNIFORM || family == MLA_INPUT_EXACT)
        for (int i = 0; i < 4096; i++)
            values->table[i] = family == MLA_INPUT_UNIFORM ? ((float)i + 0.5f) / 4096 : (float)((i * 7 >> 12) - 3);
    else
        mla_deviate_table(values->table);
    for (int i = 0; i < MLA_ROPE; i++)
        values->signs[i] = mla_random_word(values->test->seed, MLA_STREAM_SIGNS, (uint64_t)i) & 1 ? 1.0f : -1.0f;
}

/* The largest magnitude a part of a row can have. */
static float reach(const mla_values *values, float deviation, float bias) {
    const float largest = values->test->input == MLA_INPUT_UNIFORM ? 1 : MLA_DEVIATE_MAX;
    return deviation * largest + bias;
}

/* exact: the power of two that brings s q into [32, 64). */
static float find_gain(const mla_values *values) {
    int exponent;
    frexpf(values->test->scale, &exponent);
    if (values->test->input == MLA_INPUT_EXACT)
        return ldexpf(1, 6 - exponent);
    return values->recipe.planned ? 1 / (24 * values->test->scale) : 1;
}

/* fp8 takes the gain into its scale; bf16 and fp16 must hold it. */
static mla_status set_q_scale(mla_values *values) {
    const mla_case *test = values->test;
    const mla_recipe *r = &values->recipe;
    const mla_format_info *info = mla_format_get(test->q);
    const float by_head = test->input == MLA_INPUT_LARGE ? 8 : 1;
    float amax = by_head * fmaxf(reach(values, r->q_latent, 0), reach(values, r->q_rope, r->q_signs));
    amax = amax > 0 ? amax : 1;
    values->gain = find_gain(values);
    values->q_scale = values->q_unit = 1;
    bool fits;
    if (test->q == MLA_FP8 || test->q == MLA_FP8FNUZ) {
        values->q_unit = test->input == MLA_INPUT_EXACT ? 1 : mla_fp8_scale(test->q, amax);
        values->q_scale = values->q_unit * values->gain;
        fits = isnormal(values->q_scale);
    } else {
        fits = (double)amax * (double)values->gain <= info->max_finite && values->gain >= ldexpf(1, info->min_exponent + info->digits + 3);
    }
    if (!fits)
        return mla_error(MLA_EINVAL, "scale=%s: input=%s needs a q of magnitude %g, which q=%s cannot hold well", test->scale_text,
                         mla_family_name(test->input), (double)amax * (double)values->gain, info->name);
    return mla_ok();
}

static void set_kv_scale(mla_values *values) {
    const mla_case *test = values->test;
    const mla_recipe *r = &values->recipe;
    values->kv_scale = 1;
    if (!mla_kv_format_get(test->kv)->has_tensor_scale || test->input == MLA_INPUT_EXACT)
        return;
    const mla_format codes = test->kv == MLA_KV_FP8 ? MLA_FP8 : MLA_FP8FNUZ;
    if (test->input == MLA_INPUT_SUBNORMAL)
        values->kv_scale = ldexpf(1, -mla_format_get(codes)->min_exponent);
    else
        values->kv_scale = mla_fp8_scale(codes, fmaxf(reach(values, r->k_latent, 0), reach(values, r->k_rope, largest_bias(test))));
}

mla_status mla_values_init(const mla_case *test, const mla_problem *problem, mla_values *values) {
    values->test = test;
    values->problem = problem;
    values->recipe = recipes[test->input];
    if (test->input == MLA_INPUT_SUBNORMAL) {
        values->recipe.k_latent = ldexpf(1, subnormal_exponents[test->kv].latent);
        values->recipe.k_rope = ldexpf(1, subnormal_exponents[test->kv].rope);
    }
    make_tables(values);
    set_kv_scale(values);
    return set_q_scale(values);
}

void mla_sequence_init(const mla_values *values, int32_t index, mla_sequence *sequence) {
    const mla_case *test = values->test;
    const int64_t n = test->kv_len[index];
    const int32_t q_len = test->q_len[index];
    sequence->index = index;
    sequence->kv_begin = values->problem->kv_indptr[index];
    sequence->kv_len = n;
    sequence->planted_count = 0;
    if (test->input == MLA_INPUT_NEEDLE && n > 0) {
        sequence->planted_count = plant(n, test->causal ? n - q_len + 1 : 0, test->window > 0 ? n - test->window : 0, sequence->planted);
        sequence->planted_bias = needle_bias(n);
    }
    if (test->input == MLA_INPUT_EXACT) {
        const int32_t columns = columns_per_token(values, q_len);
        memset(sequence->live, 0, sizeof sequence->live);
        for (int32_t t = 0; t < q_len && t < MLA_ROPE; t++)
            choose_live(values, sequence, t, columns);
    }
}

/* ---- rows ---- */

static void draw_row(const mla_values *values, mla_stream stream, int64_t index, float *row) {
    uint32_t words[MLA_HEAD_DIM];
    const mla_family family = values->test->input;
    mla_random_words(values->test->seed, stream, (uint64_t)index * MLA_HEAD_DIM, MLA_HEAD_DIM, words);
    if (family == MLA_INPUT_UNIFORM || family == MLA_INPUT_EXACT)
        for (int d = 0; d < MLA_HEAD_DIM; d++)
            row[d] = values->table[words[d] >> 20];
    else
        for (int d = 0; d < MLA_HEAD_DIM; d++)
            row[d] = values->table[mla_deviate_index(words[d])];
}

static void shape_row(const mla_values *values, float latent, float rope, float bias, float *row) {
    for (int d = 0; d < MLA_HEAD_DIM_V; d++)
        row[d] *= latent;
    for (int d = 0; d < MLA_ROPE; d++)
        row[MLA_HEAD_DIM_V + d] = row[MLA_HEAD_DIM_V + d] * rope + bias * values->signs[d];
}

void mla_values_q_row(const mla_values *values, const mla_sequence *sequence, int64_t t, int32_t head, float *row) {
    const mla_case *test = values->test;
    const mla_recipe *r = &values->recipe;
    if (test->input == MLA_INPUT_EXACT) {
        const int32_t columns = columns_per_token(values, test->q_len[sequence->index]);
        memset(row, 0, MLA_HEAD_DIM * sizeof *row);
        row[MLA_HEAD_DIM_V + t % MLA_ROPE * columns + head % columns] = 1;
        return;
    }
    const float by_head = test->input == MLA_INPUT_LARGE ? (float)(1 << head % 4) : 1;
    draw_row(values, MLA_STREAM_Q, (values->problem->qo_indptr[sequence->index] + t) * test->heads + head, row);
    shape_row(values, r->q_latent * by_head, r->q_rope * by_head, r->q_signs, row);
}

void mla_values_kv_row(const mla_values *values, const mla_sequence *sequence, int64_t j, float *row) {
    const mla_family family = values->test->input;
    const int64_t mirror = sequence->kv_len - 1 - j;
    /* The other half of a pair has an equal score and the opposite value; neighbours in the middle are no pair, lest all of O be 0. */
    const bool negated = family == MLA_INPUT_CANCEL && mirror < j - 1;
    draw_row(values, MLA_STREAM_KV, sequence->kv_begin + (negated ? mirror : j), row);
    const float latent = negated ? -values->recipe.k_latent : values->recipe.k_latent;
    shape_row(values, latent, values->recipe.k_rope, bias_of(values, sequence, j), row);
    if (family == MLA_INPUT_EXACT)
        for (int column = 0; column < MLA_ROPE; column++)
            row[MLA_HEAD_DIM_V + column] = is_live(&sequence->live[column], j) ? LIVE : DEAD;
}

/* Needles on the list's own edges. */
static int list_needles(const mla_sequence *sequence, int32_t listed, mla_listing *listings) {
    int64_t edges[MLA_MAX_PLANTED];
    const int edge_count = plant(listed, 0, 0, edges);
    int count = 0;
    for (; count < edge_count && count < sequence->planted_count; count++)
        listings[count] = (mla_listing){(int32_t)edges[count], sequence->planted[count]};
    return count;
}

/* Live tokens evenly over the list. */
static int list_live(const mla_values *values, const mla_sequence *sequence, int64_t t, int32_t listed, mla_listing *listings) {
    const int32_t columns = columns_per_token(values, values->test->q_len[sequence->index]);
    int64_t tokens[MLA_MAX_LISTINGS];
    int count = 0;
    for (int64_t column = t * columns; column < (t + 1) * columns; column++)
        for (int32_t i = 0; i < sequence->live[column].count; i++)
            count = add_distinct(live_token(&sequence->live[column], i), sequence->kv_len, tokens, count);
    for (int i = 0; i < count; i++)
        listings[i] = (mla_listing){(int32_t)((int64_t)i * listed / count), tokens[i]};
    return count;
}

int mla_values_listings(const mla_values *values, const mla_sequence *sequence, int64_t t, int32_t listed, mla_listing *listings) {
    switch (values->test->input) {
    case MLA_INPUT_NEEDLE:
        return list_needles(sequence, listed, listings);
    case MLA_INPUT_EXACT:
        return list_live(values, sequence, t, listed, listings);
    default:
        return 0;
    }
}
