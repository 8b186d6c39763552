/* JUnit XML, as continuous integration reads it: a suite a kernel, a test case a case. From the JSON, so that results that were read count too. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "markup.h"
#include "report.h"

static void put_attribute(FILE *xml, const char *name, const char *value) {
    fprintf(xml, " %s=\"", name);
    mla_markup_text(xml, value, true);
    fputc('"', xml);
}

/* ---- results -------------------------------------------------------------------------------------------------------------------------------- */

typedef struct totals {
    int64_t tests, failures, errors, skipped;
    double seconds;
} totals;

static mla_verdict_status status_of(const cJSON *result) {
    const char *name = mla_json_text(result, "status");
    return mla_verdict_parse(name ? name : "");
}

static double seconds_of(const cJSON *result) {
    const double seconds = mla_json_number(result, "seconds");
    return seconds > 0 ? seconds : 0;
}

/* NULL: of any. */
static bool is_of(const cJSON *result, const char *kernel) {
    const char *name = mla_json_text(result, "kernel");
    return !kernel || (name && strcmp(name, kernel) == 0);
}

static void put_totals(FILE *xml, const cJSON *cases, const char *kernel) {
    totals t = {.tests = 0};
    const cJSON *result;
    cJSON_ArrayForEach(result, cases) {
        if (!is_of(result, kernel))
            continue;
        const mla_verdict_status status = status_of(result);
        t.tests++;
        t.failures += status == MLA_FAILED;
        t.skipped += status == MLA_SKIPPED;
        t.errors += status != MLA_PASSED && status != MLA_FAILED && status != MLA_SKIPPED;
        t.seconds += seconds_of(result);
    }
    fprintf(xml, " tests=\"%" PRId64 "\" failures=\"%" PRId64 "\" errors=\"%" PRId64 "\" skipped=\"%" PRId64 "\" time=\"%.6f\">\n", t.tests,
            t.failures, t.errors, t.skipped, t.seconds);
}

static void put_outcome(FILE *xml, const cJSON *result) {
    const mla_verdict_status status = status_of(result);
    const char *element = status == MLA_SKIPPED ? "skipped" : status == MLA_FAILED ? "failure" : "error";
    fprintf(xml, "      <%s", element);
    put_attribute(xml, "message", mla_json_text(result, "reason"));
    if (status != MLA_SKIPPED)
        put_attribute(xml, "type", mla_json_text(result, "status"));
    fputc('>', xml);
    mla_markup_text(xml, mla_json_text(result, "text"), false);
    fprintf(xml, "</%s>\n", element);
}

static void put_case(FILE *xml, const cJSON *result) {
    const char *line = mla_json_text(result, "case");
    fputs("    <testcase", xml);
    put_attribute(xml, "classname", mla_json_text(result, "kernel"));
    put_attribute(xml, "name", line && *line ? line : "(all defaults)");
    fprintf(xml, " time=\"%.6f\"", seconds_of(result));
    if (status_of(result) == MLA_PASSED) {
        fputs("/>\n", xml);
        return;
    }
    fputs(">\n", xml);
    put_outcome(xml, result);
    fputs("    </testcase>\n", xml);
}

static void put_suite(FILE *xml, const cJSON *cases, const char *kernel) {
    const cJSON *result;
    fputs("  <testsuite", xml);
    put_attribute(xml, "name", kernel);
    put_totals(xml, cases, kernel);
    cJSON_ArrayForEach(result, cases) if (is_of(result, kernel)) put_case(xml, result);
    fputs("  </testsuite>\n", xml);
}

static bool is_first_of_kernel(const cJSON *cases, const cJSON *result) {
    const cJSON *earlier = cases->child;
    while (earlier != result && !is_of(earlier, mla_json_text(result, "kernel")))
        earlier = earlier->next;
    return earlier == result;
}

char *mla_junit_print(const struct cJSON *report) {
    char *text = NULL;
    size_t bytes = 0;
    const cJSON *cases = cJSON_GetObjectItem(report, "cases"), *result;
    FILE *xml = open_memstream(&text, &bytes);
    if (!xml)
        return NULL;
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"mla-verify\"", xml);
    put_totals(xml, cases, NULL);
    cJSON_ArrayForEach(result, cases) if (is_first_of_kernel(cases, result)) put_suite(xml, cases, mla_json_text(result, "kernel"));
    fputs("</testsuites>\n", xml);
    const bool good = !ferror(xml);
    if (fclose(xml) == 0 && good)
        return text;
    free(text);
    return NULL;
}
