/* Transforms of a kernel's inputs. A sequence of n tokens lies in slots kv_indptr[b] .. kv_indptr[b] + n: lists are made of runs of slots. */
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "mutant.h"

/* ---- where a transform applies ---------------------------------------------------------------------------------------------------- */

static bool contiguous(const mla_problem *p) {
    return p->paging == MLA_CONTIGUOUS && p->window == 0;
}
bool mla_applies_tokens(const mla_problem *p) {
    return contiguous(p) && !p->causal;
}
bool mla_applies_batch(const mla_problem *p) {
    return mla_applies_tokens(p) && p->batch > 1;
}
bool mla_applies_causal(const mla_problem *p) {
    return contiguous(p) && p->causal;
}
bool mla_applies_queries(const mla_problem *p) {
    for (int32_t b = 0; b < p->batch; b++)
        if (mla_q_len(p, b) > 1)
            return true;
    return false;
}
bool mla_applies_window(const mla_problem *p) {
    return p->window > 0;
}
bool mla_applies_softcap(const mla_problem *p) {
    return p->softcap > 0;
}
bool mla_applies_sink(const mla_problem *p) {
    return p->sink != NULL;
}
bool mla_applies_paged(const mla_problem *p) {
    return p->paging == MLA_PAGED;
}
bool mla_applies_list(const mla_problem *p) {
    return p->paging == MLA_TOKEN_LIST;
}
bool mla_applies_sparse(const mla_problem *p) {
    return p->paging == MLA_SPARSE;
}
bool mla_applies_mxfp4(const mla_problem *p) {
    return p->kv_format == MLA_KV_MXFP4;
}
bool mla_applies_block_scales(const mla_problem *p) {
    return p->kv_format == MLA_KV_MXFP4 || p->kv_format == MLA_KV_FP8B656;
}
bool mla_applies_kv_scale(const mla_problem *p) {
    return mla_kv_format_get(p->kv_format)->has_tensor_scale;
}
bool mla_applies_q_scale(const mla_problem *p) {
    return p->q_format == MLA_FP8 || p->q_format == MLA_FP8FNUZ;
}
bool mla_applies_heads(const mla_problem *p) {
    return p->heads > 1;
}

/* ---- lists of tokens -------------------------------------------------------------------------------------------------------------- */

/* Tokens [begin, end) of sequence b; nothing where that is no range. Slots past the last wrap around. */
static void take(const mla_problem *p, int32_t b, int64_t begin, int64_t end, mla_token_list *list) {
    const int64_t total = p->kv_indptr[p->batch];
    for (int64_t j = begin; j < end; j++)
        list->slots[list->count++] = (p->kv_indptr[b] + j + total) % total;
}

static void take_without(const mla_problem *p, int32_t b, int64_t begin, int64_t end, mla_token_list *list) {
    take(p, b, 0, begin, list);
    take(p, b, end, mla_kv_len(p, b), list);
}

static void take_with(const mla_problem *p, int32_t b, int64_t at, int64_t extra, mla_token_list *list) {
    take(p, b, 0, at, list);
    if (mla_kv_len(p, b) > 0)
        take(p, b, extra, extra + 1, list);
    take(p, b, at, mla_kv_len(p, b), list);
}

