#include "html_table.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "markup.h"
#include "report.h"

extern const char mla_html_style[], mla_html_program[]; /* report_html_files.S */

static void put_text(FILE *html, const char *text) {
    mla_markup_text(html, text, true);
}

static const char *text_or(const cJSON *result, const char *name, const char *otherwise) {
    const char *text = mla_json_text(result, name);
    return text && *text ? text : otherwise;
}

static mla_verdict_status status_of(const cJSON *result) {
    return mla_verdict_parse(text_or(result, "status", ""));
}

static const char *class_of(mla_verdict_status status) {
    return status == MLA_PASSED ? "good" : status == MLA_SKIPPED ? "skip" : "bad";
}

/* ---- a case -------------------------------------------------------------------------------------------------------------------------------- */

/* A cell with a number, and all its digits for the order of rows; empty where the result has none. */
static void put_number_cell(FILE *html, const cJSON *result, const mla_html_column *column) {
    const double value = mla_json_number(result, column->key);
    if (isnan(value) && !mla_json_text(result, column->key)) {
        fputs("<td class=\"n dim\">-</td>", html);
        return;
    }
    char shown[32];
    snprintf(shown, sizeof shown, column->format, value);
    fprintf(html, "<td class=\"n\" data-v=\"%.17g\">%s</td>", value, shown);
}

static void put_row(FILE *html, const mla_html_table *table, const cJSON *result) {
    const char *status = text_or(result, "status", "?");
    fprintf(html, "<tr class=\"case\"><td><button class=\"status %s\" aria-expanded=\"false\">", class_of(status_of(result)));
    put_text(html, status);
    fputs("</button></td><td class=\"case\">", html);
    put_text(html, text_or(result, "case", "(all defaults)"));
    fputs("</td><td class=\"kernel\">", html);
    put_text(html, text_or(result, "kernel", ""));
    fputs("</td>", html);
    for (int i = 0; i < table->num_columns; i++)
        put_number_cell(html, result, &table->columns[i]);
    fputs("</tr>", html);
}

/* False: out of memory. */
static bool put_repeat(FILE *html, const cJSON *result) {
    char *command = mla_repeat_command(text_or(result, "kernel", ""), text_or(result, "case", ""), mla_json_text(result, "golden"),
                                       mla_json_text(result, "contract"));
    if (!command)
        return false;
    fputs("<p class=\"repeat\"><code>", html);
    put_text(html, command);
    fputs("</code><button type=\"button\" class=\"copy\">copy</button></p>", html);
    free(command);
    return true;
}

static bool put_detail(FILE *html, const mla_html_table *table, const cJSON *result, int32_t place) {
    const char *text = mla_json_text(result, "text"), *reason = text_or(result, "reason", NULL);
    fprintf(html, "<tr class=\"detail\"><td colspan=\"%d\">", table->num_columns + 3);
    if (text || reason) {
        fputs(text ? "<pre>" : "<p>", html);
        put_text(html, text ? text : reason);
        fputs(text ? "</pre>" : "</p>", html);
    }
    if (!put_repeat(html, result))
        return false;
    if (table->detail)
        table->detail(html, result, place, table->context);
    fputs("</td></tr>", html);
    return true;
}

static bool put_case(FILE *html, const mla_html_table *table, const cJSON *result, int32_t place) {
    fputs("\n<tbody data-status=\"", html);
    put_text(html, text_or(result, "status", "?"));
    fputs("\" data-kernel=\"", html);
    put_text(html, text_or(result, "kernel", ""));
    fputs("\">", html);
    put_row(html, table, result);
    const bool good = put_detail(html, table, result, place);
    fputs("</tbody>", html);
    return good;
}

/* ---- filters ------------------------------------------------------------------------------------------------------------------------------- */

static bool is_first(const cJSON *cases, const cJSON *result, const char *key) {
    const cJSON *earlier = cases->child;
    while (earlier != result && strcmp(text_or(earlier, key, ""), text_or(result, key, "")) != 0)
        earlier = earlier->next;
    return earlier == result;
}

static void put_choices(FILE *html, const cJSON *cases, const char *key) {
    const cJSON *result;
    cJSON_ArrayForEach(result, cases) {
        if (!is_first(cases, result, key))
            continue;
        fputs("<option>", html);
        put_text(html, text_or(result, key, ""));
        fputs("</option>", html);
    }
}

static void put_filters(FILE *html, const cJSON *cases) {
    fputs("<form><label>status <select name=\"status\"><option value=\"\">all</option><option value=\"bad\">not passed</option>", html);
    put_choices(html, cases, "status");
    fputs("</select></label><label>kernel <select name=\"kernel\"><option value=\"\">all</option>", html);
    put_choices(html, cases, "kernel");
    fputs("</select></label><label>text <input type=\"search\" name=\"text\" placeholder=\"words of the line\"></label>"
          "<output id=\"shown\" class=\"dim\"></output></form>",
          html);
}

/* ---- the page ------------------------------------------------------------------------------------------------------------------------------ */

static void put_titles(FILE *html, const mla_html_table *table) {
    fputs("<thead><tr><th><button>status</button></th><th><button>case</button></th><th><button>kernel</button></th>", html);
    for (int i = 0; i < table->num_columns; i++) {
        fputs("<th class=\"n\" title=\"", html);
        put_text(html, table->columns[i].help);
        fprintf(html, "\"><button>%s</button></th>", table->columns[i].title);
    }
    fputs("</tr></thead>", html);
}

bool mla_html_put_table(FILE *html, const mla_html_table *table) {
    int32_t place = 0;
    bool good = true;
    const cJSON *result;
    put_filters(html, table->cases);
    fputs("<div class=\"scroll\"><table class=\"cases\">", html);
    put_titles(html, table);
    cJSON_ArrayForEach(result, table->cases) good = good && put_case(html, table, result, place++);
    fputs("\n</table></div>", html);
    return good;
}

void mla_html_begin(FILE *html) {
    fprintf(html,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">"
            "<title>mla-verify</title><link rel=\"icon\" href=\"data:,\">\n<style>\n%s</style></head><body>",
            mla_html_style);
}

void mla_html_end(FILE *html) {
    fprintf(html, "\n<script>\n%s</script></body></html>\n", mla_html_program);
}

char *mla_html_finish(FILE *html, char **text, bool good) {
    good = !ferror(html) && good;
    if (fclose(html) == 0 && good)
        return *text;
    free(*text);
    return NULL;
}
