/* Planted bugs are named; what is none of them is not. Inputs are planted by the transforms of mutant_table.c, and run by the reference. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../verify/diagnose.h"
#include "../verify/mutant.h"

static mla_case test_case;
static mla_inputs plain;
static mla_output output;
static mla_truth truth;
static mla_diagnosis diagnosis;

/* The reference's, in tiles of 64 tokens. */
static mla_contract contract_of_tests(void) {
    mla_contract contract = mla_reference_contract();
    contract.tile = 64;
    return contract;
}

static void start(const char *line) {
    cr_assert_eq(mla_case_parse(line, &test_case).code, MLA_OK);
    cr_assert_eq(mla_inputs_make(&test_case, &plain).code, MLA_OK);
    const size_t rows = (size_t)(plain.problem.total_q * plain.problem.heads);
    output = (mla_output){malloc(rows * MLA_HEAD_DIM_V * 4), malloc(rows * sizeof(float))};
    cr_assert_eq(mla_reference_run(&plain.problem, &output).code, MLA_OK);
    const mla_contract contract = contract_of_tests();
    cr_assert_eq(mla_oracle_run(&plain.problem, &contract, 0, plain.problem.total_q, &truth).code, MLA_OK);
}

static void stop(void) {
    mla_truth_free(&truth);
    mla_inputs_free(&plain);
    mla_case_free(&test_case);
    free(output.out);
    free(output.lse);
}

static mla_cause diagnose(void) {
    const mla_contract contract = contract_of_tests();
    mla_measure measure;
    cr_assert_eq(mla_measure_init(&measure, &plain.problem).code, MLA_OK);
    mla_compare(&plain.problem, &truth, &output, &measure);
    diagnosis = mla_diagnose(&plain.problem, &contract, &output, &measure);
    mla_measure_free(&measure);
    return diagnosis.cause;
}

/* What is said of the transform on this case. */
static mla_cause plant(const char *line, const char *name) {
    const mla_mutant *m = mla_mutant_find(name);
    mla_inputs changed;
    cr_assert_not_null(m, "%s", name);
    start(line);
    cr_assert_eq(mla_mutant_inputs(m, &test_case, &changed).code, MLA_OK);
    cr_assert_eq(mla_reference_run(&changed.problem, &output).code, MLA_OK);
    const mla_specimen specimen = {&plain.problem, &truth};
    if (m->after)
        m->after(m, &specimen, &output);
    const mla_cause cause = diagnose();
    mla_inputs_free(&changed);
    stop();
    return cause;
}

#define EXPECT(line, name, expected, words)                                                                                                \
    do {                                                                                                                                   \
        cr_expect_eq(plant(line, name), expected, "%s: %d '%s'", name, (int)diagnosis.cause, diagnosis.text);                              \
        cr_expect(strstr(diagnosis.text, words), "%s: '%s' is not in '%s'", name, words, diagnosis.text);                                  \
    } while (0)

Test(diagnose, a_right_kernel_has_nothing) {
    start("kv_len=40");
    cr_expect_eq(diagnose(), MLA_CAUSE_NONE);
    cr_expect_str_empty(diagnosis.where);
    cr_expect_str_empty(diagnosis.text);
    stop();
}

/* Equal scores: each of four tokens has a quarter. */
Test(diagnose, shares_are_of_p) {
    EXPECT("heads=2 kv_len=4 input=flat", "drop_last", MLA_CAUSE_TOKEN_MISSING,
           "token 3 is missing (its share of p is 0.25): the last token");
    EXPECT("heads=2 kv_len=4 input=flat", "double_first", MLA_CAUSE_TOKEN_TWICE,
           "token 0 counts twice (its share of p is 0.25): the first token");
}

/* A quarter of 64 is lost: a third of what is left. Tiles of 16 and of 32 both fit; splits too. */
Test(diagnose, tokens_and_ranges) {
    EXPECT("heads=4 kv_len=100", "drop_middle", MLA_CAUSE_TOKEN_MISSING, "token 50 is missing");
    EXPECT("heads=4 kv_len=100", "double_middle", MLA_CAUSE_TOKEN_TWICE, "token 50 counts twice");
    EXPECT("heads=4 kv_len=100 input=flat", "drop_tile", MLA_CAUSE_RANGE_MISSING,
           "tokens 32 .. 63 are missing (their share of p is 0.32): tile 1, of 32 tokens");
    EXPECT("heads=4 kv_len=99", "drop_split", MLA_CAUSE_RANGE_MISSING, "tokens 33 .. 65 are missing");
    EXPECT("heads=4 kv_len=99", "drop_split", MLA_CAUSE_RANGE_MISSING, ": split 2 of 3");
    EXPECT("heads=4 q_len=2 kv_len=50 causal=1 page=16", "causal_off", MLA_CAUSE_NONE, "");
}

Test(diagnose, tiles_are_the_contract_s) {
    EXPECT("heads=4 kv_len=65 input=needle", "drop_last", MLA_CAUSE_TOKEN_MISSING, "the last token, first of its tile");
}

Test(diagnose, a_sequence_left_with_no_key) {
    EXPECT("heads=4 kv_len=1", "drop_first", MLA_CAUSE_TOKEN_MISSING, "token 0 is missing (its share of p is 1)");
}

