/* Small random problems for tests: everything a sequence does not own holds NaN codes or garbage. */
#ifndef SUPPORT_PROBLEM_H
#define SUPPORT_PROBLEM_H

#include "../ref/mla.h"

#define TEST_MAX_BATCH 8

/* What a test says; zeros are sensible, but for heads and the lengths. */
typedef struct test_shape {
    int32_t batch, heads; /* batch 0: 1 */
    int32_t q_len[TEST_MAX_BATCH], kv_len[TEST_MAX_BATCH];
    int32_t padding; /* query tokens after the last sequence */
    mla_format q_format;
    mla_kv_format kv_format;
    mla_paging paging;
    int32_t page_size, topk;
    bool causal;
    int32_t window;
    float softcap, sm_scale; /* sm_scale 0: 1 / 24 */
    bool sink;
    float sink_shift;
    float q_std, kv_std; /* 0: 1 */
    float v_mean;        /* added to the first 512 entries */
    mla_lse_base lse_base;
    bool lse_empty_positive;
    mla_format out_format;
    uint64_t seed;
} test_shape;

/* Owns its arrays. The mutable pointers are those of `problem`. */
typedef struct test_problem {
    mla_problem problem;
    void *q;
    uint8_t *kv, *kv_block_scales;
    int32_t *qo_indptr, *kv_indptr, *block_table, *kv_indices, *topk_indices;
    float *sink;
} test_problem;

/* Fails the running test when the problem is malformed or memory is short. */
test_problem test_problem_make(const test_shape *shape);
void test_problem_free(test_problem *made);
/* Overwrites one slot with 576 floats, quantised to the problem's format. */
void test_problem_set_slot(test_problem *made, int64_t slot, const float *row);

/*
 * One row by formulas that another language can repeat, exact in bf16, with sm_scale 1/24 and bf16 out.
 *   patterned  q_d = (7 d mod 5 - 2) / 2, k_jd = ((3 d + 5 j + j floor(d / 64)) mod 7 - 3) / 4: scores repeat
 *   hashed     q_d = (hash(7 d + 1) - 127.5) / 128, k_jd = (hash(d + 577 j + 5) - 127.5) / 64: scores do not
 *              hash(n) = floor((2654435761 n mod 2^32) / 2^16) mod 256
 */
test_problem test_problem_patterned(int32_t keys);
test_problem test_problem_hashed(int32_t keys);

/* Filled with NaN; free both with test_output_free. */
mla_output test_output_make(const mla_problem *problem);
void test_output_free(mla_output *output);
/* Element c of row r. */
double test_output_element(const mla_problem *problem, const mla_output *output, int64_t row, int c);

/* Standard normal, by the state alone. */
float test_normal(uint64_t *state);
uint64_t test_random(uint64_t *state);

#endif
