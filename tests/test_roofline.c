/* Bytes, flop, floors and quantiles, worked out by hand. */
#include "../verify/roofline.h"
#include "support_problem.h"

#include <criterion/criterion.h>

#define FLOPS (2 * (576 + 512)) /* a key, query token and head */

static mla_work work_of(const test_shape *shape) {
    test_problem made = test_problem_make(shape);
    mla_work work = {0};
    cr_assert_eq(mla_work_count(&made.problem, &work).code, MLA_OK);
    test_problem_free(&made);
    return work;
}

static void expect_work(const test_shape *shape, int64_t keys, int64_t key_bytes, int64_t q_and_out_bytes, int64_t pairs) {
    const mla_work work = work_of(shape);
    cr_expect_eq(work.bytes, keys * key_bytes + q_and_out_bytes, "%lld bytes", (long long)work.bytes);
    cr_expect_eq(work.flops, pairs * FLOPS, "%lld flop", (long long)work.flops);
}

Test(roofline, a_ragged_batch) {
    expect_work(&(test_shape){.batch = 3, .heads = 2, .q_len = {1, 1, 1}, .kv_len = {3, 0, 5}}, 8, 1152, 6 * (1152 + 1024), 2 * 8);
}

Test(roofline, query_tokens_share_keys) {
    expect_work(&(test_shape){.heads = 2, .q_len = {3}, .kv_len = {5}}, 5, 1152, 6 * 2176, 2 * 15);
    /* causal: they see 3, 4 and 5 keys */
    expect_work(&(test_shape){.heads = 2, .q_len = {3}, .kv_len = {5}, .causal = true}, 5, 1152, 6 * 2176, 2 * 12);
    /* causal, the first two see none */
    expect_work(&(test_shape){.heads = 1, .q_len = {3}, .kv_len = {1}, .causal = true}, 1, 1152, 3 * 2176, 1);
}

Test(roofline, a_window_hides_keys) {
    /* tokens 0 and 1 see keys 5 .. 8 and 6 .. 9 */
    expect_work(&(test_shape){.heads = 1, .q_len = {2}, .kv_len = {10}, .causal = true, .window = 4}, 5, 1152, 2 * 2176, 8);
}

Test(roofline, keys_as_they_are_stored) {
    static const struct {
        mla_kv_format format;
        int64_t bytes;
    } formats[] = {{MLA_KV_BF16, 1152},   {MLA_KV_FP16, 1152},   {MLA_KV_FP8, 576},
                   {MLA_KV_FP8FNUZ, 576}, {MLA_KV_FP8B656, 656}, {MLA_KV_MXFP4, 306}};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        expect_work(&(test_shape){.heads = 1, .q_len = {1}, .kv_len = {7}, .kv_format = formats[i].format}, 7, formats[i].bytes, 2176, 7);
}

Test(roofline, q_and_out_by_format) {
    expect_work(&(test_shape){.heads = 3, .q_len = {1}, .kv_len = {2}, .q_format = MLA_FP8, .out_format = MLA_FP32}, 2, 1152,
                3 * (576 + 2048), 3 * 2);
}

Test(roofline, padding_is_written_and_not_read) {
    expect_work(&(test_shape){.heads = 2, .q_len = {1}, .kv_len = {4}, .padding = 3}, 4, 1152, 2 * 1152 + 8 * 1024, 2 * 4);
}

Test(roofline, paging_changes_nothing) {
    expect_work(&(test_shape){.heads = 2, .q_len = {1}, .kv_len = {9}, .paging = MLA_PAGED, .page_size = 4}, 9, 1152, 2 * 2176, 18);
    expect_work(&(test_shape){.heads = 2, .q_len = {1}, .kv_len = {9}, .paging = MLA_TOKEN_LIST}, 9, 1152, 2 * 2176, 18);
}

Test(roofline, sparse_lists_are_united) {
    test_problem made = test_problem_make(&(test_shape){.heads = 2, .q_len = {2}, .kv_len = {9}, .paging = MLA_SPARSE, .topk = 4});
    const int32_t lists[8] = {5, -1, 0, 7, -1, 7, 5, -1};
    for (int i = 0; i < 8; i++)
        made.topk_indices[i] = lists[i];
    mla_work work = {0};
    cr_assert_eq(mla_work_count(&made.problem, &work).code, MLA_OK);
    cr_expect_eq(work.bytes, 3 * 1152 + 4 * 2176); /* slots 0, 5 and 7 */
    cr_expect_eq(work.flops, 2 * 5 * FLOPS);
    test_problem_free(&made);
}

Test(roofline, the_slower_of_the_two_is_the_floor) {
    const mla_work work = {.bytes = 3000, .flops = 8000};
    mla_floor by_bytes = mla_floor_of(&work, &(mla_ceiling){.bandwidth = 1000, .matrix_rate = 4000});
    cr_expect_eq(by_bytes.seconds, 3);
    cr_expect(!by_bytes.by_flops);
    mla_floor by_flops = mla_floor_of(&work, &(mla_ceiling){.bandwidth = 1000, .matrix_rate = 2000});
    cr_expect_eq(by_flops.seconds, 4);
    cr_expect(by_flops.by_flops);
}

Test(roofline, without_a_matrix_rate_bytes_decide) {
    const mla_floor floor = mla_floor_of(&(mla_work){.bytes = 3000, .flops = INT64_MAX}, &(mla_ceiling){.bandwidth = 1000});
    cr_expect_eq(floor.seconds, 3);
    cr_expect(!floor.by_flops);
}

Test(roofline, quantiles) {
    double seconds[] = {4, 1, 3, 2, 11};
    const mla_timing five = mla_timing_of(seconds, 5);
    cr_expect_eq(five.launches, 5);
    cr_expect_eq(five.min, 1);
    cr_expect_eq(five.median, 3);
    cr_expect_float_eq(five.p10, 1.4, 1e-12); /* at 0.4 of the way from 1 to 2 */
    cr_expect_float_eq(five.p90, 8.2, 1e-12); /* at 0.6 of the way from 4 to 11 */
    const mla_timing four = mla_timing_of(seconds, 4);
    cr_expect_eq(four.median, 2.5);
    const mla_timing one = mla_timing_of(&(double){7}, 1);
    cr_expect(one.min == 7 && one.p10 == 7 && one.median == 7 && one.p90 == 7);
    cr_expect_eq(mla_timing_of(seconds, 0).launches, 0);
}
