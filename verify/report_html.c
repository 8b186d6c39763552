/* One page that needs no other file. From the JSON, so that results that were read count too; only pictures are from measures. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "html_pictures.h"
#include "html_table.h"
#include "report.h"

#define PICTURES_BAD 200 /* results with pictures, at most: a picture is some 10 KB */
#define PICTURES_GOOD 100

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
    put_count(html, "not the exact result", counts, "inexact");
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
    const char *fault = mla_json_text(sample, "fault");
    if (fault && strcmp(fault, "unwritten") == 0)
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

static const mla_html_column columns[] = {
    {"chi", "size of the errors, over the size that the contract explains", "chi", "%.2f"},
    {"|e|/B", "largest error as a share of its bound", "max_err_over_bound", "%.3g"},
    {"max ulp", "units in the last place of the result", "max_ulp", "%.5g"},
    {"cond_ulp", "units in the last place of A, the sum of the terms' magnitudes", "max_cond_ulp", "%.3g"},
    {"lse/bound", "largest error of lse as a share of its bound", "lse_err_over_bound", "%.3g"},
    {"seconds", "inputs and oracle included", "seconds", "%.3f"},
};

static void put_detail(FILE *html, const cJSON *result, int32_t place, const void *context) {
    const mla_html_album *album = context;
    const char *pictures = place < album->count ? album->pictures[place] : NULL;
    const bool measured = cJSON_GetObjectItem(result, "elements") != NULL;
    if (measured)
        put_facts(html, result);
    if (pictures)
        fputs(pictures, html);
    else if (measured)
        fputs("<p class=\"dim\">No pictures: they are drawn of this run&#39;s first results alone, not of those of an earlier one.</p>",
              html);
}

/* ---- above the table ------------------------------------------------------------------------------------------------------------------------ */

static void put_total(FILE *html, int64_t count, const char *what, const char *class) {
    if (count > 0)
        fprintf(html, "<li class=\"%s\"><b>%" PRId64 "</b> %s</li>", class, count, what);
}

static void put_summary(FILE *html, const mla_summary *s) {
    const bool bad = mla_summary_bad(s) > 0, none = !bad && s->passed == 0;
    if (bad)
        fputs("<h1>mla-verify: <span class=\"bad\">FAILED</span></h1>", html);
    else if (none)
        fputs("<h1>mla-verify: <span class=\"skip\">SKIPPED</span> <small>nothing was run: this is not a pass</small></h1>", html);
    else
        fputs("<h1>mla-verify: <span class=\"good\">PASSED</span></h1>", html);
    fputs("<ul class=\"totals\">", html);
    put_total(html, s->passed, "passed", "good");
    put_total(html, s->failed, "failed", "bad");
    put_total(html, s->crashed, "crashed", "bad");
    put_total(html, s->timeout, "timeout", "bad");
    put_total(html, s->error, "error", "bad");
    put_total(html, s->skipped, "skipped", "skip");
    if (s->max_chi > 0)
        fprintf(html, "<li><i>worst chi</i> %.2f</li>", s->max_chi);
    if (!none)
        fprintf(
            html,
            "<li><i>worst |e|/B</i> %.3g</li><li><i>ulp</i> %.5g</li><li><i>cond_ulp</i> %.3g</li><li><i>lse</i> %.3g of its bound</li>",
            s->max_err_over_bound, s->max_ulp, s->max_cond_ulp, s->max_lse_over_bound);
    fputs("</ul>", html);
}

char *mla_html_print(const struct cJSON *report, const mla_summary *summary, const mla_html_album *album) {
    const mla_html_table table = {.cases = cJSON_GetObjectItem(report, "cases"),
                                  .columns = columns,
                                  .num_columns = sizeof columns / sizeof *columns,
                                  .detail = put_detail,
                                  .context = album};
    char *text = NULL;
    size_t bytes = 0;
    FILE *html = open_memstream(&text, &bytes);
    if (!html)
        return NULL;
    mla_html_begin(html);
    put_summary(html, summary);
    const bool good = mla_html_put_table(html, &table);
    mla_html_end(html);
    return mla_html_finish(html, &text, good);
}
