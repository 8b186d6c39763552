#include "support_problem.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* SplitMix64 (Steele, Lea, Flood 2014). */
uint64_t test_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static double uniform(uint64_t *state) {
    return ((double)(test_random(state) >> 11) + 0.5) * 0x1p-53;
}

float test_normal(uint64_t *state) {
    const double radius = sqrt(-2 * log(uniform(state)));
    return (float)(radius * cos(6.283185307179586 * uniform(state)));
}

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes > 0 ? bytes : 1);
    cr_assert_not_null(memory);
    return memory;
}

static int32_t *make_indptr(const int32_t *lengths, int32_t batch) {
    int32_t *indptr = allocate(((size_t)batch + 1) * sizeof *indptr);
    indptr[0] = 0;
    for (int32_t b = 0; b < batch; b++)
        indptr[b + 1] = indptr[b] + lengths[b];
    return indptr;
}

/* 0 .. count in a random order. */
static int32_t *make_permutation(int32_t count, uint64_t *state) {
    int32_t *order = allocate((size_t)count * sizeof *order);
    for (int32_t i = 0; i < count; i++) {
        const int32_t j = (int32_t)(test_random(state) % (uint64_t)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    return order;
}

static void make_block_table(test_problem *made, const test_shape *shape, uint64_t *state) {
    mla_problem *problem = &made->problem;
    int32_t pages = 0, longest = 0;
    for (int32_t b = 0; b < problem->batch; b++) {
        const int32_t used = (shape->kv_len[b] + shape->page_size - 1) / shape->page_size;
        pages += used;
        longest = used > longest ? used : longest;
    }
    problem->page_size = shape->page_size;
    problem->total_kv = (int64_t)(pages + 2) * shape->page_size;
    problem->block_table_stride = longest + 2;
    int32_t *order = make_permutation(pages + 2, state), next = 0;
    made->block_table = allocate((size_t)(problem->batch * problem->block_table_stride) * sizeof(int32_t));
    for (int32_t b = 0; b < problem->batch; b++)
        for (int64_t i = 0; i < problem->block_table_stride; i++) {
            const bool used = i * shape->page_size < shape->kv_len[b];
            made->block_table[b * problem->block_table_stride + i] = used ? order[next++] : INT32_MAX - 7;
        }
    problem->block_table = made->block_table;
    free(order);
}

static void make_topk(test_problem *made, const test_shape *shape, uint64_t *state) {
    mla_problem *problem = &made->problem;
    problem->topk = shape->topk;
    made->topk_indices = allocate((size_t)(problem->total_q * shape->topk) * sizeof(int32_t));
    for (int64_t i = 0; i < problem->total_q * shape->topk; i++) {
        const bool absent = i < shape->topk / 2 || test_random(state) % 3 == 0;
        made->topk_indices[i] = absent ? -1 : (int32_t)(test_random(state) % (uint64_t)shape->kv_len[0]);
    }
    problem->topk_indices = made->topk_indices;
}

static void make_tables(test_problem *made, const test_shape *shape, uint64_t *state) {
    mla_problem *problem = &made->problem;
    const int32_t tokens = made->kv_indptr[problem->batch];
    problem->total_kv = tokens + 3;
    if (shape->paging == MLA_PAGED)
        make_block_table(made, shape, state);
    if (shape->paging == MLA_TOKEN_LIST)
        problem->kv_indices = made->kv_indices = make_permutation(tokens + 3, state);
    if (shape->paging == MLA_SPARSE)
        make_topk(made, shape, state);
}

static void make_sink(test_problem *made, const test_shape *shape, uint64_t *state) {
    made->sink = allocate((size_t)shape->heads * sizeof(float));
    for (int32_t h = 0; h < shape->heads; h++)
        made->sink[h] = test_normal(state) + shape->sink_shift;
    made->problem.sink = made->sink;
}

static void make_q(test_problem *made, const test_shape *shape, uint64_t *state) {
    mla_problem *problem = &made->problem;
    const size_t count = (size_t)problem->total_q * (size_t)problem->heads * MLA_HEAD_DIM;
    float *values = allocate(count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = test_normal(state) * (shape->q_std > 0 ? shape->q_std : 1);
    made->q = allocate(count * mla_format_bytes(shape->q_format));
    if (shape->q_format == MLA_FP8 || shape->q_format == MLA_FP8FNUZ) {
        problem->q_scale = mla_fp8_scale(shape->q_format, 5 * (shape->q_std > 0 ? shape->q_std : 1));
        mla_fp8_quantize(shape->q_format, values, count, problem->q_scale, made->q);
    } else {
        mla_encode_f32(shape->q_format, values, count, made->q);
    }
    problem->q = made->q;
    free(values);
}

void test_problem_set_slot(test_problem *made, int64_t slot, const float *row) {
    const mla_problem *problem = &made->problem;
    uint8_t *token = made->kv + (size_t)slot * mla_kv_format_get(problem->kv_format)->token_bytes;
    switch (problem->kv_format) {
    case MLA_KV_BF16:
        mla_encode_f32(MLA_BF16, row, MLA_HEAD_DIM, token);
        break;
    case MLA_KV_FP16:
        mla_encode_f32(MLA_FP16, row, MLA_HEAD_DIM, token);
        break;
    case MLA_KV_FP8:
    case MLA_KV_FP8FNUZ:
        mla_fp8_quantize(problem->kv_format == MLA_KV_FP8 ? MLA_FP8 : MLA_FP8FNUZ, row, MLA_HEAD_DIM, problem->kv_scale, token);
        break;
    case MLA_KV_FP8B656:
        mla_fp8b656_quantize(row, token);
        break;
    default:
        mla_mxfp4_quantize(row, token, made->kv_block_scales + slot * problem->kv_scale_stride);
    }
}

static void make_cache(test_problem *made, const test_shape *shape) {
    mla_problem *problem = &made->problem;
    const int nan_byte = shape->kv_format == MLA_KV_FP8FNUZ ? 0x80 : 0xFF;
    const size_t bytes = (size_t)problem->total_kv * mla_kv_format_get(shape->kv_format)->token_bytes;
    made->kv = memset(allocate(bytes), nan_byte, bytes);
    problem->kv = made->kv;
    if (shape->kv_format == MLA_KV_FP8 || shape->kv_format == MLA_KV_FP8FNUZ)
        problem->kv_scale =
            mla_fp8_scale(shape->kv_format == MLA_KV_FP8 ? MLA_FP8 : MLA_FP8FNUZ, 5 * (shape->kv_std > 0 ? shape->kv_std : 1));
    if (shape->kv_format == MLA_KV_MXFP4) {
        problem->kv_scale_stride = 20;
        made->kv_block_scales = memset(allocate((size_t)problem->total_kv * 20), 0xFF, (size_t)problem->total_kv * 20);
        problem->kv_block_scales = made->kv_block_scales;
    }
}

/* Every token of every sequence; under sparse paging the slots of sequence 0. */
static void fill_cache(test_problem *made, const test_shape *shape, uint64_t *state) {
    const mla_problem *problem = &made->problem;
    float row[MLA_HEAD_DIM];
    for (int32_t b = 0; b < problem->batch; b++)
        for (int32_t j = 0; j < shape->kv_len[b]; j++) {
            for (int d = 0; d < MLA_HEAD_DIM; d++)
                row[d] = test_normal(state) * (shape->kv_std > 0 ? shape->kv_std : 1) + (d < MLA_HEAD_DIM_V ? shape->v_mean : 0);
            const int64_t slot = shape->paging == MLA_SPARSE ? made->kv_indptr[b] + j : mla_kv_slot(problem, b, 0, j);
            test_problem_set_slot(made, slot, row);
        }
}

test_problem test_problem_make(const test_shape *shape) {
    const int32_t batch = shape->batch > 0 ? shape->batch : 1;
    uint64_t state = shape->seed;
    test_problem made = {.problem = {.batch = batch,
                                     .heads = shape->heads,
                                     .q_format = shape->q_format,
                                     .q_scale = 1,
                                     .kv_format = shape->kv_format,
                                     .kv_scale = 1,
                                     .paging = shape->paging,
                                     .sm_scale = shape->sm_scale != 0 ? shape->sm_scale : 1.0f / 24,
                                     .causal = shape->causal,
                                     .window = shape->window,
                                     .softcap = shape->softcap,
                                     .lse_base = shape->lse_base,
                                     .lse_empty_positive = shape->lse_empty_positive,
                                     .out_format = shape->out_format}};
    mla_problem *problem = &made.problem;
    problem->qo_indptr = made.qo_indptr = make_indptr(shape->q_len, batch);
    problem->kv_indptr = made.kv_indptr = make_indptr(shape->kv_len, batch);
    problem->total_q = made.qo_indptr[batch] + shape->padding;
    make_tables(&made, shape, &state);
    if (shape->sink)
        make_sink(&made, shape, &state);
    make_q(&made, shape, &state);
    make_cache(&made, shape);
    fill_cache(&made, shape, &state);
    const mla_status status = mla_problem_check(problem);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    return made;
}

void test_problem_free(test_problem *made) {
    free(made->q);
    free(made->kv);
    free(made->kv_block_scales);
    free(made->qo_indptr);
    free(made->kv_indptr);
    free(made->block_table);
    free(made->kv_indices);
    free(made->topk_indices);
    free(made->sink);
    *made = (test_problem){0};
}

static test_problem one_row(int32_t keys) {
    const test_shape shape = {.heads = 1, .q_len = {1}, .kv_len = {keys}, .seed = 1};
    return test_problem_make(&shape);
}

test_problem test_problem_patterned(int32_t keys) {
    test_problem made = one_row(keys);
    float row[MLA_HEAD_DIM];
    for (int d = 0; d < MLA_HEAD_DIM; d++)
        row[d] = (float)(d * 7 % 5 - 2) / 2;
    mla_encode_f32(MLA_BF16, row, MLA_HEAD_DIM, made.q);
    for (int j = 0; j < keys; j++) {
        for (int d = 0; d < MLA_HEAD_DIM; d++)
            row[d] = (float)((d * 3 + j * 5 + d / 64 * j) % 7 - 3) / 4;
        test_problem_set_slot(&made, j, row);
    }
    return made;
}

static float hashed(uint32_t n) {
    return (float)(n * 2654435761u >> 16 & 255) - 127.5f;
}

test_problem test_problem_hashed(int32_t keys) {
    test_problem made = one_row(keys);
    float row[MLA_HEAD_DIM];
    for (uint32_t d = 0; d < MLA_HEAD_DIM; d++)
        row[d] = hashed(7 * d + 1) / 128;
    mla_encode_f32(MLA_BF16, row, MLA_HEAD_DIM, made.q);
    for (uint32_t j = 0; j < (uint32_t)keys; j++) {
        for (uint32_t d = 0; d < MLA_HEAD_DIM; d++)
            row[d] = hashed(d + 577 * j + 5) / 64;
        test_problem_set_slot(&made, j, row);
    }
    return made;
}

mla_output test_output_make(const mla_problem *problem) {
    const size_t rows = (size_t)problem->total_q * (size_t)problem->heads;
    const size_t out_bytes = rows * MLA_HEAD_DIM_V * mla_format_bytes(problem->out_format), lse_bytes = rows * sizeof(float);
    return (mla_output){.out = memset(allocate(out_bytes), 0xFF, out_bytes), .lse = memset(allocate(lse_bytes), 0xFF, lse_bytes)};
}

void test_output_free(mla_output *output) {
    free(output->out);
    free(output->lse);
    *output = (mla_output){0};
}

double test_output_element(const mla_problem *problem, const mla_output *output, int64_t row, int c) {
    const size_t bytes = mla_format_bytes(problem->out_format);
    double value;
    mla_decode_f64(problem->out_format, (const char *)output->out + ((size_t)row * MLA_HEAD_DIM_V + (size_t)c) * bytes, 1, &value);
    return value;
}
