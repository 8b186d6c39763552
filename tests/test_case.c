#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../verify/case.h"

static mla_case parsed(const char *line) {
    mla_case c;
    const mla_status status = mla_case_parse(line, &c);
    cr_assert_eq(status.code, MLA_OK, "'%s': %s", line, status.message);
    return c;
}

static void expect_print(const char *line, const char *canonical) {
    mla_case c = parsed(line);
    char *printed = mla_case_print(&c);
    cr_assert_str_eq(printed, canonical);
    free(printed);
    mla_case_free(&c);
}

/* The message must hold `part`, so that the user sees what is wrong. */
static void expect_refusal(const char *line, const char *part) {
    mla_case c;
    const mla_status status = mla_case_parse(line, &c);
    cr_assert_eq(status.code, MLA_EINVAL, "'%s' is accepted", line);
    cr_assert_not_null(strstr(status.message, part), "'%s' gives: %s", line, status.message);
    mla_case_free(&c);
}

static void expect_lengths(const int32_t *lengths, int32_t batch, int count, const int32_t *expected) {
    cr_assert_eq(batch, count);
    for (int i = 0; i < count; i++)
        cr_assert_eq(lengths[i], expected[i], "length %d is %d", i, lengths[i]);
}
#define EXPECT_LENGTHS(lengths, batch, ...)                                                                                                \
    expect_lengths(lengths, batch, (int)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)), (int32_t[]){__VA_ARGS__})

Test(grammar, an_empty_line_is_the_default_case) {
    mla_case c = parsed("");
    cr_assert_eq(c.heads, 16);
    EXPECT_LENGTHS(c.q_len, c.batch, 1);
    EXPECT_LENGTHS(c.kv_len, c.batch, 1024);
    cr_assert(c.q == MLA_BF16 && c.kv == MLA_KV_BF16 && c.out == MLA_BF16);
    cr_assert_eq(c.scale_stride, 0);
    cr_assert_eq(c.paging, MLA_CONTIGUOUS);
    cr_assert(!c.causal && !c.has_sink && c.window == 0 && c.softcap == 0 && c.q_pad == 0);
    cr_assert_eq(c.scale, (float)(1.0 / 24));
    cr_assert(c.lse_base == MLA_LSE_E && !c.lse_empty_positive);
    cr_assert_eq(c.input, MLA_INPUT_NORMAL);
    cr_assert_eq(c.split_policy, MLA_SPLIT_ADAPTIVE);
    cr_assert_eq(c.seed, 0);
    mla_case_free(&c);
    expect_print("", "");
}

Test(grammar, every_key_arrives) {
    mla_case c =
        parsed("seed=7 plan=fixed:8 input=needle out=fp32 lse=2,+inf window=100 sink=-1.5 softcap=30 scale=0.07216878364870322 causal=1 "
               "spread=1000 page=64 scale_stride=32 kv=mxfp4 q=fp8 q_pad=3 kv_len=10,20 q_len=2 heads=128");
    cr_assert_eq(c.heads, 128);
    EXPECT_LENGTHS(c.q_len, c.batch, 2, 2);
    EXPECT_LENGTHS(c.kv_len, c.batch, 10, 20);
    cr_assert_eq(c.q_pad, 3);
    cr_assert(c.q == MLA_FP8 && c.kv == MLA_KV_MXFP4 && c.out == MLA_FP32);
    cr_assert_eq(c.scale_stride, 32);
    cr_assert(c.paging == MLA_PAGED && c.page_size == 64);
    cr_assert_eq(c.spread, 1000);
    cr_assert(c.causal && c.window == 100 && c.softcap == 30);
    cr_assert(c.has_sink && !c.sink_random && c.sink == -1.5f);
    cr_assert_eq(c.scale, 0x1.279a74p-4f); /* 1/sqrt(192) */
    cr_assert(c.lse_base == MLA_LSE_2 && c.lse_empty_positive);
    cr_assert_eq(c.input, MLA_INPUT_NEEDLE);
    cr_assert(c.split_policy == MLA_SPLIT_FIXED && c.split_arg == 8);
    cr_assert_eq(c.seed, 7);
    mla_case_free(&c);
}

