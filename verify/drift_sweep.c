/* mla-verify drift sweep: a kernel's error as one thing grows. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "compare.h"
#include "drift.h"
#include "drift_launch.h"
#include "output_file.h"
#include "report_sweep.h"
#include "slabs.h"

static const mla_drift_help help = {
    .usage = "Measures a kernel's error while one thing grows, and fits the law by which it grows.\n"
             "\n"
             "usage: mla-verify drift sweep --kernel KERNEL... --over WHAT [--case LINE] [OPTION...]\n"
             "\n",
    .own = "  --over WHAT      kv_len | splits (plan=fixed:N) | heads | spread (standard deviation of the scores)\n"
           "  --from N         first value (defaults: 64, 1, 1, 0.125); each next one is twice the last\n"
           "  --to N           last value (defaults: 4096, 32, 128, 8)\n"
           "  --csv FILE       all figures of all points; '-' is standard output, and the text then goes to standard error\n"
           "  --html FILE      the points and their laws drawn, as one page for a browser; '-' as for --csv\n",
    .exits = "\n"
             "The case is the base (default: 16 heads, 1024 keys), without the key that is swept. chi is the rms of error / sigma, sigma\n"
             "what rounding as declared makes of this very input. cond ulp: error in units of the last place of A = sum p |v|. A law is\n"
             "rms ~ value^slope +- the slope's standard error. The exponent of chi, about 0 in a right kernel, is sharper than the\n"
             "difference of the other two: error and sigma are of the same inputs, element by element.\n"
             "\n"
             "exit: 0 measured   1 the kernel failed   2 bad usage or input   3 nothing could run\n"};

#define MOST_POINTS 32

typedef struct axis {
    const char *name;
    double from, to;
    bool whole;
} axis;

static const axis axes[] = {{"kv_len", 64, 4096, true}, {"splits", 1, 32, true}, {"heads", 1, 128, true}, {"spread", 0.125, 8, false}};
#define AXES (sizeof axes / sizeof *axes)

typedef struct point {
    double value;
    int64_t elements;              /* finite ones of rows with a key */
    double error, sigma, chi, abs; /* rms of each, chi of error / sigma */
    double err_over_bound, cond_ulp, lse_error;
} point;

typedef struct sweep_run {
    mla_selection selection;
    const axis *over;
    double from, to;        /* 0: the axis's own */
    const char *csv, *html; /* NULL: none */
    char *csv_text;
    size_t csv_size;
    FILE *csv_stream;
    cJSON *json; /* an array */
    int ran, failed;
} sweep_run;

/* ---- one point ------------------------------------------------------------------------------------------------------------------------- */

typedef struct measurement {
    const mla_drift_launch *launch;
    mla_measure measure;
    point *point;
} measurement;

static void add_row(const measurement *m, const mla_truth *truth, int64_t r) {
    const mla_problem *p = &m->launch->inputs.problem;
    const int64_t row = truth->first_token * p->heads + r;
    double out[MLA_HEAD_DIM_V];
    mla_decode_f64(p->out_format,
                   (const char *)m->launch->trial.output.out + (size_t)row * MLA_HEAD_DIM_V * mla_format_bytes(p->out_format),
                   MLA_HEAD_DIM_V, out);
    for (int64_t c = 0, i = r * MLA_HEAD_DIM_V; c < MLA_HEAD_DIM_V; c++, i++) {
        const double e = out[c] - truth->out[i], sigma = truth->sigma[i];
        if (!isfinite(e) || !(sigma > 0))
            continue;
        m->point->elements++;
        m->point->error += e * e;
        m->point->sigma += sigma * sigma;
        m->point->chi += e / sigma * (e / sigma);
        m->point->abs += truth->abs[i] * truth->abs[i];
    }
}

static mla_status add_slab(void *context, const mla_truth *truth) {
    measurement *m = context;
    mla_compare(&m->launch->inputs.problem, truth, &m->launch->trial.output, &m->measure);
    for (int64_t r = 0; r < truth->rows; r++)
        if (truth->kind[r] != MLA_ROW_EMPTY)
            add_row(m, truth, r);
    return mla_ok();
}

static void finish_point(const measurement *m) {
    point *p = m->point;
    double *const sums[] = {&p->error, &p->sigma, &p->chi, &p->abs};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        *sums[i] = p->elements > 0 ? sqrt(*sums[i] / (double)p->elements) : NAN;
    p->err_over_bound = m->measure.max_err_over_bound;
    p->cond_ulp = m->measure.max_cond_ulp;
    p->lse_error = m->measure.max_lse_err;
}

