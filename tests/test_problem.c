#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "../ref/mla.h"

#define HEADS 2
#define SLOTS 16

/* Query lengths 1, 0, 2 and one padding row; KV lengths 5, 0, 7. */
static const int32_t qo_indptr[] = {0, 1, 1, 3}, kv_indptr[] = {0, 5, 5, 12};
static const uint16_t q[4 * HEADS * MLA_HEAD_DIM], kv[SLOTS * MLA_HEAD_DIM];
static const uint8_t block_scales[SLOTS * 18];
static const float sink[HEADS] = {0, -3};
/* Pages of 4 tokens: 2, 0 and 2 are used; the rest is garbage. */
static const int32_t block_table[] = {3, 0, -7, 999, 999, 999, 1, 2, 999};
static const int32_t token_list[] = {15, 0, 3, 3, 1, 2, 4, 5, 6, 7, 8, 9};
/* Two of each query token; the padding row's are garbage. */
static const int32_t topk_indices[] = {0, -1, -1, 15, 4, 4, 99, 99};

static mla_problem contiguous(void) {
    return (mla_problem){.batch = 3,
                         .heads = HEADS,
                         .q_format = MLA_BF16,
                         .q_scale = 1,
                         .q = q,
                         .total_q = 4,
                         .qo_indptr = qo_indptr,
                         .kv_format = MLA_KV_BF16,
                         .kv_scale = 1,
                         .kv = kv,
                         .total_kv = SLOTS,
                         .kv_indptr = kv_indptr,
                         .sm_scale = 0x1p-4f,
                         .out_format = MLA_BF16};
}

static mla_problem paged(void) {
    mla_problem problem = contiguous();
    problem.paging = MLA_PAGED;
    problem.page_size = 4;
    problem.block_table = block_table;
    problem.block_table_stride = 3;
    return problem;
}

static mla_problem listed(void) {
    mla_problem problem = contiguous();
    problem.paging = MLA_TOKEN_LIST;
    problem.kv_indices = token_list;
    return problem;
}

static mla_problem sparse(void) {
    mla_problem problem = contiguous();
    problem.paging = MLA_SPARSE;
    problem.kv_indptr = NULL;
    problem.topk = 2;
    problem.topk_indices = topk_indices;
    return problem;
}

static mla_problem mxfp4(void) {
    mla_problem problem = contiguous();
    problem.kv_format = MLA_KV_MXFP4;
    problem.kv_block_scales = block_scales;
    problem.kv_scale_stride = 18;
    return problem;
}

static void accepted(mla_problem problem) {
    const mla_status status = mla_problem_check(&problem);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    cr_assert_str_empty(status.message);
}

static void refused(mla_problem problem, const char *message) {
    const mla_status status = mla_problem_check(&problem);
    cr_assert_eq(status.code, MLA_EINVAL, "accepted: %s", message);
    cr_assert_str_eq(status.message, message);
}

/* The problem `base` makes, with one field set, is refused with the message. */
#define REFUSED(base, message, field, ...)                                                                                                 \
    do {                                                                                                                                   \
        mla_problem problem_ = base();                                                                                                     \
        problem_.field = __VA_ARGS__;                                                                                                      \
        refused(problem_, message);                                                                                                        \
    } while (0)

#define ACCEPTED(base, field, ...)                                                                                                         \
    do {                                                                                                                                   \
        mla_problem problem_ = base();                                                                                                     \
        problem_.field = __VA_ARGS__;                                                                                                      \
        accepted(problem_);                                                                                                                \
    } while (0)

#define INTS(...) ((const int32_t[]){__VA_ARGS__})

/* ---- checks ---- */

Test(problem, well_formed_ones_are_accepted) {
    accepted(contiguous());
    accepted(paged());
    accepted(listed());
    accepted(sparse());
    accepted(mxfp4());
    ACCEPTED(contiguous, causal, true);
    ACCEPTED(contiguous, window, INT32_MAX);
    ACCEPTED(contiguous, softcap, 50);
    ACCEPTED(contiguous, sink, sink);
    ACCEPTED(contiguous, sm_scale, -1);
    ACCEPTED(contiguous, out_format, MLA_FP32);
    ACCEPTED(contiguous, q_format, MLA_FP8);
    ACCEPTED(mxfp4, kv_scale_stride, 32);
    mla_problem empty = contiguous();
    empty.q = empty.kv = NULL;
    empty.total_q = empty.total_kv = 0;
    empty.qo_indptr = empty.kv_indptr = INTS(0, 0, 0, 0);
    accepted(empty);
}