void mla_tokens_wrong_sequence(const mla_problem *p, int32_t b, mla_token_list *list) {
    const int64_t next = p->kv_indptr[(b + 1) % p->batch] - (int64_t)p->kv_indptr[b];
    take(p, b, next, next + mla_kv_len(p, b), list);
}
void mla_tokens_shifted(const mla_problem *p, int32_t b, mla_token_list *list) {
    const int64_t early = b > 0;
    take(p, b, -early, mla_kv_len(p, b) - early, list);
}
void mla_tokens_drop_first(const mla_problem *p, int32_t b, mla_token_list *list) {
    take(p, b, 1, mla_kv_len(p, b), list);
}
void mla_tokens_drop_middle(const mla_problem *p, int32_t b, mla_token_list *list) {
    take_without(p, b, mla_kv_len(p, b) / 2, mla_kv_len(p, b) / 2 + 1, list);
}
void mla_tokens_drop_last(const mla_problem *p, int32_t b, mla_token_list *list) {
    take(p, b, 0, mla_kv_len(p, b) - 1, list);
}
void mla_tokens_double_first(const mla_problem *p, int32_t b, mla_token_list *list) {
    take_with(p, b, 0, 0, list);
}
void mla_tokens_double_middle(const mla_problem *p, int32_t b, mla_token_list *list) {
    take_with(p, b, mla_kv_len(p, b) / 2, mla_kv_len(p, b) / 2, list);
}
void mla_tokens_double_last(const mla_problem *p, int32_t b, mla_token_list *list) {
    take_with(p, b, mla_kv_len(p, b), mla_kv_len(p, b) - 1, list);
}
void mla_tokens_leak_before(const mla_problem *p, int32_t b, mla_token_list *list) {
    take_with(p, b, 0, -1, list);
}
void mla_tokens_leak_after(const mla_problem *p, int32_t b, mla_token_list *list) {
    take_with(p, b, mla_kv_len(p, b), mla_kv_len(p, b), list);
}
void mla_tokens_leak_middle(const mla_problem *p, int32_t b, mla_token_list *list) {
    take_with(p, b, mla_kv_len(p, b) / 2, mla_kv_len(p, b), list);
}
void mla_tokens_drop_tile(const mla_problem *p, int32_t b, mla_token_list *list) {
    const int64_t n = mla_kv_len(p, b);
    take_without(p, b, n < 32 ? n : 32, n < 64 ? n : 64, list);
}
void mla_tokens_drop_tail(const mla_problem *p, int32_t b, mla_token_list *list) {
    const int64_t n = mla_kv_len(p, b);
    take(p, b, 0, n < 32 ? n : n / 32 * 32, list);
}
void mla_tokens_drop_split(const mla_problem *p, int32_t b, mla_token_list *list) {
    const int64_t n = mla_kv_len(p, b), split = (n + 2) / 3;
    take_without(p, b, split, 2 * split < n ? 2 * split : n, list);
}
void mla_tokens_first_half(const mla_problem *p, int32_t b, mla_token_list *list) {
    take(p, b, 0, (mla_kv_len(p, b) + 1) / 2, list);
}
/* Causal from the top left: query token t sees keys 0 .. t. */
void mla_tokens_top_left(const mla_problem *p, int32_t b, mla_token_list *list) {
    const int64_t n = mla_kv_len(p, b), q_len = mla_q_len(p, b);
    take(p, b, 0, q_len < n ? q_len : n, list);
}
void mla_tokens_reversed(const mla_problem *p, int32_t b, mla_token_list *list) {
    for (int64_t j = mla_kv_len(p, b) - 1; j >= 0; j--)
        take(p, b, j, j + 1, list);
}
void mla_tokens_rotated(const mla_problem *p, int32_t b, mla_token_list *list) {
    const int64_t n = mla_kv_len(p, b);
    take(p, b, n / 3, n, list);
    take(p, b, 0, n / 3, list);
}

/* ---- edits of inputs ---------------------------------------------------------------------------------------------------------------- */

void mla_before_scale(const mla_mutant *m, mla_inputs *in) {
    in->problem.sm_scale = (float)((double)in->problem.sm_scale * (1 + m->amount));
}

/* A code of zeros is 0 in every format of q. */
void mla_before_rope_ignored(const mla_mutant *m, mla_inputs *in) {
    const size_t code = mla_format_bytes(in->problem.q_format), row = MLA_HEAD_DIM * code;
    (void)m;
    for (size_t at = 0; at < in->q.bytes; at += row)
        memset(in->q.data + at + MLA_HEAD_DIM_V * code, 0, row - MLA_HEAD_DIM_V * code);
}

void mla_before_zero_q(const mla_mutant *m, mla_inputs *in) {
    (void)m;
    if (in->q.bytes > 0)
        memset(in->q.data, 0, in->q.bytes);
}

