#include "subset.h"

#include <string.h>

#include "../ref/try.h"

typedef struct selection {
    const mla_problem *whole;
    const int32_t *sequences; /* [count] */
    int32_t count;
} selection;

static mla_status make_indptr(const selection *s, const int32_t *indptr, mla_buffer *buffer, const int32_t **made) {
    TRY(mla_buffer_make(NULL, ((size_t)s->count + 1) * sizeof(int32_t), buffer));
    int32_t *sums = (int32_t *)(void *)buffer->data;
    sums[0] = 0;
    for (int32_t i = 0; i < s->count; i++)
        sums[i + 1] = sums[i] + indptr[s->sequences[i] + 1] - indptr[s->sequences[i]];
    *made = sums;
    return mla_ok();
}

/* The rows of `bytes` that `indptr` gives the sequences, one sequence after another. NULL stays NULL. */
static mla_status gather(const selection *s, const int32_t *indptr, const void *rows, size_t bytes, mla_buffer *buffer, const void **made) {
    size_t count = 0, at = 0;
    if (!rows)
        return mla_ok();
    for (int32_t i = 0; i < s->count; i++)
        count += (size_t)(indptr[s->sequences[i] + 1] - indptr[s->sequences[i]]);
    TRY(mla_buffer_make(NULL, count * bytes, buffer));
    for (int32_t i = 0; i < s->count; i++) {
        const size_t first = (size_t)indptr[s->sequences[i]], length = (size_t)(indptr[s->sequences[i] + 1] - indptr[s->sequences[i]]);
        if (length > 0)
            memcpy(buffer->data + at, (const uint8_t *)rows + first * bytes, length * bytes);
        at += length * bytes;
    }
    *made = buffer->data;
    return mla_ok();
}

static mla_status copy(const mla_buffer *from, mla_buffer *to, const void **made) {
    TRY(mla_buffer_make(NULL, from->bytes, to));
    if (from->bytes > 0)
        memcpy(to->data, from->data, from->bytes);
    *made = to->data;
    return mla_ok();
}

/* One row of the page table a sequence. */
static mla_status gather_table(const selection *s, mla_buffer *buffer, const int32_t **made) {
    const size_t stride = (size_t)s->whole->block_table_stride;
    if (!s->whole->block_table)
        return mla_ok();
    TRY(mla_buffer_make(NULL, (size_t)s->count * stride * sizeof(int32_t), buffer));
    int32_t *table = (int32_t *)(void *)buffer->data;
    for (int32_t i = 0; i < s->count; i++)
        memcpy(table + (size_t)i * stride, s->whole->block_table + (size_t)s->sequences[i] * stride, stride * sizeof *table);
    *made = table;
    return mla_ok();
}

/* KV itself: contiguous tokens move, others stay in their slots. */
static mla_status take_kv(const selection *s, const mla_inputs *whole, mla_inputs *subset) {
    const mla_problem *w = s->whole;
    mla_problem *p = &subset->problem;
    const void *scales = NULL;
    if (w->paging == MLA_CONTIGUOUS) {
        TRY(gather(s, w->kv_indptr, w->kv, mla_kv_format_get(w->kv_format)->token_bytes, &subset->kv, &p->kv));
        TRY(gather(s, w->kv_indptr, w->kv_block_scales, (size_t)w->kv_scale_stride, &subset->kv_block_scales, &scales));
        p->total_kv = p->kv_indptr[s->count];
    } else {
        TRY(copy(&whole->kv, &subset->kv, &p->kv));
        TRY(copy(&whole->kv_block_scales, &subset->kv_block_scales, &scales));
    }
    p->kv_block_scales = scales;
    return mla_ok();
}

mla_status mla_subset_make(const mla_inputs *whole, const int32_t *sequences, int32_t count, mla_inputs *subset) {
    const mla_problem *w = &whole->problem;
    const selection s = {w, sequences, count};
    const void *indices = w->kv_indices, *topk = w->topk_indices, *sink = w->sink;
    *subset = (mla_inputs){.problem = *w};
    mla_problem *p = &subset->problem;
    p->batch = count;
    TRY(make_indptr(&s, w->qo_indptr, &subset->qo_indptr, &p->qo_indptr));
    TRY(make_indptr(&s, w->kv_indptr, &subset->kv_indptr, &p->kv_indptr));
    p->total_q = p->qo_indptr[count];
    TRY(gather(&s, w->qo_indptr, w->q, (size_t)w->heads * MLA_HEAD_DIM * mla_format_bytes(w->q_format), &subset->q, &p->q));
    TRY(gather(&s, w->kv_indptr, indices, sizeof(int32_t), &subset->kv_indices, &indices));
    TRY(gather(&s, w->qo_indptr, topk, (size_t)w->topk * sizeof(int32_t), &subset->topk_indices, &topk));
    TRY(gather_table(&s, &subset->block_table, &p->block_table));
    if (sink)
        TRY(copy(&whole->sink, &subset->sink, &sink));
    p->kv_indices = indices;
    p->topk_indices = topk;
    p->sink = sink;
    return take_kv(&s, whole, subset);
}
