#include <criterion/criterion.h>
#include <cjson/cJSON.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../verify/output_file.h"
#include "../verify/report.h"

/* ---- results made by hand ---------------------------------------------------------------------------------------------------------- */

static int32_t lengths_q[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
static int32_t lengths_kv[10] = {1000, 65, 7, 7, 7, 7, 7, 7, 7, 7};
static mla_counts sequences[11];
static char line[] = "heads=1 kv_len=1000,65 seed=7";
static mla_case test_case;

static mla_result passing(void) {
    test_case = (mla_case){.heads = 1, .batch = 2, .q_len = lengths_q, .kv_len = lengths_kv, .out = MLA_BF16};
    memset(sequences, 0, sizeof sequences);
    sequences[0].total = sequences[1].total = 513;
    mla_result r = {.test = &test_case, .kernel = "theirs.so", .case_line = line, .measured = true};
    r.measure = (mla_measure){.out = {.total = 32768},
                              .lse = {.total = 64},
                              .rows = 64,
                              .max_err_over_bound = 0.35,
                              .max_ulp = 24242,
                              .max_cond_ulp = 0.24,
                              .max_lse_err = 1.3e-6,
                              .max_lse_over_bound = 0.1,
                              .sequences = sequences,
                              .batch = 2};
    r.measure.ulp_histogram[0] = 32768;
    r.measure.worst_ulp =
        (mla_sample){.present = true, .place = {.sequence = 1, .head = 3, .column = 90}, .exact = -3e-6, .abs = 1, .ulp = 24242};
    r.measure.worst = r.measure.worst_ulp;
    return r;
}

static mla_result failing(void) {
    mla_result r = passing();
    r.verdict = mla_verdict_make(MLA_FAILED, "512 of 32768 elements outside the bound");
    sequences[1].outside = r.measure.out.outside = 512;
    r.measure.max_err_over_bound = 113;
    r.measure.worst = (mla_sample){.present = true,
                                   .fault = MLA_FAULT_OUTSIDE,
                                   .place = {.sequence = 1, .head = 5, .column = 17},
                                   .code = 0x3F12,
                                   .got = 0.5703125,
                                   .exact = 1.032415,
                                   .bound = 0.0041,
                                   .err_over_bound = 113};
    return r;
}

static char *text_of(const mla_result *result, mla_text_style style) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    mla_text_result(stream, style, result);
    fclose(stream);
    return text;
}

static void expect_contains(const char *text, const char *part) {
    cr_expect(strstr(text, part) != NULL, "'%s' is not in:\n%s", part, text);
}

static void expect_lacks(const char *text, const char *part) {
    cr_expect(strstr(text, part) == NULL, "'%s' is in:\n%s", part, text);
}

/* ---- text ------------------------------------------------------------------------------------------------------------------------------ */

Test(report_text, a_passing_case) {
    mla_result r = passing();
    char *text = text_of(&r, (mla_text_style){0});
    cr_expect_eq(strncmp(text, "PASSED  heads=1 kv_len=1000,65 seed=7 ", 38), 0, "%s", text);
    expect_contains(text, "  theirs.so\n");
    expect_contains(text, "32,768 elements, 64 rows | |e|/B 0.35 | lse 1.3e-06, 0.1 of its bound | cond_ulp 0.24\n");
    expect_contains(text, "max 24242 at seq 1 q 0 head 3 col 90, where |O|/A = 3e-06\n");
    expect_lacks(text, "worst");
    expect_lacks(text, "repeat");
    expect_lacks(text, "wrong");
    free(text);
}

/* Four rows, one of them empty: 3 * 512 elements that a bound may hold. */
Test(report_text, a_contract_that_gates_nothing_is_named) {
    mla_result r = passing();
    r.measure.rows = 4;
    r.measure.empty_rows = 1;
    r.measure.out.total = 2048;
    r.measure.loose_elements = 1536;
    char *text = text_of(&r, (mla_text_style){0});
    expect_contains(text, "this contract gates nothing here: every bound is above A, and an output of zeros would pass\n");
    free(text);
    r.measure.loose_elements = 512;
    text = text_of(&r, (mla_text_style){0});
    expect_contains(text, "gated by little: 25 % of the elements have a bound above A, so that 0 would pass\n");
    expect_lacks(text, "gates nothing");
    free(text);
}

