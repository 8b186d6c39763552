#include "report_sweep.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>

#include "html_table.h"
#include "markup.h"
#include "report.h"

#define LEFT 52
#define TOP 8
#define WIDTH 520
#define HEIGHT 240

static const cJSON *item(const cJSON *object, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

/* ---- the plane --------------------------------------------------------------------------------------------------------------------------- */

/* x is logarithmic; so is y where `logarithmic`. */
typedef struct plane {
    const cJSON *sweep;
    double left, right, bottom, top;
    bool logarithmic;
} plane;

static double x_of(const plane *p, double value) {
    return LEFT + WIDTH * (p->right > p->left ? (log(value) - p->left) / (p->right - p->left) : 0.5);
}

static double y_of(const plane *p, double value) {
    const double y = p->logarithmic ? log10(value) : value;
    return TOP + HEIGHT * (p->top - fmax(p->bottom, fmin(y, p->top))) / (p->top - p->bottom);
}

static void stretch(plane *p, double value) {
    const double y = p->logarithmic ? log10(value) : value;
    if (!isfinite(y))
        return;
    p->bottom = fmin(p->bottom, floor(y));
    p->top = fmax(p->top, floor(y) + 1);
}

/* Over the points' values, and as high as two of their numbers. */
static plane plane_of(const cJSON *sweep, bool logarithmic, const char *first, const char *second) {
    plane p = {.sweep = sweep, .logarithmic = logarithmic, .left = INFINITY, .right = -INFINITY, .bottom = INFINITY, .top = -INFINITY};
    const cJSON *point;
    cJSON_ArrayForEach(point, item(sweep, "points")) {
        p.left = fmin(p.left, log(mla_json_number(point, "value")));
        p.right = fmax(p.right, log(mla_json_number(point, "value")));
        stretch(&p, mla_json_number(point, first));
        stretch(&p, mla_json_number(point, second));
    }
    if (!logarithmic)
        stretch(&p, 0);
    return p.bottom < p.top ? p : (plane){.sweep = sweep, .left = p.left, .right = p.right, .top = 1, .logarithmic = logarithmic};
}

/* ---- what is in it ----------------------------------------------------------------------------------------------------------------------- */

static void begin_figure(FILE *html, const char *title) {
    fprintf(html, "<figure class=\"sweep\"><figcaption><b>%s</b></figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">",
            title, LEFT + WIDTH + 16, TOP + HEIGHT + 32, title);
}

static void put_y_axis(FILE *html, const plane *p) {
    const double step = fmax(1, ceil((p->top - p->bottom) / 10));
    for (int i = 0; p->bottom + i * step <= p->top; i++) {
        const double y = p->bottom + i * step, value = p->logarithmic ? pow(10, y) : y;
        fprintf(html, "<path class=\"grid\" d=\"M%d %.1fh%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>", LEFT,
                y_of(p, value), WIDTH, LEFT - 5, y_of(p, value) + 4, value);
    }
}

static void put_x_axis(FILE *html, const plane *p) {
    const cJSON *point;
    cJSON_ArrayForEach(point, item(p->sweep, "points")) {
        const double value = mla_json_number(point, "value");
        fprintf(html, "<path class=\"grid\" d=\"M%.1f %dv%d\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>", x_of(p, value),
                TOP, HEIGHT, x_of(p, value), TOP + HEIGHT + 14, value);
    }
    fprintf(html, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", LEFT + WIDTH / 2, TOP + HEIGHT + 28);
    mla_markup_text(html, mla_json_text(p->sweep, "over"), false);
    fputs("</text>", html);
}

static void put_points(FILE *html, const plane *p, const char *name, const char *style) {
    const cJSON *point;
    cJSON_ArrayForEach(point, item(p->sweep, "points")) {
        const double value = mla_json_number(point, "value"), y = mla_json_number(point, name);
        if (isfinite(y) && (y > 0 || !p->logarithmic))
            fprintf(html, "<circle class=\"dot %s\" r=\"4\" cx=\"%.1f\" cy=\"%.1f\"><title>%g: %.4g</title></circle>", style,
                    x_of(p, value), y_of(p, y), value, y);
    }
}

/* A straight line between the first value and the last. */
static void put_law(FILE *html, const plane *p, const char *name, const char *style) {
    const double slope = mla_json_number(item(p->sweep, name), "slope"), one = mla_json_number(item(p->sweep, name), "at_one");
    if (!isfinite(slope) || !(one > 0))
        return;
    fprintf(html, "<path class=\"%s\" d=\"M%d %.1fL%d %.1f\"/>", style, LEFT, y_of(p, one * exp(slope * p->left)), LEFT + WIDTH,
            y_of(p, one * exp(slope * p->right)));
}

/* After what it is a law of; where there is none, that alone. */
static void say_law(FILE *html, const plane *p, const char *name, const char *what) {
    const double slope = mla_json_number(item(p->sweep, name), "slope"), error = mla_json_number(item(p->sweep, name), "standard_error");
    fputs(what, html);
    if (!isfinite(slope))
        return;
    fputs(" ~ ", html);
    mla_markup_text(html, mla_json_text(p->sweep, "over"), false);
    fprintf(html, "<sup>%.3f", slope);
    fprintf(html, isfinite(error) ? " &#177; %.3f</sup>" : "</sup>", error);
}

/* ---- a sweep ----------------------------------------------------------------------------------------------------------------------------- */

static void put_errors(FILE *html, const cJSON *sweep) {
    const plane p = plane_of(sweep, true, "rms_error", "rms_sigma");
    begin_figure(html, "Error, and what theory expects");
    put_y_axis(html, &p);
    put_x_axis(html, &p);
    put_law(html, &p, "error_law", "roof");
    put_law(html, &p, "sigma_law", "dash");
    put_points(html, &p, "rms_sigma", "warm");
    put_points(html, &p, "rms_error", "");
    fputs("</svg><figcaption>dots, line: ", html);
    say_law(html, &p, "error_law", "rms error");
    fputs(" | rings, dashes: ", html);
    say_law(html, &p, "sigma_law", "rms sigma");
    fputs("</figcaption></figure>", html);
}

static void put_ratios(FILE *html, const cJSON *sweep) {
    const plane p = plane_of(sweep, false, "chi", "max_err_over_bound");
    begin_figure(html, "chi, and the largest |e|/B");
    put_y_axis(html, &p);
    put_x_axis(html, &p);
    fprintf(html, "<path class=\"dash\" d=\"M%d %.1fh%d\"/>", LEFT, y_of(&p, 1), WIDTH);
    put_points(html, &p, "max_err_over_bound", "warm");
    put_points(html, &p, "chi", "");
    fputs("</svg><figcaption>dots: ", html);
    say_law(html, &p, "chi_law", "chi");
    fputs(", about 1 in a right kernel | rings: |e|/B, above 1 in a wrong one</figcaption></figure>", html);
}

static void put_table(FILE *html, const cJSON *sweep) {
    static const char *const columns[][2] = {{"rms error", "rms_error"},      {"rms sigma", "rms_sigma"},   {"chi", "chi"},
                                             {"|e|/B", "max_err_over_bound"}, {"cond ulp", "max_cond_ulp"}, {"lse error", "max_lse_error"}};
    const int count = sizeof columns / sizeof *columns;
    const cJSON *point;
    fputs("<table class=\"points\"><thead><tr><th class=\"n\">", html);
    mla_markup_text(html, mla_json_text(sweep, "over"), false);
    fputs("</th>", html);
    for (int c = 0; c < count; c++)
        fprintf(html, "<th class=\"n\">%s</th>", columns[c][0]);
    fputs("</tr></thead><tbody>", html);
    cJSON_ArrayForEach(point, item(sweep, "points")) {
        fprintf(html, "<tr><td class=\"n\">%g</td>", mla_json_number(point, "value"));
        for (int c = 0; c < count; c++)
            fprintf(html, "<td class=\"n\">%.3g</td>", mla_json_number(point, columns[c][1]));
        fputs("</tr>", html);
    }
    fputs("</tbody></table>", html);
}

static void put_sweep(FILE *html, const cJSON *sweep) {
    fputs("<h2><code>", html);
    mla_markup_text(html, mla_json_text(sweep, "kernel"), false);
    fputs(" ", html);
    mla_markup_text(html, mla_json_text(sweep, "case"), false);
    fputs("</code></h2><div class=\"pictures\">", html);
    put_errors(html, sweep);
    put_ratios(html, sweep);
    put_table(html, sweep);
    fputs("</div>", html);
}

char *mla_sweep_html(const cJSON *sweeps) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *html = open_memstream(&text, &bytes);
    const cJSON *sweep;
    if (!html)
        return NULL;
    mla_html_begin(html);
    fputs("<h1>mla-verify drift sweep</h1>", html);
    cJSON_ArrayForEach(sweep, sweeps) put_sweep(html, sweep);
    fputs("</body></html>\n", html);
    return mla_html_finish(html, &text, true);
}