Test(problem, shape) {
    const mla_status status = mla_problem_check(NULL);
    cr_assert_str_eq(status.message, "problem is NULL");
    REFUSED(contiguous, "batch = 0 is less than 1", batch, 0);
    REFUSED(contiguous, "heads = 0 is not in 1 .. 1024", heads, 0);
    REFUSED(contiguous, "heads = 1025 is not in 1 .. 1024", heads, 1025);
}

Test(problem, q) {
    REFUSED(contiguous, "q_format = 2 is not one of bf16, fp16, fp8, fp8fnuz", q_format, MLA_FP32);
    REFUSED(contiguous, "q_format = 5 is not one of bf16, fp16, fp8, fp8fnuz", q_format, MLA_E2M1);
    REFUSED(contiguous, "q_scale = 2 is not 1, but bf16 has no scale", q_scale, 2);
    REFUSED(contiguous, "q is NULL, but total_q = 4", q, NULL);
    REFUSED(contiguous, "total_q = -1 is less than 0", total_q, -1);
    REFUSED(contiguous, "qo_indptr[3] = 3 is more than total_q = 2", total_q, 2);
    REFUSED(contiguous, "qo_indptr is NULL", qo_indptr, NULL);
    REFUSED(contiguous, "qo_indptr[0] = 1 is not 0", qo_indptr, INTS(1, 1, 1, 3));
    REFUSED(contiguous, "qo_indptr[2] = 0 is less than qo_indptr[1] = 1", qo_indptr, INTS(0, 1, 0, 3));
}

Test(problem, scales_are_finite_and_positive) {
    const float bad[] = {0, -1, INFINITY, NAN};
    const char *words[] = {"0", "-1", "inf", "nan"};
    for (int i = 0; i < 4; i++) {
        char message[100];
        mla_problem problem = contiguous();
        problem.q_format = MLA_FP8FNUZ;
        problem.q_scale = bad[i];
        (void)snprintf(message, sizeof message, "q_scale = %s is not finite and > 0", words[i]);
        refused(problem, message);
        problem = contiguous();
        problem.kv_format = MLA_KV_FP8;
        problem.kv_scale = bad[i];
        (void)snprintf(message, sizeof message, "kv_scale = %s is not finite and > 0", words[i]);
        refused(problem, message);
    }
}

Test(problem, kv) {
    REFUSED(contiguous, "kv_format = 6 is no KV format", kv_format, MLA_KV_FORMAT_COUNT);
    REFUSED(contiguous, "kv_scale = 0.5 is not 1, but bf16 has no scale", kv_scale, 0.5f);
    REFUSED(contiguous, "kv is NULL, but total_kv = 16", kv, NULL);
    REFUSED(contiguous, "total_kv = -2 is less than 0", total_kv, -2);
    REFUSED(contiguous, "kv_indptr is NULL", kv_indptr, NULL);
    REFUSED(contiguous, "kv_indptr[0] = -1 is not 0", kv_indptr, INTS(-1, 5, 5, 12));
    REFUSED(contiguous, "kv_indptr[3] = 17 is less than kv_indptr[2] = 20", kv_indptr, INTS(0, 5, 20, 17));
    REFUSED(contiguous, "kv_indptr[3] = 17 is more than total_kv = 16", kv_indptr, INTS(0, 5, 5, 17));
}

Test(problem, mxfp4_scales) {
    REFUSED(mxfp4, "kv_scale_stride = 17 is less than 18", kv_scale_stride, 17);
    REFUSED(mxfp4, "kv_block_scales is NULL, but kv_format is mxfp4", kv_block_scales, NULL);
    REFUSED(mxfp4, "kv_scale = 2 is not 1, but mxfp4 has no scale", kv_scale, 2);
    REFUSED(contiguous, "kv_block_scales is set, but belongs to mxfp4 only", kv_block_scales, block_scales);
    REFUSED(contiguous, "kv_scale_stride is set, but belongs to mxfp4 only", kv_scale_stride, 18);
}

Test(problem, pages) {
    REFUSED(paged, "page_size = 0 is less than 1", page_size, 0);
    REFUSED(paged, "block_table is NULL", block_table, NULL);
    REFUSED(paged, "block_table_stride = -1 is less than 0", block_table_stride, -1);
    REFUSED(paged, "block_table_stride = 1 is less than the 2 pages of sequence 0", block_table_stride, 1);
    REFUSED(paged, "block_table[2][1] = 4 is none of the 4 whole pages of total_kv = 16", block_table, INTS(3, 0, 9, 9, 9, 9, 1, 4, 9));
    REFUSED(paged, "block_table[0][0] = -1 is none of the 4 whole pages of total_kv = 16", block_table, INTS(-1, 0, 9, 9, 9, 9, 1, 2, 9));
    REFUSED(paged, "block_table[0][0] = 3 is none of the 3 whole pages of total_kv = 15", total_kv, 15);
    REFUSED(paged, "kv_indptr[1] = -5 is less than kv_indptr[0] = 0", kv_indptr, INTS(0, -5, 5, 12));
}