/* chi^2 in steps of 2^-16: 0.01. */
Test(report_text, errors_much_smaller_than_a_contract_that_was_asked_for) {
    mla_result r = passing();
    r.measure.chi = (mla_chi){.rows = 4, .square_sum = 2621};
    char *text = text_of(&r, (mla_text_style){0});
    expect_lacks(text, "smaller");
    free(text);
    r.contract = "p=fp8";
    text = text_of(&r, (mla_text_style){0});
    expect_contains(text, "errors are 10 times smaller than this contract explains: a tighter one would notice more\n");
    free(text);
    r.measure.chi.square_sum = 65536;
    text = text_of(&r, (mla_text_style){0});
    expect_lacks(text, "smaller");
    free(text);
}

Test(report_text, a_failing_case_says_where_and_how_to_repeat_it) {
    mla_result r = failing();
    char *text = text_of(&r, (mla_text_style){0});
    expect_contains(text, "FAILED  heads=1");
    expect_contains(text, "        512 of 32768 elements outside the bound\n");
    expect_contains(text, "seq 1 (q_len 1, kv_len 65): 512 of 513 values wrong\n");
    expect_contains(text, "the other 1: none\n");
    expect_contains(text, "worst: seq 1 q 0 head 5 col 17  got 0x3F12 = 0.5703125  exact 1.032415  bound 0.0041  |e|/B 113\n");
    expect_contains(text, "repeat: mla-verify run --kernel theirs.so --case 'heads=1 kv_len=1000,65 seed=7'\n");
    free(text);
}

Test(report_text, errors_of_the_wrong_size_point_to_inference) {
    mla_result r = passing();
    r.verdict = mla_verdict_make(MLA_FAILED, "errors are 1.37 times the size this contract explains");
    char *text = text_of(&r, (mla_text_style){0});
    expect_contains(text, "which rounding: mla-verify contract --kernel theirs.so --infer\n");
    free(text);
    r.golden = "golden.safetensors";
    text = text_of(&r, (mla_text_style){0});
    expect_lacks(text, "--infer");
    free(text);
    r = failing();
    text = text_of(&r, (mla_text_style){0});
    expect_lacks(text, "--infer");
    free(text);
}

Test(report_text, many_wrong_sequences_are_summed_up) {
    mla_result r = failing();
    test_case.batch = r.measure.batch = 10;
    for (int s = 0; s < 10; s++)
        sequences[s] = (mla_counts){.total = 513, .anomalies = s != 4};
    char *text = text_of(&r, (mla_text_style){0});
    expect_contains(text, "seq 6 (q_len 1, kv_len 7): 1 of 513 values wrong\n");
    expect_lacks(text, "seq 4 (");
    expect_lacks(text, "seq 7 (");
    expect_contains(text, "and 3 more sequences with wrong values\n");
    expect_contains(text, "the other 1: none\n");
    free(text);
}

Test(report_text, poison_padding_and_lse) {
    mla_result r = failing();
    sequences[2] = (mla_counts){.total = 513, .unwritten = 513};
    r.measure.worst = (mla_sample){.present = true, .fault = MLA_FAULT_UNWRITTEN, .place = {.sequence = -1, .column = 2}, .code = 0xFFFF};
    r.measure.worst_lse = (mla_sample){.present = true,
                                       .fault = MLA_FAULT_ANOMALY,
                                       .place = {.sequence = 0, .q = 2, .head = 1, .column = -1},
                                       .code = 0x7F800000,
                                       .got = INFINITY,
                                       .exact = 1.5};
    char *text = text_of(&r, (mla_text_style){0});
    expect_contains(text, "padding rows: 513 of 513 values wrong\n");
    expect_contains(text, "worst: padding q 0 head 0 col 2  never written: still the poison 0xFFFF  exact 0");
    expect_contains(text, "worst lse (natural log): seq 0 q 2 head 1  got 0x7F800000 = inf  exact 1.5");
    free(text);
}

