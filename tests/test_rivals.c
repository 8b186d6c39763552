/* Rival gates against numbers worked out by hand: each rule just kept, and just broken. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../verify/rivals.h"
#include "support_problem.h"

enum { COUNT = 100 };
static double got[COUNT], expected[COUNT], baseline[COUNT];
static const mla_rival_sheet sheet = {COUNT, got, expected, expected, baseline};

/* All ones, and the same from the kernel. */
static void setup(void) {
    for (int i = 0; i < COUNT; i++)
        got[i] = expected[i] = baseline[i] = 1;
}

TestSuite(rivals, .init = setup);

static bool passes(const char *name) {
    for (int i = 0; i < mla_num_rivals; i++)
        if (strcmp(mla_rivals[i].name, name) == 0)
            return mla_rivals[i].passes(&sheet);
    cr_assert_fail("no rival %s", name);
    return false;
}

/* Raises the first `count` elements. */
static void lift(int count, double by) {
    for (int i = 0; i < count; i++)
        got[i] = expected[i] + by;
}

Test(rivals, all_pass_the_truth) {
    for (int i = 0; i < mla_num_rivals; i++)
        cr_expect(mla_rivals[i].passes(&sheet), "%s", mla_rivals[i].name);
}

Test(rivals, all_but_those_with_a_share_fail_one_nan) {
    got[7] = NAN;
    for (int i = 0; i < mla_num_rivals; i++) {
        const bool shares = strstr(mla_rivals[i].rule, "5 %") != NULL;
        cr_expect_eq(mla_rivals[i].passes(&sheet), shares, "%s", mla_rivals[i].name);
    }
}

/* 0.1 + 0.1 * 1 = 0.2 is allowed; five of a hundred may be outside. */
Test(rivals, contest_lets_five_percent_through) {
    lift(COUNT, 0.19);
    cr_expect(passes("public contest"));
    lift(5, 1e9);
    cr_expect(passes("public contest"));
    lift(6, 1e9);
    cr_expect_not(passes("public contest"));
}

Test(rivals, small_tolerances) {
    lift(COUNT, 0.0199);
    cr_expect(passes("1e-2, 5 %"));
    lift(COUNT, 0.0201);
    cr_expect_not(passes("1e-2, 5 %"));
    cr_expect(passes("rtol 2e-2, atol 8e-3"));
    lift(1, 0.0279);
    cr_expect(passes("rtol 2e-2, atol 8e-3"));
    lift(1, 0.0281);
    cr_expect_not(passes("rtol 2e-2, atol 8e-3"));
}

/* 1.6e-2 + 1e-5 */
Test(rivals, assert_close_allows_no_mismatch) {
    lift(1, 0.016);
    cr_expect(passes("rtol 1.6e-2, atol 1e-5"));
    lift(1, 0.01602);
    cr_expect_not(passes("rtol 1.6e-2, atol 1e-5"));
}

/* Relative 2.01 / 128 = 0.015703; absolute 8e-4 saves a small element. One of 100 off by e has a cosine difference of about e^2 / 200. */
Test(rivals, flashmla_wants_either_tolerance_and_the_cosine) {
    lift(1, 0.0157);
    cr_expect(passes("FlashMLA"));
    lift(1, 0.0158);
    cr_expect_not(passes("FlashMLA"));
    expected[0] = 1e-3, got[0] = 1.79e-3;
    cr_expect(passes("FlashMLA"));
    got[0] = 1.81e-3;
    cr_expect_not(passes("FlashMLA"));
}

/* 100 elements of (1, 1.0031 or 0.9969): every one within 0.0157; 1 - 2*100 / (100 + 100 (1 + 9.61e-6)) = 4.8e-6, and with 0.0033 5.4e-6. */
Test(rivals, flashmla_cosine_fails_alone) {
    for (int i = 0; i < COUNT; i++)
        got[i] = i % 2 ? 1.0031 : 0.9969;
    cr_expect(passes("FlashMLA"));
    for (int i = 0; i < COUNT; i++)
        got[i] = i % 2 ? 1.0033 : 0.9967;
    cr_expect_not(passes("FlashMLA"));
    cr_expect(passes("cosine < 1e-5"));
    for (int i = 0; i < COUNT; i++)
        got[i] = i % 2 ? 1.0046 : 0.9954;
    cr_expect_not(passes("cosine < 1e-5"));
}

/* Five of a hundred ones off by 0.1: 5e-4 of the squares. */
Test(rivals, nmse_is_of_squares) {
    lift(5, 0.0999);
    cr_expect(passes("NMSE < 5e-4"));
    lift(5, 0.1001);
    cr_expect_not(passes("NMSE < 5e-4"));
}

Test(rivals, twice_the_baseline) {
    baseline[3] = 1.25;
    lift(1, -0.5);
    cr_expect(passes("twice a bf16 baseline"));
    lift(1, -0.5000001);
    cr_expect_not(passes("twice a bf16 baseline"));
}

Test(rivals, zeros_are_right_where_zeros_are_expected) {
    memset(got, 0, sizeof got);
    memset(expected, 0, sizeof expected);
    for (int i = 0; i < mla_num_rivals; i++)
        cr_expect(mla_rivals[i].passes(&sheet), "%s", mla_rivals[i].name);
}

/* One key: its value, whatever the score. Two keys with equal scores: the mean, rounded to bf16. An empty row: zeros. */
Test(rivals, baseline_of_one_two_and_no_keys) {
    test_shape shape = {.batch = 3, .heads = 1, .q_len = {1, 1, 1}, .kv_len = {1, 2, 0}};
    test_problem made = test_problem_make(&shape);
    float row[MLA_HEAD_DIM] = {0};
    static double out[3 * MLA_HEAD_DIM_V];
    const int64_t first = made.kv_indptr[1];
    row[0] = 3;
    test_problem_set_slot(&made, 0, row);
    row[0] = 1, row[1] = 0;
    test_problem_set_slot(&made, first, row);
    row[0] = 1, row[1] = 1 + 0x1p-7f;
    test_problem_set_slot(&made, first + 1, row);
    for (int d = 0; d < MLA_HEAD_DIM; d++)
        ((uint16_t *)made.q)[MLA_HEAD_DIM + d] = d == 0 ? 0x3F80 : 0;
    cr_assert_eq(mla_bf16_baseline(&made.problem, out).code, MLA_OK);
    cr_expect_eq(out[0], 3);
    cr_expect_eq(out[MLA_HEAD_DIM_V], 1);
    cr_expect_eq(out[MLA_HEAD_DIM_V + 1], 0.5 + 0x1p-8);
    cr_expect_eq(out[2 * MLA_HEAD_DIM_V], 0);
    test_problem_free(&made);
}
