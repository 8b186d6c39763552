/* Shrinking, with failures whose smallest case is known. */
#include "../verify/shrink.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static mla_case test_case;
static int trials;

static char *shrink_within(const char *line, mla_shrink_limits limits, mla_still_fails fails) {
    trials = 0;
    cr_assert_eq(mla_case_parse(line, &test_case).code, MLA_OK);
    char *smallest = mla_shrink(&test_case, limits, fails, NULL);
    mla_case_free(&test_case);
    cr_assert_not_null(smallest);
    return smallest;
}

static void expect_smallest(const char *line, mla_still_fails fails, const char *expected) {
    char *smallest = shrink_within(line, (mla_shrink_limits){1000, 60}, fails);
    cr_expect_str_eq(smallest, expected);
    free(smallest);
}

static bool always(void *context, const mla_case *test) {
    (void)context, (void)test;
    trials++;
    return true;
}

static bool never(void *context, const mla_case *test) {
    (void)context, (void)test;
    trials++;
    return false;
}

Test(shrink, what_always_fails_shrinks_to_one_row_without_keys) {
    expect_smallest("heads=128 batch=64 kv_len=8192 seed=5", always, "heads=1 kv_len=0 seed=5");
    cr_expect_lt(trials, 12, "%d", trials);
    expect_smallest("kv_len=7,100,3 q_len=4 input=needle plan=fixed:8", always, "heads=1 kv_len=0 input=needle plan=fixed:8");
}

Test(shrink, what_nothing_smaller_fails_stays) {
    expect_smallest("heads=3 kv_len=5,6 q_len=2,1 seed=7", never, "heads=3 q_len=2,1 kv_len=5,6 seed=7");
    expect_smallest("heads=1 kv_len=0", never, "heads=1 kv_len=0");
    cr_expect_eq(trials, 0);
}

/* A sequence of 100 keys or more, 3 query tokens, and 17 heads. */
static bool needs_a_long_one(void *context, const mla_case *test) {
    (void)context;
    trials++;
    bool found = false;
    for (int32_t b = 0; b < test->batch; b++)
        found |= test->kv_len[b] >= 100 && test->q_len[b] >= 3;
    return found && test->heads >= 17;
}

Test(shrink, each_length_goes_to_its_own_limit) {
    expect_smallest("heads=128 kv_len=7,300,0,5 q_len=4 seed=1", needs_a_long_one, "heads=17 q_len=3 kv_len=100 seed=1");
    cr_expect_lt(trials, 50, "%d", trials);
    expect_smallest("heads=17 kv_len=rand(100..900)*40 q_len=3 page=16", needs_a_long_one, "heads=17 q_len=3 kv_len=100 page=16");
}

/* Two sequences, the second longer than the first. */
static bool needs_two(void *context, const mla_case *test) {
    (void)context;
    bool found = false;
    for (int32_t b = 1; b < test->batch; b++)
        found |= test->kv_len[b] > test->kv_len[b - 1];
    return found;
}

Test(shrink, sequences_that_are_needed_stay) {
    expect_smallest("heads=2 kv_len=9,8,7,6,5,30,4,3,2,1,0", needs_two, "heads=1 kv_len=0,1");
}

/* The case itself is one that can be typed: it is parsed by the shrinker before every trial. */
static bool is_case(void *context, const mla_case *test) {
    (void)context;
    char *line = mla_case_print(test);
    mla_case again;
    cr_expect_eq(mla_case_parse(line, &again).code, MLA_OK, "%s", line);
    cr_expect_eq(again.batch, test->batch);
    mla_case_free(&again);
    free(line);
    return test->batch % 2 == 1;
}

Test(shrink, every_trial_is_a_case) {
    expect_smallest("batch=9 q_len=rand(1..8) kv_len=rand(0..99) causal=1 kv=fp8 q_pad=3", is_case,
                    "heads=1 kv_len=0 q_pad=3 kv=fp8 causal=1");
}

Test(shrink, effort_is_bounded) {
    free(shrink_within("batch=4000 kv_len=rand(1..99999)*4000", (mla_shrink_limits){25, 60}, never));
    cr_expect_eq(trials, 25);
    free(shrink_within("batch=4000 kv_len=rand(1..99999)*4000", (mla_shrink_limits){1000000, 0}, never));
    cr_expect_leq(trials, 1);
}