Test(report_text, a_skipped_case_names_the_capability) {
    mla_result r = passing();
    r.measured = false;
    r.verdict = mla_verdict_make(MLA_SKIPPED, "no soft-cap");
    char *text = text_of(&r, (mla_text_style){0});
    expect_contains(text, "SKIPPED heads=1");
    expect_contains(text, "        no soft-cap\n");
    expect_lacks(text, "elements");
    expect_lacks(text, "repeat");
    free(text);
}

Test(report_text, quiet_keeps_failures_and_errors) {
    const char *shown[] = {[MLA_PASSED] = "", [MLA_SKIPPED] = "", [MLA_FAILED] = "FAILED", [MLA_ERROR] = "ERROR"};
    for (mla_verdict_status status = MLA_PASSED; status <= MLA_ERROR; status++) {
        mla_result r = passing();
        r.verdict = mla_verdict_make(status, "");
        char *text = text_of(&r, (mla_text_style){.quiet = true});
        cr_expect_eq(strncmp(text, shown[status], strlen(shown[status])), 0, "%s", text);
        cr_expect_eq(*text == '\0', *shown[status] == '\0');
        free(text);
    }
}

Test(report_text, colour_is_asked_for) {
    mla_result r = passing();
    char *plain = text_of(&r, (mla_text_style){0}), *coloured = text_of(&r, (mla_text_style){.colour = true});
    expect_lacks(plain, "\033");
    expect_contains(coloured, "\033[32mPASSED\033[0m");
    free(plain);
    free(coloured);
    FILE *file = tmpfile();
    cr_expect_not(mla_text_style_for(file, false).colour, "a file is no terminal");
    fclose(file);
}

static char *summary_text(const mla_summary *summary) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    mla_text_summary(stream, (mla_text_style){0}, summary);
    fclose(stream);
    return text;
}

static void add(mla_summary *summary, const mla_result *result) {
    cJSON *item = mla_json_result(result);
    mla_summary_add(summary, item);
    cJSON_Delete(item);
}

Test(report_text, the_summary_counts_and_keeps_the_worst) {
    mla_summary summary = {0};
    mla_result good = passing();
    add(&summary, &good);
    mla_result bad = failing();
    add(&summary, &bad);
    mla_result skipped = {.verdict = {.status = MLA_SKIPPED}};
    add(&summary, &skipped);
    char *text = summary_text(&summary);
    cr_expect_str_eq(
        text, "FAILED  1 passed, 1 failed, 1 skipped, 0 error | worst: |e|/B 1.1e+02  ulp 24242  cond_ulp 0.24  lse 0.1 of its bound\n");
    free(text);
}

Test(report_text, nothing_run_is_not_a_pass) {
    mla_summary summary = {.skipped = 3};
    char *text = summary_text(&summary);
    cr_expect_str_eq(text, "SKIPPED 0 passed, 0 failed, 3 skipped, 0 error | nothing was run: this is not a pass\n");
    free(text);
    summary.error = 1;
    text = summary_text(&summary);
    expect_contains(text, "FAILED  0 passed, 0 failed, 3 skipped, 1 error");
    free(text);
}