/* Every query token of a sequence becomes its first. */
void mla_before_one_query(const mla_mutant *m, mla_inputs *in) {
    const mla_problem *p = &in->problem;
    const size_t token = (size_t)p->heads * MLA_HEAD_DIM * mla_format_bytes(p->q_format);
    (void)m;
    for (int32_t b = 0; b < p->batch; b++)
        for (int32_t t = p->qo_indptr[b] + 1; t < p->qo_indptr[b + 1]; t++)
            memcpy(in->q.data + (size_t)t * token, in->q.data + (size_t)p->qo_indptr[b] * token, token);
}

void mla_before_not_causal(const mla_mutant *m, mla_inputs *in) {
    (void)m;
    in->problem.causal = false;
}

/* amount: tokens more or less; -INFINITY: no window. */
void mla_before_window(const mla_mutant *m, mla_inputs *in) {
    const double window = in->problem.window + m->amount;
    in->problem.window = window < 1 ? 0 : (int32_t)window;
}

void mla_before_no_softcap(const mla_mutant *m, mla_inputs *in) {
    (void)m;
    in->problem.softcap = 0;
}

void mla_before_no_sink(const mla_mutant *m, mla_inputs *in) {
    (void)m;
    in->problem.sink = NULL;
}

static int32_t pages_of(const mla_problem *p, int32_t b) {
    return (mla_kv_len(p, b) + p->page_size - 1) / p->page_size;
}

/* Entry i of a sequence's table becomes its entry i + 1, the last its first. */
void mla_before_next_page(const mla_mutant *m, mla_inputs *in) {
    const mla_problem *p = &in->problem;
    int32_t *table = (int32_t *)(void *)in->block_table.data;
    (void)m;
    for (int32_t b = 0; b < p->batch; b++) {
        int32_t *pages = table + b * p->block_table_stride;
        const int32_t count = pages_of(p, b), first = count > 0 ? pages[0] : 0;
        for (int32_t i = 0; i + 1 < count; i++)
            pages[i] = pages[i + 1];
        if (count > 0)
            pages[count - 1] = first;
    }
}

/* Sequences whose last page has room are one token longer. */
void mla_before_page_tail(const mla_mutant *m, mla_inputs *in) {
    const mla_problem *p = &in->problem;
    int32_t *indptr = (int32_t *)(void *)in->kv_indptr.data;
    (void)m;
    for (int32_t b = 0; b < p->batch; b++)
        if (mla_kv_len(p, b) % p->page_size != 0)
            for (int32_t i = b + 1; i <= p->batch; i++)
                indptr[i]++;
}

void mla_before_next_index(const mla_mutant *m, mla_inputs *in) {
    int32_t *indices = (int32_t *)(void *)in->kv_indices.data;
    const size_t count = in->kv_indices.bytes / sizeof *indices;
    (void)m;
    for (size_t i = 0; i + 1 < count; i++)
        indices[i] = indices[i + 1];
}

/* An absent entry reads slot 0. */
void mla_before_absent_read(const mla_mutant *m, mla_inputs *in) {
    int32_t *indices = (int32_t *)(void *)in->topk_indices.data;
    (void)m;
    for (size_t i = 0; i < in->topk_indices.bytes / sizeof *indices; i++)
        if (indices[i] < 0)
            indices[i] = 0;
}

void mla_before_swap_nibbles(const mla_mutant *m, mla_inputs *in) {
    (void)m;
    for (size_t i = 0; i < in->kv.bytes; i++)
        in->kv.data[i] = (uint8_t)(in->kv.data[i] << 4 | in->kv.data[i] >> 4);
}

/* Moves `count` elements of `size` bytes one place down, the first to the end. */
static void rotate(uint8_t *elements, size_t count, size_t size) {
    uint8_t first[sizeof(float)];
    memcpy(first, elements, size);
    memmove(elements, elements + size, (count - 1) * size);
    memcpy(elements + (count - 1) * size, first, size);
}

