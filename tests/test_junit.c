/* JUnit XML: what is in it, and that it is XML whatever is in the results. */
#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../verify/report.h"

static cJSON *report;
static char *xml;

static void setup(void) {
    report = mla_json_begin();
}

static void teardown(void) {
    mla_json_free(report);
    free(xml);
}

TestSuite(junit, .init = setup, .fini = teardown);

static void add(const char *line, const char *kernel, const char *status, const char *reason, double seconds, const char *text) {
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "case", line);
    cJSON_AddStringToObject(o, "kernel", kernel);
    cJSON_AddStringToObject(o, "status", status);
    cJSON_AddStringToObject(o, "reason", reason);
    cJSON_AddNumberToObject(o, "seconds", seconds);
    if (text)
        cJSON_AddStringToObject(o, "text", text);
    cr_assert(mla_json_add(report, o));
}

static void print(void) {
    xml = mla_junit_print(report);
    cr_assert_not_null(xml);
}

Test(junit, a_suite_a_kernel_a_test_a_case) {
    add("heads=1", "reference", "PASSED", "", 0.5, NULL);
    add("heads=1", "./k.so", "FAILED", "1 of 512 elements outside the bound", 0.25, "FAILED  heads=1\n        |e|/B 2 > 1\n");
    add("", "reference", "SKIPPED", "too \"large\"", 0, NULL);
    add("", "./k.so", "CRASHED", "killed by SIGSEGV", 1.5, "CRASHED\n");
    print();
    cr_expect_str_eq(xml, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                          "<testsuites name=\"mla-verify\" tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\" time=\"2.250000\">\n"
                          "  <testsuite name=\"reference\" tests=\"2\" failures=\"0\" errors=\"0\" skipped=\"1\" time=\"0.500000\">\n"
                          "    <testcase classname=\"reference\" name=\"heads=1\" time=\"0.500000\"/>\n"
                          "    <testcase classname=\"reference\" name=\"(all defaults)\" time=\"0.000000\">\n"
                          "      <skipped message=\"too &quot;large&quot;\"></skipped>\n"
                          "    </testcase>\n"
                          "  </testsuite>\n"
                          "  <testsuite name=\"./k.so\" tests=\"2\" failures=\"1\" errors=\"1\" skipped=\"0\" time=\"1.750000\">\n"
                          "    <testcase classname=\"./k.so\" name=\"heads=1\" time=\"0.250000\">\n"
                          "      <failure message=\"1 of 512 elements outside the bound\" type=\"FAILED\">FAILED  heads=1\n"
                          "        |e|/B 2 &gt; 1\n"
                          "</failure>\n"
                          "    </testcase>\n"
                          "    <testcase classname=\"./k.so\" name=\"(all defaults)\" time=\"1.500000\">\n"
                          "      <error message=\"killed by SIGSEGV\" type=\"CRASHED\">CRASHED\n"
                          "</error>\n"
                          "    </testcase>\n"
                          "  </testsuite>\n"
                          "</testsuites>\n");
}

Test(junit, an_empty_report_is_one_too) {
    print();
    cr_expect(strstr(xml, "tests=\"0\""));
    cr_expect(strstr(xml, "</testsuites>\n"));
}

/* `text` as the reason of a failure must come out as `escaped` in the attribute, and as `content` in the element. */
static void expect_escaped(const char *text, const char *escaped, const char *content) {
    char attribute[200], element[200];
    setup();
    add("", "k", "FAILED", text, 0, text);
    print();
    snprintf(attribute, sizeof attribute, " message=\"%s\" type", escaped);
    snprintf(element, sizeof element, "\"FAILED\">%s</failure>", content);
    cr_expect(strstr(xml, attribute), "%s is not in\n%s", attribute, xml);
    cr_expect(strstr(xml, element), "%s is not in\n%s", element, xml);
    teardown();
    report = NULL;
    xml = NULL;
}

#define REPLACED "\xEF\xBF\xBD"

Test(junit, every_text_is_escaped) {
    expect_escaped("a<b>&\"c\"'", "a&lt;b&gt;&amp;&quot;c&quot;'", "a&lt;b&gt;&amp;&quot;c&quot;'");
    expect_escaped("]]>", "]]&gt;", "]]&gt;");
    expect_escaped("1\n2\t3", "1&#10;2&#9;3", "1\n2\t3");
    expect_escaped("\x1b[31m\x01\x7f\r", REPLACED "[31m" REPLACED "\x7f" REPLACED, REPLACED "[31m" REPLACED "\x7f" REPLACED);
    expect_escaped("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
    expect_escaped("\xFFx\xC3", REPLACED "x" REPLACED, REPLACED "x" REPLACED); /* no UTF-8, cut UTF-8 */
    expect_escaped("\xC0\xAFx", REPLACED REPLACED "x", REPLACED REPLACED "x"); /* overlong */
    expect_escaped("\xED\xA0\x80x", REPLACED "x", REPLACED "x");               /* half of a pair */
    expect_escaped("\xEF\xBF\xBFx", REPLACED "x", REPLACED "x");               /* U+FFFF */
    expect_escaped("\xF4\x90\x80\x80x", REPLACED "x", REPLACED "x");           /* beyond Unicode */
}

/* A parser says whether it is XML, and what it reads. */
Test(junit, a_parser_agrees) {
    if (system("python3 -c 'import xml.etree' 2>/dev/null") != 0)
        cr_skip_test("no python3");
    char path[] = "/tmp/mla-junit-XXXXXX", command[400], text[256];
    for (int c = 1; c < 256; c++)
        text[c - 1] = (char)c;
    text[255] = '\0';
    add(text, text, "FAILED", text, 0, text);
    add("heads=1", "k", "TIMEOUT", "", 0.125, NULL);
    print();
    const int file = mkstemp(path);
    cr_assert_eq(write(file, xml, strlen(xml)), (ssize_t)strlen(xml));
    close(file);
    snprintf(command, sizeof command,
             "python3 -c 'import xml.etree.ElementTree as e; r = e.parse(\"%s\").getroot(); c = r.findall(\"testsuite/testcase\"); "
             "assert len(c) == 2 and c[1].get(\"name\") == \"heads=1\" and c[1].find(\"error\").get(\"type\") == \"TIMEOUT\" and "
             "\"<=>\" in c[0].find(\"failure\").text and \"\\n\" in c[0].get(\"name\")'",
             path);
    cr_expect_eq(system(command), 0, "%s", xml);
    unlink(path);
}
