#include <criterion/criterion.h>
#include <string.h>

#include "../verify/judge.h"

static mla_measure clean_measure(void) {
    return (mla_measure){.out = {.total = 1024}, .lse = {.total = 2}, .rows = 2};
}

static const mla_integrity intact = {0};

static void expect_failed(const mla_measure *measure, const mla_integrity *integrity, const char *reason) {
    mla_verdict verdict = mla_judge(measure, integrity);
    cr_expect_eq(verdict.status, MLA_FAILED);
    cr_expect_str_eq(verdict.reason, reason);
}

Test(judge, clean_passes_without_a_reason) {
    mla_measure measure = clean_measure();
    mla_verdict verdict = mla_judge(&measure, &intact);
    cr_expect_eq(verdict.status, MLA_PASSED);
    cr_expect_str_eq(verdict.reason, "");
}

Test(judge, one_element_of_any_fault_fails) {
    mla_measure measure = clean_measure();
    measure.out.outside = 1;
    expect_failed(&measure, &intact, "1 of 1024 elements outside the bound");
    measure = clean_measure();
    measure.out.anomalies = 1;
    expect_failed(&measure, &intact, "1 of 1024 elements NaN or infinite against the truth");
    measure = clean_measure();
    measure.out.unwritten = 1;
    expect_failed(&measure, &intact, "1 of 1024 elements never written");
    measure = clean_measure();
    measure.out.inexact = 1;
    expect_failed(&measure, &intact, "1 of 1024 elements not the exact result, which these inputs have in any order of summation");
}

Test(judge, one_lse_of_any_fault_fails) {
    mla_measure measure = clean_measure();
    measure.lse.outside = 1;
    expect_failed(&measure, &intact, "1 of 2 lse outside the bound");
    measure = clean_measure();
    measure.lse.anomalies = 2;
    expect_failed(&measure, &intact, "2 of 2 lse NaN or infinite against the truth");
    measure = clean_measure();
    measure.lse.unwritten = 1;
    expect_failed(&measure, &intact, "1 of 2 lse never written");
}

Test(judge, a_touched_guard_and_a_changed_input_fail) {
    mla_measure measure = clean_measure();
    mla_integrity touched = {.guard_touched = "out", .guard_offset = -4, .guard_size = 2048};
    expect_failed(&measure, &touched, "wrote outside out: byte -4 of a buffer of 2048");
    mla_integrity changed = {.input_changed = "kv", .input_offset = 12};
    expect_failed(&measure, &changed, "changed its input kv at byte 12");
}

Test(judge, the_reason_names_everything_the_gravest_first) {
    mla_measure measure = clean_measure();
    measure.out.unwritten = 3;
    measure.out.outside = 5;
    measure.lse.outside = 1;
    mla_integrity changed = {.input_changed = "q", .input_offset = 0};
    expect_failed(&measure, &changed,
                  "changed its input q at byte 0; 3 of 1024 elements never written; 5 of 1024 elements outside the bound; 1 of 2 lse "
                  "outside the bound");
}

Test(judge, a_long_reason_is_cut_and_stays_failed) {
    mla_measure measure = clean_measure();
    measure.out = (mla_counts){.total = INT64_MAX, .unwritten = INT64_MAX, .anomalies = INT64_MAX, .outside = INT64_MAX};
    measure.lse = measure.out;
    mla_verdict verdict = mla_judge(&measure, &intact);
    cr_expect_eq(verdict.status, MLA_FAILED);
    cr_expect_eq(strlen(verdict.reason), sizeof verdict.reason - 1);
}

Test(judge, nothing_compared_is_no_pass) {
    mla_measure measure = {0};
    cr_expect_eq(mla_judge(&measure, &intact).status, MLA_ERROR);
    measure.out.total = 1;
    cr_expect_eq(mla_judge(&measure, &intact).status, MLA_ERROR);
    mla_integrity touched = {.guard_touched = "out"};
    cr_expect_eq(mla_judge(&measure, &touched).status, MLA_FAILED);
}