Test(grammar, prints_in_table_order_what_differs) {
    expect_print("seed=7 heads=16 kv_len=1000,65 plan=fixed:8 input=needle", "kv_len=1000,65 input=needle plan=fixed:8 seed=7");
    expect_print("seed=7 plan=size:16 input=flat out=fp32 lse=2,+inf window=100 sink=rand softcap=30.0 scale=1/16 causal=1 page=64 "
                 "spread=1000 scale_stride=32 kv=mxfp4 q=fp8 q_pad=3 kv_len=10,20 q_len=2 heads=128",
                 "heads=128 q_len=2 kv_len=10,20 q_pad=3 q=fp8 kv=mxfp4 scale_stride=32 page=64 spread=1000 causal=1 scale=1/16 softcap=30 "
                 "sink=rand "
                 "window=100 lse=2,+inf out=fp32 input=flat plan=size:16 seed=7");
    expect_print("heads=16 batch=1 q_len=1 kv_len=1024 q_pad=0 q=bf16 kv=bf16 page=none spread=off causal=0 scale=1/24 softcap=off "
                 "sink=off window=off "
                 "lse=e,-inf out=bf16 input=normal plan=adaptive seed=0",
                 "");
    expect_print("page=topk:64", "page=topk:64");
    expect_print("page=list lse=e,+inf plan=balanced", "page=list lse=e,+inf plan=balanced");
    expect_print("kv=mxfp4 scale_stride=18", "kv=mxfp4");
    expect_print("lse=2,-inf", "lse=2");
    expect_print("softcap=0.1 sink=0", "softcap=0.1 sink=0");
    expect_print("sink=0.1234567891", "sink=0.12345679");
    expect_print("\t seed=007  heads=8 ", "heads=8 seed=7");
    expect_print("scale=1.0/24", "scale=1.0/24");
}

Test(grammar, lists_repeat_mix_and_replicate) {
    mla_case c = parsed("q_len=1*2,3 kv_len=5,6*2");
    EXPECT_LENGTHS(c.q_len, c.batch, 1, 1, 3);
    EXPECT_LENGTHS(c.kv_len, c.batch, 5, 6, 6);
    mla_case_free(&c);
    c = parsed("batch=3 kv_len=0");
    EXPECT_LENGTHS(c.q_len, c.batch, 1, 1, 1);
    EXPECT_LENGTHS(c.kv_len, c.batch, 0, 0, 0);
    mla_case_free(&c);
    expect_print("kv_len=8,8,8", "batch=3 kv_len=8");
    expect_print("kv_len=8*3", "batch=3 kv_len=8");
    expect_print("batch=3 q_len=2,2,1", "q_len=2*2,1");
    expect_print("q_len=1*3 kv_len=7,8,9", "kv_len=7,8,9");
    expect_print("kv_len=rand(1..9)*2,4,rand(0..0)", "kv_len=rand(1..9)*2,4,rand(0..0)");
}

Test(grammar, rand_draws_each_length_from_the_seed) {
    mla_case a = parsed("batch=200 kv_len=rand(5..8) seed=1"), b = parsed("batch=200 kv_len=rand(5..8) seed=1");
    mla_case other = parsed("batch=200 kv_len=rand(5..8) seed=2"), spelt = parsed("kv_len=rand(5..8)*100,rand(5..8)*100 seed=1");
    int seen[9] = {0}, differ = 0;
    for (int i = 0; i < 200; i++) {
        cr_assert(a.kv_len[i] >= 5 && a.kv_len[i] <= 8);
        seen[a.kv_len[i]]++;
        cr_assert_eq(a.kv_len[i], b.kv_len[i]);
        cr_assert_eq(a.kv_len[i], spelt.kv_len[i]);
        differ += a.kv_len[i] != other.kv_len[i];
    }
    for (int length = 5; length <= 8; length++)
        cr_assert_gt(seen[length], 20);
    cr_assert_gt(differ, 50);
    mla_case_free(&a);
    mla_case_free(&b);
    mla_case_free(&other);
    mla_case_free(&spelt);
}

