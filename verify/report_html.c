/* One page that needs no other file. From the JSON, so that results that were read count too; only pictures are from measures. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "html_pictures.h"
#include "markup.h"
#include "report.h"

#define PICTURES_BAD 200 /* results with pictures, at most: a picture is some 10 KB */
#define PICTURES_GOOD 100

extern const char mla_html_style[], mla_html_program[]; /* report_html_files.S */

/* ---- the album ------------------------------------------------------------------------------------------------------------------------- */

static bool album_grow(mla_html_album *album, int32_t place) {
    if (place < album->count)
        return true;
    const int32_t count = 2 * place + 16;
    char **grown = realloc(album->pictures, (size_t)count * sizeof *grown);
    if (!grown)
        return false;
    memset(grown + album->count, 0, (size_t)(count - album->count) * sizeof *grown);
    album->pictures = grown;
    album->count = count;
    return true;
}

bool mla_html_album_add(mla_html_album *album, int32_t place, const mla_result *result) {
    const bool bad = mla_verdict_is_bad(result->verdict.status);
    int32_t *drawn = bad ? &album->bad : &album->good;
    if (!result->measured || *drawn == (bad ? PICTURES_BAD : PICTURES_GOOD))
        return true;
    if (!album_grow(album, place))
        return false;
    ++*drawn;
    album->pictures[place] = mla_html_pictures(&result->measure);
    return album->pictures[place] != NULL;
}

void mla_html_album_free(mla_html_album *album) {
    for (int32_t i = 0; i < album->count; i++)
        free(album->pictures[i]);
    free(album->pictures);
    *album = (mla_html_album){0};
}

/* ---- values ----------------------------------------------------------------------------------------------------------------------------- */

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

/* A cell with a number, and all its digits for the order of rows; empty where the result has none. */
static void put_number_cell(FILE *html, const cJSON *result, const char *name, const char *format) {
    const double value = mla_json_number(result, name);
    if (isnan(value) && !mla_json_text(result, name)) {
        fputs("<td class=\"n dim\">-</td>", html);
        return;
    }
    char shown[32];
    snprintf(shown, sizeof shown, format, value);
    fprintf(html, "<td class=\"n\" data-v=\"%.17g\">%s</td>", value, shown);
}

/* ---- facts of a measured result ---------------------------------------------------------------------------------------------------------- */

static void put_fact(FILE *html, const char *name, const cJSON *object, const char *key) {
    const double value = mla_json_number(object, key);
    if (!isnan(value))
        fprintf(html, "<div><dt>%s</dt><dd>%.6g</dd></div>", name, value);
}

static void put_count(FILE *html, const char *name, const cJSON *object, const char *key) {
    const double value = mla_json_number(object, key);
    if (value > 0)
        fprintf(html, "<div><dt>%s</dt><dd>%.0f</dd></div>", name, value);
}

static void put_counts(FILE *html, const char *name, const cJSON *counts) {
    put_count(html, name, counts, "total");
    put_count(html, "never written", counts, "unwritten");
    put_count(html, "anomalies", counts, "anomalies");
    put_count(html, "outside the bound", counts, "outside");
}

static void put_place(FILE *html, const char *name, const cJSON *sample) {
    const double sequence = mla_json_number(sample, "sequence"), column = mla_json_number(sample, "column");
    if (!sample || cJSON_IsNull(sample))
        return;
    fprintf(html, "<div><dt>%s</dt><dd>", name);
    if (sequence < 0)
        fputs("padding ", html);
    else
        fprintf(html, "seq %.0f ", sequence);
    fprintf(html, "q %.0f head %.0f", mla_json_number(sample, "q"), mla_json_number(sample, "head"));
    if (column >= 0)
        fprintf(html, " col %.0f", column);
    if (strcmp(text_or(sample, "fault", ""), "unwritten") == 0)
        fputs(": never written", html);
    else
        fprintf(html, ": got %.7g", mla_json_number(sample, "got"));
    fprintf(html, ", exact %.7g, bound %.2g</dd></div>", mla_json_number(sample, "exact"), mla_json_number(sample, "bound"));
}