Test(judge, a_reason_is_one_line) {
    mla_verdict verdict = mla_verdict_make(MLA_SKIPPED, "no\nsoft-cap\x1b[31m");
    cr_expect_eq(verdict.status, MLA_SKIPPED);
    cr_expect_str_eq(verdict.reason, "no soft-cap [31m");
}

Test(judge, names) {
    cr_expect_str_eq(mla_verdict_name(MLA_PASSED), "PASSED");
    cr_expect_str_eq(mla_verdict_name(MLA_FAILED), "FAILED");
    cr_expect_str_eq(mla_verdict_name(MLA_SKIPPED), "SKIPPED");
    cr_expect_str_eq(mla_verdict_name(MLA_ERROR), "ERROR");
}

/* ---- chi ---------------------------------------------------------------------------------------------------------------------------- */

/* 64 gating rows with this chi each; limits not settled. */
static mla_measure measure_with_chi(double chi) {
    mla_measure measure = clean_measure();
    measure.chi.rows = 64;
    measure.chi.square_sum = (int64_t)(64 * chi * chi * 65536);
    return measure;
}

Test(judge, chi_within_its_limit_passes) {
    mla_measure measure = measure_with_chi(1.09);
    cr_expect_eq(mla_judge(&measure, &intact).status, MLA_PASSED);
    measure = measure_with_chi(1.3);
    measure.chi.limit = 1.31;
    cr_expect_eq(mla_judge(&measure, &intact).status, MLA_PASSED);
}

Test(judge, chi_beyond_its_limit_fails) {
    mla_measure measure = measure_with_chi(1.3101);
    measure.chi.limit = 1.10;
    expect_failed(&measure, &intact,
                  "errors are 1.31 times the size this contract explains, limit 1.10: an undeclared rounding, or a biased one");
    measure.chi.limit = 0;
    cr_expect_eq(mla_judge(&measure, &intact).status, MLA_FAILED, "a limit that was not settled is the smallest");
}

Test(judge, of_suspected_rows_the_one_farthest_beyond_its_limit_is_named) {
    mla_measure measure = measure_with_chi(1);
    measure.chi.suspects[0] = (mla_row_chi){.row = 7, .place = {.sequence = 0, .head = 7, .column = -1}, .chi = 2, .limit = 2.1};
    cr_expect_eq(mla_judge(&measure, &intact).status, MLA_PASSED);
    measure.chi.suspects[1] = (mla_row_chi){.row = 8, .place = {.sequence = 1, .head = 0, .column = -1}, .chi = 1.6, .limit = 1.5};
    measure.chi.suspects[2] = (mla_row_chi){.row = 9, .place = {.sequence = 1, .q = 2, .head = 3, .column = -1}, .chi = 1.5, .limit = 1.2};
    expect_failed(&measure, &intact,
                  "errors of seq 1 q 2 head 3 are 1.50 times the size this contract explains, limit 1.20: an undeclared rounding, or a "
                  "biased one");
    measure.chi.suspects[1].limit = measure.chi.suspects[2].limit = 0;
    cr_expect_eq(mla_judge(&measure, &intact).status, MLA_FAILED, "a limit that was not settled is the smallest");
}

Test(judge, rows_that_do_not_gate_fail_nobody) {
    mla_measure measure = clean_measure();
    measure.chi.doubted_rows = 2;
    measure.chi.doubted_sum = (int64_t)1 << 30;
    cr_expect_eq(mla_judge(&measure, &intact).status, MLA_PASSED);
}

/* Their errors explain chi: it adds nothing. */
Test(judge, wrong_elements_say_it_alone) {
    mla_measure measure = measure_with_chi(5);
    measure.out.outside = 1;
    expect_failed(&measure, &intact, "1 of 1024 elements outside the bound");
}
