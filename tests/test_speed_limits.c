/* Ratios by hand, and the limits themselves: they must name cases that data/cpu.cases has. */
#include "../verify/case.h"
#include "../verify/speed_limits.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const mla_speed speeds[] = {{"fast", "a", 600}, {"slow", "a", 50}, {"fast", "", 400}};

static double ratio(mla_speed_limit limit) {
    return mla_speed_ratio(&limit, speeds, 3, 1000);
}

Test(speed_limits, a_rate_against_sgemm) {
    cr_expect_float_eq(ratio((mla_speed_limit){"fast", "a", NULL, NULL, false, 0, 0, 8}), 0.6, 1e-15);
}

Test(speed_limits, times_are_the_other_way_round) {
    cr_expect_float_eq(ratio((mla_speed_limit){"slow", "a", "fast", "a", true, 0, 0, 8}), 12, 1e-12);
    cr_expect_float_eq(ratio((mla_speed_limit){"slow", "a", "fast", "a", false, 0, 0, 8}), 1 / 12.0, 1e-15);
    cr_expect_float_eq(ratio((mla_speed_limit){"fast", "", "fast", "a", true, 0, 0, 8}), 1.5, 1e-12);
}

Test(speed_limits, nothing_without_both_sides) {
    cr_expect_eq(ratio((mla_speed_limit){"fast", "b", NULL, NULL, false, 0, 0, 8}), 0);
    cr_expect_eq(ratio((mla_speed_limit){"fast", "a", "slow", "", false, 0, 0, 8}), 0);
    const mla_speed_limit sgemm = {"fast", "a", NULL, NULL, false, 0, 0, 8};
    cr_expect_eq(mla_speed_ratio(&sgemm, speeds, 3, 0), 0);
}

Test(speed_limits, within) {
    const mla_speed_limit limit = {"fast", "a", NULL, NULL, false, 0.9, 1.1, 4};
    cr_expect(mla_speed_within(&limit, 0.9));
    cr_expect(mla_speed_within(&limit, 1.1));
    cr_expect(!mla_speed_within(&limit, 0.89));
    cr_expect(!mla_speed_within(&limit, 1.11));
    cr_expect(!mla_speed_within(&limit, NAN));
}

Test(speed_limits, missed) {
    const mla_speed_limit limit = {"fast", "a", NULL, NULL, false, 0.9, 1.1, 4};
    cr_expect(mla_speed_missed(&limit, 1.2, 4));
    cr_expect(!mla_speed_missed(&limit, 1.2, 5), "not meant for so many threads");
    cr_expect(!mla_speed_missed(&limit, 1.0, 4));
    cr_expect(!mla_speed_missed(&limit, 0, 4), "not measured");
    cr_expect(mla_speed_missed(&limit, NAN, 4));
}

static bool is_in(const mla_case_list *list, const char *line) {
    bool found = false;
    for (int i = 0; i < list->count && !found; i++) {
        char *printed = mla_case_print(&list->cases[i]);
        found = strcmp(printed, line) == 0;
        free(printed);
    }
    return found;
}

Test(speed_limits, name_cases_of_the_file) {
    mla_case_list list = {0};
    const mla_status status = mla_case_list_read(&list, "data/cpu.cases");
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    cr_assert_gt(mla_num_speed_limits, 0);
    for (const mla_speed_limit *l = mla_speed_limits; l < mla_speed_limits + mla_num_speed_limits; l++) {
        cr_expect(is_in(&list, l->case_line), "'%s'", l->case_line);
        cr_expect(!l->base_kernel || is_in(&list, l->base_case_line), "'%s'", l->base_case_line);
        cr_expect(l->low < l->high && l->threads > 0);
        cr_expect(mla_speed_limited(l->kernel, l->case_line));
    }
    cr_expect(!mla_speed_limited("reference", "kv_len=3"));
    mla_case_list_free(&list);
}
