/* Results of a run that several processes shared, or that was broken off: every one in its place, none twice, none forgotten. */
#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../verify/journal.h"
#include "../verify/report.h"

static char folder[] = "/tmp/mla-merge-XXXXXX", path[64];
static mla_case_list cases;
static const mla_subject subjects[] = {{.spec = "reference"}, {.spec = "./k.so"}};
static mla_journal journal;

static void setup(void) {
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/journal", folder);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(mla_case_list_add(&cases, (const char *[]){"heads=1 kv_len=5", "", "heads=3 kv_len=rand(1..9)"}[i]).code, MLA_OK);
}

static void teardown(void) {
    char command[64];
    mla_case_list_free(&cases);
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_expect_eq(system(command), 0);
}

TestSuite(merge, .init = setup, .fini = teardown);

static cJSON *describe(int32_t index, int32_t count) {
    cJSON *run = mla_run_describe(&cases, subjects, 2, &(mla_shard){.index = index, .count = count});
    cr_assert_not_null(run);
    return run;
}

static cJSON *result_of(int test, int kernel, mla_verdict_status status) {
    char *line = mla_case_print(&cases.cases[test]);
    const mla_result result = {.test = &cases.cases[test],
                               .kernel = subjects[kernel].spec,
                               .case_line = line,
                               .index = test,
                               .verdict = mla_verdict_make(status, "so it is")};
    cJSON *json = mla_json_result(&result);
    free(line);
    return json;
}

/* ---- descriptions and ledgers ------------------------------------------------------------------------------------------------------------ */

static bool same(const cJSON *left, const cJSON *right) {
    return !strcmp(mla_json_text(left, "digest"), mla_json_text(right, "digest"));
}

Test(merge, a_digest_is_that_of_cases_and_kernels) {
    cJSON *all = describe(0, 1), *part = describe(1, 3), *fewer = mla_run_describe(&cases, subjects, 1, &(mla_shard){.count = 1});
    cr_expect(same(all, part));
    cr_expect_not(same(all, fewer));
    cr_expect_null(cJSON_GetObjectItem(all, "lines"));
    cr_expect_str_eq(cJSON_GetArrayItem(cJSON_GetObjectItem(part, "lines"), 2)->valuestring, "heads=3 kv_len=rand(1..9)");
    cr_assert_eq(mla_case_list_add(&cases, "heads=4").code, MLA_OK);
    cJSON *more = describe(0, 1);
    cr_expect_not(same(all, more));
    cJSON_Delete(all);
    cJSON_Delete(part);
    cJSON_Delete(fewer);
    cJSON_Delete(more);
}

static void expect_refused(mla_ledger *ledger, cJSON *result, const char *message) {
    const mla_status status = mla_ledger_put(ledger, result);
    cr_expect_eq(status.code, MLA_EINVAL);
    cr_expect_str_eq(status.message, message);
}

Test(merge, a_ledger_has_every_result_once) {
    mla_ledger ledger;
    cr_assert_eq(mla_ledger_make(describe(0, 1), &ledger).code, MLA_OK);
    cr_expect_eq(mla_ledger_put(&ledger, result_of(2, 1, MLA_PASSED)).code, MLA_OK);
    expect_refused(&ledger, result_of(2, 1, MLA_FAILED), "case 2 is there twice for kernel ./k.so");
    expect_refused(&ledger, cJSON_Parse("{\"index\": 3, \"kernel\": \"./k.so\", \"case\": \"\", \"status\": \"PASSED\"}"),
                   "case 3 of kernel ./k.so is none of this run's");
    expect_refused(&ledger, cJSON_Parse("{\"index\": 1, \"kernel\": \"k\", \"case\": \"\", \"status\": \"PASSED\"}"),
                   "case 1 of kernel k is none of this run's");
    expect_refused(&ledger, cJSON_Parse("{\"index\": -1, \"kernel\": \"./k.so\", \"case\": \"\", \"status\": \"PASSED\"}"),
                   "no result of a case");
    expect_refused(&ledger, cJSON_Parse("{\"index\": 1, \"kernel\": \"./k.so\", \"case\": \"\"}"), "no result of a case");
    expect_refused(&ledger, cJSON_Parse("[]"), "no result of a case");
    expect_refused(&ledger, NULL, "no result of a case");
    cr_expect_eq(ledger.count, 1);
    cr_expect_null(mla_ledger_take(&ledger, 2, 0));
    cJSON *taken = mla_ledger_take(&ledger, 2, 1);
    cr_expect_str_eq(mla_json_text(taken, "status"), "PASSED");
    cr_expect_null(mla_ledger_take(&ledger, 2, 1));
    cJSON_Delete(taken);
    mla_ledger_free(&ledger);
}