static void put_facts(FILE *html, const cJSON *result) {
    fputs("<dl class=\"facts\">", html);
    put_counts(html, "elements", cJSON_GetObjectItem(result, "elements"));
    put_count(html, "rows", result, "rows");
    put_count(html, "of them empty", result, "empty_rows");
    put_count(html, "bounded by the hull of V alone", result, "hull_rows");
    put_counts(html, "lse", cJSON_GetObjectItem(result, "lse"));
    put_fact(html, "lse error", result, "lse_err");
    put_place(html, "worst by |e|/B", cJSON_GetObjectItem(result, "worst"));
    put_place(html, "worst by ulp", cJSON_GetObjectItem(result, "worst_ulp"));
    put_place(html, "worst lse", cJSON_GetObjectItem(result, "worst_lse"));
    fputs("</dl>", html);
}

/* ---- cases -------------------------------------------------------------------------------------------------------------------------------- */

typedef struct column {
    const char *title, *help, *key, *format;
} column;

static const column numbers[] = {
    {"|e|/B", "largest error as a share of its bound", "max_err_over_bound", "%.3g"},
    {"max ulp", "units in the last place of the result", "max_ulp", "%.5g"},
    {"cond_ulp", "units in the last place of A, the sum of the terms' magnitudes", "max_cond_ulp", "%.3g"},
    {"lse/bound", "largest error of lse as a share of its bound", "lse_err_over_bound", "%.3g"},
    {"seconds", "inputs and oracle included", "seconds", "%.3f"},
};
enum { NUMBERS = sizeof numbers / sizeof *numbers, COLUMNS = NUMBERS + 3 };

static void put_row(FILE *html, const cJSON *result) {
    const char *status = text_or(result, "status", "?");
    fprintf(html, "<tr class=\"case\"><td><button class=\"status %s\" aria-expanded=\"false\">", class_of(status_of(result)));
    put_text(html, status);
    fputs("</button></td><td class=\"case\">", html);
    put_text(html, text_or(result, "case", "(all defaults)"));
    fputs("</td><td class=\"kernel\">", html);
    put_text(html, text_or(result, "kernel", ""));
    fputs("</td>", html);
    for (int i = 0; i < NUMBERS; i++)
        put_number_cell(html, result, numbers[i].key, numbers[i].format);
    fputs("</tr>", html);
}

/* False: out of memory. */
static bool put_repeat(FILE *html, const cJSON *result) {
    char *command = mla_repeat_command(text_or(result, "kernel", ""), text_or(result, "case", ""), mla_json_text(result, "golden"));
    if (!command)
        return false;
    fputs("<p class=\"repeat\"><code>", html);
    put_text(html, command);
    fputs("</code><button type=\"button\" class=\"copy\">copy</button></p>", html);
    free(command);
    return true;
}

static bool put_detail(FILE *html, const cJSON *result, const char *pictures) {
    const char *text = mla_json_text(result, "text"), *reason = text_or(result, "reason", NULL);
    const bool measured = cJSON_GetObjectItem(result, "elements") != NULL;
    fprintf(html, "<tr class=\"detail\"><td colspan=\"%d\">", COLUMNS);
    if (text || reason) {
        fputs(text ? "<pre>" : "<p>", html);
        put_text(html, text ? text : reason);
        fputs(text ? "</pre>" : "</p>", html);
    }
    if (!put_repeat(html, result))
        return false;
    if (measured)
        put_facts(html, result);
    if (pictures)
        fputs(pictures, html);
    else if (measured)
        fputs("<p class=\"dim\">No pictures: they are drawn of this run&#39;s first results alone, not of those of an earlier one.</p>",
              html);
    fputs("</td></tr>", html);
    return true;
}

