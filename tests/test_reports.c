/*
 * Kinds of bug that users have reported in public, as numbered in data/reports.cases: a kernel with the bug fails a case of its kind, and the same
 * kernel without it passes.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../verify/inputs.h"
#include "../verify/run.h"
#include "support_buggy_kernel.h"
#include "support_problem.h"

#define KINDS 17

static mla_verdict_status grade(test_bug bug, const mla_case *test, char reason[320]) {
    test_buggy buggy = {.bug = bug};
    const mla_kernel kernel = test_buggy_kernel(&buggy);
    const mla_subject subject = {.spec = "buggy", .opened = mla_ok(), .handle = {.kernel = &kernel}};
    mla_result result;
    mla_run_case(&subject, test, NULL, &result);
    const mla_verdict_status status = result.verdict.status;
    snprintf(reason, 320, "%s", result.verdict.reason);
    mla_result_free(&result);
    return status;
}

/* Cases under the heading "# N." of the file. */
static mla_case_list cases_of(int kind) {
    FILE *file = fopen("data/reports.cases", "r");
    cr_assert_not_null(file);
    mla_case_list list = {0};
    char line[512];
    int heading = 0;
    while (fgets(line, sizeof line, file)) {
        sscanf(line, "# %d.", &heading);
        line[strcspn(line, "#\n")] = '\0';
        if (heading == kind && *line)
            cr_assert_eq(mla_case_list_add(&list, line).code, MLA_OK, "%s", line);
    }
    fclose(file);
    return list;
}

typedef struct report {
    int kind;
    test_bug bug;
    int only; /* of the kind's cases the one that must fail, counted from 1; 0: all */
} report;

ParameterizedTestParameters(reports, a_kernel_with_the_bug_fails) {
    static report all[] = {
        {1, TEST_ONE_QUERY, 0},     {2, TEST_EMPTY_SPLIT, 0},  {3, TEST_MASKED_TILE, 0},   {4, TEST_EMPTY_ROW, 0},
        {5, TEST_PAGE_TAIL, 0},     {6, TEST_OFFSETS_31, 1},   {6, TEST_OFFSETS_32, 2},    {6, TEST_SCALE_OFFSETS_32, 4},
        {7, TEST_WORK_LIST, 0},     {8, TEST_BARE_EXP, 0},     {11, TEST_MERGE_BASE, 0},   {12, TEST_MASKED_TILE, 0},
        {13, TEST_PADDING_ROWS, 0}, {14, TEST_TANH_BY_EXP, 0}, {15, TEST_PAGE_IS_SLOT, 0}, {16, TEST_UNSCALED_V, 1},
        {17, TEST_MERGE_EMPTY, 0},
    };
    return cr_make_param_array(report, all, sizeof all / sizeof *all);
}

ParameterizedTest(report *known, reports, a_kernel_with_the_bug_fails) {
    mla_case_list list = cases_of(known->kind);
    char reason[320];
    for (int i = 0; i < list.count; i++)
        if (known->only == 0 || known->only == i + 1)
            cr_expect_eq(grade(known->bug, &list.cases[i], reason), MLA_FAILED, "bug %d passes case %d of kind %d: %s", known->bug, i,
                         known->kind, reason);
    mla_case_list_free(&list);
}

Test(reports, the_kernel_without_a_bug_passes) {
    char reason[320];
    for (int kind = 1; kind <= KINDS; kind++) {
        mla_case_list list = cases_of(kind);
        cr_assert_gt(list.count, 0, "kind %d has no case", kind);
        for (int i = 0; i < list.count; i++)
            cr_expect_eq(grade(TEST_NO_BUG, &list.cases[i], reason), MLA_PASSED, "kind %d, case %d: %s", kind, i, reason);
        mla_case_list_free(&list);
    }
}

/* ---- kinds of which one launch shows nothing ---- */

/* The first case of a kind. */
static void make_inputs(int kind, mla_inputs *inputs) {
    mla_case_list list = cases_of(kind);
    cr_assert_gt(list.count, 0);
    const mla_status status = mla_inputs_make(&list.cases[0], inputs);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    mla_case_list_free(&list);
}

static mla_output launch(const mla_kernel *kernel, const mla_problem *problem) {
    mla_output output = test_output_make(problem);
    void *workspace = malloc(kernel->workspace(kernel, problem));
    const mla_launch arguments = {.problem = problem, .host = problem, .output = &output, .workspace = workspace};
    const mla_status status = mla_kernel_run(kernel, &arguments);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    free(workspace);
    return output;
}

/* Rows of the first query token of both outputs. */
static bool same_bits(const mla_problem *problem, const mla_output *a, const mla_output *b) {
    const size_t row = MLA_HEAD_DIM_V * mla_format_bytes(problem->out_format);
    return memcmp(a->out, b->out, (size_t)problem->heads * row) == 0 && memcmp(a->lse, b->lse, (size_t)problem->heads * sizeof(float)) == 0;
}

/* Kind 9: sequence 0 in its batch, and alone. */
static bool depends_on_the_batch(test_bug bug) {
    test_buggy buggy = {.bug = bug};
    const mla_kernel kernel = test_buggy_kernel(&buggy);
    mla_inputs inputs;
    make_inputs(9, &inputs);
    mla_problem alone = inputs.problem;
    alone.batch = 1;
    alone.total_q = alone.qo_indptr[1];
    mla_output together = launch(&kernel, &inputs.problem), single = launch(&kernel, &alone);
    const bool same = same_bits(&alone, &together, &single);
    test_output_free(&together);
    test_output_free(&single);
    mla_inputs_free(&inputs);
    return !same;
}

Test(reports, batch_dependence_shows_against_the_sequence_alone) {
    cr_expect(depends_on_the_batch(TEST_BATCH_SPLITS));
    cr_expect_not(depends_on_the_batch(TEST_NO_BUG));
}

/* Kind 10: the same launch twice. */
static bool differs_between_launches(test_bug bug) {
    test_buggy buggy = {.bug = bug};
    const mla_kernel kernel = test_buggy_kernel(&buggy);
    mla_inputs inputs;
    make_inputs(10, &inputs);
    mla_output first = launch(&kernel, &inputs.problem), second = launch(&kernel, &inputs.problem);
    const bool same = same_bits(&inputs.problem, &first, &second);
    test_output_free(&first);
    test_output_free(&second);
    mla_inputs_free(&inputs);
    return !same;
}

Test(reports, an_order_of_summation_that_changes_shows_in_the_second_launch) {
    cr_expect(differs_between_launches(TEST_LAUNCH_ORDER));
    cr_expect_not(differs_between_launches(TEST_NO_BUG));
}