Test(grammar, refusals_name_key_value_and_reason) {
    expect_refusal("kv_len=-3", "kv_len=-3: ");
    expect_refusal("nosuchkey=1", "nosuchkey");
    expect_refusal("heads", "heads: expected key=value");
    expect_refusal("heads=2 heads=2", "heads is given twice");
    expect_refusal("heads=0", "heads=0: 0 is not in 1 .. 1024");
    expect_refusal("heads=1025", "heads=1025: ");
    expect_refusal("heads=8x", "heads=8x: 'x' follows");
    expect_refusal("heads=", "heads=: expected an integer");
    expect_refusal("heads=+8", "heads=+8: ");
    expect_refusal("batch=0", "batch=0: ");
    expect_refusal("kv_len=4294967297", "4294967297 is not in 0 .. 2147483647");
    expect_refusal("seed=18446744073709551616", "18446744073709551616 is not in");
    expect_refusal("seed=-1", "seed=-1: ");
    expect_refusal("kv_len=1,", "kv_len=1,: ");
    expect_refusal("kv_len=1,,2", "kv_len=1,,2: ");
    expect_refusal("kv_len=1*0", "kv_len=1*0: ");
    expect_refusal("kv_len=1;2", "';2'");
    expect_refusal("kv_len=rand(3..2)", "2 is not in 3 ..");
    expect_refusal("kv_len=rand(3.2)", "rand(A..B)");
    expect_refusal("kv_len=rand(1..2", "rand(A..B)");
    expect_refusal("q=fp32", "q=fp32: expected bf16");
    expect_refusal("kv=fp32", "kv=fp32: expected bf16");
    expect_refusal("out=fp8", "out=fp8: expected bf16");
    expect_refusal("causal=yes", "causal=yes: expected 0 or 1");
    expect_refusal("page=0", "page=0: ");
    expect_refusal("page=topk:0", "page=topk:0: ");
    expect_refusal("page=big", "page=big: ");
    expect_refusal("window=0", "window=0: ");
    expect_refusal("lse=10", "lse=10: ");
    expect_refusal("lse=e,inf", "lse=e,inf: ");
    expect_refusal("plan=fixed:0", "plan=fixed:0: ");
    expect_refusal("plan=fixed", "plan=fixed: ");
    expect_refusal("input=gauss", "normal uniform rising");
}

Test(grammar, floats_are_decimal_finite_and_whole) {
    expect_refusal("scale=0", "scale=0: must be finite and > 0");
    expect_refusal("scale=-1", "scale=-1: must be finite and > 0");
    expect_refusal("scale=1/0", "scale=1/0: must be finite and > 0");
    expect_refusal("scale=1e-60", "must be finite and > 0");
    expect_refusal("scale=1e60", "beyond the range of float");
    expect_refusal("scale=nan", "expected a decimal number");
    expect_refusal("scale=inf", "expected a decimal number");
    expect_refusal("scale=0x1p-4", "expected a decimal number");
    expect_refusal("scale=1/2/3", "expected a decimal number");
    expect_refusal("scale=1/24 junk", "junk: expected key=value");
    expect_refusal("scale=0.00000000000000000000000000000001", "longer than 31");
    expect_refusal("softcap=0", "softcap=0: must be > 0");
    expect_refusal("softcap=nan", "softcap=nan: ");
    expect_refusal("sink=", "sink=: ");
    expect_refusal("sink=1f", "sink=1f: ");
}

