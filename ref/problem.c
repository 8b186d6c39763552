#include "try.h"

#include <math.h>

/* ---- what a query token sees ---- */

int32_t mla_q_len(const mla_problem *problem, int32_t sequence) {
    return problem->qo_indptr[sequence + 1] - problem->qo_indptr[sequence];
}

int32_t mla_kv_len(const mla_problem *problem, int32_t sequence) {
    if (problem->paging == MLA_SPARSE)
        return problem->topk;
    return problem->kv_indptr[sequence + 1] - problem->kv_indptr[sequence];
}

/* The last sequence that starts at or before the token: an empty one starts where its successor does, so it is never the last. */
int32_t mla_sequence_of(const mla_problem *problem, int64_t q_token) {
    if (q_token < 0 || q_token >= problem->qo_indptr[problem->batch])
        return -1;
    int32_t low = 0, high = problem->batch;
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (problem->qo_indptr[middle] <= q_token)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

mla_range mla_visible(const mla_problem *problem, int32_t sequence, int64_t q_token) {
    if (sequence < 0)
        return (mla_range){0, 0};
    const int64_t kv_len = mla_kv_len(problem, sequence);
    /* The key position of the token itself: queries are the last tokens of the sequence. */
    const int64_t self = kv_len - mla_q_len(problem, sequence) + (q_token - problem->qo_indptr[sequence]);
    const int64_t end = problem->causal ? clamp(self + 1, 0, kv_len) : kv_len;
    const int64_t begin = problem->window > 0 ? clamp(self - problem->window + 1, 0, end) : 0;
    return (mla_range){begin, end};
}

int64_t mla_kv_slot(const mla_problem *problem, int32_t sequence, int64_t q_token, int64_t position) {
    switch (problem->paging) {
    case MLA_PAGED: {
        const int64_t page = problem->block_table[sequence * problem->block_table_stride + position / problem->page_size];
        return page * problem->page_size + position % problem->page_size;
    }
    case MLA_TOKEN_LIST:
        return problem->kv_indices[problem->kv_indptr[sequence] + position];
    case MLA_SPARSE:
        return problem->topk_indices[q_token * problem->topk + position];
    default:
        return problem->kv_indptr[sequence] + position;
    }
}

int64_t mla_visible_slots(const mla_problem *problem, int64_t q_token, int64_t *slots) {
    const int32_t sequence = mla_sequence_of(problem, q_token);
    const mla_range seen = mla_visible(problem, sequence, q_token);
    int64_t keys = 0;
    for (int64_t position = seen.begin; position < seen.end; position++) {
        const int64_t slot = mla_kv_slot(problem, sequence, q_token, position);
        if (slot >= 0)
            slots[keys++] = slot;
    }
    return keys;
}

/* ---- checks ---- */

/* high == INT64_MAX: no upper limit. */
static mla_status check_count(const char *field, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high)
        return mla_ok();
    if (high == INT64_MAX)
        return mla_error(MLA_EINVAL, "%s = %lld is less than %lld", field, (long long)value, (long long)low);
    return mla_error(MLA_EINVAL, "%s = %lld is not in %lld .. %lld", field, (long long)value, (long long)low, (long long)high);
}

/* An indptr of batch + 1 entries whose last may reach `limit`, which is called `limit_name`. */
static mla_status check_indptr(const char *field, const int32_t *indptr, int32_t batch, int64_t limit, const char *limit_name) {
    if (indptr == NULL)
        return mla_error(MLA_EINVAL, "%s is NULL", field);
    if (indptr[0] != 0)
        return mla_error(MLA_EINVAL, "%s[0] = %d is not 0", field, indptr[0]);
    for (int64_t i = 1; i <= batch; i++)
        if (indptr[i] < indptr[i - 1])
            return mla_error(MLA_EINVAL, "%s[%lld] = %d is less than %s[%lld] = %d", field, (long long)i, indptr[i], field,
                             (long long)i - 1, indptr[i - 1]);
    if (indptr[batch] > limit)
        return mla_error(MLA_EINVAL, "%s[%d] = %d is more than %s = %lld", field, batch, indptr[batch], limit_name, (long long)limit);
    return mla_ok();
}

static mla_status check_scale(const char *field, float value, bool used, const char *format) {
    if (!used && value != 1)
        return mla_error(MLA_EINVAL, "%s = %g is not 1, but %s has no scale", field, (double)value, format);
    if (!(isfinite(value) && value > 0))
        return mla_error(MLA_EINVAL, "%s = %g is not finite and > 0", field, (double)value);
    return mla_ok();
}

static mla_status check_unused(const char *field, bool set, const char *mode) {
    if (set)
        return mla_error(MLA_EINVAL, "%s is set, but belongs to %s only", field, mode);
    return mla_ok();
}

