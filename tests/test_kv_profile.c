/* Planted bugs show at their positions and with their sizes. Inputs are planted by the transforms of mutant_table.c, and run by the reference. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "../verify/kv_profile.h"
#include "../verify/mutant.h"

static mla_kv_profile profile;

static mla_contract declared;

static void declare(void) {
    declared = mla_reference_contract();
    declared.tile = 64;
}

TestSuite(kv_profile, .init = declare);

static void take(const mla_problem *problem, const mla_output *output) {
    const mla_contract contract = declared;
    mla_truth truth;
    mla_measure measure;
    cr_assert_eq(mla_oracle_run(problem, &contract, 0, problem->total_q, &truth).code, MLA_OK);
    cr_assert_eq(mla_measure_init(&measure, problem).code, MLA_OK);
    cr_assert_eq(mla_measure_add_pictures(&measure, problem).code, MLA_OK);
    mla_compare(problem, &truth, output, &measure);
    cr_assert_eq(mla_kv_profile_make(problem, &contract, output, &measure).code, MLA_OK);
    profile = measure.pictures->profile;
    mla_measure_free(&measure);
    mla_truth_free(&truth);
}

/* `scribble` writes over the output. */
static void profile_of(const char *line, const char *mutant, void (*scribble)(uint16_t *out)) {
    mla_case c;
    mla_inputs plain, changed;
    cr_assert_eq(mla_case_parse(line, &c).code, MLA_OK);
    cr_assert_eq(mla_inputs_make(&c, &plain).code, MLA_OK);
    cr_assert_eq((mutant ? mla_mutant_inputs(mla_mutant_find(mutant), &c, &changed) : mla_inputs_make(&c, &changed)).code, MLA_OK);
    const size_t rows = (size_t)(plain.problem.total_q * plain.problem.heads);
    mla_output output = {malloc(rows * MLA_HEAD_DIM_V * 4), malloc(rows * sizeof(float))};
    cr_assert_eq(mla_reference_run(&changed.problem, &output).code, MLA_OK);
    if (scribble)
        scribble(output.out);
    take(&plain.problem, &output);
    free(output.out);
    free(output.lse);
    mla_inputs_free(&changed);
    mla_inputs_free(&plain);
    mla_case_free(&c);
}

static double excess_at(const mla_kv_part *parts, int count, int64_t position) {
    for (int i = 0; i < count; i++)
        if (parts[i].begin <= position && position < parts[i].end)
            return parts[i].excess;
    return NAN;
}

static double largest_outside(const mla_kv_part *parts, int count, int64_t begin, int64_t end) {
    double most = 0;
    for (int i = 0; i < count; i++)
        if ((parts[i].end <= begin || parts[i].begin >= end) && parts[i].deviation < MLA_KV_VAGUE)
            most = fmax(most, fabs(parts[i].excess));
    return most;
}

/* 40 keys are 40 parts. */
Test(kv_profile, a_missing_token_is_minus_one) {
    profile_of("heads=2 kv_len=40", "drop_middle", NULL);
    cr_expect_eq(profile.blocks, 40);
    cr_expect_eq(profile.tokens, 0);
    cr_expect_float_eq(excess_at(profile.block, 40, 20), -1, 0.02);
    cr_expect_lt(largest_outside(profile.block, 40, 20, 21), 0.02);
    cr_expect_gt(profile.explained, 0.999);
}

/* 100 keys are 50 blocks of two. The block has two tokens; one of them counts twice. */
Test(kv_profile, a_doubled_token_stands_out_in_its_block) {
    profile_of("heads=2 kv_len=100", "double_middle", NULL);
    cr_expect_eq(profile.blocks, 50);
    cr_expect_eq(profile.tokens, 2);
    cr_expect_eq(profile.token[0].begin, 50);
    cr_expect_eq(profile.token[1].end, 52);
    cr_expect_float_eq(profile.token[0].excess, 1, 0.02);
    cr_expect_float_eq(profile.token[1].excess, 0, 0.02);
    cr_expect_gt(excess_at(profile.block, 50, 50), 0.1);
    cr_expect_gt(profile.explained, 0.999, "by the token alone: %g", profile.explained);
}