/* The shell itself says whether the quoting is right. */
Test(report_text, shell_quoting) {
    const char *words[] = {"./k.so", "splitk@host:cdna3", "", "heads=1 q=bf16", "a'b", "$HOME `id` \"x\"", "*", "~", "a;b"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char command[256], back[256] = "";
        char *quoted = mla_shell_quote(words[i]);
        snprintf(command, sizeof command, "printf %%s %s", quoted);
        FILE *shell = popen(command, "r");
        back[fread(back, 1, sizeof back - 1, shell)] = '\0';
        cr_expect_eq(pclose(shell), 0);
        cr_expect_str_eq(back, words[i]);
        free(quoted);
    }
    char *plain = mla_shell_quote("./k.so");
    cr_expect_str_eq(plain, "./k.so");
    free(plain);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------------------------------- */

static cJSON *json_of(const mla_result *results, int count) {
    mla_summary summary = {0};
    struct cJSON *report = mla_json_begin();
    for (int i = 0; i < count; i++) {
        cJSON *item = mla_json_result(&results[i]);
        mla_summary_add(&summary, item);
        cr_assert(mla_json_add(report, item));
    }
    char *text = mla_json_print(report, &summary);
    cJSON *parsed = cJSON_Parse(text);
    cr_assert_not_null(parsed, "not JSON:\n%s", text);
    free(text);
    mla_json_free(report);
    return parsed;
}

static double number(const cJSON *object, const char *name) {
    const cJSON *item = cJSON_GetObjectItem(object, name);
    cr_assert(cJSON_IsNumber(item), "%s is no number", name);
    return item->valuedouble;
}

static const char *string(const cJSON *object, const char *name) {
    const cJSON *item = cJSON_GetObjectItem(object, name);
    cr_assert(cJSON_IsString(item), "%s is no string", name);
    return item->valuestring;
}

Test(report_json, what_went_in_comes_out) {
    mla_result results[2] = {passing(), failing()};
    cJSON *json = json_of(results, 2);
    const cJSON *summary = cJSON_GetObjectItem(json, "summary"), *cases = cJSON_GetObjectItem(json, "cases");
    cr_expect_eq(number(summary, "passed"), 1);
    cr_expect_eq(number(summary, "failed"), 1);
    cr_expect_eq(number(summary, "skipped"), 0);
    cr_expect_eq(number(summary, "error"), 0);
    cr_assert_eq(cJSON_GetArraySize(cases), 2);
    const cJSON *bad = cJSON_GetArrayItem(cases, 1), *worst = cJSON_GetObjectItem(bad, "worst");
    cr_expect_str_eq(string(bad, "case"), line);
    cr_expect_str_eq(string(bad, "kernel"), "theirs.so");
    cr_expect_str_eq(string(bad, "status"), "FAILED");
    cr_expect_str_eq(string(bad, "reason"), "512 of 32768 elements outside the bound");
    cr_expect_eq(number(bad, "max_ulp"), 24242);
    cr_expect_eq(number(bad, "max_cond_ulp"), 0.24);
    cr_expect_eq(number(bad, "max_err_over_bound"), 113);
    cr_expect_eq(number(bad, "lse_err"), 1.3e-6);
    cr_expect_eq(number(cJSON_GetObjectItem(bad, "elements"), "outside"), 512);
    cr_expect_eq(number(worst, "sequence"), 1);
    cr_expect_eq(number(worst, "head"), 5);
    cr_expect_eq(number(worst, "column"), 17);
    cr_expect_str_eq(string(worst, "code"), "0x3F12");
    cr_expect_eq(number(worst, "got"), 0.5703125);
    cr_expect_eq(number(worst, "exact"), 1.032415);
    cr_expect_eq(number(worst, "bound"), 0.0041);
    cJSON_Delete(json);
}

Test(report_json, what_is_not_finite_is_a_string) {
    mla_result r = failing();
    r.measure.worst.got = NAN;
    r.measure.worst.exact = -INFINITY;
    r.measure.max_err_over_bound = INFINITY;
    cJSON *json = json_of(&r, 1);
    const cJSON *bad = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "cases"), 0), *worst = cJSON_GetObjectItem(bad, "worst");
    cr_expect_str_eq(string(worst, "got"), "NaN");
    cr_expect_str_eq(string(worst, "exact"), "-Infinity");
    cr_expect_str_eq(string(bad, "max_err_over_bound"), "Infinity");
    cJSON_Delete(json);
}

