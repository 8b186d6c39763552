/* Transforms change what they say and nothing else; the table's counts are those of its cells. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../verify/memory.h"
#include "../verify/mutant.h"
#include "../verify/report_mutants.h"

static mla_case test_case;
static mla_inputs plain, changed;

static void parse(const char *line) {
    cr_assert_eq(mla_case_parse(line, &test_case).code, MLA_OK);
    cr_assert_eq(mla_inputs_make(&test_case, &plain).code, MLA_OK);
}

static void teardown(void) {
    mla_inputs_free(&plain);
    mla_inputs_free(&changed);
    mla_case_free(&test_case);
}

TestSuite(mutants, .fini = teardown);

static const mla_mutant *mutate(const char *name) {
    const mla_mutant *m = mla_mutant_find(name);
    cr_assert_not_null(m, "%s", name);
    mla_inputs_free(&changed);
    cr_assert_eq(mla_mutant_inputs(m, &test_case, &changed).code, MLA_OK);
    return m;
}

/* Token j of sequence b of the changed inputs is the plain ones' token at `slot`. */
static bool is_token(int32_t b, int64_t j, int64_t slot) {
    return memcmp(changed.kv.data + (changed.problem.kv_indptr[b] + j) * 1152, plain.kv.data + slot * 1152, 1152) == 0;
}

static void expect_tokens(const char *name, int32_t b, int count, const int64_t *slots) {
    mutate(name);
    cr_assert_eq(mla_kv_len(&changed.problem, b), count, "%s: %d tokens", name, mla_kv_len(&changed.problem, b));
    for (int j = 0; j < count; j++)
        cr_expect(is_token(b, j, slots[j]), "%s: token %d", name, j);
    cr_expect_eq(mla_problem_check(&changed.problem).code, MLA_OK);
}

/* Slots 0 1 2 | 3 4 5 6. */
Test(mutants, lists_of_tokens) {
    parse("heads=1 kv_len=3,4");
    expect_tokens("drop_first", 1, 3, (int64_t[]){4, 5, 6});
    expect_tokens("drop_middle", 1, 3, (int64_t[]){3, 4, 6});
    expect_tokens("drop_last", 0, 2, (int64_t[]){0, 1});
    expect_tokens("double_first", 0, 4, (int64_t[]){0, 0, 1, 2});
    expect_tokens("double_middle", 1, 5, (int64_t[]){3, 4, 5, 5, 6});
    expect_tokens("double_last", 0, 4, (int64_t[]){0, 1, 2, 2});
    expect_tokens("leak_before", 1, 5, (int64_t[]){2, 3, 4, 5, 6});
    expect_tokens("leak_before", 0, 4, (int64_t[]){6, 0, 1, 2});
    expect_tokens("leak_after", 0, 4, (int64_t[]){0, 1, 2, 3});
    expect_tokens("leak_middle", 1, 5, (int64_t[]){3, 4, 0, 5, 6});
    expect_tokens("wrong_sequence", 0, 3, (int64_t[]){3, 4, 5});
    expect_tokens("wrong_sequence", 1, 4, (int64_t[]){0, 1, 2, 3});
    expect_tokens("shifted_indptr", 1, 4, (int64_t[]){2, 3, 4, 5});
    expect_tokens("shifted_indptr", 0, 3, (int64_t[]){0, 1, 2});
    expect_tokens("first_half", 0, 2, (int64_t[]){0, 1});
    expect_tokens("drop_split", 1, 2, (int64_t[]){3, 4});
    expect_tokens("reversed", 0, 3, (int64_t[]){2, 1, 0});
    expect_tokens("rotated", 1, 4, (int64_t[]){4, 5, 6, 3});
}

Test(mutants, tiles_are_of_32) {
    parse("heads=1 kv_len=70,20");
    mutate("drop_tile");
    cr_expect_eq(mla_kv_len(&changed.problem, 0), 38);
    cr_expect(is_token(0, 31, 31) && is_token(0, 32, 64));
    cr_expect_eq(mla_kv_len(&changed.problem, 1), 20);
    mutate("drop_tail");
    cr_expect_eq(mla_kv_len(&changed.problem, 0), 64);
    cr_expect_eq(mla_kv_len(&changed.problem, 1), 20);
}