Test(kv_profile, a_missing_tile_is_minus_one_all_over) {
    profile_of("heads=2 kv_len=100", "drop_tile", NULL);
    for (int64_t j = 32; j < 64; j++)
        cr_expect_float_eq(excess_at(profile.block, profile.blocks, j), -1, 0.05, "%d: %g", (int)j,
                           excess_at(profile.block, profile.blocks, j));
    cr_expect_lt(largest_outside(profile.block, profile.blocks, 32, 64), 0.05);
}

/* The sink has a share too. */
Test(kv_profile, a_sink_changes_nothing) {
    profile_of("heads=2 kv_len=40 sink=3", "drop_middle", NULL);
    cr_expect_float_eq(excess_at(profile.block, 40, 20), -1, 0.02);
    cr_expect_lt(largest_outside(profile.block, 40, 20, 21), 0.02);
}

/* Keys 260 .. 299 of 300 are seen: parts are at their positions. */
Test(kv_profile, positions_are_those_of_the_sequence) {
    profile_of("heads=2 kv_len=300 window=40", NULL, NULL);
    cr_expect_eq(profile.blocks, 40);
    cr_expect_eq(profile.block[0].begin, 260);
    cr_expect_eq(profile.block[39].end, 300);
    profile_of("heads=2 kv_len=300 window=70", NULL, NULL);
    cr_expect_eq(profile.blocks, 35);
    cr_expect_eq(profile.block[0].begin, 230);
    cr_expect_eq(profile.block[0].end, 232);
}

/* Errors of a right kernel that rounds nothing but its output are noise, and the deviations are those of that noise. */
Test(kv_profile, deviations_are_the_size_of_noise) {
    double squares = 0;
    int parts = 0;
    for (int seed = 0; seed < 8; seed++) {
        char line[64];
        snprintf(line, sizeof line, "heads=1 kv_len=1024 seed=%d", seed);
        profile_of(line, NULL, NULL);
        cr_expect_eq(profile.blocks, 64);
        cr_expect_eq(profile.tokens, 16);
        for (int i = 0; i < profile.blocks; i++, parts++)
            squares += pow(profile.block[i].excess / profile.block[i].deviation, 2);
        cr_expect_float_eq(profile.explained, profile.expected, 0.06);
    }
    cr_expect_float_eq(sqrt(squares / parts), 1, 0.1, "%g", sqrt(squares / parts));
}

/* P in bf16 may be off by 2^-8; scores of up to 4, rounded to bf16, by 4 * 2^-8 more. The reference rounds neither: its contract is another's here. */
Test(kv_profile, what_is_declared_is_allowed) {
    profile_of("heads=1 kv_len=64", NULL, NULL);
    cr_expect_eq(profile.block[0].allowed, 0);
    declared.p = MLA_BF16;
    profile_of("heads=1 kv_len=64", NULL, NULL);
    cr_expect_eq(profile.block[0].allowed, 0x1p-8);
    declared.scores = MLA_BF16;
    declared.n_scores = 1;
    profile_of("heads=1 kv_len=64", NULL, NULL);
    for (int i = 0; i < 64; i++)
        cr_expect(profile.block[i].allowed >= 0x1p-8 && profile.block[i].allowed < 5 * 0x1p-8, "%g", profile.block[i].allowed);
}

static void plant_nan(uint16_t *out) {
    out[7] = 0x7FC0;
}

Test(kv_profile, there_is_none_without_numbers_or_with_less_than_two_keys) {
    profile_of("heads=1 kv_len=40", NULL, plant_nan);
    cr_expect_eq(profile.blocks, 0);
    profile_of("heads=1 kv_len=0", NULL, NULL);
    cr_expect_eq(profile.blocks, 0);
    profile_of("heads=1 kv_len=1", NULL, NULL);
    cr_expect_eq(profile.blocks, 0, "its weight is 1 whatever it is");
}