/* `count` slots of `total_kv`, entries of `field` from its start; -1 is allowed where `absent` says so. */
static mla_status check_slots(const char *field, const int32_t *slots, int64_t count, int64_t row_length, bool absent, int64_t total_kv) {
    if (slots == NULL && count > 0)
        return mla_error(MLA_EINVAL, "%s is NULL", field);
    for (int64_t i = 0; i < count; i++) {
        if (slots[i] >= (absent ? -1 : 0) && slots[i] < total_kv)
            continue;
        if (row_length == 0)
            return mla_error(MLA_EINVAL, "%s[%lld] = %d is no slot of total_kv = %lld", field, (long long)i, slots[i], (long long)total_kv);
        return mla_error(MLA_EINVAL, "%s[%lld][%lld] = %d is neither -1 nor a slot of total_kv = %lld", field, (long long)(i / row_length),
                         (long long)(i % row_length), slots[i], (long long)total_kv);
    }
    return mla_ok();
}

static mla_status check_q(const mla_problem *problem) {
    const bool fp8 = problem->q_format == MLA_FP8 || problem->q_format == MLA_FP8FNUZ;
    if (problem->q_format != MLA_BF16 && problem->q_format != MLA_FP16 && !fp8)
        return mla_error(MLA_EINVAL, "q_format = %d is not one of bf16, fp16, fp8, fp8fnuz", (int)problem->q_format);
    TRY(check_scale("q_scale", problem->q_scale, fp8, mla_format_get(problem->q_format)->name));
    TRY(check_count("total_q", problem->total_q, 0, INT64_MAX));
    if (problem->q == NULL && problem->total_q > 0)
        return mla_error(MLA_EINVAL, "q is NULL, but total_q = %lld", (long long)problem->total_q);
    return check_indptr("qo_indptr", problem->qo_indptr, problem->batch, problem->total_q, "total_q");
}

static mla_status check_kv(const mla_problem *problem) {
    if ((unsigned)problem->kv_format >= MLA_KV_FORMAT_COUNT)
        return mla_error(MLA_EINVAL, "kv_format = %d is no KV format", (int)problem->kv_format);
    const mla_kv_format_info *info = mla_kv_format_get(problem->kv_format);
    TRY(check_scale("kv_scale", problem->kv_scale, info->has_tensor_scale, info->name));
    TRY(check_count("total_kv", problem->total_kv, 0, INT64_MAX));
    if (problem->kv == NULL && problem->total_kv > 0)
        return mla_error(MLA_EINVAL, "kv is NULL, but total_kv = %lld", (long long)problem->total_kv);
    if (info->scale_bytes == 0) {
        TRY(check_unused("kv_block_scales", problem->kv_block_scales != NULL, "mxfp4"));
        return check_unused("kv_scale_stride", problem->kv_scale_stride != 0, "mxfp4");
    }
    TRY(check_count("kv_scale_stride", problem->kv_scale_stride, (int64_t)info->scale_bytes, INT64_MAX));
    if (problem->kv_block_scales == NULL && problem->total_kv > 0)
        return mla_error(MLA_EINVAL, "kv_block_scales is NULL, but kv_format is %s", info->name);
    return mla_ok();
}

/* A used page must lie in the cache as a whole: kernels may load the tail of the last one before they mask it. */
static mla_status check_block_table(const mla_problem *problem) {
    const int64_t pages = problem->total_kv / problem->page_size;
    for (int32_t b = 0; b < problem->batch; b++) {
        const int64_t used = ((int64_t)mla_kv_len(problem, b) + problem->page_size - 1) / problem->page_size;
        if (used > problem->block_table_stride)
            return mla_error(MLA_EINVAL, "block_table_stride = %lld is less than the %lld pages of sequence %d",
                             (long long)problem->block_table_stride, (long long)used, b);
        if (used > 0 && problem->block_table == NULL)
            return mla_error(MLA_EINVAL, "block_table is NULL");
        for (int64_t i = 0; i < used; i++) {
            const int32_t page = problem->block_table[b * problem->block_table_stride + i];
            if (page < 0 || page >= pages)
                return mla_error(MLA_EINVAL, "block_table[%d][%lld] = %d is none of the %lld whole pages of total_kv = %lld", b,
                                 (long long)i, page, (long long)pages, (long long)problem->total_kv);
        }
    }
    return mla_ok();
}