Test(grammar, contradictions_name_both_sides) {
    expect_refusal("q_len=1,2 kv_len=1,2,3", "q_len has 2 lengths, but kv_len has 3");
    expect_refusal("batch=4 kv_len=1,2,3", "kv_len has 3 lengths, but batch is 4");
    expect_refusal("batch=1 q_len=2*3", "q_len has 3 lengths, but batch is 1");
    expect_refusal("page=topk:8 causal=1", "causal=1 with page=topk:8");
    expect_refusal("window=5 page=topk:8", "window=5 with page=topk:8");
    expect_refusal("scale_stride=18", "only kv=mxfp4");
    expect_refusal("kv=mxfp4 scale_stride=17", "scale_stride=17: 17 is not in 18");
    expect_refusal("kv_len=65,1 page=64 spread=191", "spread=191: the sequences take up 192 slots");
    expect_refusal("kv_len=65,1 page=list spread=65", "spread=65: the sequences take up 66 slots");
    expect_refusal("input=exact softcap=30", "softcap=off");
    expect_refusal("input=exact sink=0", "sink=off");
    expect_refusal("input=exact window=8 q_len=1,65", "q_len[1] is 65");
}

Test(grammar, totals_fit_an_indptr) {
    mla_case c = parsed("kv_len=2147483647");
    cr_assert_eq(c.kv_len[0], INT32_MAX);
    mla_case_free(&c);
    expect_refusal("kv_len=2147483647,1", "2147483648 tokens");
    expect_refusal("q_len=2147483640 q_pad=8", "2147483648 tokens");
    expect_refusal("batch=4194305", "batch=4194305: ");
    expect_refusal("kv_len=1*4194304,1", "more than 4194304 lengths");
}

Test(grammar, a_failed_parse_can_be_freed) {
    mla_case c;
    cr_assert_eq(mla_case_parse("kv_len=1,2 kv_len=3", &c).code, MLA_EINVAL);
    mla_case_free(&c);
    mla_case_free(&c);
}

/* ---- lists of cases ---- */

Test(case_list, random_cases_print_and_parse_back) {
    enum { COUNT = 4000 };
    mla_case_list list = {0};
    cr_assert_eq(mla_case_list_random(&list, COUNT, 42).code, MLA_OK);
    cr_assert_eq(list.count, COUNT);
    for (int i = 0; i < COUNT; i++) {
        const mla_case *c = &list.cases[i];
        char *line = mla_case_print(c);
        mla_case again = parsed(line);
        char *printed = mla_case_print(&again);
        cr_assert_str_eq(printed, line);
        cr_assert_eq(memcmp(again.kv_len, c->kv_len, (size_t)c->batch * sizeof(int32_t)), 0);
        cr_assert(again.batch == c->batch && again.seed == c->seed && again.scale == c->scale && again.paging == c->paging &&
                  again.sink == c->sink && again.softcap == c->softcap && again.scale_stride == c->scale_stride);
        free(printed);
        free(line);
        mla_case_free(&again);
    }
    mla_case_list_free(&list);
}