Test(diagnose, other_keys) {
    EXPECT("heads=4 kv_len=40,30", "leak_after", MLA_CAUSE_TOKEN_LEAKED, "is seen too: the ");
    EXPECT("heads=4 kv_len=40,30", "leak_before", MLA_CAUSE_TOKEN_LEAKED, "is seen too: the ");
    EXPECT("heads=4 kv_len=40,40", "wrong_sequence", MLA_CAUSE_SEQUENCE, "the KV of sequence ");
    EXPECT("heads=4 kv_len=40,30", "shifted_indptr", MLA_CAUSE_SHIFT, "keys are read one slot early");
}

Test(diagnose, scores) {
    EXPECT("heads=4 kv_len=100", "scale_0.5%", MLA_CAUSE_SCALE, "scores are multiplied by 1.005");
    EXPECT("heads=4 kv_len=100", "no_log2e", MLA_CAUSE_SCALE, "scores are multiplied by 0.6931: exp2 for exp");
    EXPECT("heads=4 kv_len=100", "equal_weights", MLA_CAUSE_SCALE, "all weights are equal");
    EXPECT("heads=4 kv_len=100 softcap=3", "scale_20%", MLA_CAUSE_SCALE, "scores are multiplied by 1.2");
    EXPECT("heads=4 kv_len=100", "rope_ignored", MLA_CAUSE_ROPE, "the last 64 entries");
    EXPECT("heads=4 kv_len=100 kv=fp8", "fn_as_fnuz", MLA_CAUSE_KV_SCALE, "keys and values are multiplied by 0.5");
}

Test(diagnose, results) {
    EXPECT("heads=4 kv_len=100", "swap_heads", MLA_CAUSE_HEAD, "another head");
    EXPECT("heads=4 kv_len=100", "shift_columns", MLA_CAUSE_COLUMNS, "c holds c + 1");
    EXPECT("heads=4 kv_len=100", "swap_columns", MLA_CAUSE_COLUMNS, "columns 8 and 9 are swapped");
    EXPECT("heads=4 kv_len=100", "v_scale_1%", MLA_CAUSE_OUT_SCALE, "the output is multiplied by 1.01");
    EXPECT("heads=4 kv_len=100", "mean_of_v", MLA_CAUSE_MEAN, "plain mean");
    EXPECT("heads=4 kv_len=100", "scaled_q", MLA_CAUSE_SCALED_Q, "no KV was read");
    EXPECT("heads=4 kv_len=100", "all_zero", MLA_CAUSE_ZERO, "zero");
    EXPECT("heads=4 kv_len=100", "stale_row", MLA_CAUSE_UNWRITTEN, "never written");
}

Test(diagnose, lse) {
    EXPECT("heads=4 kv_len=100", "lse_base", MLA_CAUSE_LSE_BASE, "in base 2, not e");
    EXPECT("heads=4 kv_len=100 lse=2", "lse_base", MLA_CAUSE_LSE_BASE, "in base e, not 2");
    EXPECT("heads=4 kv_len=100 input=peaked", "lse_no_max", MLA_CAUSE_LSE_MAX, "lacks the maximum");
}

/* lse is about 11, and would be as wrong as that. */
Test(diagnose, a_factor_near_one_has_its_digits) {
    start("heads=1 kv_len=1000 input=peaked seed=3");
    output.lse[0] += 4 * (float)truth.lse_bound[0];
    cr_expect_eq(diagnose(), MLA_CAUSE_SCALE);
    cr_expect(strstr(diagnosis.text, "multiplied by 1.0002"), "%s", diagnosis.text);
    stop();
}

/* Row 2 of 4 is zero, and one of its columns is nearly so: heads and columns are said; half a row of another row is none of the hypotheses. */
Test(diagnose, places) {
    EXPECT("heads=4 kv_len=100", "zero_row", MLA_CAUSE_ZERO, "zero");
    cr_expect_str_eq(diagnosis.where, "at seq 0 q 0: 1 of 4 heads (2), 511 of 512 columns (in 0 .. 511)");
    EXPECT("heads=4 kv_len=100", "zero_column", MLA_CAUSE_ZERO, "zero");
    cr_expect(strstr(diagnosis.where, "4 of 4 heads, 1 of 512 columns ("), "%s", diagnosis.where);
    EXPECT("heads=4 kv_len=100", "earlier_row", MLA_CAUSE_NONE, "");
    cr_expect(strstr(diagnosis.where, "1 of 4 heads (2), "), "%s", diagnosis.where);
    cr_expect(strstr(diagnosis.where, "columns (256 .. 511)"), "%s", diagnosis.where);
}

Test(diagnose, padding_rows_have_no_keys) {
    start("heads=2 kv_len=9 q_pad=1");
    ((uint16_t *)output.out)[3 * MLA_HEAD_DIM_V + 5] = 0x3F80;
    cr_expect_eq(diagnose(), MLA_CAUSE_NONE);
    cr_expect_str_eq(diagnosis.where, "at seq -1 q 0: 1 of 2 heads (1), 1 of 512 columns (5)");
    stop();
}
