#include "inputs.h"

#include <string.h>

#include "inputs_family.h"
#include "inputs_topk.h"
#include "../ref/try.h"
#include "random.h"

#define GARBAGE INT32_C(0x7FFFFFF0) /* in table entries nobody may read */
#define TOKENS_A_STEP 64            /* a thread's step; sequences are looked up once a step */

/* `poison`: a NaN code of the tensor. */
static mla_status make_tensor(mla_buffer *buffer, const char *name, int64_t count, size_t unit, uint32_t poison, bool sparse) {
    size_t bytes;
    if (__builtin_mul_overflow((size_t)count, unit, &bytes))
        return mla_error(MLA_ENOMEM, "%s: %lld times %zu bytes is too much", name, (long long)count, unit);
    const mla_status status = mla_buffer_make_filled(NULL, bytes, (uint8_t)poison, sparse, buffer);
    return status.code == MLA_OK ? status : mla_error(status.code, "%s: %s", name, status.message);
}

static mla_status make(mla_buffer *buffer, const char *name, int64_t count, size_t unit) {
    return make_tensor(buffer, name, count, unit, MLA_POISON, false);
}

/* ---- shapes ---- */

static mla_status make_indptr(mla_buffer *buffer, const char *name, const int32_t *lengths, int32_t batch, const int32_t **indptr) {
    TRY(make(buffer, name, (int64_t)batch + 1, sizeof(int32_t)));
    int32_t *sums = (int32_t *)buffer->data;
    sums[0] = 0;
    for (int32_t b = 0; b < batch; b++)
        sums[b + 1] = sums[b] + lengths[b];
    *indptr = sums;
    return mla_ok();
}

static mla_status set_shapes(const mla_case *c, mla_inputs *in) {
    mla_problem *p = &in->problem;
    p->batch = c->batch;
    p->heads = c->heads;
    p->q_format = c->q;
    p->kv_format = c->kv;
    p->kv_scale_stride = c->scale_stride;
    p->paging = c->paging;
    p->page_size = c->page_size;
    p->topk = c->topk;
    p->sm_scale = c->scale;
    p->causal = c->causal;
    p->window = c->window;
    p->softcap = c->softcap;
    p->lse_base = c->lse_base;
    p->lse_empty_positive = c->lse_empty_positive;
    p->out_format = c->out;
    p->split_policy = c->split_policy;
    p->split_arg = c->split_arg;
    TRY(make_indptr(&in->qo_indptr, "qo_indptr", c->q_len, c->batch, &p->qo_indptr));
    TRY(make_indptr(&in->kv_indptr, "kv_indptr", c->kv_len, c->batch, &p->kv_indptr));
    p->total_q = (int64_t)p->qo_indptr[c->batch] + c->q_pad;
    return mla_ok();
}

static mla_status make_sink(const mla_case *c, mla_inputs *in) {
    if (!c->has_sink)
        return mla_ok();
    TRY(make(&in->sink, "sink", c->heads, sizeof(float)));
    float table[MLA_DEVIATES], *sink = (float *)in->sink.data;
    mla_deviate_table(table);
    for (int32_t h = 0; h < c->heads; h++)
        sink[h] = c->sink_random ? 2 * table[mla_deviate_index(mla_random_word(c->seed, MLA_STREAM_SINK, (uint64_t)h))] : c->sink;
    in->problem.sink = sink;
    return mla_ok();
}

/* ---- where tokens lie: slots in a pseudo-random order, some owned by nobody ---- */

static int64_t with_spare(const mla_case *c, int64_t owned) {
    const int64_t page = c->paging == MLA_PAGED ? c->page_size : 1;
    const int64_t wanted = c->spread > 0 ? c->spread / page : owned + owned / 8 + 1;
    return wanted > INT32_MAX ? owned : wanted;
}

static int64_t page_count(const mla_problem *p, int32_t b) {
    return ((int64_t)p->kv_indptr[b + 1] - p->kv_indptr[b] + p->page_size - 1) / p->page_size;
}