static bool put_case(FILE *html, const cJSON *result, const char *pictures) {
    fputs("\n<tbody data-status=\"", html);
    put_text(html, text_or(result, "status", "?"));
    fputs("\" data-kernel=\"", html);
    put_text(html, text_or(result, "kernel", ""));
    fputs("\">", html);
    put_row(html, result);
    const bool good = put_detail(html, result, pictures);
    fputs("</tbody>", html);
    return good;
}

static bool put_cases(FILE *html, const cJSON *cases, const mla_html_album *album) {
    fputs("<div class=\"scroll\"><table class=\"cases\"><thead><tr><th><button>status</button></th><th><button>case</button></th>"
          "<th><button>kernel</button></th>",
          html);
    for (int i = 0; i < NUMBERS; i++) {
        fputs("<th class=\"n\" title=\"", html);
        put_text(html, numbers[i].help);
        fprintf(html, "\"><button>%s</button></th>", numbers[i].title);
    }
    fputs("</tr></thead>", html);
    int32_t place = 0;
    bool good = true;
    const cJSON *result;
    cJSON_ArrayForEach(result, cases) {
        good = good && put_case(html, result, place < album->count ? album->pictures[place] : NULL);
        place++;
    }
    fputs("\n</table></div>", html);
    return good;
}

/* ---- above the table ------------------------------------------------------------------------------------------------------------------------ */

static void put_total(FILE *html, int64_t count, const char *what, const char *class) {
    if (count > 0)
        fprintf(html, "<li class=\"%s\"><b>%" PRId64 "</b> %s</li>", class, count, what);
}

static void put_summary(FILE *html, const mla_summary *s) {
    const bool bad = mla_summary_bad(s) > 0, none = !bad && s->passed == 0;
    fprintf(html, "<h1>mla-verify: <span class=\"%s\">%s</span>%s</h1><ul class=\"totals\">",
            bad    ? "bad"
            : none ? "skip"
                   : "good",
            mla_verdict_name(bad    ? MLA_FAILED
                             : none ? MLA_SKIPPED
                                    : MLA_PASSED),
            none ? " <small>nothing was run: this is not a pass</small>" : "");
    put_total(html, s->passed, "passed", "good");
    put_total(html, s->failed, "failed", "bad");
    put_total(html, s->crashed, "crashed", "bad");
    put_total(html, s->timeout, "timeout", "bad");
    put_total(html, s->error, "error", "bad");
    put_total(html, s->skipped, "skipped", "skip");
    if (!none)
        fprintf(html,
                "<li><span class=\"dim\">worst |e|/B</span> %.3g</li><li><span class=\"dim\">ulp</span> %.5g</li><li><span "
                "class=\"dim\">cond_ulp"
                "</span> %.3g</li><li><span class=\"dim\">lse</span> %.3g of its bound</li>",
                s->max_err_over_bound, s->max_ulp, s->max_cond_ulp, s->max_lse_over_bound);
    fputs("</ul>", html);
}

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

static bool put_page(FILE *html, const cJSON *cases, const mla_summary *summary, const mla_html_album *album) {
    fprintf(html,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">"
            "<title>mla-verify</title><link rel=\"icon\" href=\"data:,\">\n<style>\n%s</style></head><body>",
            mla_html_style);
    put_summary(html, summary);
    put_filters(html, cases);
    const bool good = put_cases(html, cases, album);
    fprintf(html, "\n<script>\n%s</script></body></html>\n", mla_html_program);
    return good;
}

char *mla_html_print(const struct cJSON *report, const mla_summary *summary, const mla_html_album *album) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *html = open_memstream(&text, &bytes);
    if (!html)
        return NULL;
    const bool put = put_page(html, cJSON_GetObjectItem(report, "cases"), summary, album);
    const bool good = !ferror(html) && put;
    if (fclose(html) == 0 && good)
        return text;
    free(text);
    return NULL;
}