static mla_status measure_launch(const mla_subject *subject, const mla_drift_launch *launch, point *at) {
    const mla_problem *p = &launch->inputs.problem;
    const mla_contract contract = mla_kernel_contract(subject->handle.kernel, p);
    measurement m = {.launch = launch, .point = at};
    mla_status status = mla_measure_init(&m.measure, p);
    if (status.code == MLA_OK)
        status = mla_slabs_visit(p, &contract, NULL, add_slab, &m);
    finish_point(&m);
    mla_measure_free(&m.measure);
    return status;
}

/* ---- points ---------------------------------------------------------------------------------------------------------------------------- */

/* The base case with one key more: a key that the base has already is an error. */
static mla_status case_at(const char *base, const axis *over, double value, mla_case *c) {
    char *line = NULL;
    int length;
    if (strcmp(over->name, "splits") == 0)
        length = asprintf(&line, "%s plan=fixed:%.0f", base, value);
    else if (over->whole)
        length = asprintf(&line, "%s %s=%.0f", base, over->name, value);
    else /* q and k are standard normal: <q, k> has a standard deviation of 24 */
        length = asprintf(&line, "%s scale=%.9g", base, value / 24);
    const mla_status status = length < 0 ? mla_error(MLA_ENOMEM, "no memory for a case") : mla_case_parse(line, c);
    if (length >= 0)
        free(line);
    return status;
}

static void print_quoted(FILE *stream, const char *text) {
    fputc('"', stream);
    for (; *text; text++)
        fprintf(stream, *text == '"' ? "\"\"" : "%c", *text);
    fputs("\",", stream);
}

static void print_csv(const sweep_run *r, const mla_subject *subject, const char *line, const point *p) {
    print_quoted(r->csv_stream, subject->spec);
    print_quoted(r->csv_stream, line);
    fprintf(r->csv_stream, "%s,%.9g,%" PRId64 ",%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g\n", r->over->name, p->value, p->elements, p->error,
            p->sigma, p->chi, p->abs, p->err_over_bound, p->cond_ulp, p->lse_error);
}

static mla_status report_point(const sweep_run *r, FILE *text, const mla_subject *subject, const mla_case *c, const point *p) {
    char *line = mla_case_print(c);
    if (!line)
        return mla_error(MLA_ENOMEM, "no memory to print the case");
    fprintf(text, "    %10.6g  %10.3g  %10.3g  %8.3f  %8.3f  %8.3f  %10.2g\n", p->value, p->error, p->sigma, p->chi, p->err_over_bound,
            p->cond_ulp, p->lse_error);
    print_csv(r, subject, line, p);
    free(line);
    return mla_ok();
}

static mla_status measure_point(const sweep_run *r, FILE *text, const mla_subject *subject, const char *base, point *p) {
    mla_case c = {0};
    mla_drift_launch launch = {0};
    mla_status status = case_at(base, r->over, p->value, &c);
    if (status.code == MLA_OK)
        status = mla_drift_launch_run(subject->handle.kernel, mla_drift_device(subject), &c, &launch);
    if (status.code == MLA_OK)
        status = measure_launch(subject, &launch, p);
    if (status.code == MLA_OK)
        status = report_point(r, text, subject, &c, p);
    mla_drift_launch_free(&launch);
    mla_case_free(&c);
    return status;
}

/* ---- the law --------------------------------------------------------------------------------------------------------------------------- */

/* value^slope * at_one */
typedef struct law {
    double slope, error; /* standard error of the slope; NAN below three points */
    double at_one;
} law;

static double error_of(const point *p) {
    return p->error;
}

static double sigma_of(const point *p) {
    return p->sigma;
}

static double chi_of(const point *p) {
    return p->chi;
}

/* Least squares in logarithms; points where either is not positive are left out. */
static law fit(const point *points, int count, double (*number)(const point *)) {
    double n = 0, x = 0, y = 0, xx = 0, xy = 0, yy = 0;
    for (int i = 0; i < count; i++) {
        const double a = log(points[i].value), b = log(number(&points[i]));
        if (!isfinite(a) || !isfinite(b))
            continue;
        n++;
        x += a;
        y += b;
        xx += a * a;
        xy += a * b;
        yy += b * b;
    }
    const double sxx = xx - x * x / n, sxy = xy - x * y / n, syy = yy - y * y / n;
    if (!(n >= 2 && sxx > 0))
        return (law){NAN, NAN, NAN};
    const double slope = sxy / sxx, rest = syy - slope * sxy;
    return (law){slope, n > 2 ? sqrt(fmax(rest, 0) / (n - 2) / sxx) : NAN, exp((y - slope * x) / n)};
}