static mla_status make_block_table(const mla_case *c, mla_inputs *in) {
    mla_problem *p = &in->problem;
    int64_t owned = 0, longest = 0;
    for (int32_t b = 0; b < p->batch; b++) {
        owned += page_count(p, b);
        longest = page_count(p, b) > longest ? page_count(p, b) : longest;
    }
    p->block_table_stride = longest + 2;
    TRY(make(&in->block_table, "block_table", p->batch * p->block_table_stride, sizeof(int32_t)));
    int32_t *table = (int32_t *)in->block_table.data;
    const int64_t pages = with_spare(c, owned);
    int64_t next = 0;
    for (int32_t b = 0; b < p->batch; b++)
        for (int64_t i = 0; i < p->block_table_stride; i++)
            *table++ = i < page_count(p, b) ? (int32_t)mla_random_permute(c->seed, MLA_STREAM_SLOTS, 0, (uint64_t)pages, (uint64_t)next++)
                                            : GARBAGE;
    p->block_table = (const int32_t *)in->block_table.data;
    if (__builtin_mul_overflow(pages, (int64_t)p->page_size, &p->total_kv))
        return mla_error(MLA_ENOMEM, "kv: %lld pages of %d tokens are too many", (long long)pages, p->page_size);
    return mla_ok();
}

static int32_t permuted_slot(const mla_case *c, const mla_problem *p, int64_t token) {
    return (int32_t)mla_random_permute(c->seed, MLA_STREAM_SLOTS, 0, (uint64_t)p->total_kv, (uint64_t)token);
}

static mla_status make_token_list(const mla_case *c, mla_inputs *in) {
    mla_problem *p = &in->problem;
    const int64_t tokens = p->kv_indptr[p->batch];
    TRY(make(&in->kv_indices, "kv_indices", tokens, sizeof(int32_t)));
    int32_t *slots = (int32_t *)in->kv_indices.data;
#pragma omp parallel for
    for (int64_t i = 0; i < tokens; i++)
        slots[i] = permuted_slot(c, p, i);
    p->kv_indices = slots;
    return mla_ok();
}

/* All but the sparse lists, which depend on the family. */
static mla_status set_layout(const mla_case *c, mla_inputs *in) {
    mla_problem *p = &in->problem;
    const int64_t tokens = p->kv_indptr[p->batch];
    switch (c->paging) {
    case MLA_PAGED:
        return make_block_table(c, in);
    case MLA_TOKEN_LIST:
        p->total_kv = with_spare(c, tokens);
        return make_token_list(c, in);
    case MLA_SPARSE:
        p->total_kv = with_spare(c, tokens);
        return mla_ok();
    default:
        p->total_kv = c->spread > 0 ? c->spread : tokens > 0 && tokens <= INT32_MAX - 16 ? tokens + 16 : tokens;
        return mla_ok();
    }
}

static int64_t slot_of(const mla_case *c, const mla_problem *p, const mla_sequence *sequence, int64_t j) {
    if (p->paging == MLA_SPARSE)
        return permuted_slot(c, p, sequence->kv_begin + j);
    return mla_kv_slot(p, sequence->index, 0, j);
}

/* ---- sparse lists ---- */

/* Puts `token` at `position` of a list of distinct tokens: it changes places, or takes the place. */
static void place(int32_t *list, int32_t count, int32_t position, int32_t token) {
    int32_t at = 0;
    while (at < count && list[at] != token)
        at++;
    if (at < count)
        list[at] = list[position];
    list[position] = token;
}

/* Moves the `count` tokens at the list's start to the entries that are no holes, as slots; the rest is -1. Backwards, since tokens move up. */
static void spread(const mla_values *values, const mla_sequence *sequence, int64_t q_token, int32_t *list, int32_t count) {
    const mla_case *c = values->test;
    int32_t open = 0;
    for (int32_t i = 0; i < c->topk; i++)
        open += !mla_topk_hole(c, q_token, i);
    for (int32_t i = c->topk - 1; i >= 0; i--) {
        const bool hole = mla_topk_hole(c, q_token, i);
        open -= !hole;
        list[i] = hole || open >= count ? -1 : (int32_t)slot_of(c, values->problem, sequence, list[open]);
    }
}

static void fill_list(const mla_values *values, const mla_sequence *sequence, int64_t t, int32_t *list) {
    const mla_case *c = values->test;
    const int64_t q_token = values->problem->qo_indptr[sequence->index] + t;
    const int32_t count = mla_topk_listed(c, q_token, sequence->kv_len);
    mla_listing listings[MLA_MAX_LISTINGS];
    for (int32_t i = 0; i < count; i++)
        list[i] = (int32_t)mla_random_permute(c->seed, MLA_STREAM_TOPK, (uint64_t)q_token, (uint64_t)sequence->kv_len, (uint64_t)i);
    const int listing_count = mla_values_listings(values, sequence, t, count, listings);
    for (int i = 0; i < listing_count; i++)
        place(list, count, listings[i].position, (int32_t)listings[i].token);
    spread(values, sequence, q_token, list, count);
}

