/*
 * What holds of attention whatever the numbers are: each property relates two runs of one kernel, or a run and the definition. Bounds are the
 * oracle's, but the truth a result is held against is that of the *other* problem.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support_launch.h"

static const char *const kernels[] = {"reference", "splitk@host:cdna3", "splitk@host:mma"};

#define PROPERTY(name)                                                                                                                     \
    ParameterizedTestParameters(properties, name) {                                                                                        \
        static int indices[] = {0, 1, 2};                                                                                                  \
        return cr_make_param_array(int, indices, sizeof kernels / sizeof *kernels);                                                        \
    }                                                                                                                                      \
    static void check_##name(const mla_kernel *kernel);                                                                                    \
    ParameterizedTest(int *index, properties, name) {                                                                                      \
        mla_kernel_handle handle = test_kernel_open(kernels[*index]);                                                                      \
        check_##name(handle.kernel);                                                                                                       \
        mla_kernel_close(&handle);                                                                                                         \
    }                                                                                                                                      \
    static void check_##name(const mla_kernel *kernel)

/* ---- helpers ---- */

static bool same_bits(const mla_problem *problem, const mla_output *a, const mla_output *b) {
    const size_t rows = (size_t)problem->total_q * (size_t)problem->heads, row = MLA_HEAD_DIM_V * mla_format_bytes(problem->out_format);
    return memcmp(a->out, b->out, rows * row) == 0 && memcmp(a->lse, b->lse, rows * sizeof(float)) == 0;
}

/* The kernel's error on `problem`, against a truth that ought to be the same. */
static double error_against(const mla_kernel *kernel, const mla_problem *problem, const mla_truth *truth) {
    mla_output output = test_launch(kernel, problem);
    const double worst = test_worst_error(problem, &output, truth);
    test_output_free(&output);
    return worst;
}

static mla_truth truth_for(const mla_kernel *kernel, const mla_problem *problem) {
    const mla_contract contract = mla_kernel_contract(kernel, problem);
    return test_truth(problem, &contract);
}

static void swap_slots(test_problem *made, int32_t a, int32_t b) {
    const size_t bytes = mla_kv_format_get(made->problem.kv_format)->token_bytes;
    uint8_t kept[1152];
    memcpy(kept, made->kv + (size_t)a * bytes, bytes);
    memmove(made->kv + (size_t)a * bytes, made->kv + (size_t)b * bytes, bytes);
    memcpy(made->kv + (size_t)b * bytes, kept, bytes);
}

/* ---- where tokens lie, and in which order ---- */

PROPERTY(slots_may_move_with_their_table) {
    const test_shape shape = {.heads = 3, .q_len = {2}, .kv_len = {90}, .paging = MLA_TOKEN_LIST, .causal = true, .seed = 1};
    test_problem made = test_problem_make(&shape);
    mla_output before = test_launch(kernel, &made.problem);
    for (int32_t i = 0; i < 90; i += 2) {
        const int32_t slot = made.kv_indices[i];
        swap_slots(&made, slot, made.kv_indices[89 - i]);
        made.kv_indices[i] = made.kv_indices[89 - i];
        made.kv_indices[89 - i] = slot;
    }
    mla_output after = test_launch(kernel, &made.problem);
    cr_expect(same_bits(&made.problem, &before, &after));
    test_output_free(&before);
    test_output_free(&after);
    test_problem_free(&made);
}

PROPERTY(tokens_may_come_in_any_order) {
    const test_shape shape = {.heads = 3, .q_len = {2}, .kv_len = {90}, .paging = MLA_TOKEN_LIST, .seed = 2};
    test_problem made = test_problem_make(&shape);
    mla_truth truth = truth_for(kernel, &made.problem);
    for (int32_t i = 0; i < 45; i++) {
        const int32_t slot = made.kv_indices[i];
        made.kv_indices[i] = made.kv_indices[89 - i];
        made.kv_indices[89 - i] = slot;
    }
    cr_expect_leq(error_against(kernel, &made.problem, &truth), 1);
    mla_truth_free(&truth);
    test_problem_free(&made);
}

/* Every token three times: weights share, lse grows by ln 3. */
PROPERTY(copies_of_all_tokens_change_lse_alone) {
    const test_shape shape = {.heads = 3, .q_len = {1}, .kv_len = {50}, .paging = MLA_TOKEN_LIST, .lse_base = MLA_LSE_2, .seed = 3};
    test_problem made = test_problem_make(&shape);
    mla_truth once = truth_for(kernel, &made.problem);
    int32_t list[150], indptr[2] = {0, 150};
    for (int i = 0; i < 150; i++)
        list[i] = made.kv_indices[i % 50];
    mla_problem thrice = made.problem;
    thrice.kv_indices = list;
    thrice.kv_indptr = indptr;
    mla_truth truth = truth_for(kernel, &thrice);
    for (int64_t r = 0; r < once.rows; r++) {
        cr_expect(fabs(truth.lse[r] - once.lse[r] - log(3)) < 1e-13);
        truth.lse[r] = once.lse[r] + log(3);
    }
    for (int64_t i = 0; i < once.rows * MLA_HEAD_DIM_V; i++) {
        cr_expect(fabs(truth.out[i] - once.out[i]) < 1e-14);
        truth.out[i] = once.out[i];
    }
    cr_expect_leq(error_against(kernel, &thrice, &truth), 1);
    mla_truth_free(&once);
    mla_truth_free(&truth);
    test_problem_free(&made);
}

