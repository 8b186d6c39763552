#include <criterion/criterion.h>
#include <math.h>

#include "../ref/mla.h"

Test(ulp, follows_the_binade) {
    cr_assert_eq(mla_ulp(MLA_BF16, 1), 0x1p-7);
    cr_assert_eq(mla_ulp(MLA_BF16, -1.99), 0x1p-7);
    cr_assert_eq(mla_ulp(MLA_BF16, 0.999), 0x1p-8);
    cr_assert_eq(mla_ulp(MLA_FP16, 1), 0x1p-10);
    cr_assert_eq(mla_ulp(MLA_FP32, 1), 0x1p-23);
    cr_assert_eq(mla_ulp(MLA_FP8, 448), 32);
    cr_assert_eq(mla_ulp(MLA_FP16, 1e6), 512, "beyond the largest value the binades go on");
}

Test(ulp, has_the_subnormal_unit_as_its_floor) {
    cr_assert_eq(mla_ulp(MLA_BF16, 0), 0x1p-133);
    cr_assert_eq(mla_ulp(MLA_FP16, 0), 0x1p-24);
    cr_assert_eq(mla_ulp(MLA_FP16, 0x1p-14), 0x1p-24);
    cr_assert_eq(mla_ulp(MLA_FP16, 0x1p-13), 0x1p-23);
    cr_assert_eq(mla_ulp(MLA_FP16, 1e-300), 0x1p-24);
    cr_assert_eq(mla_ulp(MLA_FP32, -0x1p-1074), 0x1p-149);
}

Test(ulp, error_is_against_the_real_number) {
    cr_assert_eq(mla_ulp_error(MLA_BF16, 0x1.02p0, 0x1.01p0), 0.5);
    cr_assert_eq(mla_ulp_error(MLA_BF16, -3, 1), 512);
    cr_assert_eq(mla_ulp_error(MLA_BF16, 1, 1), 0);
    cr_assert_eq(mla_ulp_error(MLA_FP16, 0x1p-24, 0), 1);
    /* the binade is that of the exact value: 1 - 2^-9 lies in [1/2, 1), where a unit is 2^-8 */
    cr_assert_eq(mla_ulp_error(MLA_BF16, 1, 1 - 0x1p-9), 0.5);
}

Test(ulp, error_of_specials) {
    cr_assert_eq(mla_ulp_error(MLA_BF16, NAN, NAN), 0);
    cr_assert_eq(mla_ulp_error(MLA_BF16, NAN, 1), INFINITY);
    cr_assert_eq(mla_ulp_error(MLA_BF16, 1, NAN), INFINITY);
    cr_assert_eq(mla_ulp_error(MLA_BF16, NAN, INFINITY), INFINITY);
    cr_assert_eq(mla_ulp_error(MLA_BF16, INFINITY, INFINITY), 0);
    cr_assert_eq(mla_ulp_error(MLA_BF16, -INFINITY, INFINITY), INFINITY);
    cr_assert_eq(mla_ulp_error(MLA_BF16, INFINITY, 1e38), INFINITY);
    cr_assert_eq(mla_ulp_error(MLA_BF16, 1e38, INFINITY), INFINITY);
}

Test(ulp, distance_counts_codes) {
    cr_assert_eq(mla_ulp_distance(MLA_BF16, 0x3F80, 1), 0);
    cr_assert_eq(mla_ulp_distance(MLA_BF16, 0x3F82, 1), 2);
    cr_assert_eq(mla_ulp_distance(MLA_BF16, 0x3F7F, 1), 1, "across a binade");
    cr_assert_eq(mla_ulp_distance(MLA_BF16, 0x3F80, 0x1.03p0), 2, "1.5 units above 1 is a tie and goes to the even 0x3F82");
    cr_assert_eq(mla_ulp_distance(MLA_FP32, 0xBF800000, 1), 0x7F000000, "0x3F800000 codes down to zero and as many again");
}

Test(ulp, distance_crosses_zero) {
    cr_assert_eq(mla_ulp_distance(MLA_BF16, 0x8000, 0), 0, "-0 is 0");
    cr_assert_eq(mla_ulp_distance(MLA_BF16, 0x0000, -0.0), 0);
    cr_assert_eq(mla_ulp_distance(MLA_BF16, 0x8001, 0x1p-133), 2, "one below zero, one above");
    cr_assert_eq(mla_ulp_distance(MLA_FP8FNUZ, 0x81, 0x1p-10), 2);
}

Test(ulp, distance_rounds_once_from_double) {
    /* through fp32 this would become the tie 1 + 2^-8 and go to 0x3F80 */
    cr_assert_eq(mla_ulp_distance(MLA_BF16, 0x3F81, 1 + 0x1p-8 + 0x1p-40), 0);
}

Test(ulp, distance_of_specials) {
    cr_assert_eq(mla_ulp_distance(MLA_BF16, 0x7FC1, NAN), 0);
    cr_assert_eq(mla_ulp_distance(MLA_BF16, 0x7FC0, 1), UINT32_MAX);
    cr_assert_eq(mla_ulp_distance(MLA_BF16, 0x3F80, NAN), UINT32_MAX);
    cr_assert_eq(mla_ulp_distance(MLA_BF16, 0x7F80, INFINITY), 0);
    cr_assert_eq(mla_ulp_distance(MLA_BF16, 0xFF80, INFINITY), UINT32_MAX);
    cr_assert_eq(mla_ulp_distance(MLA_BF16, 0x7F80, 1e38), UINT32_MAX);
    cr_assert_eq(mla_ulp_distance(MLA_FP16, 0x7BFF, INFINITY), UINT32_MAX);
    cr_assert_eq(mla_ulp_distance(MLA_FP16, 0x7C00, 65520), 0, "a finite number that rounds to infinity");
}
