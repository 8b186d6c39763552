#include "roofline.h"

#include <math.h>
#include <stdlib.h>

#include "../ref/try.h"

/* ---- work ------------------------------------------------------------------------------------------------------------------------- */

/* Keys are contiguous in every paging but the sparse one: query tokens of a sequence see ranges that overlap or touch. */
static void count_ranges(const mla_problem *p, int32_t sequence, int64_t *keys, int64_t *pairs) {
    mla_range all = {INT64_MAX, 0};
    for (int64_t t = p->qo_indptr[sequence]; t < p->qo_indptr[sequence + 1]; t++) {
        const mla_range seen = mla_visible(p, sequence, t);
        if (seen.begin >= seen.end)
            continue;
        all.begin = seen.begin < all.begin ? seen.begin : all.begin;
        all.end = seen.end > all.end ? seen.end : all.end;
        *pairs += seen.end - seen.begin;
    }
    *keys += all.end > all.begin ? all.end - all.begin : 0;
}

static int compare_slots(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t count_distinct(int64_t *slots, int64_t count) {
    int64_t distinct = 0;
    qsort(slots, (size_t)count, sizeof *slots, compare_slots);
    for (int64_t i = 0; i < count; i++)
        distinct += i == 0 || slots[i] != slots[i - 1];
    return distinct;
}

/* Query tokens of a sequence may list the same slots. */
static mla_status count_lists(const mla_problem *p, int32_t sequence, int64_t *keys, int64_t *pairs) {
    const int64_t first = p->qo_indptr[sequence], end = p->qo_indptr[sequence + 1];
    int64_t *slots = malloc((size_t)(end - first) * (size_t)p->topk * sizeof *slots + 1), present = 0;
    if (!slots)
        return mla_error(MLA_ENOMEM, "no memory to count the keys of sequence %d", sequence);
    for (int64_t t = first; t < end; t++) {
        const mla_range seen = mla_visible(p, sequence, t);
        for (int64_t j = seen.begin; j < seen.end; j++) {
            slots[present] = mla_kv_slot(p, sequence, t, j);
            present += slots[present] >= 0;
        }
    }
    *pairs += present;
    *keys += count_distinct(slots, present);
    free(slots);
    return mla_ok();
}

mla_status mla_work_count(const mla_problem *p, mla_work *work) {
    const mla_kv_format_info *kv = mla_kv_format_get(p->kv_format);
    const int64_t token_bytes = (int64_t)(kv->token_bytes + kv->scale_bytes);
    const int64_t q_bytes = MLA_HEAD_DIM * (int64_t)mla_format_bytes(p->q_format);
    const int64_t out_bytes = MLA_HEAD_DIM_V * (int64_t)mla_format_bytes(p->out_format);
    int64_t keys = 0, pairs = 0;
    for (int32_t sequence = 0; sequence < p->batch; sequence++) {
        if (p->paging == MLA_SPARSE)
            TRY(count_lists(p, sequence, &keys, &pairs));
        else
            count_ranges(p, sequence, &keys, &pairs);
    }
    work->bytes = keys * token_bytes + p->heads * (p->qo_indptr[p->batch] * q_bytes + p->total_q * out_bytes);
    work->flops = pairs * p->heads * 2 * (MLA_HEAD_DIM + MLA_HEAD_DIM_V);
    return mla_ok();
}

/* ---- floor and quantiles ---------------------------------------------------------------------------------------------------------- */

mla_floor mla_floor_of(const mla_work *work, const mla_ceiling *ceiling) {
    const double moving = (double)work->bytes / ceiling->bandwidth;
    const double computing = ceiling->matrix_rate > 0 ? (double)work->flops / ceiling->matrix_rate : 0;
    return (mla_floor){.seconds = fmax(moving, computing), .by_flops = computing > moving};
}

static int compare_seconds(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const double *sorted, int count, double q) {
    const double at = q * (count - 1);
    const int below = (int)at, above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (at - below) * (sorted[above] - sorted[below]);
}

mla_timing mla_timing_of(double *seconds, int launches) {
    if (launches == 0)
        return (mla_timing){0};
    qsort(seconds, (size_t)launches, sizeof *seconds, compare_seconds);
    return (mla_timing){.launches = launches,
                        .min = seconds[0],
                        .p10 = quantile(seconds, launches, 0.1),
                        .median = quantile(seconds, launches, 0.5),
                        .p90 = quantile(seconds, launches, 0.9)};
}