/* What is rounded to zero has no sign. One point has no law, two have no deviation from it. */
static void print_law(FILE *text, const char *what, const axis *over, const law *l) {
    if (!isfinite(l->slope))
        return;
    fprintf(text, "    %-20s ~ %s^%+.3f", what, over->name, fabs(l->slope) < 0.0005 ? 0 : l->slope);
    fprintf(text, isfinite(l->error) ? " +- %.3f\n" : "\n", l->error);
}

/* JSON has no NaN. */
static void add_number(cJSON *to, const char *name, double value) {
    if (isfinite(value))
        cJSON_AddNumberToObject(to, name, value);
    else
        cJSON_AddNullToObject(to, name);
}

static void add_law(cJSON *to, const char *name, const law *l) {
    cJSON *o = cJSON_AddObjectToObject(to, name);
    add_number(o, "slope", l->slope);
    add_number(o, "standard_error", l->error);
    add_number(o, "at_one", l->at_one);
}

static void add_point(cJSON *points, const point *p) {
    cJSON *o = cJSON_CreateObject();
    add_number(o, "value", p->value);
    add_number(o, "elements", (double)p->elements);
    add_number(o, "rms_error", p->error);
    add_number(o, "rms_sigma", p->sigma);
    add_number(o, "chi", p->chi);
    add_number(o, "rms_abs", p->abs);
    add_number(o, "max_err_over_bound", p->err_over_bound);
    add_number(o, "max_cond_ulp", p->cond_ulp);
    add_number(o, "max_lse_error", p->lse_error);
    cJSON_AddItemToArray(points, o);
}

static void report_laws(const sweep_run *r, FILE *text, const mla_subject *subject, const char *base, const point *points, int count) {
    const law error = fit(points, count, error_of), sigma = fit(points, count, sigma_of), chi = fit(points, count, chi_of);
    print_law(text, "rms error", r->over, &error);
    print_law(text, "sigma, by theory,", r->over, &sigma);
    print_law(text, "chi", r->over, &chi);
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "kernel", subject->spec);
    cJSON_AddStringToObject(o, "case", base);
    cJSON_AddStringToObject(o, "over", r->over->name);
    cJSON *array = cJSON_AddArrayToObject(o, "points");
    for (int i = 0; i < count; i++)
        add_point(array, &points[i]);
    add_law(o, "error_law", &error);
    add_law(o, "sigma_law", &sigma);
    add_law(o, "chi_law", &chi);
    cJSON_AddItemToArray(r->json, o);
}

/* ---- the command ----------------------------------------------------------------------------------------------------------------------- */

static bool is_stdout(const char *path) {
    return path && strcmp(path, "-") == 0;
}

static FILE *text_of(const sweep_run *r) {
    return is_stdout(r->csv) || is_stdout(r->html) ? stderr : mla_selection_text(&r->selection);
}

static mla_status sweep(const sweep_run *r, const mla_subject *subject, const char *base) {
    FILE *text = text_of(r);
    point points[MOST_POINTS] = {{0}};
    int count = 0;
    if (subject->opened.code != MLA_OK)
        return subject->opened;
    fprintf(text, "%s  %s\n    %10s  %10s  %10s  %8s  %8s  %8s  %10s\n", subject->spec, *base ? base : "(all defaults)", r->over->name,
            "rms error", "rms sigma", "chi", "|e|/B", "cond ulp", "lse error");
    for (double value = r->from; value <= r->to && count < MOST_POINTS; value *= 2, count++) {
        points[count].value = value;
        TRY(measure_point(r, text, subject, base, &points[count]));
    }
    report_laws(r, text, subject, base, points, count);
    return mla_ok();
}

static mla_status write_csv(sweep_run *r) {
    const bool good = fclose(r->csv_stream) == 0;
    mla_status status = good ? mla_ok() : mla_error(MLA_ENOMEM, "no memory for the CSV");
    if (good && r->csv)
        status = mla_output_file_write(r->csv, r->csv_text, r->csv_size);
    free(r->csv_text);
    return status;
}

static mla_status write_html(const sweep_run *r) {
    char *page = r->html ? mla_sweep_html(r->json) : NULL;
    mla_status status = mla_ok();
    if (r->html)
        status = page ? mla_output_file_write(r->html, page, strlen(page)) : mla_error(MLA_ENOMEM, "no memory for the page");
    free(page);
    return status;
}

