#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../verify/drift_choices.h"
#include "support_problem.h"

#define MOST_ROWS 2
#define TRIALS 200

/* What a kernel leaves unsaid: the order of its sums, and an exp2 that is off by up to one ulp. */
static void hide_habits(mla_model *model) {
    model->qk.k = model->pv.k = 16;
    model->dim_parts = 2;
    model->row_lanes = 4;
    model->lane_run = 2;
    model->exp2_ulp = 1;
}

typedef struct subject {
    test_problem made;
    mla_model declared, truth; /* what the kernel says, and what it does */
    mla_range ranges[4 * MOST_ROWS];
    int64_t first[MOST_ROWS + 1];
    mla_model_splits splits;
    double out[MOST_ROWS * MLA_HEAD_DIM_V], lse[MOST_ROWS];
} subject;

/* `splits` equal ones of a problem of `keys` tokens. */
static void subject_make(subject *s, int32_t heads, int32_t keys, int splits, mla_format out, uint64_t seed) {
    const test_shape shape = {.heads = heads, .q_len = {1}, .kv_len = {keys}, .out_format = out, .seed = seed};
    const mla_contract contract = mla_contract_default();
    s->made = test_problem_make(&shape);
    s->declared = s->truth = mla_model_of_contract(&contract, &s->made.problem);
    hide_habits(&s->truth);
    s->first[0] = 0;
    for (int r = 0; r < heads; r++) {
        for (int i = 0; i < splits; i++)
            s->ranges[r * splits + i] = (mla_range){keys * i / splits, keys * (i + 1) / splits};
        s->first[r + 1] = (r + 1) * splits;
    }
    s->splits = (mla_model_splits){.ranges = s->ranges, .first = s->first};
}

static mla_attribution attribute(subject *s) {
    mla_attribution a;
    const mla_problem *p = &s->made.problem;
    cr_assert_eq(mla_model_run(p, &s->truth, &s->splits, 0, p->heads, s->out, s->lse).code, MLA_OK);
    const mla_observation seen = {p, &s->splits, 0, p->heads, s->out};
    const mla_status status = mla_attribute(&seen, &s->declared, &a);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    return a;
}

/* ---- a kernel that does what it says ---------------------------------------------------------------------------------------------------- */

static double sum_of_shares(const mla_attribution *a) {
    double sum = a->unexplained;
    for (int k = 0; k < MLA_STAGE_COUNT; k++)
        sum += a->share[k];
    return sum;
}

Test(drift_stages, finds_nothing_in_a_kernel_that_does_what_it_says) {
    subject s;
    subject_make(&s, 2, 200, 2, MLA_BF16, 1);
    const mla_attribution a = attribute(&s);
    cr_expect_eq(a.num_changes, 0);
    cr_expect(fabs(sum_of_shares(&a) - 1) < 1e-9);
    cr_expect(a.unexplained < 0.002, "%g", a.unexplained);
    cr_expect(a.share[MLA_STAGE_P] > 0.2 && a.share[MLA_STAGE_OUT] > 0.2, "P %g, output %g", a.share[MLA_STAGE_P], a.share[MLA_STAGE_OUT]);
    cr_expect(a.share_error[MLA_STAGE_P] > 0 && a.share_error[MLA_STAGE_P] < 0.1);
    test_problem_free(&s.made);
}

Test(drift_stages, gives_an_exact_output_no_shares) {
    subject s;
    subject_make(&s, 1, 64, 1, MLA_FP32, 2);
    s.truth = mla_model_exact();
    const mla_attribution a = attribute(&s);
    cr_expect_eq(a.rms, 0);
    cr_expect_eq(a.num_changes, 0);
    test_problem_free(&s.made);
}

Test(drift_stages, leaves_an_error_of_another_kind_unexplained) {
    subject s;
    subject_make(&s, 1, 128, 1, MLA_BF16, 3);
    mla_attribution a;
    uint64_t state = 9;
    cr_assert_eq(mla_model_run(&s.made.problem, &s.truth, &s.splits, 0, 1, s.out, s.lse).code, MLA_OK);
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        s.out[c] += 0.01 * test_normal(&state);
    const mla_observation seen = {&s.made.problem, &s.splits, 0, 1, s.out};
    cr_assert_eq(mla_attribute(&seen, &s.declared, &a).code, MLA_OK);
    cr_expect(a.unexplained > 0.8, "%g", a.unexplained);
    s.out[7] = NAN;
    cr_expect_eq(mla_attribute(&seen, &s.declared, &a).code, MLA_EUNSUPPORTED);
    test_problem_free(&s.made);
}

