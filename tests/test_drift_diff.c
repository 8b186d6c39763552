#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../verify/drift_difference.h"
#include "support_problem.h"

/* Two sequences, two heads, one key each: the truth is the value itself, exact in bf16. */
static test_problem two_sequences(void) {
    const test_shape shape = {.batch = 2, .heads = 2, .q_len = {1, 1}, .kv_len = {1, 1}, .out_format = MLA_BF16};
    return test_problem_make(&shape);
}

static mla_truth truth_of(const mla_problem *problem) {
    const mla_contract contract = mla_contract_default();
    mla_truth truth;
    cr_assert_eq(mla_oracle_run(problem, &contract, 0, problem->total_q, &truth).code, MLA_OK);
    return truth;
}

static mla_output exact_output(const mla_problem *problem, const mla_truth *truth) {
    mla_output output = test_output_make(problem);
    for (int64_t i = 0; i < truth->rows * MLA_HEAD_DIM_V; i++)
        ((uint16_t *)output.out)[i] = (uint16_t)mla_encode(MLA_BF16, truth->out[i], MLA_RNE);
    for (int64_t r = 0; r < truth->rows; r++)
        output.lse[r] = (float)truth->lse[r];
    return output;
}

typedef struct two_outputs {
    test_problem made;
    mla_truth truth;
    mla_output a, b;
    mla_difference difference;
} two_outputs;

static two_outputs make(void) {
    two_outputs t = {.made = two_sequences()};
    t.truth = truth_of(&t.made.problem);
    t.a = exact_output(&t.made.problem, &t.truth);
    t.b = exact_output(&t.made.problem, &t.truth);
    cr_assert_eq(mla_difference_init(&t.difference, &t.made.problem).code, MLA_OK);
    return t;
}

static void finish(two_outputs *t) {
    mla_difference_free(&t->difference);
    test_output_free(&t->a);
    test_output_free(&t->b);
    mla_truth_free(&t->truth);
    test_problem_free(&t->made);
}

static const mla_difference *difference_of(two_outputs *t) {
    mla_difference_add(&t->made.problem, &t->truth, &t->a, &t->b, &t->difference);
    return &t->difference;
}

Test(drift_diff, sees_none_between_equal_bits) {
    two_outputs t = make();
    const mla_difference *d = difference_of(&t);
    cr_expect_eq(d->out.total, 4 * MLA_HEAD_DIM_V);
    cr_expect_eq(d->out.different, 0);
    cr_expect_eq(d->lse.total, 4);
    cr_expect_eq(d->lse.different, 0);
    cr_expect_not(d->found);
    cr_expect_eq(d->square[0], 0);
    finish(&t);
}

Test(drift_diff, counts_places_and_measures) {
    two_outputs t = make();
    ((uint16_t *)t.b.out)[1 * MLA_HEAD_DIM_V + 9] ^= 1;  /* sequence 0, head 1 */
    ((uint16_t *)t.b.out)[3 * MLA_HEAD_DIM_V + 20] ^= 4; /* sequence 1, head 1 */
    ((uint16_t *)t.a.out)[2 * MLA_HEAD_DIM_V + 5] ^= 1;  /* sequence 1, head 0 */
    t.b.lse[2] += 0.25f;
    const mla_difference *d = difference_of(&t);
    cr_expect_eq(d->out.different, 3);
    cr_expect_eq(d->steps[0], 2);
    cr_expect_eq(d->steps[2], 1, "4 ulp lie in 3-4");
    cr_expect_eq(d->most_ulp, 4);
    cr_expect(d->farther[0] == 1 && d->farther[1] == 2);
    cr_expect_gt(d->square[1], d->square[0]);
    cr_expect(d->sequences[0].different == 1 && d->sequences[1].different == 2 && d->sequences[2].total == 0);
    cr_expect(d->heads[0].different == 1 && d->heads[1].different == 2);
    cr_expect(d->first.sequence == 0 && d->first.head == 1 && d->first.column == 9);
    cr_expect(d->worst.sequence == 1 && d->worst.head == 1 && d->worst.column == 20);
    cr_expect_eq(d->lse.different, 1);
    cr_expect_float_eq(d->most_lse, 0.25, 1e-6);
    finish(&t);
}

Test(drift_diff, does_not_average_nan_in) {
    two_outputs t = make();
    ((uint16_t *)t.b.out)[7] = 0x7FC0;
    const mla_difference *d = difference_of(&t);
    cr_expect_eq(d->out.different, 1);
    cr_expect_eq(d->steps[MLA_ULP_STEPS - 1], 1);
    cr_expect_eq(d->most_ulp, 0);
    cr_expect(d->square[0] == 0 && d->square[1] == 0);
    finish(&t);
}

Test(drift_diff, compares_no_lse_where_one_has_none) {
    two_outputs t = make();
    float *lse = t.b.lse;
    t.b.lse = NULL;
    cr_expect_eq(difference_of(&t)->lse.total, 0);
    t.b.lse = lse;
    finish(&t);
}
