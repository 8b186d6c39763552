#include "support_problem.h"
#include "../ref/fast_exp2.h"

#include <criterion/criterion.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

/* ---- exp2 ------------------------------------------------------------------------------------------------------------------------------ */

Test(reference, exp2_keeps_its_declared_error) {
    double worst = 0;
    for (int i = 0; i <= 126 * 20011; i++) {
        const float x = -(float)i / 20011.0f;
        const double truth = exp2((double)x);
        worst = fmax(worst, fabs((double)mla_fast_exp2(x) - truth) / truth);
    }
    cr_assert(worst * 0x1p24 <= 1.75, "%g units", worst * 0x1p24);
    cr_assert_leq(1.75, mla_reference_contract().exp_error);
}

Test(reference, exp2_of_special_values) {
    cr_assert_eq(mla_fast_exp2(0), 1);
    cr_assert_eq(mla_fast_exp2(-1), 0.5f);
    cr_assert_eq(mla_fast_exp2(100), 0x1p100f);
    cr_assert_eq(mla_fast_exp2(-126), 0x1p-126f);
    cr_assert_eq(mla_fast_exp2(-130), 0);
    cr_assert_eq(mla_fast_exp2(-INFINITY), 0);
    cr_assert(isnan(mla_fast_exp2(NAN)));
}

/* ---- within its own bound --------------------------------------------------------------------------------------------------------------- */

static mla_output run_reference(const mla_problem *problem) {
    mla_output output = test_output_make(problem);
    const mla_status status = mla_reference_run(problem, &output);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    return output;
}

static mla_truth truth_of(const mla_problem *problem) {
    const mla_contract contract = mla_reference_contract();
    mla_truth truth;
    const mla_status status = mla_oracle_run(problem, &contract, 0, problem->total_q, &truth);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    return truth;
}

static double row_ratio(const mla_problem *problem, const mla_output *output, const mla_truth *truth, int64_t row) {
    double worst = 0;
    for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
        const int64_t at = row * MLA_HEAD_DIM_V + c;
        const double ratio = fabs(test_output_element(problem, output, row, c) - truth->out[at]) / truth->bound[at];
        if (!(ratio <= worst))
            worst = ratio;
    }
    const double natural = (double)output->lse[row] * (problem->lse_base == MLA_LSE_2 ? log(2) : 1);
    const double ratio = fabs(natural - truth->lse[row]) / truth->lse_bound[row];
    return ratio <= worst ? worst : ratio;
}

static bool row_is_empty(const mla_problem *problem, const mla_output *output, int64_t row) {
    for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
        const double value = test_output_element(problem, output, row, c);
        if (!(value == 0) || signbit(value))
            return false;
    }
    return output->lse[row] == (problem->lse_empty_positive ? INFINITY : -INFINITY);
}

/* Largest |error| / bound; infinity when an empty row is not what it must be. NaN when any result is. */
static double worst_ratio(const mla_problem *problem, const mla_output *output) {
    mla_truth truth = truth_of(problem);
    double worst = 0;
    for (int64_t row = 0; row < truth.rows; row++) {
        double ratio = row_is_empty(problem, output, row) ? 0 : INFINITY;
        if (truth.kind[row] != MLA_ROW_EMPTY)
            ratio = row_ratio(problem, output, &truth, row);
        if (!(ratio <= worst))
            worst = ratio;
    }
    mla_truth_free(&truth);
    return worst;
}

static void expect_within_bound(const char *name, const test_shape *shape) {
    test_problem made = test_problem_make(shape);
    mla_output output = run_reference(&made.problem);
    const double worst = worst_ratio(&made.problem, &output);
    cr_expect(worst <= 1, "%s: %g bounds away", name, worst);
    test_output_free(&output);
    test_problem_free(&made);
}

Test(reference, every_number_of_heads) {
    const int32_t heads[] = {1, 3, 16, 17, 64, 128, 130};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        const test_shape shape = {.batch = 3, .heads = heads[i], .q_len = {1, 2, 1}, .kv_len = {1, 65, 0}, .seed = 10 + i};
        expect_within_bound("heads", &shape);
    }
}

Test(reference, every_format) {
    const mla_format q_formats[] = {MLA_BF16, MLA_FP16, MLA_FP8, MLA_FP8FNUZ};
    for (int kv = 0; kv < MLA_KV_FORMAT_COUNT; kv++) {
        const test_shape shape = {.heads = 4,
                                  .q_len = {2},
                                  .kv_len = {300},
                                  .q_format = q_formats[kv % 4],
                                  .kv_format = (mla_kv_format)kv,
                                  .out_format = (mla_format)(kv % 3),
                                  .lse_base = kv % 2 ? MLA_LSE_2 : MLA_LSE_E,
                                  .seed = 20 + (uint64_t)kv};
        expect_within_bound(mla_kv_format_get(shape.kv_format)->name, &shape);
    }
}