/* ---- tensors ---- */

static void put_q_row(const mla_values *values, float *row, uint8_t *to) {
    const mla_format format = values->problem->q_format;
    if (format == MLA_FP8 || format == MLA_FP8FNUZ) {
        mla_fp8_quantize(format, row, MLA_HEAD_DIM, values->q_unit, to);
        return;
    }
    for (int d = 0; d < MLA_HEAD_DIM; d++)
        row[d] *= values->gain;
    mla_encode_f32(format, row, MLA_HEAD_DIM, to);
}

static void put_kv_row(const mla_inputs *in, const float *row, int64_t slot) {
    const mla_problem *p = &in->problem;
    uint8_t *to = in->kv.data + (size_t)slot * mla_kv_format_get(p->kv_format)->token_bytes;
    switch (p->kv_format) {
    case MLA_KV_FP8:
        mla_fp8_quantize(MLA_FP8, row, MLA_HEAD_DIM, p->kv_scale, to);
        break;
    case MLA_KV_FP8FNUZ:
        mla_fp8_quantize(MLA_FP8FNUZ, row, MLA_HEAD_DIM, p->kv_scale, to);
        break;
    case MLA_KV_FP8B656:
        mla_fp8b656_quantize(row, to);
        break;
    case MLA_KV_MXFP4:
        mla_mxfp4_quantize(row, to, in->kv_block_scales.data + (size_t)slot * (size_t)p->kv_scale_stride);
        break;
    default:
        mla_encode_f32(p->kv_format == MLA_KV_FP16 ? MLA_FP16 : MLA_BF16, row, MLA_HEAD_DIM, to);
        break;
    }
}