static mla_status check_sparse(const mla_problem *problem) {
    TRY(check_count("topk", problem->topk, 1, INT64_MAX));
    if (problem->causal)
        return mla_error(MLA_EINVAL, "causal = 1 with sparse paging: topk_indices already say what is visible");
    if (problem->window != 0)
        return mla_error(MLA_EINVAL, "window = %d with sparse paging: topk_indices already say what is visible", problem->window);
    const int64_t tokens = problem->qo_indptr[problem->batch];
    return check_slots("topk_indices", problem->topk_indices, tokens * problem->topk, problem->topk, true, problem->total_kv);
}

static mla_status check_other_pagings(const mla_problem *problem) {
    if (problem->paging != MLA_PAGED) {
        TRY(check_unused("page_size", problem->page_size != 0, "MLA_PAGED"));
        TRY(check_unused("block_table", problem->block_table != NULL, "MLA_PAGED"));
        TRY(check_unused("block_table_stride", problem->block_table_stride != 0, "MLA_PAGED"));
    }
    if (problem->paging != MLA_TOKEN_LIST)
        TRY(check_unused("kv_indices", problem->kv_indices != NULL, "MLA_TOKEN_LIST"));
    if (problem->paging != MLA_SPARSE) {
        TRY(check_unused("topk", problem->topk != 0, "MLA_SPARSE"));
        TRY(check_unused("topk_indices", problem->topk_indices != NULL, "MLA_SPARSE"));
    }
    return mla_ok();
}

static mla_status check_paging(const mla_problem *problem) {
    if ((unsigned)problem->paging > MLA_SPARSE)
        return mla_error(MLA_EINVAL, "paging = %d is no paging", (int)problem->paging);
    TRY(check_other_pagings(problem));
    if (problem->paging == MLA_SPARSE)
        return check_sparse(problem);

    const bool contiguous = problem->paging == MLA_CONTIGUOUS;
    const int64_t limit = contiguous ? problem->total_kv : INT32_MAX;
    TRY(check_indptr("kv_indptr", problem->kv_indptr, problem->batch, limit, "total_kv"));
    if (contiguous)
        return mla_ok();
    if (problem->paging == MLA_TOKEN_LIST)
        return check_slots("kv_indices", problem->kv_indices, problem->kv_indptr[problem->batch], 0, false, problem->total_kv);
    TRY(check_count("page_size", problem->page_size, 1, INT64_MAX));
    TRY(check_count("block_table_stride", problem->block_table_stride, 0, INT64_MAX));
    return check_block_table(problem);
}

static mla_status check_scores(const mla_problem *problem) {
    if (!isfinite(problem->sm_scale))
        return mla_error(MLA_EINVAL, "sm_scale = %g is not finite", (double)problem->sm_scale);
    TRY(check_count("window", problem->window, 0, INT64_MAX));
    if (!(isfinite(problem->softcap) && problem->softcap >= 0))
        return mla_error(MLA_EINVAL, "softcap = %g is not finite and >= 0", (double)problem->softcap);
    for (int32_t h = 0; problem->sink != NULL && h < problem->heads; h++)
        if (!isfinite(problem->sink[h]))
            return mla_error(MLA_EINVAL, "sink[%d] = %g is not finite", h, (double)problem->sink[h]);
    return mla_ok();
}

static mla_status check_output(const mla_problem *problem) {
    if (problem->lse_base != MLA_LSE_E && problem->lse_base != MLA_LSE_2)
        return mla_error(MLA_EINVAL, "lse_base = %d is neither MLA_LSE_E nor MLA_LSE_2", (int)problem->lse_base);
    if (problem->out_format != MLA_BF16 && problem->out_format != MLA_FP16 && problem->out_format != MLA_FP32)
        return mla_error(MLA_EINVAL, "out_format = %d is not one of bf16, fp16, fp32", (int)problem->out_format);
    return mla_ok();
}

static mla_status check_split(const mla_problem *problem) {
    switch (problem->split_policy) {
    case MLA_SPLIT_FIXED:
    case MLA_SPLIT_SIZE:
        return check_count("split_arg", problem->split_arg, 1, INT64_MAX);
    case MLA_SPLIT_ADAPTIVE:
    case MLA_SPLIT_BALANCED:
        return check_unused("split_arg", problem->split_arg != 0, "the policies fixed and size");
    default:
        return mla_error(MLA_EINVAL, "split_policy = %d is no policy", (int)problem->split_policy);
    }
}

mla_status mla_problem_check(const mla_problem *problem) {
    if (problem == NULL)
        return mla_error(MLA_EINVAL, "problem is NULL");
    TRY(check_count("batch", problem->batch, 1, INT64_MAX));
    TRY(check_count("heads", problem->heads, 1, MLA_MAX_HEADS));
    TRY(check_q(problem));
    TRY(check_kv(problem));
    TRY(check_paging(problem));
    TRY(check_scores(problem));
    TRY(check_output(problem));
    return check_split(problem);
}