Test(reference, every_paging) {
    test_shape shape = {.batch = 4, .heads = 5, .q_len = {1, 4, 0, 2}, .kv_len = {13, 260, 7, 300}, .padding = 1, .out_format = MLA_FP32};
    for (int paging = MLA_CONTIGUOUS; paging <= MLA_TOKEN_LIST; paging++)
        for (int causal = 0; causal <= 1; causal++) {
            shape.paging = (mla_paging)paging;
            shape.page_size = paging == MLA_PAGED ? 4 : 0;
            shape.causal = causal;
            shape.seed = (uint64_t)(30 + 2 * paging + causal);
            expect_within_bound("paging", &shape);
        }
}

/* More query tokens than partials of a wave, and lists longer than a tile, some of them all absent. */
Test(reference, sparse) {
    const test_shape many = {.heads = 1, .q_len = {300}, .kv_len = {50}, .paging = MLA_SPARSE, .topk = 5, .padding = 2, .seed = 41};
    const test_shape wide = {.heads = 3, .q_len = {2}, .kv_len = {900}, .paging = MLA_SPARSE, .topk = 1500, .sink = true, .seed = 42};
    expect_within_bound("many", &many);
    expect_within_bound("wide", &wide);
}

Test(reference, masks_softcap_and_sink) {
    const test_shape shapes[] = {
        {.heads = 2, .q_len = {9}, .kv_len = {4}, .causal = true, .seed = 51},
        {.heads = 16, .q_len = {20}, .kv_len = {700}, .causal = true, .out_format = MLA_FP32, .seed = 52},
        {.heads = 16, .q_len = {20}, .kv_len = {2100}, .causal = true, .window = 100, .out_format = MLA_FP32, .seed = 53},
        {.heads = 2, .q_len = {3}, .kv_len = {40}, .window = 1, .seed = 54},
        {.heads = 4, .q_len = {1}, .kv_len = {90}, .softcap = 2, .out_format = MLA_FP32, .seed = 55},
        {.heads = 4, .q_len = {1}, .kv_len = {90}, .softcap = 50, .q_std = 5000, .seed = 56},
        {.heads = 4, .q_len = {1}, .kv_len = {90}, .sink = true, .out_format = MLA_FP32, .seed = 57},
        {.heads = 4, .q_len = {1}, .kv_len = {90}, .sink = true, .sink_shift = 40, .out_format = MLA_FP32, .seed = 58},
        {.heads = 4, .q_len = {1}, .kv_len = {90}, .sink = true, .sink_shift = 4000, .out_format = MLA_FP32, .seed = 59},
        {.heads = 4, .q_len = {1}, .kv_len = {90}, .sink = true, .sink_shift = -4000, .lse_empty_positive = true, .seed = 60},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        char name[16];
        snprintf(name, sizeof name, "shape %zu", i);
        expect_within_bound(name, &shapes[i]);
    }
}

Test(reference, magnitudes) {
    const test_shape shapes[] = {
        {.heads = 3, .q_len = {1}, .kv_len = {600}, .q_std = 100, .out_format = MLA_FP32, .seed = 61},
        {.heads = 3, .q_len = {1}, .kv_len = {600}, .q_std = 1e-30f, .out_format = MLA_FP32, .seed = 62},
        {.heads = 3, .q_len = {1}, .kv_len = {600}, .kv_std = 1e-39f, .seed = 63},
        {.heads = 3, .q_len = {1}, .kv_len = {600}, .v_mean = 4, .sm_scale = -0.3f, .out_format = MLA_FP32, .seed = 64},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        char name[16];
        snprintf(name, sizeof name, "shape %zu", i);
        expect_within_bound(name, &shapes[i]);
    }
}

/* Three splits a block. */
Test(reference, long_sequences) {
    const test_shape shape = {.batch = 2, .heads = 3, .q_len = {2, 1}, .kv_len = {5000, 2049}, .out_format = MLA_FP32, .seed = 65};
    expect_within_bound("long", &shape);
}

Test(reference, a_visible_nan_flows) {
    const test_shape shape = {.batch = 2, .heads = 2, .q_len = {1, 1}, .kv_len = {3000, 10}, .seed = 66};
    test_problem made = test_problem_make(&shape);
    memset(made.kv + (size_t)2500 * 1152, 0xFF, 1152);
    mla_output output = run_reference(&made.problem);
    cr_assert(isnan(output.lse[0]) && isnan(test_output_element(&made.problem, &output, 1, 511)));
    cr_assert(isfinite(output.lse[2]) && isfinite(test_output_element(&made.problem, &output, 3, 0)));
    test_output_free(&output);
    test_problem_free(&made);
}

