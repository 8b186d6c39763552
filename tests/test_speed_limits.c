/* Verdicts by hand, and the limits themselves: they must name cases that data/cpu.cases has. */
#include "../verify/case.h"
#include "../verify/speed_limits.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static mla_limit_state state(mla_duel duel, int threads) {
    const mla_speed_limit limit = {"fast", "a", NULL, NULL, false, 0.9, 1.1, 4};
    return mla_limit_state_of(&limit, &duel, threads);
}

/* On a quiet machine the median decides, ends included. */
Test(speed_limits, kept_and_missed) {
    cr_expect_eq(state((mla_duel){0.9, 0.8, 1.2, 9, false}, 4), MLA_LIMIT_KEPT);
    cr_expect_eq(state((mla_duel){1.1, 0.8, 1.2, 9, false}, 4), MLA_LIMIT_KEPT);
    cr_expect_eq(state((mla_duel){0.89, 0.8, 1.2, 9, false}, 4), MLA_LIMIT_MISSED);
    cr_expect_eq(state((mla_duel){1.11, 0.8, 1.2, 9, false}, 4), MLA_LIMIT_MISSED);
    cr_expect_eq(state((mla_duel){NAN, NAN, NAN, 9, false}, 4), MLA_LIMIT_MISSED);
}

Test(speed_limits, off) {
    cr_expect_eq(state((mla_duel){1.2, 1.1, 1.3, 9, false}, 5), MLA_LIMIT_OFF, "not meant for so many threads");
    cr_expect_eq(state((mla_duel){0}, 4), MLA_LIMIT_OFF, "not measured");
}

/* A busy machine's numbers are believed where all of the interval is within. */
Test(speed_limits, unknown) {
    cr_expect_eq(state((mla_duel){1, 0.9, 1.1, 9, true}, 4), MLA_LIMIT_KEPT);
    cr_expect_eq(state((mla_duel){1, 0.89, 1.1, 9, true}, 4), MLA_LIMIT_UNKNOWN);
    cr_expect_eq(state((mla_duel){2, 1.9, 2.1, 9, true}, 4), MLA_LIMIT_UNKNOWN);
    cr_expect_eq(state((mla_duel){NAN, NAN, NAN, 9, true}, 4), MLA_LIMIT_UNKNOWN);
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
    }
    mla_case_list_free(&list);
}