Test(merge, what_describes_no_run_is_refused) {
    const char *bad[] = {"{}",
                         "[]",
                         "1",
                         "{\"digest\": \"d\", \"cases\": 0, \"kernels\": [\"k\"], \"shard\": 0, \"shards\": 1}",
                         "{\"digest\": \"d\", \"cases\": 1, \"kernels\": [], \"shard\": 0, \"shards\": 1}",
                         "{\"digest\": \"d\", \"cases\": 1, \"kernels\": [7], \"shard\": 0, \"shards\": 1}",
                         "{\"digest\": \"d\", \"cases\": 1, \"kernels\": [\"k\"], \"shard\": 1, \"shards\": 1}",
                         "{\"digest\": \"d\", \"cases\": 1e300, \"kernels\": [\"k\"], \"shard\": 0, \"shards\": 1}",
                         "{\"cases\": 1, \"kernels\": [\"k\"], \"shard\": 0, \"shards\": 1}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mla_ledger ledger;
        cr_expect_eq(mla_ledger_make(cJSON_Parse(bad[i]), &ledger).code, MLA_EINVAL, "%s", bad[i]);
        mla_ledger_free(&ledger);
    }
}

/* ---- journals ------------------------------------------------------------------------------------------------------------------------------ */

static mla_status open_journal(int32_t index, int32_t count) {
    return mla_journal_open(path, describe(index, count), &journal);
}

static void expect_finished(int count) {
    const mla_status status = open_journal(0, 1);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    cr_expect_eq(journal.finished.count, count);
}

static void add_result(int test, int kernel) {
    cJSON *result = result_of(test, kernel, MLA_FAILED);
    cr_expect_eq(mla_journal_add(&journal, result).code, MLA_OK);
    cJSON_Delete(result);
}

static void append(const char *text) {
    FILE *file = fopen(path, "a");
    fputs(text, file);
    fclose(file);
}

Test(merge, a_journal_goes_on) {
    expect_finished(0);
    add_result(1, 0);
    mla_journal_close(&journal);
    expect_finished(1);
    add_result(0, 1);
    mla_journal_close(&journal);
    append("{\"index\": 2, \"kernel\": \"reference\", \"case\""); /* torn */
    expect_finished(2);
    add_result(2, 0);
    mla_journal_close(&journal);
    expect_finished(3);
    cJSON *kept = mla_ledger_take(&journal.finished, 2, 0), *made = result_of(2, 0, MLA_FAILED);
    cr_expect(cJSON_Compare(kept, made, true));
    cJSON_Delete(kept);
    cJSON_Delete(made);
    mla_journal_close(&journal);
}

Test(merge, a_journal_torn_in_its_first_line_starts_anew) {
    append("{\"digest\": \"");
    expect_finished(0);
    add_result(1, 0);
    mla_journal_close(&journal);
    expect_finished(1);
    mla_journal_close(&journal);
}

static void expect_no_journal(int32_t index, int32_t count, mla_code code, const char *message) {
    const mla_status status = open_journal(index, count);
    cr_expect_eq(status.code, code);
    cr_expect(strstr(status.message, message), "'%s' does not say '%s'", status.message, message);
    mla_journal_close(&journal);
}

Test(merge, what_is_no_journal_of_this_run_is_refused_and_kept) {
    append("# my notes\n");
    expect_no_journal(0, 1, MLA_EINVAL, "is no journal");
    cr_assert_eq(truncate(path, 0), 0);
    expect_finished(0);
    mla_journal_close(&journal);
    expect_no_journal(0, 2, MLA_EINVAL, "is the journal of another run: other cases or kernels, or shard 0/1 instead of 0/2");
    append("nonsense\n");
    expect_no_journal(0, 1, MLA_EINVAL, "journal:2: no result of a case");
    cr_assert_eq(mla_case_list_add(&cases, "heads=4").code, MLA_OK);
    expect_no_journal(0, 1, MLA_EINVAL, "is the journal of another run");
}

Test(merge, a_journal_has_one_writer) {
    mla_journal other;
    expect_finished(0);
    const mla_status status = mla_journal_open(path, describe(0, 1), &other);
    cr_expect_eq(status.code, MLA_EIO);
    cr_expect(strstr(status.message, "in use by another process"), "%s", status.message);
    mla_journal_close(&other);
    add_result(0, 0);
    mla_journal_close(&journal);
    expect_finished(1);
    mla_journal_close(&journal);
}

/* ---- the command -------------------------------------------------------------------------------------------------------------------------- */