Test(mutants, scales_and_masks) {
    parse("heads=2 q_len=2 kv_len=9 causal=1 window=4 softcap=3 sink=1");
    mutate("scale_0.1%");
    cr_expect_eq(changed.problem.sm_scale, (float)(1.001 * (double)plain.problem.sm_scale));
    mutate("window_less");
    cr_expect_eq(changed.problem.window, 3);
    mutate("window_off");
    cr_expect_eq(changed.problem.window, 0);
    mutate("softcap_off");
    cr_expect_eq(changed.problem.softcap, 0);
    mutate("sink_off");
    cr_expect_null(changed.problem.sink);
    mutate("causal_off");
    cr_expect_not(changed.problem.causal);
    mutate("one_query");
    cr_expect_eq(memcmp(changed.q.data, plain.q.data, 2304), 0);
    cr_expect_eq(memcmp(changed.q.data + 2304, plain.q.data, 2304), 0);
    mutate("rope_ignored");
    cr_expect_eq(memcmp(changed.q.data, plain.q.data, 1024), 0);
    cr_expect(changed.q.data[1024] == 0 && changed.q.data[1151] == 0);
    cr_expect_eq(memcmp(changed.q.data + 1152, plain.q.data + 1152, 1024), 0);
}

Test(mutants, pages) {
    parse("heads=1 kv_len=10,8 page=4");
    const int64_t stride = plain.problem.block_table_stride;
    mutate("next_page");
    cr_expect_eq(changed.problem.block_table[0], plain.problem.block_table[1]);
    cr_expect_eq(changed.problem.block_table[2], plain.problem.block_table[0]);
    cr_expect_eq(changed.problem.block_table[stride + 1], plain.problem.block_table[stride]);
    mutate("page_tail");
    cr_expect_eq(mla_kv_len(&changed.problem, 0), 11);
    cr_expect_eq(mla_kv_len(&changed.problem, 1), 8, "a full page has no tail");
}

Test(mutants, formats) {
    parse("heads=1 kv_len=3 kv=mxfp4");
    mutate("swap_nibbles");
    cr_expect_eq(changed.kv.data[5], (uint8_t)(plain.kv.data[5] << 4 | plain.kv.data[5] >> 4));
    mutate("next_scale");
    cr_expect_eq(memcmp(changed.kv_block_scales.data + 18, plain.kv_block_scales.data + 19, 17), 0);
    cr_expect_eq(changed.kv_block_scales.data[35], plain.kv_block_scales.data[18]);
}

/* ---- outputs: row r, column c holds 1 + r + c / 512, in fp32 ---- */

static float out[4 * MLA_HEAD_DIM_V], lse[4];
static double exact[4 * MLA_HEAD_DIM_V], exact_lse[4];
static uint8_t kind[4];
static const mla_output output = {out, lse};

static void change(const char *name) {
    const mla_truth truth = {.tokens = 2, .rows = 4, .out = exact, .lse = exact_lse, .kind = kind};
    const mla_specimen specimen = {&plain.problem, &truth};
    const mla_mutant *m = mla_mutant_find(name);
    for (int r = 0; r < 4; r++) {
        lse[r] = (float)r + 1;
        exact_lse[r] = r + 1;
        for (int c = 0; c < MLA_HEAD_DIM_V; c++)
            exact[r * MLA_HEAD_DIM_V + c] = out[r * MLA_HEAD_DIM_V + c] = 1 + (float)r + (float)c / 512;
    }
    cr_assert(m && m->after, "%s", name);
    m->after(m, &specimen, &output);
}

/* Elements that are not what they were. */
static int changed_elements(void) {
    int count = 0;
    for (int i = 0; i < 4 * MLA_HEAD_DIM_V; i++)
        count += !((double)out[i] == exact[i]);
    return count;
}

Test(mutants, places_of_outputs) {
    parse("heads=2 batch=2 kv_len=3 out=fp32 sink=2");
    change("swap_heads");
    cr_expect_eq(changed_elements(), 4 * MLA_HEAD_DIM_V);
    cr_expect(out[0] == 2 && out[512] == 1 && out[1024] == 4 && lse[0] == 2 && lse[3] == 3);
    change("shift_columns");
    cr_expect(out[0] == 1 + 1 / 512.0f && out[511] == 1);
    change("swap_columns");
    cr_expect_eq(changed_elements(), 8);
    cr_expect(out[8] == 1 + 9 / 512.0f && out[9] == 1 + 8 / 512.0f);
    change("earlier_row");
    cr_expect_eq(changed_elements(), 256);
    cr_expect(out[1024 + 256] == 2.5f && out[1024 + 255] == 3 + 255 / 512.0f);
}