/* ---- properties ------------------------------------------------------------------------------------------------------------------------ */

Test(reference, same_bits_for_any_number_of_threads) {
    const test_shape shape = {
        .batch = 4, .heads = 48, .q_len = {1, 4, 0, 1}, .kv_len = {4500, 300, 5, 0}, .causal = true, .out_format = MLA_FP32, .seed = 71};
    test_problem made = test_problem_make(&shape);
    const size_t rows = (size_t)made.problem.total_q * 48;
    omp_set_num_threads(1);
    mla_output one = run_reference(&made.problem);
    for (int threads = 2; threads <= 7; threads += 5) {
        omp_set_num_threads(threads);
        mla_output many = run_reference(&made.problem);
        cr_assert_eq(omp_get_max_threads(), threads, "OpenMP's setting is put back");
        cr_assert_arr_eq(many.out, one.out, rows * MLA_HEAD_DIM_V * 4, "%d threads", threads);
        cr_assert_arr_eq(many.lse, one.lse, rows * 4);
        test_output_free(&many);
    }
    test_output_free(&one);
    test_problem_free(&made);
}

/* The order of tokens is no part of the function: the result stays within the bound of the original. */
Test(reference, permuting_tokens) {
    const test_shape shape = {.heads = 4, .q_len = {1}, .kv_len = {700}, .paging = MLA_TOKEN_LIST, .out_format = MLA_FP32, .seed = 72};
    test_problem made = test_problem_make(&shape);
    mla_problem reversed = made.problem;
    int32_t indices[700];
    for (int j = 0; j < 700; j++)
        indices[j] = made.kv_indices[699 - j];
    reversed.kv_indices = indices;
    mla_output output = run_reference(&reversed);
    const double worst = worst_ratio(&made.problem, &output);
    cr_assert(worst <= 1, "%g", worst);
    test_output_free(&output);
    test_problem_free(&made);
}

/* Two runs over a sequence's halves, merged, are the run over the whole. */
Test(reference, splitting_and_merging) {
    const test_shape shape = {.heads = 4, .q_len = {1}, .kv_len = {701}, .out_format = MLA_FP32, .lse_base = MLA_LSE_2, .seed = 73};
    test_problem made = test_problem_make(&shape);
    for (int32_t cut = 0; cut <= 701; cut += 233) {
        const int32_t head_indptr[] = {0, cut}, tail_indptr[] = {0, 701 - cut};
        mla_problem head = made.problem, tail = made.problem;
        head.kv_indptr = head_indptr;
        tail.kv_indptr = tail_indptr;
        tail.kv = made.kv + (size_t)cut * 1152;
        tail.total_kv -= cut;
        mla_output first = run_reference(&head), second = run_reference(&tail);
        mla_merge(4, first.out, first.lse, second.out, second.lse, MLA_LSE_2, false);
        const double worst = worst_ratio(&made.problem, &first);
        cr_expect(worst <= 1, "cut %d: %g", cut, worst);
        test_output_free(&first);
        test_output_free(&second);
    }
    test_problem_free(&made);
}

/* The bound means something: one of 2000 equally likely tokens left out exceeds it, in every row. */
Test(reference, a_dropped_token_exceeds_the_bound) {
    const test_shape shape = {.heads = 4, .q_len = {1}, .kv_len = {2000}, .q_std = 1e-3f, .out_format = MLA_FP32, .seed = 74};
    test_problem made = test_problem_make(&shape);
    mla_truth truth = truth_of(&made.problem);
    mla_problem shorter = made.problem;
    const int32_t indptr[] = {0, 1999};
    shorter.kv_indptr = indptr;
    mla_output output = run_reference(&shorter);
    for (int64_t row = 0; row < truth.rows; row++)
        cr_assert(row_ratio(&made.problem, &output, &truth, row) > 3);
    mla_truth_free(&truth);
    test_output_free(&output);
    test_problem_free(&made);
}

Test(reference, refuses_a_malformed_problem_or_missing_output) {
    const test_shape shape = {.heads = 1, .q_len = {1}, .kv_len = {1}, .seed = 75};
    test_problem made = test_problem_make(&shape);
    cr_assert_eq(mla_reference_run(&made.problem, &(mla_output){0}).code, MLA_EINVAL);
    made.problem.page_size = 3;
    mla_output output = test_output_make(&made.problem);
    cr_assert_eq(mla_reference_run(&made.problem, &output).code, MLA_EINVAL);
    test_output_free(&output);
    test_problem_free(&made);
}
