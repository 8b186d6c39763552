#include "support_problem.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { HEADS = 2 };

static void zero_q(test_problem *made) {
    memset(made->q, 0, (size_t)made->problem.total_q * HEADS * MLA_HEAD_DIM * 2);
}

/* Key j is j + 1 in column 0, which q does not see; column 512 is what q sees. */
static test_problem two_keys(const float *seen, bool sink) {
    const test_shape shape = {.heads = HEADS, .q_len = {1}, .kv_len = {2}, .sm_scale = 1, .sink = sink, .seed = 1};
    test_problem made = test_problem_make(&shape);
    zero_q(&made);
    ((uint16_t *)made.q)[MLA_HEAD_DIM_V] = 0x3F80;
    for (int j = 0; j < 2; j++) {
        float row[MLA_HEAD_DIM] = {[0] = (float)(j + 1), [1] = (float)(-j), [MLA_HEAD_DIM_V] = seen[j]};
        test_problem_set_slot(&made, j, row);
    }
    return made;
}

Test(exact, softmax_of_two_keys) {
    test_problem made = two_keys((float[]){2, 0.5f}, false);
    double out[MLA_HEAD_DIM_V], abs[MLA_HEAD_DIM_V], lse;
    cr_assert_eq(mla_exact_row(&made.problem, 0, 0, 200, out, abs, &lse).code, MLA_OK);
    const double second = 1 / (1 + exp(1.5));
    cr_assert_float_eq(out[0], 1 + second, 1e-15);
    cr_assert_float_eq(out[1], -second, 1e-15);
    cr_assert_float_eq(abs[1], second, 1e-15);
    cr_assert_eq(out[2], 0);
    cr_assert_float_eq(lse, log(exp(2) + exp(0.5)), 1e-15);
    test_problem_free(&made);
}

Test(exact, sink_takes_weight_and_stays_out_of_lse) {
    test_problem made = two_keys((float[]){0, 0}, true);
    made.sink[0] = 3;
    double out[MLA_HEAD_DIM_V], abs[MLA_HEAD_DIM_V], lse;
    cr_assert_eq(mla_exact_row(&made.problem, 0, 0, 200, out, abs, &lse).code, MLA_OK);
    cr_assert_float_eq(out[0], 3 / (2 + exp(3)), 1e-15);
    cr_assert_float_eq(lse, log(2), 1e-15);
    test_problem_free(&made);
}

Test(exact, softcap) {
    test_problem made = two_keys((float[]){6, 0}, false);
    made.problem.softcap = 3;
    double out[MLA_HEAD_DIM_V], abs[MLA_HEAD_DIM_V], lse;
    cr_assert_eq(mla_exact_row(&made.problem, 0, 0, 200, out, abs, &lse).code, MLA_OK);
    cr_assert_float_eq(lse, log(exp(3 * tanh(2)) + 1), 1e-15);
    test_problem_free(&made);
}

Test(exact, scores_beyond_the_range_of_exp) {
    test_problem made = two_keys((float[]){-4096, -4097}, false);
    double out[MLA_HEAD_DIM_V], abs[MLA_HEAD_DIM_V], lse;
    cr_assert_eq(mla_exact_row(&made.problem, 0, 0, 300, out, abs, &lse).code, MLA_OK);
    cr_assert_float_eq(lse, -4096 + log1p(exp(0)), 1e-11, "4097 is no bf16: it rounds to 4096");
    cr_assert_float_eq(out[0], 1.5, 1e-15);
    test_problem_free(&made);
}

Test(exact, rows_that_see_nothing) {
    const test_shape shape = {.heads = HEADS, .batch = 2, .q_len = {3, 1}, .kv_len = {2, 0}, .padding = 1, .causal = true, .seed = 2};
    test_problem made = test_problem_make(&shape);
    double out[MLA_HEAD_DIM_V], abs[MLA_HEAD_DIM_V], lse;
    for (int64_t token = 0; token < 5; token++) {
        cr_assert_eq(mla_exact_row(&made.problem, token, 1, 100, out, abs, &lse).code, MLA_OK);
        const bool empty = token == 0 || token >= 3;
        cr_assert_eq(lse == -INFINITY, empty, "token %d", (int)token);
        cr_assert_eq(out[0] == 0 && out[511] == 0, empty);
    }
    test_problem_free(&made);
}

Test(exact, refuses_what_does_not_exist) {
    const test_shape shape = {.heads = HEADS, .q_len = {1}, .kv_len = {2}, .seed = 3};
    test_problem made = test_problem_make(&shape);
    double out[MLA_HEAD_DIM_V], abs[MLA_HEAD_DIM_V], lse;
    cr_assert_eq(mla_exact_row(&made.problem, 1, 0, 100, out, abs, &lse).code, MLA_EINVAL);
    cr_assert_eq(mla_exact_row(&made.problem, 0, HEADS, 100, out, abs, &lse).code, MLA_EINVAL);
    cr_assert_eq(mla_exact_row(&made.problem, 0, 0, 52, out, abs, &lse).code, MLA_EINVAL);
    test_problem_free(&made);
}