Test(mutants, stale_and_zero_outputs) {
    parse("heads=2 batch=2 kv_len=3 out=fp32 sink=2");
    change("zero_element");
    cr_expect_eq(changed_elements(), 1);
    cr_expect_eq(out[1024 + 511], 0, "the largest of the middle row");
    change("stale_column");
    cr_expect_eq(changed_elements(), 4);
    cr_expect(isnan(out[511]) && isnan(out[2047]));
    change("zero_row");
    cr_expect_eq(changed_elements(), 512);
    cr_expect_eq(out[1024], 0);
    change("stale_head");
    cr_expect_eq(changed_elements(), 1024);
    cr_expect(isnan(out[512]) && isnan(out[1536]));
    change("stale_lse");
    cr_expect(isnan(lse[2]) && lse[1] == 2);
    change("all_zero");
    cr_expect_eq(changed_elements(), 2048);
}

/* ln(e^1 + e^2) = 2.3132617; 3 / ln 2 = 4.3280851 */
Test(mutants, values_of_outputs) {
    parse("heads=2 batch=2 kv_len=3 out=fp32 sink=2");
    change("v_scale_1%");
    cr_expect_float_eq(out[0], 1.01f, 1e-7);
    change("next_code");
    cr_expect_eq(out[0], 1 + 0x1p-23f);
    change("one_bit_less");
    cr_expect_eq(changed_elements(), 0, "these have few bits");
    change("lse_base");
    cr_expect_float_eq(lse[2], 4.3280851f, 1e-6);
    change("lse_sink");
    cr_expect_float_eq(lse[0], 2.3132617f, 1e-6);
    change("lse_swap");
    cr_expect(lse[0] == 2 && lse[1] == 1 && changed_elements() == 0);
    kind[1] = MLA_ROW_EMPTY;
    change("empty_nan");
    cr_expect(isnan(out[512]) && changed_elements() == 512);
    change("lse_empty");
    cr_expect(lse[1] == -2 && lse[0] == 1);
    kind[1] = MLA_ROW_BOUND;
}

Test(mutants, names_are_distinct_and_hooks_are_there) {
    for (const mla_mutant *m = mla_mutants; m < mla_mutants + mla_num_mutants; m++) {
        cr_expect_eq(mla_mutant_find(m->name), m, "%s is there twice", m->name);
        cr_expect(m->tokens || m->before || m->after, "%s", m->name);
        cr_expect_null(strchr(m->name, ' '));
    }
    cr_expect_null(mla_mutant_find("no such"));
}

/* ---- the table ---- */

#define KILLED(by)                                                                                                                         \
    { .status = MLA_GRADE_KILLED, .killers = by, .out_changed = true }

/* Two cases; rival 0 fails the second case of `caught`, and the kernel itself once. */
Test(mutants, the_table_counts_its_cells) {
    mla_case_list cases = {0};
    cr_assert_eq(mla_case_list_add(&cases, "kv_len=3").code, MLA_OK);
    cr_assert_eq(mla_case_list_add(&cases, "kv_len=3 input=flat").code, MLA_OK);
    mla_grade itself[] = {{.status = MLA_GRADE_PASSED}, {.status = MLA_GRADE_PASSED, .rivals = 1}};
    mla_grade caught[] = {KILLED(MLA_BY_BOUND), {.status = MLA_GRADE_PASSED, .out_changed = true, .rivals = 1}};
    mla_grade lse_alone[] = {{.status = MLA_GRADE_KILLED, .killers = MLA_BY_LSE}, {.status = MLA_GRADE_NONE}};
    mla_grade survivor[] = {{.status = MLA_GRADE_SAME, .rivals = 1}, {.status = MLA_GRADE_PASSED, .out_changed = true}};
    mla_grade nowhere[] = {{.status = MLA_GRADE_SAME}, {.status = MLA_GRADE_NONE}};
    mla_mutant_row rows[] = {{"(itself)", "", true, MLA_CAUSE_NONE, 0, itself},
                             {"caught", "", false, MLA_CAUSE_NONE, 0.01, caught},
                             {"lse_alone", "", false, MLA_CAUSE_NONE, 0.002, lse_alone},
                             {"survivor", "", false, MLA_CAUSE_NONE, 0.001, survivor},
                             {"nowhere", "", false, MLA_CAUSE_NONE, 0, nowhere}};
    mla_mutant_report report = {.kernel = "k", .cases = &cases, .rows = rows, .num_rows = 5};
    mla_mutant_summary s = mla_mutant_summary_of(&report, MLA_OUR_GATE);
    cr_expect(s.mutants == 3 && s.killed == 2 && s.not_shown == 1, "%d %d %d", s.mutants, s.killed, s.not_shown);
    cr_expect(s.mutant_runs == 4 && s.killed_runs == 2, "%d %d", s.mutant_runs, s.killed_runs);
    cr_expect(s.benign == 1 && s.benign_passed == 1 && s.benign_runs == 2 && s.false_alarms == 0);
    cr_expect_eq(s.smallest_scale_error_caught, 0.002);
    cr_expect_not(mla_mutant_summary_good(&s), "one survived");
    const mla_killer_count by_bound = mla_killer_count_of(&report, 0), by_lse = mla_killer_count_of(&report, 2);
    cr_expect(by_bound.mutants == 1 && by_bound.runs == 1 && by_bound.alone == 1);
    cr_expect(by_lse.mutants == 1 && by_lse.alone == 1);
    s = mla_mutant_summary_of(&report, 0);
    cr_expect(s.mutants == 2 && s.killed == 1 && s.benign_passed == 0 && s.false_alarms == 1);
    report.num_rows = 3;
    s = mla_mutant_summary_of(&report, MLA_OUR_GATE);
    cr_expect(mla_mutant_summary_good(&s));
    itself[0].status = MLA_GRADE_KILLED;
    s = mla_mutant_summary_of(&report, MLA_OUR_GATE);
    cr_expect_not(mla_mutant_summary_good(&s), "a false alarm");
    mla_case_list_free(&cases);
}

