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