/* The sequence to which element `i` below indptr[batch] belongs: the last that starts at or before it. */
static int32_t find_sequence(const int32_t *indptr, int32_t batch, int64_t i) {
    int32_t low = 0, high = batch;
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (indptr[middle] <= i)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Calls `fill` for every token of an indptr, in parallel, with its sequence at hand. */
static void for_each_token(const mla_values *values, const mla_inputs *in, const int32_t *indptr,
                           void (*fill)(const mla_values *values, const mla_inputs *in, const mla_sequence *sequence, int64_t i)) {
    const int32_t batch = values->problem->batch;
    const int64_t total = indptr[batch];
#pragma omp parallel for schedule(dynamic, 4)
    for (int64_t step = 0; step < total; step += TOKENS_A_STEP) {
        mla_sequence sequence = {.index = -1};
        for (int64_t i = step; i < step + TOKENS_A_STEP && i < total; i++) {
            if (sequence.index < 0 || i >= indptr[sequence.index + 1])
                mla_sequence_init(values, find_sequence(indptr, batch, i), &sequence);
            fill(values, in, &sequence, i - indptr[sequence.index]);
        }
    }
}

static void fill_q_token(const mla_values *values, const mla_inputs *in, const mla_sequence *sequence, int64_t t) {
    const mla_problem *p = &in->problem;
    const size_t row_bytes = MLA_HEAD_DIM * mla_format_bytes(p->q_format);
    const int64_t q_token = p->qo_indptr[sequence->index] + t;
    for (int32_t h = 0; h < p->heads; h++) {
        float row[MLA_HEAD_DIM];
        mla_values_q_row(values, sequence, t, h, row);
        put_q_row(values, row, in->q.data + (size_t)(q_token * p->heads + h) * row_bytes);
    }
    if (p->paging == MLA_SPARSE)
        fill_list(values, sequence, t, (int32_t *)in->topk_indices.data + q_token * p->topk);
}

static void fill_kv_token(const mla_values *values, const mla_inputs *in, const mla_sequence *sequence, int64_t j) {
    float row[MLA_HEAD_DIM];
    if (mla_q_len(&in->problem, sequence->index) == 0)
        return;
    mla_values_kv_row(values, sequence, j, row);
    put_kv_row(in, row, slot_of(values->test, &in->problem, sequence, j));
}

/* Bytes of NaN codes; only e4m3fnuz's is not the usual poison. */
static uint32_t nan_byte(bool fnuz) {
    return fnuz ? mla_format_get(MLA_FP8FNUZ)->nan : MLA_POISON;
}

/* Buffers of q, KV and sparse lists; poison is all -1 in the lists, which is what padding rows hold. */
static mla_status make_tensors(const mla_case *c, mla_inputs *in) {
    mla_problem *p = &in->problem;
    const size_t q_bytes = (size_t)p->heads * MLA_HEAD_DIM * mla_format_bytes(p->q_format);
    const size_t token_bytes = mla_kv_format_get(p->kv_format)->token_bytes;
    const bool sparse = c->spread > 0;
    TRY(make_tensor(&in->q, "q", p->total_q, q_bytes, nan_byte(p->q_format == MLA_FP8FNUZ), false));
    TRY(make_tensor(&in->kv, "kv", p->total_kv, token_bytes, nan_byte(p->kv_format == MLA_KV_FP8FNUZ), sparse));
    if (p->kv_format == MLA_KV_MXFP4)
        TRY(make_tensor(&in->kv_block_scales, "kv_block_scales", p->total_kv, (size_t)p->kv_scale_stride, MLA_POISON, sparse));
    if (p->paging == MLA_SPARSE)
        TRY(make(&in->topk_indices, "topk_indices", p->total_q, (size_t)p->topk * sizeof(int32_t)));
    p->q = in->q.data;
    p->kv = in->kv.data;
    p->kv_block_scales = in->kv_block_scales.data;
    p->topk_indices = (const int32_t *)in->topk_indices.data;
    return mla_ok();
}

/* ---- a sparse cache: poison near what is used ---- */

#define NEAR 64 /* slots on either side */

/* Slots [slot, slot + count) of rows of `unit` bytes, and their neighbours. */
static void poison_near(mla_buffer *buffer, size_t unit, int64_t slots, int64_t slot, int64_t count) {
    const int64_t begin = slot > NEAR ? slot - NEAR : 0, end = slots - slot - count > NEAR ? slot + count + NEAR : slots;
    if (buffer->bytes > 0)
        memset(buffer->data + (size_t)begin * unit, buffer->poison, (size_t)(end - begin) * unit);
}

/* Tokens that lie side by side: a sequence, a page, or one. */
static int64_t run_length(const mla_problem *p, int64_t kv_len) {
    return p->paging == MLA_CONTIGUOUS ? kv_len : p->paging == MLA_PAGED ? p->page_size : 1;
}

static void poison_used(const mla_case *c, mla_inputs *in) {
    const mla_problem *p = &in->problem;
    for (int32_t b = 0; b < p->batch; b++) {
        const mla_sequence sequence = {.index = b, .kv_begin = p->kv_indptr[b], .kv_len = c->kv_len[b]};
        const int64_t run = run_length(p, sequence.kv_len);
        for (int64_t j = 0; j < sequence.kv_len && c->q_len[b] > 0; j += run) {
            const int64_t slot = slot_of(c, p, &sequence, j);
            poison_near(&in->kv, mla_kv_format_get(p->kv_format)->token_bytes, p->total_kv, slot, run);
            poison_near(&in->kv_block_scales, (size_t)p->kv_scale_stride, p->total_kv, slot, run);
        }
    }
}

mla_status mla_inputs_make(const mla_case *c, mla_inputs *inputs) {
    *inputs = (mla_inputs){0};
    mla_values values;
    TRY(set_shapes(c, inputs));
    TRY(mla_values_init(c, &inputs->problem, &values));
    inputs->problem.q_scale = values.q_scale;
    inputs->problem.kv_scale = values.kv_scale;
    TRY(make_sink(c, inputs));
    TRY(set_layout(c, inputs));
    TRY(make_tensors(c, inputs));
    if (c->spread > 0)
        poison_used(c, inputs);
    for_each_token(&values, inputs, inputs->problem.qo_indptr, fill_q_token);
    for_each_token(&values, inputs, inputs->problem.kv_indptr, fill_kv_token);
    return mla_problem_check(&inputs->problem);
}

void mla_inputs_free(mla_inputs *inputs) {
    mla_buffer_free(&inputs->q);
    mla_buffer_free(&inputs->qo_indptr);
    mla_buffer_free(&inputs->kv);
    mla_buffer_free(&inputs->kv_block_scales);
    mla_buffer_free(&inputs->kv_indptr);
    mla_buffer_free(&inputs->block_table);
    mla_buffer_free(&inputs->kv_indices);
    mla_buffer_free(&inputs->topk_indices);
    mla_buffer_free(&inputs->sink);
    *inputs = (mla_inputs){0};
}