/* One code too large, outputs stay within their bounds. */
Test(mutants, the_next_code_of_an_exact_result_is_seen_by_its_bits) {
    mla_subject subject = {.spec = "splitk@host:mma"};
    mla_exam exam;
    mla_grade grade;
    const mla_mutant *m = mla_mutant_find("next_code");
    parse("heads=2 kv_len=200 input=exact plan=fixed:3");
    cr_assert_eq(mla_kernel_open(subject.spec, &subject.handle).code, MLA_OK);
    cr_assert_eq(mla_exam_make(&subject, &test_case, (mla_tolerance){0}, &exam, &grade).code, MLA_OK);
    cr_expect_eq(grade.status, MLA_GRADE_PASSED, "%s", grade.reason);
    m->after(m, &(mla_specimen){.problem = &exam.inputs.problem}, &exam.plain.output);
    const mla_contract contract = mla_kernel_contract(subject.handle.kernel, &exam.inputs.problem);
    cr_assert_eq(mla_exam_grade(&exam, &contract, &exam.plain, &exam.plain.output, (mla_tolerance){0}, &grade).code, MLA_OK);
    cr_expect_eq(grade.status, MLA_GRADE_KILLED);
    cr_expect_eq(grade.killers, MLA_BY_BITS);
    mla_exam_free(&exam);
    mla_kernel_close(&subject.handle);
}

/* An exam on the reference: the kernel passes, a wrong element does not, the same bits are the same. */
Test(mutants, an_exam_grades) {
    mla_subject subject = {.spec = "reference"};
    mla_exam exam;
    mla_grade grade;
    parse("heads=2 kv_len=40 input=needle");
    cr_assert_eq(mla_kernel_open("reference", &subject.handle).code, MLA_OK);
    cr_assert_eq(mla_exam_make(&subject, &test_case, (mla_tolerance){true, 1e-2, 1e-2}, &exam, &grade).code, MLA_OK);
    cr_expect_eq(grade.status, MLA_GRADE_PASSED, "%s", grade.reason);
    cr_expect_eq(grade.rivals, 0);
    const mla_contract contract = mla_kernel_contract(subject.handle.kernel, &exam.inputs.problem);
    cr_assert_eq(mla_exam_grade(&exam, &contract, &exam.plain, &exam.plain.output, (mla_tolerance){0}, &grade).code, MLA_OK);
    cr_expect_eq(grade.status, MLA_GRADE_SAME);
    ((uint16_t *)exam.plain.output.out)[3] = 0x4080; /* 4 */
    cr_assert_eq(mla_exam_grade(&exam, &contract, &exam.plain, &exam.plain.output, (mla_tolerance){true, 1, 1}, &grade).code, MLA_OK);
    cr_expect_eq(grade.status, MLA_GRADE_KILLED);
    cr_expect_eq(grade.killers, MLA_BY_BOUND);
    cr_expect(grade.rivals >> mla_num_rivals & 1, "the user's tolerance");
    cr_expect_not(grade.rivals & 1, "the contest's");
    mla_exam_free(&exam);
    mla_kernel_close(&subject.handle);
}