Test(case_list, random_cases_keep_their_limits_and_reach_the_whole_grammar) {
    enum { COUNT = 4000 };
    mla_case_list list = {0};
    cr_assert_eq(mla_case_list_random(&list, COUNT, 3).code, MLA_OK);
    int families[MLA_INPUT_COUNT] = {0}, kv[MLA_KV_FORMAT_COUNT] = {0}, paging[4] = {0}, plans[4] = {0};
    int causal = 0, window = 0, softcap = 0, sink = 0, padded = 0, empty = 0, positive = 0, base2 = 0, spread = 0;
    for (int i = 0; i < COUNT; i++) {
        const mla_case *c = &list.cases[i];
        int64_t tokens = 0, rows = c->q_pad;
        for (int32_t b = 0; b < c->batch; b++) {
            tokens += c->kv_len[b];
            rows += c->q_len[b];
            empty += c->kv_len[b] == 0;
        }
        cr_assert_leq(tokens, 65536);
        cr_assert_leq(rows * c->heads, 512);
        families[c->input]++;
        kv[c->kv]++;
        paging[c->paging]++;
        plans[c->split_policy]++;
        causal += c->causal;
        window += c->window > 0;
        softcap += c->softcap > 0;
        sink += c->has_sink;
        padded += c->q_pad > 0;
        positive += c->lse_empty_positive;
        base2 += c->lse_base == MLA_LSE_2;
        spread += c->spread > 0;
    }
    for (int i = 0; i < MLA_INPUT_COUNT; i++)
        cr_assert_gt(families[i], 50, "%s", mla_family_name((mla_family)i));
    for (int i = 0; i < MLA_KV_FORMAT_COUNT; i++)
        cr_assert_gt(kv[i], 50);
    for (int i = 0; i < 4; i++)
        cr_assert(paging[i] > 50 && plans[i] > 50);
    cr_assert(causal > 50 && window > 50 && softcap > 50 && sink > 50 && padded > 50 && empty > 50 && positive > 50 && base2 > 50 &&
              spread > 50);
    mla_case_list_free(&list);
}

Test(case_list, a_random_case_does_not_depend_on_how_many_are_drawn) {
    mla_case_list few = {0}, many = {0};
    cr_assert_eq(mla_case_list_random(&few, 3, 9).code, MLA_OK);
    cr_assert_eq(mla_case_list_random(&many, 10, 9).code, MLA_OK);
    char *a = mla_case_print(&few.cases[2]), *b = mla_case_print(&many.cases[2]);
    cr_assert_str_eq(a, b);
    free(a);
    free(b);
    mla_case_list_free(&few);
    mla_case_list_free(&many);
}

static void write_file(char *path, const char *text) {
    const int descriptor = mkstemp(path);
    cr_assert_geq(descriptor, 0);
    cr_assert_eq(write(descriptor, text, strlen(text)), (ssize_t)strlen(text));
    close(descriptor);
}

Test(case_list, files_hold_cases_comments_and_blank_lines) {
    char path[] = "/tmp/test_case_XXXXXX";
    write_file(path, "# comment\n\nheads=8 # and why\r\n  \t\n   seed=3\nkv_len=5");
    mla_case_list list = {0};
    const mla_status status = mla_case_list_read(&list, path);
    unlink(path);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    cr_assert_eq(list.count, 3);
    cr_assert(list.cases[0].heads == 8 && list.cases[1].seed == 3 && list.cases[2].kv_len[0] == 5);
    mla_case_list_free(&list);
}

Test(case_list, an_error_in_a_file_names_file_and_line) {
    char path[] = "/tmp/test_case_XXXXXX", where[64];
    write_file(path, "heads=8\n# fine\nheads=0\n");
    mla_case_list list = {0};
    const mla_status status = mla_case_list_read(&list, path);
    unlink(path);
    snprintf(where, sizeof where, "%s:3: heads=0", path);
    cr_assert_eq(status.code, MLA_EINVAL);
    cr_assert_not_null(strstr(status.message, where), "%s", status.message);
    cr_assert_eq(list.count, 1);
    cr_assert_eq(mla_case_list_read(&list, "/nonexistent/file").code, MLA_EIO);
    mla_case_list_free(&list);
}

Test(case_list, the_case_files_of_the_tree_parse) {
    const char *const files[] = {"data/smoke.cases",   "data/ragged.cases", "data/edges.cases", "data/contest.cases", "data/large.cases",
                                 "data/formats.cases", "data/paging.cases", "data/masks.cases", "data/reports.cases"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        mla_case_list list = {0};
        const mla_status status = mla_case_list_read(&list, files[i]);
        cr_assert_eq(status.code, MLA_OK, "%s", status.message);
        cr_assert_gt(list.count, 5);
        mla_case_list_free(&list);
    }
}