/* Writes the report of a shard with the results whose bits are set in `which` (bit 2 * test + kernel), and returns its name. */
static char *write_part(int32_t index, int32_t count, unsigned which, mla_verdict_status status) {
    char name[80];
    mla_summary summary = {.passed = 0};
    cJSON *report = mla_json_begin();
    cr_assert(mla_json_describe(report, describe(index, count)));
    for (int i = 0; i < 6; i++)
        if (which >> i & 1)
            cr_assert(mla_json_add(report, result_of(i / 2, i % 2, status)));
    char *text = mla_json_print(report, &summary);
    snprintf(name, sizeof name, "%s/%d.%d.%x.json", folder, index, count, which);
    FILE *file = fopen(name, "w");
    fputs(text, file);
    fclose(file);
    free(text);
    mla_json_free(report);
    return strdup(name);
}

static cJSON *merged;

static mla_exit merge(char *first, char *second) {
    char out[80], text[20000] = "";
    snprintf(out, sizeof out, "%s/out", folder);
    optind = 0;
    const mla_exit code = mla_command_merge(second ? 4 : 3, (char *[]){"merge", out, first, second, NULL});
    FILE *file = fopen(out, "r");
    if (file) {
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
        remove(out);
    }
    cJSON_Delete(merged);
    merged = cJSON_Parse(text);
    free(first);
    free(second);
    return code;
}

static int merged_cases(void) {
    return cJSON_GetArraySize(cJSON_GetObjectItem(merged, "cases"));
}

Test(merge, all_parts_make_the_whole) {
    cr_expect_eq(merge(write_part(1, 2, 0x0C, MLA_PASSED), write_part(0, 2, 0x33, MLA_PASSED)), MLA_EXIT_PASSED);
    cr_assert_eq(merged_cases(), 6);
    for (int i = 0; i < 6; i++) {
        const cJSON *result = cJSON_GetArrayItem(cJSON_GetObjectItem(merged, "cases"), i);
        cr_expect_eq(mla_json_number(result, "index"), i / 2);
        cr_expect_str_eq(mla_json_text(result, "kernel"), subjects[i % 2].spec);
    }
    cJSON *whole = describe(0, 1);
    cr_expect(cJSON_Compare(cJSON_GetObjectItem(merged, "run"), whole, true));
    cr_expect_eq(mla_json_number(cJSON_GetObjectItem(merged, "summary"), "passed"), 6);
    cJSON_Delete(whole);
    cr_expect_eq(merge(write_part(0, 2, 0x33, MLA_PASSED), write_part(1, 2, 0x0C, MLA_TIMEOUT)), MLA_EXIT_MISMATCH);
    cr_expect_eq(mla_json_number(cJSON_GetObjectItem(merged, "summary"), "timeout"), 2);
    cr_expect_eq(merge(write_part(0, 1, 0x3F, MLA_SKIPPED), NULL), MLA_EXIT_NOTHING);
}

Test(merge, what_is_missing_is_no_pass) {
    cr_expect_eq(merge(write_part(0, 2, 0x33, MLA_PASSED), NULL), MLA_EXIT_MISMATCH);
    cr_expect_eq(merged_cases(), 4);
    const cJSON *missing = cJSON_GetObjectItem(cJSON_GetObjectItem(merged, "run"), "missing");
    cr_assert_eq(cJSON_GetArraySize(missing), 2);
    cr_expect_str_eq(mla_json_text(missing->child->next, "kernel"), "./k.so");
    cr_expect_eq(mla_json_number(missing->child, "index"), 1);
    cr_expect_eq(merge(write_part(0, 2, 0x33, MLA_PASSED), write_part(1, 2, 0x04, MLA_PASSED)), MLA_EXIT_MISMATCH);
    cr_expect_eq(merged_cases(), 5);
}

Test(merge, what_does_not_belong_is_refused) {
    cr_expect_eq(merge(write_part(0, 2, 0x33, MLA_PASSED), write_part(0, 2, 0x0C, MLA_PASSED)), MLA_EXIT_USAGE);
    cr_expect_null(merged);
    cr_expect_eq(merge(write_part(0, 2, 0x33, MLA_PASSED), write_part(1, 3, 0x0C, MLA_PASSED)), MLA_EXIT_USAGE);
    cr_expect_eq(merge(write_part(0, 2, 0x33, MLA_PASSED), write_part(1, 2, 0x0D, MLA_PASSED)), MLA_EXIT_USAGE);
    cr_expect_eq(merge(strdup("/etc/passwd"), NULL), MLA_EXIT_USAGE);
    cr_expect_eq(merge(strdup("/nowhere/1.json"), NULL), MLA_EXIT_USAGE);
    char *part = write_part(0, 2, 0x33, MLA_PASSED);
    cr_assert_eq(mla_case_list_add(&cases, "heads=4").code, MLA_OK);
    cr_expect_eq(merge(part, write_part(1, 2, 0x0C, MLA_PASSED)), MLA_EXIT_USAGE);
}