/* ---- splitting and merging ---- */

/* Results of the kernel over contiguous tokens [begin, end) of a problem of one sequence. */
static mla_output attend_part(const mla_kernel *kernel, const mla_problem *whole, int32_t begin, int32_t end) {
    const int32_t indptr[2] = {0, end - begin};
    mla_problem part = *whole;
    part.kv = (const uint8_t *)part.kv + (size_t)begin * mla_kv_format_get(part.kv_format)->token_bytes;
    part.total_kv -= begin;
    part.kv_indptr = indptr;
    return test_launch(kernel, &part);
}

static void check_cut(const mla_kernel *kernel, const mla_problem *whole, const mla_truth *truth, int32_t cut) {
    const int32_t n = whole->kv_indptr[1];
    mla_output first = attend_part(kernel, whole, 0, cut), second = attend_part(kernel, whole, cut, n);
    mla_merge(truth->rows, first.out, first.lse, second.out, second.lse, whole->lse_base, whole->lse_empty_positive);
    const double worst = test_worst_error(whole, &first, truth);
    cr_expect_leq(worst, 1, "%s cut at %d of %d: %g of the bound", kernel->name, cut, n, worst);
    test_output_free(&first);
    test_output_free(&second);
}

/* What merges two parts of a kernel: their normalised outputs by their lse. */
static mla_contract merged_contract(const mla_kernel *kernel, const mla_problem *problem) {
    mla_contract contract = mla_kernel_contract(kernel, problem);
    contract.combine_lse = true;
    contract.max_splits *= 2;
    return contract;
}

PROPERTY(keys_may_be_split_anywhere_and_merged) {
    for (int convention = 0; convention < 4; convention++) {
        const test_shape shape = {.heads = 3,
                                  .q_len = {1},
                                  .kv_len = {130},
                                  .lse_base = convention % 2 == 0 ? MLA_LSE_E : MLA_LSE_2,
                                  .lse_empty_positive = convention >= 2,
                                  .out_format = MLA_FP32,
                                  .q_std = 3,
                                  .seed = 4};
        const int32_t cuts[] = {0, 1, 63, 64, 65, 100, 129, 130};
        test_problem made = test_problem_make(&shape);
        const mla_contract contract = merged_contract(kernel, &made.problem);
        mla_truth truth = test_truth(&made.problem, &contract);
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
            check_cut(kernel, &made.problem, &truth, cuts[i]);
        mla_truth_free(&truth);
        test_problem_free(&made);
    }
}

/* Two parts without keys make a whole without keys. */
PROPERTY(nothing_merged_with_nothing_is_nothing) {
    for (int positive = 0; positive < 2; positive++) {
        const test_shape shape = {
            .heads = 2, .q_len = {1}, .kv_len = {0}, .out_format = MLA_FP32, .lse_empty_positive = positive != 0, .seed = 5};
        test_problem made = test_problem_make(&shape);
        mla_truth truth = truth_for(kernel, &made.problem);
        check_cut(kernel, &made.problem, &truth, 0);
        mla_truth_free(&truth);
        test_problem_free(&made);
    }
}

/* ---- scores ---- */

/* sm_scale 1/16: a RoPE column of ones in the keys and 32 in the queries adds 2 to every score. */
PROPERTY(a_constant_on_all_scores_changes_lse_alone) {
    const test_shape shape = {.heads = 3, .q_len = {1}, .kv_len = {80}, .sm_scale = 0x1p-4f, .seed = 6};
    test_problem made = test_problem_make(&shape);
    uint16_t *keys = (uint16_t *)made.kv, *q = made.q;
    for (int j = 0; j < 80; j++)
        keys[j * MLA_HEAD_DIM + 575] = 0x3F80;
    for (int h = 0; h < 3; h++)
        q[h * MLA_HEAD_DIM + 575] = 0;
    mla_truth plain = truth_for(kernel, &made.problem);
    for (int h = 0; h < 3; h++)
        q[h * MLA_HEAD_DIM + 575] = 0x4200;
    mla_truth truth = truth_for(kernel, &made.problem);
    for (int64_t r = 0; r < truth.rows; r++) {
        cr_expect(fabs(truth.lse[r] - plain.lse[r] - 2) < 1e-13);
        truth.lse[r] = plain.lse[r] + 2;
    }
    memcpy(truth.out, plain.out, (size_t)truth.rows * MLA_HEAD_DIM_V * sizeof(double));
    cr_expect_leq(error_against(kernel, &made.problem, &truth), 1);
    mla_truth_free(&plain);
    mla_truth_free(&truth);
    test_problem_free(&made);
}

