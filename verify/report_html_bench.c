/* The page of bench: the same table, and the roofline of each device. From the JSON, as report_html.c. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "html_table.h"
#include "markup.h"
#include "report.h"
#include "report_bench.h"

#define LEFT 48
#define TOP 8
#define WIDTH 520
#define HEIGHT 240
#define DECADES_X 4 /* flop a byte, from 1 */
#define DECADES_Y 5

static const cJSON *item(const cJSON *object, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

/* ---- the table ----------------------------------------------------------------------------------------------------------------------------- */

static const mla_html_column columns[] = {
    {"cold, us", "median; inputs from memory", "cold_us", "%.2f"},
    {"warm, us", "median; the same inputs again and again", "warm_us", "%.2f"},
    {"GB/s", "cold", "cold_gb", "%.4g"},
    {"TFLOP/s", "cold", "cold_tflop", "%.4g"},
    {"of floor", "no kernel is faster than 1: the larger of bytes and flop at the speed this device reaches", "cold_of_floor", "%.3f"},
};

/* The columns' numbers. False: out of memory. */
static bool add_columns(cJSON *result) {
    const double cold = mla_json_number(item(result, "cold"), "median"), warm = mla_json_number(item(result, "warm"), "median");
    if (!(cold > 0))
        return true;
    return cJSON_AddNumberToObject(result, "cold_us", cold * 1e6) &&
           (!(warm > 0) || cJSON_AddNumberToObject(result, "warm_us", warm * 1e6)) &&
           cJSON_AddNumberToObject(result, "cold_gb", mla_json_number(result, "bytes") / cold * 1e-9) &&
           cJSON_AddNumberToObject(result, "cold_tflop", mla_json_number(result, "flops") / cold * 1e-12) &&
           cJSON_AddNumberToObject(result, "cold_of_floor", mla_json_number(result, "floor") / cold);
}

/* ---- rooflines ----------------------------------------------------------------------------------------------------------------------------- */

/* Logarithmic: x is flop a byte, y flop a second. */
typedef struct plane {
    int top; /* the largest y's decade */
} plane;

static double clamp(double x, double low, double high) {
    return x >= low ? fmin(x, high) : low;
}

static double x_of(double intensity) {
    return LEFT + WIDTH * clamp(log10(intensity) / DECADES_X, 0, 1);
}

static double y_of(plane p, double rate) {
    return TOP + HEIGHT * clamp((p.top - log10(rate)) / DECADES_Y, 0, 1);
}

static bool is_of(const cJSON *result, const cJSON *device) {
    const char *name = mla_json_text(result, "device"), *of = mla_json_text(device, "device");
    return name && of && strcmp(name, of) == 0;
}

static void put_axes(FILE *html, plane p) {
    for (int d = 0; d <= DECADES_X; d++)
        fprintf(html, "<path class=\"grid\" d=\"M%d %dv%d\"/><text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%.0f</text>",
                LEFT + d * WIDTH / DECADES_X, TOP, HEIGHT, LEFT + d * WIDTH / DECADES_X, TOP + HEIGHT + 14, pow(10, d));
    for (int d = 0; d <= DECADES_Y; d++)
        fprintf(html, "<path class=\"grid\" d=\"M%d %dh%d\"/><text x=\"%d\" y=\"%d\" text-anchor=\"end\">%g</text>", LEFT,
                TOP + d * HEIGHT / DECADES_Y, WIDTH, LEFT - 5, TOP + d * HEIGHT / DECADES_Y + 4, pow(10, p.top - d - 12));
    fprintf(html, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">flop a byte</text>", LEFT + WIDTH / 2, TOP + HEIGHT + 28);
}

/* From where the slope enters the plane to the ridge, and on; without a known matrix rate, to the plane's top. */
static void put_roof(FILE *html, plane p, double bandwidth, double matrix_rate) {
    const double floor_rate = pow(10, p.top - DECADES_Y), ceiling = matrix_rate > 0 ? matrix_rate : pow(10, p.top);
    const double enter = fmax(1, floor_rate / bandwidth), ridge = ceiling / bandwidth;
    fprintf(html, "<path class=\"roof\" d=\"M%.1f %.1fL%.1f %.1f", x_of(enter), y_of(p, enter * bandwidth), x_of(ridge), y_of(p, ceiling));
    if (matrix_rate > 0)
        fprintf(html, "H%d", LEFT + WIDTH);
    fputs("\"/>", html);
}

static void put_point(FILE *html, plane p, const cJSON *result, const char *mode) {
    const double flops = mla_json_number(result, "flops"), median = mla_json_number(item(result, mode), "median");
    if (!(median > 0 && flops > 0))
        return;
    fprintf(html, "<circle class=\"dot %s\" r=\"4\" cx=\"%.1f\" cy=\"%.1f\"><title>", mode, x_of(flops / mla_json_number(result, "bytes")),
            y_of(p, flops / median));
    mla_markup_text(html, mla_json_text(result, "kernel"), false);
    fputs(", ", html);
    mla_markup_text(html, mla_json_text(result, "case"), false);
    fprintf(html, ", %s: %.4g TFLOP/s</title></circle>", mode, flops / median * 1e-12);
}

static void put_device(FILE *html, const cJSON *device, const cJSON *cases) {
    const double bandwidth = mla_json_number(device, "bandwidth"), matrix_rate = mla_json_number(device, "matrix_rate");
    const plane p = {.top = (int)ceil(log10(matrix_rate > 0 ? matrix_rate : 100 * bandwidth))};
    fputs("<figure class=\"roofline\"><figcaption><b>", html);
    mla_markup_text(html, mla_json_text(device, "device"), false);
    fprintf(html, "</b></figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Roofline: TFLOP/s by flop a byte\">",
            LEFT + WIDTH + 16, TOP + HEIGHT + 32);
    put_axes(html, p);
    put_roof(html, p, bandwidth, matrix_rate);
    const cJSON *result;
    cJSON_ArrayForEach(result, cases) {
        if (!is_of(result, device))
            continue;
        put_point(html, p, result, "warm");
        put_point(html, p, result, "cold");
    }
    fprintf(html, "</svg><figcaption>TFLOP/s | line: copies %.4g GB/s", bandwidth * 1e-9);
    if (matrix_rate > 0) {
        fputs(", ", html);
        mla_markup_text(html, mla_json_text(device, "matrix"), false);
        fprintf(html, " %.4g TFLOP/s", matrix_rate * 1e-12);
    }
    fputs(" | dots: cold; rings: warm</figcaption></figure>", html);
}

/* ---- the page ------------------------------------------------------------------------------------------------------------------------------ */

static bool put_page(FILE *html, const cJSON *report) {
    const mla_html_table table = {.cases = item(report, "cases"), .columns = columns, .num_columns = sizeof columns / sizeof *columns};
    bool good = true;
    cJSON *part;
    cJSON_ArrayForEach(part, table.cases) good = good && add_columns(part);
    mla_html_begin(html);
    fputs("<h1>mla-verify bench</h1><div class=\"pictures\">", html);
    cJSON_ArrayForEach(part, item(report, "devices")) put_device(html, part, table.cases);
    fputs("</div>", html);
    good = good && mla_html_put_table(html, &table);
    mla_html_end(html);
    return good;
}

char *mla_bench_html(const mla_bench_report *report) {
    char *json = mla_bench_json(report), *text = NULL;
    size_t bytes = 0;
    cJSON *parsed = json ? cJSON_Parse(json) : NULL;
    FILE *html = parsed ? open_memstream(&text, &bytes) : NULL;
    char *page = NULL;
    if (html) {
        const bool good = put_page(html, parsed);
        page = mla_html_finish(html, &text, good);
    }
    cJSON_Delete(parsed);
    free(json);
    return page;
}