Test(report_json, what_was_not_measured_is_null) {
    mla_result r = passing();
    r.measured = false;
    r.verdict = mla_verdict_make(MLA_SKIPPED, "no \"soft-cap\"");
    cJSON *json = json_of(&r, 1);
    const cJSON *skipped = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "cases"), 0);
    cr_expect_str_eq(string(skipped, "reason"), "no \"soft-cap\"");
    cr_expect(cJSON_IsNull(cJSON_GetObjectItem(skipped, "max_ulp")));
    cr_expect_null(cJSON_GetObjectItem(skipped, "worst"));
    cJSON_Delete(json);
}

/* ---- files --------------------------------------------------------------------------------------------------------------------------------- */

static char folder[64], path[128];

static void make_folder(void) {
    snprintf(folder, sizeof folder, "/tmp/mla_report_XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/r.json", folder);
}

static void remove_folder(void) {
    unlink(path);
    cr_expect_eq(rmdir(folder), 0, "something was left in %s", folder);
}

TestSuite(output_file, .init = make_folder, .fini = remove_folder);

static void expect_file(const char *expected) {
    char text[64] = "";
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    cr_expect_str_eq(text, expected);
}

Test(output_file, writes_and_replaces) {
    cr_expect_eq(mla_output_file_check(path).code, MLA_OK);
    cr_expect_eq(access(path, F_OK), -1, "checking creates nothing");
    cr_expect_eq(mla_output_file_write(path, "one", 3).code, MLA_OK);
    expect_file("one");
    cr_expect_eq(mla_output_file_write(path, "second", 6).code, MLA_OK);
    expect_file("second");
}

Test(output_file, permissions_are_those_of_any_new_file) {
    umask(027);
    cr_expect_eq(mla_output_file_write(path, "x", 1).code, MLA_OK);
    struct stat info;
    cr_assert_eq(stat(path, &info), 0);
    cr_expect_eq(info.st_mode & 0777, 0640);
}

/* A pipe of our own, so that a defect here cannot replace the machine's devices. */
Test(output_file, a_pipe_is_written_and_stays_a_pipe) {
    struct stat info;
    char text[8] = "";
    cr_assert_eq(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    cr_expect_eq(mla_output_file_check(path).code, MLA_OK);
    cr_expect_eq(mla_output_file_write(path, "one", 3).code, MLA_OK);
    cr_expect_eq(read(reader, text, sizeof text), 3);
    cr_expect_str_eq(text, "one");
    close(reader);
    cr_assert_eq(stat(path, &info), 0);
    cr_expect(S_ISFIFO(info.st_mode));
}

Test(output_file, a_folder_is_made_once) {
    char *missing = NULL, *inside = NULL;
    struct stat info;
    cr_assert_geq(asprintf(&missing, "%s/missing", folder), 0);
    cr_assert_geq(asprintf(&inside, "%s/file/folder", folder), 0);
    cr_expect_eq(mla_output_folder_make("--out", missing).code, MLA_OK);
    cr_expect(stat(missing, &info) == 0 && S_ISDIR(info.st_mode));
    cr_expect_eq(mla_output_folder_make("--out", missing).code, MLA_OK, "it is there already");
    rmdir(missing);
    cr_expect_eq(mla_output_file_write(missing, "x", 1).code, MLA_OK);
    cr_expect_eq(mla_output_folder_make("--out", missing).code, MLA_EINVAL, "a file");
    cr_expect_eq(mla_output_folder_make("--out", inside).code, MLA_EIO, "its parent is not made");
    remove(missing);
    free(missing);
    free(inside);
}

Test(output_file, what_cannot_be_written_is_said) {
    cr_expect_eq(mla_output_file_check("").code, MLA_EINVAL);
    cr_expect_eq(mla_output_file_check(folder).code, MLA_EINVAL);
    cr_expect_eq(mla_output_file_check("/nonexistent/r.json").code, MLA_EIO);
    cr_expect_eq(mla_output_file_write("/nonexistent/r.json", "x", 1).code, MLA_EIO);
}