/* Every block of a token takes its neighbour's scale. */
void mla_before_next_scale(const mla_mutant *m, mla_inputs *in) {
    const mla_problem *p = &in->problem;
    const mla_kv_format_info *info = mla_kv_format_get(p->kv_format);
    (void)m;
    for (int64_t slot = 0; slot < p->total_kv; slot++)
        if (p->kv_format == MLA_KV_MXFP4)
            rotate(in->kv_block_scales.data + slot * p->kv_scale_stride, info->scale_bytes, 1);
        else
            rotate(in->kv.data + (size_t)slot * info->token_bytes + MLA_HEAD_DIM_V, 4, sizeof(float));
}

void mla_before_kv_scale(const mla_mutant *m, mla_inputs *in) {
    in->problem.kv_scale = (float)((double)in->problem.kv_scale * m->amount);
}

void mla_before_q_scale(const mla_mutant *m, mla_inputs *in) {
    in->problem.q_scale = (float)((double)in->problem.q_scale * m->amount);
}

void mla_before_plan(const mla_mutant *m, mla_inputs *in) {
    mla_problem *p = &in->problem;
    p->split_policy = m->amount > 0 ? MLA_SPLIT_FIXED : m->amount < 0 ? MLA_SPLIT_SIZE : MLA_SPLIT_BALANCED;
    p->split_arg = (int32_t)(m->amount < 0 ? -m->amount : m->amount);
}

/* ---- making the inputs ---------------------------------------------------------------------------------------------------------------- */

/* `rows` of `bytes` each, in the order of `slots`, in place of the buffer's own; the buffer keeps its size at least. */
static mla_status gather(mla_buffer *buffer, size_t bytes, const int64_t *slots, int64_t rows) {
    mla_buffer gathered = {0};
    const size_t size = (size_t)rows * bytes;
    TRY(mla_buffer_make(NULL, size > buffer->bytes ? size : buffer->bytes, &gathered));
    for (int64_t i = 0; i < rows; i++)
        memcpy(gathered.data + (size_t)i * bytes, buffer->data + (size_t)slots[i] * bytes, bytes);
    mla_buffer_free(buffer);
    *buffer = gathered;
    return mla_ok();
}

static mla_status replace_kv(mla_inputs *in, const int64_t *slots, int64_t rows) {
    mla_problem *p = &in->problem;
    TRY(gather(&in->kv, mla_kv_format_get(p->kv_format)->token_bytes, slots, rows));
    if (p->kv_block_scales)
        TRY(gather(&in->kv_block_scales, (size_t)p->kv_scale_stride, slots, rows));
    p->kv = in->kv.data;
    p->kv_block_scales = in->kv_block_scales.data;
    p->total_kv = rows > p->total_kv ? rows : p->total_kv;
    return mla_ok();
}

static mla_status list_tokens(const mla_mutant *m, mla_inputs *in) {
    const mla_problem *p = &in->problem;
    const int64_t tokens = p->kv_indptr[p->batch];
    int64_t *slots = malloc((size_t)(2 * tokens + 2 * p->batch) * sizeof *slots), rows = 0;
    int32_t *indptr = calloc((size_t)p->batch + 1, sizeof *indptr);
    if (!slots || !indptr) {
        free(slots);
        free(indptr);
        return mla_error(MLA_ENOMEM, "no memory to list %lld tokens", (long long)tokens);
    }
    for (int32_t b = 0; b < p->batch; b++) {
        mla_token_list list = {.slots = slots + rows};
        m->tokens(p, b, &list);
        rows += list.count;
        indptr[b + 1] = (int32_t)rows;
    }
    mla_status status = tokens > 0 ? replace_kv(in, slots, rows) : mla_ok();
    if (status.code == MLA_OK)
        memcpy(in->kv_indptr.data, indptr, in->kv_indptr.bytes);
    free(slots);
    free(indptr);
    return status;
}

mla_status mla_mutant_inputs(const mla_mutant *m, const mla_case *test, mla_inputs *inputs) {
    TRY(mla_inputs_make(test, inputs));
    if (m->tokens)
        TRY(list_tokens(m, inputs));
    if (m->before)
        m->before(m, inputs);
    return mla_ok();
}