Test(problem, indices) {
    REFUSED(listed, "kv_indices is NULL", kv_indices, NULL);
    REFUSED(listed, "kv_indices[1] = 16 is no slot of total_kv = 16", kv_indices, INTS(0, 16, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
    REFUSED(listed, "kv_indices[11] = -1 is no slot of total_kv = 16", kv_indices, INTS(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, -1));
    REFUSED(sparse, "topk = 0 is less than 1", topk, 0);
    REFUSED(sparse, "topk_indices is NULL", topk_indices, NULL);
    REFUSED(sparse, "topk_indices[1][0] = -2 is neither -1 nor a slot of total_kv = 16", topk_indices, INTS(0, -1, -2, 15, 4, 4));
    REFUSED(sparse, "topk_indices[2][1] = 16 is neither -1 nor a slot of total_kv = 16", topk_indices, INTS(0, -1, -1, 15, 4, 16));
}

Test(problem, fields_of_other_modes) {
    REFUSED(contiguous, "paging = 4 is no paging", paging, (mla_paging)4);
    REFUSED(contiguous, "page_size is set, but belongs to MLA_PAGED only", page_size, 1);
    REFUSED(listed, "block_table is set, but belongs to MLA_PAGED only", block_table, block_table);
    REFUSED(sparse, "block_table_stride is set, but belongs to MLA_PAGED only", block_table_stride, 3);
    REFUSED(paged, "kv_indices is set, but belongs to MLA_TOKEN_LIST only", kv_indices, token_list);
    REFUSED(paged, "topk is set, but belongs to MLA_SPARSE only", topk, 2);
    REFUSED(listed, "topk_indices is set, but belongs to MLA_SPARSE only", topk_indices, topk_indices);
}

Test(problem, sparse_lists_say_what_is_visible) {
    REFUSED(sparse, "causal = 1 with sparse paging: topk_indices already say what is visible", causal, true);
    REFUSED(sparse, "window = 4 with sparse paging: topk_indices already say what is visible", window, 4);
}

Test(problem, scores) {
    REFUSED(contiguous, "sm_scale = nan is not finite", sm_scale, NAN);
    REFUSED(contiguous, "sm_scale = -inf is not finite", sm_scale, -INFINITY);
    REFUSED(contiguous, "softcap = -1 is not finite and >= 0", softcap, -1);
    REFUSED(contiguous, "softcap = nan is not finite and >= 0", softcap, NAN);
    REFUSED(contiguous, "window = -1 is less than 0", window, -1);
    REFUSED(contiguous, "sink[1] = nan is not finite", sink, (const float[]){0, NAN});
    REFUSED(contiguous, "sink[0] = inf is not finite", sink, (const float[]){INFINITY, 0});
}

Test(problem, output_and_split) {
    REFUSED(contiguous, "lse_base = 2 is neither MLA_LSE_E nor MLA_LSE_2", lse_base, (mla_lse_base)2);
    REFUSED(contiguous, "out_format = 3 is not one of bf16, fp16, fp32", out_format, MLA_FP8);
    REFUSED(contiguous, "split_policy = 4 is no policy", split_policy, (mla_split_policy)4);
    REFUSED(contiguous, "split_arg is set, but belongs to the policies fixed and size only", split_arg, 8);
    REFUSED(contiguous, "split_arg = 0 is less than 1", split_policy, MLA_SPLIT_FIXED);
    REFUSED(contiguous, "split_arg = 0 is less than 1", split_policy, MLA_SPLIT_SIZE);
}

/* ---- what a query token sees ---- */

Test(problem, sequence_of_a_query_token) {
    mla_problem problem = contiguous();
    const int32_t expected[] = {-1, 0, 2, 2, -1};
    for (int i = 0; i < 5; i++)
        cr_assert_eq(mla_sequence_of(&problem, i - 1), expected[i], "token %d", i - 1);

    problem.batch = 6;
    problem.qo_indptr = INTS(0, 0, 0, 1, 1, 1, 1);
    cr_assert_eq(mla_sequence_of(&problem, 0), 2, "empty ones before and behind");
    cr_assert_eq(mla_sequence_of(&problem, 1), -1);
}

Test(problem, sequence_of_equals_a_linear_search) {
    int32_t indptr[65] = {0};
    for (int b = 0; b < 64; b++)
        indptr[b + 1] = indptr[b] + (b * 7 + 3) % 4;
    for (int32_t batch = 1; batch <= 64; batch++) {
        const mla_problem problem = {.batch = batch, .qo_indptr = indptr};
        for (int32_t b = 0; b < batch; b++)
            for (int32_t t = indptr[b]; t < indptr[b + 1]; t++)
                cr_assert_eq(mla_sequence_of(&problem, t), b);
        cr_assert_eq(mla_sequence_of(&problem, indptr[batch]), -1);
    }
}

Test(problem, lengths) {
    mla_problem problem = contiguous();
    cr_assert_eq(mla_q_len(&problem, 1), 0);
    cr_assert_eq(mla_q_len(&problem, 2), 2);
    cr_assert_eq(mla_kv_len(&problem, 0), 5);
    cr_assert_eq(mla_kv_len(&problem, 2), 7);
    problem = sparse();
    cr_assert_eq(mla_kv_len(&problem, 2), 2);
}

static void sees(int32_t q_len, int32_t kv_len, bool causal, int32_t window, int32_t t, int64_t begin, int64_t end) {
    /* behind another sequence, so that global and local query tokens differ */
    const mla_problem problem = {
        .batch = 2, .qo_indptr = INTS(0, 3, 3 + q_len), .kv_indptr = INTS(0, 4, 4 + kv_len), .causal = causal, .window = window};
    const mla_range range = mla_visible(&problem, 1, 3 + t);
    cr_assert(range.begin == begin && range.end == end, "n %d N %d causal %d window %d t %d: got %d .. %d", q_len, kv_len, causal, window,
              t, (int)range.begin, (int)range.end);
}

Test(problem, visible_ranges_by_hand) {
    sees(1, 10, false, 0, 0, 0, 10);
    sees(2, 10, false, 0, 0, 0, 10);
    sees(2, 10, true, 0, 0, 0, 9);
    sees(2, 10, true, 0, 1, 0, 10);
    sees(1, 0, false, 0, 0, 0, 0);
    /* more queries than keys: the first have none */
    sees(5, 2, true, 0, 2, 0, 0);
    sees(5, 2, true, 0, 3, 0, 1);
    sees(5, 2, true, 0, 4, 0, 2);
    /* a window of 3 ends at the token itself, position N - n + t */
    sees(2, 10, true, 3, 0, 6, 9);
    sees(2, 10, true, 3, 1, 7, 10);
    sees(2, 10, false, 3, 0, 6, 10);
    sees(2, 10, true, 1, 1, 9, 10);
    sees(1, 2, true, 3, 0, 0, 2);
    sees(5, 2, true, 1, 0, 0, 0);
    sees(5, 2, false, 1, 0, 0, 2);
    sees(2, 10, true, INT32_MAX, 0, 0, 9);
}

Test(problem, visible_range_of_sparse_and_padding) {
    const mla_problem problem = sparse();
    mla_range range = mla_visible(&problem, 2, 1);
    cr_assert(range.begin == 0 && range.end == 2);
    range = mla_visible(&problem, -1, 3);
    cr_assert(range.begin == range.end);
}

Test(problem, slots) {
    mla_problem problem = contiguous();
    cr_assert_eq(mla_kv_slot(&problem, 2, 1, 3), 8);
    problem = paged();
    cr_assert_eq(mla_kv_slot(&problem, 0, 0, 0), 12);
    cr_assert_eq(mla_kv_slot(&problem, 0, 0, 4), 0);
    cr_assert_eq(mla_kv_slot(&problem, 2, 1, 6), 10);
    problem = listed();
    cr_assert_eq(mla_kv_slot(&problem, 0, 0, 0), 15);
    cr_assert_eq(mla_kv_slot(&problem, 2, 1, 1), 4);
    problem = sparse();
    cr_assert_eq(mla_kv_slot(&problem, 2, 1, 0), -1);
    cr_assert_eq(mla_kv_slot(&problem, 2, 1, 1), 15);
}

Test(problem, slots_beyond_32_bits) {
    const mla_problem problem = {
        .paging = MLA_PAGED, .page_size = 1 << 16, .block_table = INTS(1 << 20), .block_table_stride = 1, .kv_indptr = INTS(0, 1 << 16)};
    cr_assert_eq(mla_kv_slot(&problem, 0, 0, 5), (INT64_C(1) << 36) + 5);
}