/* Factors 1.004 and 0.997: 3.5 thousandths in the mean. Those of a right kernel are rounding. */
Test(drift_stages, sees_a_wrong_row_sum) {
    subject s;
    mla_attribution a;
    subject_make(&s, 2, 128, 2, MLA_BF16, 5);
    s.truth.out = MLA_NONE;
    cr_assert_eq(mla_model_run(&s.made.problem, &s.truth, &s.splits, 0, 2, s.out, s.lse).code, MLA_OK);
    for (int i = 0; i < 2 * MLA_HEAD_DIM_V; i++)
        s.out[i] = mla_round(MLA_BF16, MLA_RNE, s.out[i] * (i < MLA_HEAD_DIM_V ? 1.004 : 0.997));
    const mla_observation seen = {&s.made.problem, &s.splits, 0, 2, s.out};
    cr_assert_eq(mla_attribute(&seen, &s.declared, &a).code, MLA_OK);
    cr_expect_eq(a.num_changes, 0);
    cr_expect_float_eq(a.row_factor, sqrt((16e-6 + 9e-6) / 2), 3e-4, "%g", a.row_factor);
    cr_expect_lt(a.left_by_factors, 0.1, "%g", a.left_by_factors);
    test_problem_free(&s.made);
    subject_make(&s, 2, 128, 2, MLA_FP32, 5);
    a = attribute(&s);
    cr_expect_eq(a.row_factor, 0);
    test_problem_free(&s.made);
}

/* ---- planted changes ----------------------------------------------------------------------------------------------------------------------- */

static const mla_choice planted[] = {
    {MLA_STAGE_OPERANDS, {.q_scaled = MLA_BF16, .kv_operands = MLA_NONE}},
    {MLA_STAGE_OPERANDS, {.q_scaled = MLA_FP16, .kv_operands = MLA_NONE}},
    {MLA_STAGE_SCORES, {.scores = MLA_BF16, .score_point = MLA_SCORE_SUM}},
    {MLA_STAGE_SCORES, {.scores = MLA_BF16, .score_point = MLA_SCORE_SCALED}},
    {MLA_STAGE_SCORES, {.scores = MLA_BF16, .score_point = MLA_SCORE_LOG2}},
    {MLA_STAGE_SCORES, {.scores = MLA_FP16, .score_point = MLA_SCORE_SCALED}},
    {MLA_STAGE_P, {.p = MLA_FP32, .p_scale = 1}},
    {MLA_STAGE_P, {.p = MLA_BF16, .p_rounding = MLA_RZ, .p_scale = 1}},
    {MLA_STAGE_P, {.p = MLA_FP16, .p_scale = 1}},
    {MLA_STAGE_P, {.p = MLA_FP8, .p_scale = 256}},
    {MLA_STAGE_ROWSUM, {.rowsum_of_rounded_p = true}},
    {MLA_STAGE_PV, {.pv = {.sum = MLA_BF16, .k = 16}}},
    {MLA_STAGE_PARTIAL, {.partial = MLA_BF16}},
    {MLA_STAGE_PARTIAL, {.partial = MLA_BF16, .combine_lse = true}},
    {MLA_STAGE_OUT, {.out_rounding = MLA_RZ}},
};
#define PLANTED (sizeof planted / sizeof *planted)

/* Splits are needed for partials to matter, and a low output for its rounding to. */
static bool plant(uint64_t seed, char *said, size_t size) {
    subject s;
    uint64_t state = seed;
    const mla_choice *choice = &planted[seed % PLANTED];
    const int splits = choice->stage == MLA_STAGE_PARTIAL ? 2 + (int)(test_random(&state) % 3) : 1 + (int)(test_random(&state) % 4);
    const mla_format out = choice->stage == MLA_STAGE_OUT || test_random(&state) % 2 ? MLA_BF16 : MLA_FP32;
    subject_make(&s, 1, 48 + (int32_t)(test_random(&state) % 80), splits, out, seed);
    mla_stage_copy(choice->stage, &choice->model, &s.truth);
    const mla_attribution a = attribute(&s);
    const bool right = a.num_changes > 0 && a.changes[0].stage == choice->stage;
    char text[96];
    snprintf(said, size, "seed %d, %s %s: %s", (int)seed, mla_stage_name(choice->stage),
             mla_stage_choice(choice->stage, &s.truth, text, sizeof text),
             a.num_changes > 0 ? mla_stage_name(a.changes[0].stage) : "nothing");
    test_problem_free(&s.made);
    return right;
}

Test(drift_stages, attributes_a_planted_change_to_its_stage_first) {
    int right = 0;
    for (uint64_t seed = 0; seed < TRIALS; seed++) {
        char said[200];
        if (plant(seed, said, sizeof said))
            right++;
        else
            printf("    not found: %s\n", said);
    }
    printf("    %d of %d planted changes were attributed to their stage first\n", right, TRIALS);
    cr_expect_geq(right, TRIALS * 95 / 100);
}
