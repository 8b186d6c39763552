#include "html_pictures.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "html_table.h"
#include "judge.h"

#define LEFT 44
#define TOP 8
#define WIDTH 300 /* of what is drawn inside the axes */
#define HEIGHT 180
#define VIEW_WIDTH 360
#define VIEW_HEIGHT 222

/* ---- parts ----------------------------------------------------------------------------------------------------------------------------- */

static void begin_picture(FILE *html, const char *name, const char *title) {
    fprintf(html, "<figure class=\"%s\"><figcaption><b>%s</b></figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">", name,
            title, VIEW_WIDTH, VIEW_HEIGHT, title);
}

static void put_frame(FILE *html) {
    fprintf(html, "<rect class=\"frame\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>", LEFT, TOP, WIDTH, HEIGHT);
}

static void put_power(FILE *html, double x, double y, const char *anchor, int base, int exponent) {
    fprintf(html, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    if (exponent == 0)
        fputs("1</text>", html);
    else
        fprintf(html, "%d<tspan dy=\"-4\" font-size=\"8\">%d</tspan></text>", base, exponent);
}

static void put_x_title(FILE *html, const char *title) {
    fprintf(html, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>", LEFT + WIDTH / 2, VIEW_HEIGHT - 3, title);
}

static void put_key(FILE *html, int level, const char *meaning) {
    fprintf(html, "<span class=\"key\"><i class=\"l%d\"></i>%s</span>", level, meaning);
}

/* ---- the histogram --------------------------------------------------------------------------------------------------------------------- */

#define OCTAVES (MLA_ULP_BINS / 8 + 1) /* 0: below 2^-24; i: from 2^(i - 25) */

typedef struct octaves {
    int64_t counts[OCTAVES], most;
    int first, last; /* that are drawn; 0, which may be far from the others, is drawn left of them */
} octaves;

static octaves octaves_of(const mla_measure *m) {
    octaves o = {.first = OCTAVES, .last = 0};
    for (int bin = 0; bin < MLA_ULP_BINS; bin++)
        o.counts[bin == 0 ? 0 : 1 + (bin - 1) / 8] += m->ulp_histogram[bin];
    for (int i = 0; i < OCTAVES; i++) {
        o.most = o.counts[i] > o.most ? o.counts[i] : o.most;
        if (i > 0 && o.counts[i] > 0) {
            o.first = i < o.first ? i : o.first;
            o.last = i;
        }
    }
    if (o.last == 0)
        o.first = o.last = 25; /* one ulp */
    return o;
}

/* Of the axes' height; a decade more than the largest count's, and a count of one is seen. */
static double bar_height(int64_t count, int decades) {
    return count > 0 ? HEIGHT * (log10((double)count) + 0.3) / (decades + 0.3) : 0;
}

static void put_bar(FILE *html, double x, double width, const octaves *o, int i, int decades) {
    const double height = bar_height(o->counts[i], decades);
    if (height <= 0)
        return;
    fprintf(html, "<rect class=\"bar\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>", x, TOP + HEIGHT - height, width - 1,
            height);
    if (i == 0)
        fputs("below 2^-24", html);
    else
        fprintf(html, "2^%d to 2^%d", i - 25, i - 24);
    fprintf(html, " ulp: %" PRId64 "</title></rect>", o->counts[i]);
}

static void put_counts_axis(FILE *html, int decades) {
    for (int d = 0; d <= decades; d++) {
        const double y = TOP + HEIGHT - bar_height((int64_t)pow(10, d), decades);
        fprintf(html, "<path class=\"grid\" d=\"M%d %.1fh%d\"/>", LEFT, y, WIDTH);
        put_power(html, LEFT - 5, y + 4, "end", 10, d);
    }
}

static void put_quantiles(FILE *html, const mla_measure *m) {
    fprintf(html, "<figcaption>elements an octave | p50 %.2g, p99 %.2g, p99.9 %.2g, max %.5g</figcaption></figure>",
            mla_measure_ulp_quantile(m, 0.5), mla_measure_ulp_quantile(m, 0.99), mla_measure_ulp_quantile(m, 0.999), m->max_ulp);
}

static void put_histogram(FILE *html, const mla_measure *m) {
    const octaves o = octaves_of(m);
    const int bars = o.last - o.first + 3; /* with 0 and a gap */
    const int decades = o.most > 1 ? (int)ceil(log10((double)o.most)) : 1;
    const int every = bars > 24 ? 6 : bars > 12 ? 4 : 1;
    const double width = fmin(24, (double)WIDTH / bars);
    begin_picture(html, "histogram", "ULP error");
    put_counts_axis(html, decades);
    put_bar(html, LEFT + 1, width, &o, 0, decades);
    fprintf(html, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">0</text>", LEFT + width / 2, TOP + HEIGHT + 14);
    for (int i = o.first; i <= o.last + 1; i++) {
        const double x = LEFT + width * (i - o.first + 2);
        if (i <= o.last)
            put_bar(html, x, width, &o, i, decades);
        if ((i - 25) % every == 0)
            put_power(html, x, TOP + HEIGHT + 16, "middle", 2, i - 25);
    }
    put_frame(html);
    put_x_title(html, "ulp");
    fputs("</svg>", html);
    put_quantiles(html, m);
}

/* ---- grids of shades -------------------------------------------------------------------------------------------------------------------- */

#define LEVELS 7

typedef struct grid {
    int rows, columns;
    uint8_t level[MLA_BANDS][MLA_SHARE_OCTAVES]; /* 0: nothing */
} grid;

/* One path a level, one rectangle a run of equal cells. */
static void put_grid(FILE *html, const grid *g, double height) {
    fprintf(html, "<g shape-rendering=\"crispEdges\" transform=\"translate(%d %d) scale(%.4f %.4f)\">", LEFT, TOP,
            (double)WIDTH / g->columns, height / g->rows);
    for (int level = 1; level <= LEVELS; level++) {
        bool begun = false;
        for (int row = 0; row < g->rows; row++) {
            for (int column = 0, end; column < g->columns; column = end) {
                for (end = column + 1; end < g->columns && g->level[row][end] == g->level[row][column];)
                    end++;
                if (g->level[row][column] != level)
                    continue;
                if (!begun)
                    fprintf(html, "<path class=\"l%d\" d=\"", level);
                fprintf(html, "M%d %dh%dv1h-%dz", column, row, end - column, end - column);
                begun = true;
            }
        }
        if (begun)
            fputs("\"/>", html);
    }
    fputs("</g>", html);
}

/* ---- density ---------------------------------------------------------------------------------------------------------------------------- */

static int count_level(int64_t count) {
    return count <= 0 ? 0 : count < 10 ? 1 : count < 100 ? 2 : count < 1000 ? 3 : count < 10000 ? 4 : 5;
}

static grid density_grid(const mla_pictures *p) {
    grid g = {.rows = MLA_ERROR_OCTAVES, .columns = MLA_SHARE_OCTAVES};
    for (int error = 0; error < g.rows; error++)
        for (int share = 0; share < g.columns; share++)
            g.level[g.rows - 1 - error][share] = (uint8_t)count_level(p->density[error][share]);
    return g;
}

/* An error of one ulp of A, in ulps of O, is A / |O|: the diagonal. */
static void put_density_axes(FILE *html) {
    const double octave_x = (double)WIDTH / MLA_SHARE_OCTAVES, octave_y = (double)HEIGHT / MLA_ERROR_OCTAVES;
    for (int i = 0; i <= MLA_SHARE_OCTAVES; i += 4)
        put_power(html, LEFT + i * octave_x, TOP + HEIGHT + 16, "middle", 2, i + MLA_SHARE_LOWEST);
    for (int i = 0; i <= MLA_ERROR_OCTAVES; i += 8)
        put_power(html, LEFT - 5, TOP + HEIGHT - i * octave_y + 5, "end", 2, i + MLA_ERROR_LOWEST);
    fprintf(html, "<path class=\"dash\" d=\"M%d %.1fL%d %.1f\"/>", LEFT, TOP + HEIGHT - (-MLA_SHARE_LOWEST - MLA_ERROR_LOWEST) * octave_y,
            LEFT + WIDTH, TOP + HEIGHT + MLA_ERROR_LOWEST * octave_y);
}

static void put_density(FILE *html, const mla_pictures *p) {
    const grid g = density_grid(p);
    begin_picture(html, "density", "ULP error against |O|/A");
    put_grid(html, &g, HEIGHT);
    put_frame(html);
    put_density_axes(html);
    put_x_title(html, "|O|/A: the result beside the sum of its terms&#39; magnitudes");
    fputs("</svg><figcaption>elements a cell: ", html);
    static const char *const meanings[] = {"1+", "10+", "100+", "1,000+", "10,000+"};
    for (int level = 1; level <= 5; level++)
        put_key(html, level, meanings[level - 1]);
    fputs("dashed: one ulp of A (cond_ulp 1)</figcaption></figure>", html);
}

/* ---- the map ------------------------------------------------------------------------------------------------------------------------------ */

/* NaN is a fault like infinity. */
static int worst_level(double worst) {
    return worst <= 0         ? 0
           : worst <= 0.0625  ? 1
           : worst <= 0.125   ? 2
           : worst <= 0.25    ? 3
           : worst <= 0.5     ? 4
           : worst <= 1       ? 5
           : worst < INFINITY ? 6
                              : 7;
}

static grid map_grid(const mla_pictures *p) {
    grid g = {.rows = p->bands, .columns = MLA_BLOCKS};
    for (int band = 0; band < g.rows; band++)
        for (int block = 0; block < g.columns; block++)
            g.level[band][block] = (uint8_t)worst_level(p->worst[band][block]);
    return g;
}

static void put_map_axes(FILE *html, const mla_pictures *p, double height) {
    for (int column = 0; column <= MLA_HEAD_DIM_V; column += 128)
        fprintf(html, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%d</text>", LEFT + column * WIDTH / MLA_HEAD_DIM_V, TOP + HEIGHT + 14,
                column);
    const int every = p->bands > 8 ? p->bands / 8 : 1;
    for (int band = 0; band < p->bands; band += every)
        fprintf(html, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%" PRId64 "</text>", LEFT - 5, TOP + band * height / p->bands + 8,
                band * p->rows_per_band);
}

static void put_map(FILE *html, const mla_pictures *p) {
    static const char *const meanings[] = {"to 1/16", "1/8", "1/4", "1/2", "1", "beyond the bound", "no number, or never written"};
    const grid g = map_grid(p);
    const double height = fmin(HEIGHT, 16 * p->bands);
    begin_picture(html, "map", "Largest |e|/B by row and column");
    put_grid(html, &g, height);
    put_frame(html);
    put_map_axes(html, p, height);
    put_x_title(html, "column of out");
    fputs("</svg><figcaption>", html);
    for (int level = 1; level <= LEVELS; level++)
        put_key(html, level, meanings[level - 1]);
    fprintf(html, "| row = query token &#215; heads + head; %" PRId64 " row%s a band</figcaption></figure>", p->rows_per_band,
            p->rows_per_band > 1 ? "s" : "");
}

/* ---- error along the KV ------------------------------------------------------------------------------------------------------------------- */

#define FAR 4 /* deviations */

/* A row of bars around 0. */
typedef struct strip {
    const mla_kv_part *parts;
    int count;
    bool marked;        /* bars that rounding does not explain */
    double top, height; /* of the picture */
    double most;        /* the largest excess that fits */
} strip;

static bool is_known(const mla_kv_part *part) {
    return part->deviation <= MLA_KV_VAGUE && isfinite(part->excess);
}

static bool is_far(const strip *s, const mla_kv_part *part) {
    return s->marked && is_known(part) && fabs(part->excess) > part->allowed + FAR * part->deviation;
}

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* For all bars, and for two of the median's deviations. */
static double largest_excess(const mla_kv_part *parts, int count) {
    double deviations[MLA_KV_TOKENS], most = 0;
    int known = 0;
    for (int i = 0; i < count; i++)
        if (is_known(&parts[i])) {
            most = fmax(most, fabs(parts[i].excess));
            deviations[known++] = parts[i].allowed / 2 + parts[i].deviation;
        }
    qsort(deviations, (size_t)known, sizeof *deviations, compare_doubles);
    return known > 0 ? fmax(most, 2 * deviations[known / 2]) : 1;
}

/* 1, 2 or 5 times a power of ten, and not below `most`. */
static double round_up(double most) {
    double step = 1e-9;
    while (step * 10 <= most)
        step *= 10;
    return most <= step ? step : most <= 2 * step ? 2 * step : most <= 5 * step ? 5 * step : 10 * step;
}

static double strip_x(const strip *s, int64_t position) {
    const int64_t first = s->parts[0].begin;
    return LEFT + WIDTH * (double)(position - first) / (double)(s->parts[s->count - 1].end - first);
}

static double strip_y(const strip *s, double excess) {
    return s->top + s->height / 2 * (1 - fmax(-1, fmin(1, excess / s->most)));
}

/* From low to high over the part's width. */
static void put_part(FILE *html, const strip *s, const mla_kv_part *part, double low, double high) {
    const double x = strip_x(s, part->begin), width = strip_x(s, part->end) - x, y = strip_y(s, high);
    fprintf(html, "M%.1f %.1fh%.1fv%.1fh-%.1fz", x, y, width, strip_y(s, low) - y, width);
}

static void put_excess(FILE *html, const strip *s, const mla_kv_part *part) {
    put_part(html, s, part, fmin(part->excess, 0), fmax(part->excess, 0));
}

static void put_far_part(FILE *html, const strip *s, const mla_kv_part *part) {
    fputs("<path class=\"l6\" d=\"", html);
    put_excess(html, s, part);
    fprintf(html, "\"><title>%" PRId64, part->begin);
    if (part->end > part->begin + 1)
        fprintf(html, " to %" PRId64, part->end - 1);
    fprintf(html, ": %.3g, deviation %.2g</title></path>", part->excess, part->deviation);
}

static void put_bands(FILE *html, const strip *s) {
    fputs("<path class=\"l1\" d=\"", html);
    for (int i = 0; i < s->count; i++)
        if (is_known(&s->parts[i]))
            put_part(html, s, &s->parts[i], -s->parts[i].allowed - 2 * s->parts[i].deviation,
                     s->parts[i].allowed + 2 * s->parts[i].deviation);
    fputs("\"/>", html);
}

static void put_strip_axes(FILE *html, const strip *s) {
    const int64_t first = s->parts[0].begin, end = s->parts[s->count - 1].end;
    for (int i = -1; i <= 1; i++)
        fprintf(html, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>", LEFT - 5, strip_y(s, i * s->most) + (i + 1) * 4,
                i * s->most);
    fprintf(html, "<path class=\"grid\" d=\"M%d %.1fh%d\"/><rect class=\"frame\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\"/>", LEFT,
            strip_y(s, 0), WIDTH, LEFT, s->top, WIDTH, s->height);
    for (int i = 0; i <= 4; i++)
        fprintf(html, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"middle\">%" PRId64 "</text>", LEFT + i * WIDTH / 4, s->top + s->height + 12,
                first + (end - first) * i / 4);
}

static void put_strip(FILE *html, const mla_kv_part *parts, int count, bool marked, double top, double height) {
    const strip s = {parts, count, marked, top, height, round_up(largest_excess(parts, count))};
    put_bands(html, &s);
    put_strip_axes(html, &s);
    fputs("<path class=\"l4\" d=\"", html);
    for (int i = 0; i < count; i++)
        if (is_known(&parts[i]) && !is_far(&s, &parts[i]))
            put_excess(html, &s, &parts[i]);
    fputs("\"/>", html);
    for (int i = 0; i < count; i++)
        if (is_far(&s, &parts[i]))
            put_far_part(html, &s, &parts[i]);
}

/* In a right kernel a large value takes small ones away with its rounding, which looks like a fault of theirs: only a wrong one has marks. */
static void put_profile(FILE *html, const mla_measure *measure) {
    const mla_kv_profile *p = &measure->pictures->profile;
    const bool wrong = mla_judge(measure, &(mla_integrity){.guard_offset = 0}).status == MLA_FAILED;
    const double height = p->tokens > 0 ? 0.42 * HEIGHT : HEIGHT;
    begin_picture(html, "profile", "Error along the KV, in the row with the largest |e|/B");
    put_strip(html, p->block, p->blocks, wrong, TOP, height);
    if (p->tokens > 0)
        put_strip(html, p->token, p->tokens, wrong, TOP + HEIGHT - height, height);
    put_x_title(html, "position");
    fprintf(html, "</svg><figcaption>excess weight in out by block%s | seq %d q %d head %d | -1: missing, 1: counted twice | ",
            p->tokens > 0 ? "; below, one block&#39;s tokens" : "", p->place.sequence, p->place.q, p->place.head);
    put_key(html, 1, "what rounding allows, and two deviations");
    if (wrong)
        put_key(html, 6, "beyond four");
    fprintf(html,
            "none: too little weight to tell | the fit explains %.3g %% of the error, of noise %.2g "
            "%%</figcaption></figure>",
            100 * p->explained, 100 * p->expected);
}

char *mla_html_pictures(const mla_measure *measure) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *html = open_memstream(&text, &bytes);
    if (!html)
        return NULL;
    fputs("<div class=\"pictures\">", html);
    put_histogram(html, measure);
    if (measure->pictures && measure->pictures->bands > 0) {
        put_density(html, measure->pictures);
        put_map(html, measure->pictures);
        if (measure->pictures->profile.blocks > 0)
            put_profile(html, measure);
    }
    fputs("</div>", html);
    return mla_html_finish(html, &text, true);
}
