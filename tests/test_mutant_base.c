#include "../verify/mutant_base.h"

#include <criterion/criterion.h>
#include <string.h>

static mla_case tests[2];
static mla_exam exams[2];
static mla_mutant_bases bases;

/* Two cases, prepared around a kernel that is not the mutants' base. */
static void setup(void) {
    mla_subject subject = {.spec = "oracle"};
    mla_grade grade;
    cr_assert_eq(mla_case_parse("heads=2 kv_len=40", &tests[0]).code, MLA_OK);
    cr_assert_eq(mla_case_parse("heads=1 kv_len=3,0", &tests[1]).code, MLA_OK);
    cr_assert_eq(mla_kernel_open(subject.spec, &subject.handle).code, MLA_OK);
    for (int c = 0; c < 2; c++)
        cr_assert_eq(mla_exam_make(&subject, &tests[c], (mla_tolerance){0}, &exams[c], &grade).code, MLA_OK);
    mla_kernel_close(&subject.handle);
}

static void teardown(void) {
    mla_mutant_bases_free(&bases, 2);
    for (int c = 0; c < 2; c++) {
        mla_exam_free(&exams[c]);
        mla_case_free(&tests[c]);
    }
}

TestSuite(mutant_base, .init = setup, .fini = teardown);

static mla_status find(const char *name, const mla_trial **plain) {
    const mla_kernel mutant = {.name = name};
    return mla_mutant_base(&bases, &mutant, exams, 2, plain);
}

Test(mutant_base, is_what_the_name_says) {
    const mla_trial *plain, *again;
    uint16_t out[2 * MLA_HEAD_DIM_V];
    float lse[2];
    cr_assert_eq(find("reference+bug", &plain).code, MLA_OK);
    cr_assert_eq(mla_reference_run(&exams[0].inputs.problem, &(mla_output){out, lse}).code, MLA_OK);
    cr_expect_eq(memcmp(plain[0].output.out, out, sizeof out), 0);
    cr_expect_eq(memcmp(plain[0].output.lse, lse, sizeof lse), 0);
    cr_expect_not_null(plain[1].output.out);
    cr_assert_eq(find("reference+another", &again).code, MLA_OK);
    cr_expect_eq(again, plain, "run once");
    cr_expect_eq(bases.count, 1);
}

Test(mutant_base, none_where_the_name_says_none) {
    const mla_trial *plain;
    cr_assert_eq(find("theirs", &plain).code, MLA_OK);
    cr_expect_null(plain);
    cr_expect_eq(bases.count, 0);
}

Test(mutant_base, one_that_is_unknown_is_an_error) {
    const mla_trial *plain;
    cr_expect_eq(find("nosuch+bug", &plain).code, MLA_EINVAL);
}