PROPERTY(twice_q_at_half_the_scale_is_the_same_bits) {
    const test_shape shape = {.heads = 3, .q_len = {2}, .kv_len = {70}, .causal = true, .softcap = 5, .sink = true, .seed = 7};
    test_problem made = test_problem_make(&shape);
    uint16_t *q = made.q;
    mla_output once = test_launch(kernel, &made.problem);
    for (int64_t i = 0; i < made.problem.total_q * 3 * MLA_HEAD_DIM; i++)
        q[i] = (uint16_t)mla_encode(MLA_BF16, 2 * mla_decode(MLA_BF16, q[i]), MLA_RNE);
    made.problem.sm_scale /= 2;
    mla_output twice = test_launch(kernel, &made.problem);
    cr_expect(same_bits(&made.problem, &once, &twice));
    test_output_free(&once);
    test_output_free(&twice);
    test_problem_free(&made);
}

/* ---- values ---- */

/* The latent part of token j is the j-th unit vector: O_j is its weight, known from q_j and the RoPE part alone. */
PROPERTY(one_hot_values_give_the_weights) {
    enum { KEYS = 40 };
    const test_shape shape = {.heads = 2, .q_len = {1}, .kv_len = {KEYS}, .out_format = MLA_FP32, .seed = 8};
    test_problem made = test_problem_make(&shape);
    double q[MLA_HEAD_DIM], k[MLA_HEAD_DIM];
    for (int64_t j = 0; j < KEYS; j++) {
        float row[MLA_HEAD_DIM] = {0};
        mla_kv_row_f64(&made.problem, j, k);
        row[j] = 1;
        for (int d = MLA_HEAD_DIM_V; d < MLA_HEAD_DIM; d++)
            row[d] = (float)k[d];
        test_problem_set_slot(&made, j, row);
    }
    mla_output output = test_launch(kernel, &made.problem);
    for (int32_t h = 0; h < 2; h++) {
        double weights[KEYS], total = 0;
        mla_q_row_f64(&made.problem, 0, h, q);
        for (int64_t j = 0; j < KEYS; j++) {
            double dot = q[j];
            mla_kv_row_f64(&made.problem, j, k);
            for (int d = MLA_HEAD_DIM_V; d < MLA_HEAD_DIM; d++)
                dot += q[d] * k[d];
            total += weights[j] = exp((double)made.problem.sm_scale * dot);
        }
        for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
            const double exact = c < KEYS ? weights[c] / total : 0, got = test_output_element(&made.problem, &output, h, c);
            cr_expect(fabs(got - exact) <= (0x1p-8 + 1e-5) * exact, "%s: column %d holds %g instead of %g", kernel->name, c, got, exact);
        }
        cr_expect(fabs((double)output.lse[h] - log(total)) < 1e-5);
    }
    test_output_free(&output);
    test_problem_free(&made);
}

/* A cache of bf16 that holds what a quantised one stands for. Scales are powers of two, so every value is a bf16 number. */
static test_problem dequantised(const test_shape *shape, const test_problem *quantised) {
    test_shape plain = *shape;
    plain.kv_format = MLA_KV_BF16;
    test_problem made = test_problem_make(&plain);
    for (int64_t slot = 0; slot < shape->kv_len[0]; slot++) {
        float row[MLA_HEAD_DIM];
        mla_kv_row_f32(&quantised->problem, slot, row);
        test_problem_set_slot(&made, slot, row);
    }
    memcpy(made.q, quantised->q, (size_t)made.problem.total_q * (size_t)made.problem.heads * MLA_HEAD_DIM * 2);
    return made;
}

PROPERTY(a_quantised_cache_is_what_it_stands_for) {
    const mla_kv_format formats[] = {MLA_KV_FP8, MLA_KV_FP8FNUZ, MLA_KV_FP8B656, MLA_KV_MXFP4};
    for (int f = 0; f < 4; f++) {
        const test_shape shape = {.heads = 3, .q_len = {2}, .kv_len = {100}, .kv_format = formats[f], .causal = true, .seed = 9};
        test_problem quantised = test_problem_make(&shape);
        if (mla_kv_format_get(formats[f])->has_tensor_scale)
            quantised.problem.kv_scale = 0x1p-6f;
        test_problem plain = dequantised(&shape, &quantised);
        mla_truth truth = truth_for(kernel, &quantised.problem), other = truth_for(kernel, &plain.problem);
        const size_t elements = (size_t)truth.rows * MLA_HEAD_DIM_V * sizeof(double);
        cr_expect(memcmp(truth.out, other.out, elements) == 0 && memcmp(truth.lse, other.lse, (size_t)truth.rows * sizeof(double)) == 0);
        mla_output a = test_launch(kernel, &quantised.problem), b = test_launch(kernel, &plain.problem);
        cr_expect(same_bits(&plain.problem, &a, &b), "%s on %s", kernel->name, mla_kv_format_get(formats[f])->name);
        cr_expect_leq(test_worst_error(&plain.problem, &a, &truth), 1);
        test_output_free(&a);
        test_output_free(&b);
        mla_truth_free(&truth);
        mla_truth_free(&other);
        test_problem_free(&quantised);
        test_problem_free(&plain);
    }
}