/* Frees the JSON. */
static mla_status write_files(sweep_run *r) {
    const mla_status csv = write_csv(r), html = write_html(r), json = mla_drift_write_json(r->selection.json, r->json);
    return csv.code != MLA_OK ? csv : html.code != MLA_OK ? html : json;
}

static mla_exit run_all(sweep_run *r) {
    const mla_selection *s = &r->selection;
    r->json = cJSON_CreateArray();
    r->csv_stream = open_memstream(&r->csv_text, &r->csv_size);
    if (!r->csv_stream)
        return mla_usage_error("no memory for the CSV");
    fprintf(r->csv_stream,
            "kernel,case,over,value,elements,rms_error,rms_sigma,chi,rms_abs,max_err_over_bound,max_cond_ulp,max_lse_error\n");
    for (int i = 0; i < s->cases.count; i++)
        for (int k = 0; k < s->num_subjects; k++) {
            char *base = mla_case_print(&s->cases.cases[i]);
            const mla_status status = base ? sweep(r, &s->subjects[k], base) : mla_error(MLA_ENOMEM, "no memory to print the case");
            mla_drift_count(text_of(r), &s->subjects[k], &s->cases.cases[i], &status, &r->ran, &r->failed);
            free(base);
        }
    const mla_status written = write_files(r);
    return written.code == MLA_OK ? mla_drift_exit(r->ran, r->failed) : mla_usage_error("%s", written.message);
}

/* A malformed sweep is bad usage, and found before anything runs. */
static mla_status check_sweep(sweep_run *r) {
    if (!r->over)
        return mla_error(MLA_EINVAL, "--over is missing: kv_len, splits, heads or spread");
    if (is_stdout(r->csv) + is_stdout(r->html) + is_stdout(r->selection.json) > 1)
        return mla_error(MLA_EINVAL, "more than one of --json, --csv and --html is '-': there is one standard output");
    r->from = r->from > 0 ? r->from : r->over->from;
    r->to = r->to > 0 ? r->to : r->over->to;
    if (!(r->from <= r->to))
        return mla_error(MLA_EINVAL, "--from %g lies above --to %g", r->from, r->to);
    if (r->over->whole && (r->from != floor(r->from) || r->from < 1))
        return mla_error(MLA_EINVAL, "--from %g: %s takes whole numbers", r->from, r->over->name);
    for (int i = 0; i < r->selection.cases.count; i++) {
        char *base = mla_case_print(&r->selection.cases.cases[i]);
        mla_case c = {0};
        const mla_status status = base ? case_at(base, r->over, r->from, &c) : mla_error(MLA_ENOMEM, "no memory to print the case");
        mla_case_free(&c);
        free(base);
        if (status.code != MLA_OK)
            return status;
    }
    return mla_ok();
}

static mla_status set_number(const char *option, const char *text, double *value) {
    char *end;
    *value = strtod(text, &end);
    if (end == text || *end || !(*value > 0 && *value <= 1e9))
        return mla_error(MLA_EINVAL, "%s %s: expected a number above 0", option, text);
    return mla_ok();
}

static mla_status set_axis(sweep_run *r, const char *name) {
    for (size_t i = 0; i < AXES; i++)
        if (strcmp(axes[i].name, name) == 0)
            r->over = &axes[i];
    return r->over ? mla_ok() : mla_error(MLA_EINVAL, "--over %s: expected kv_len, splits, heads or spread", name);
}

static mla_status set_option(void *context, int option, const char *value) {
    sweep_run *r = context;
    switch (option) {
    case 'O':
        return set_axis(r, value);
    case 'F':
        return set_number("--from", value, &r->from);
    case 'T':
        return set_number("--to", value, &r->to);
    case 'H':
        r->html = value;
        return mla_output_file_check(value);
    default:
        r->csv = value;
        return mla_output_file_check(value);
    }
}

mla_exit mla_drift_sweep(int argc, char **argv) {
    static const struct option options[] = {{"over", required_argument, NULL, 'O'},
                                            {"from", required_argument, NULL, 'F'},
                                            {"to", required_argument, NULL, 'T'},
                                            {"csv", required_argument, NULL, 'C'},
                                            {"html", required_argument, NULL, 'H'}};
    sweep_run r = {.selection.default_case = ""};
    const mla_own_options own = {.list = options, .count = 5, .set = set_option, .context = &r};
    mla_exit code;
    if (mla_drift_begin(&r.selection, argc, argv, &own, &help, &code)) {
        const mla_status status = check_sweep(&r);
        code = status.code == MLA_OK ? run_all(&r) : mla_usage_error("%s", status.message);
    }
    mla_selection_free(&r.selection);
    return code;
}
