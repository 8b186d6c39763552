#include "report_bench.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

/* ---- text ----------------------------------------------------------------------------------------------------------------------------- */

/* Three significant digits and more, in the unit that suits. `text` holds 24. */
static const char *in_seconds(double seconds, char *text) {
    const char *unit = seconds < 1e-3 ? "us" : seconds < 1 ? "ms" : "s ";
    const double value = seconds < 1e-3 ? seconds * 1e6 : seconds < 1 ? seconds * 1e3 : seconds;
    snprintf(text, 24, value < 10 ? "%.3f %s" : value < 100 ? "%.2f %s" : "%.1f %s", value, unit);
    return text;
}

void mla_bench_text_device(FILE *stream, const mla_bench_device *d) {
    const mla_ceiling *c = &d->yardstick.ceiling;
    fprintf(stream, "%s: copies %.4g GB/s, ", d->device->description, c->bandwidth * 1e-9);
    if (c->matrix_rate > 0)
        fprintf(stream, "%s %.4g TFLOP/s\n", d->yardstick.matrix, c->matrix_rate * 1e-12);
    else
        fprintf(stream, "%s\n", d->yardstick.matrix);
}

static void print_case(FILE *stream, const mla_bench_result *r) {
    char text[24];
    fprintf(stream, "\n%s\n", *r->case_line ? r->case_line : "''");
    if (r->floor.seconds > 0) {
        fprintf(stream, "  %.4g MB, %.4g GFLOP, floor %s by %s", (double)r->work.bytes * 1e-6, (double)r->work.flops * 1e-9,
                in_seconds(r->floor.seconds, text), r->floor.by_flops ? "flops" : "bytes");
        fprintf(stream, " | cold: going round %d copies, %.4g MB%s\n", r->copies, (double)r->copied_bytes * 1e-6,
                r->cold_enough ? "" : ", which the cache may hold");
    }
    fprintf(stream, "  %-20s %-10s %8s %11s %11s %11s %9s %9s %9s %9s\n", "kernel", "launches", "", "median", "min", "p90-p10", "GB/s",
            "TFLOP/s", "of floor", "to first");
}

static void print_timing(FILE *stream, const mla_bench_result *r, const mla_bench_result *first, mla_bench_mode mode) {
    const mla_timing *t = &r->timing[mode];
    char median[24], least[24], spread[24], ratio[24] = "-";
    if (first->timing[mode].launches > 0)
        snprintf(ratio, sizeof ratio, "%.3g", t->median / first->timing[mode].median);
    fprintf(stream, "  %-20s %-10s %8d %11s %11s %11s %9.4g %9.4g %9.3g %9s\n", mode == MLA_BENCH_COLD ? r->kernel : "",
            mla_bench_mode_name(mode), t->launches, in_seconds(t->median, median), in_seconds(t->min, least),
            in_seconds(t->p90 - t->p10, spread), (double)r->work.bytes / t->median * 1e-9, (double)r->work.flops / t->median * 1e-12,
            r->floor.seconds / t->median, ratio);
}

void mla_bench_text_result(FILE *stream, const mla_bench_result *r, const mla_bench_result *first, bool headed) {
    if (headed)
        print_case(stream, r);
    if (r->verdict.status != MLA_PASSED)
        fprintf(stream, "  %-20s %s, not timed: %s\n", r->kernel, mla_verdict_name(r->verdict.status), r->verdict.reason);
    for (mla_bench_mode mode = 0; mode < MLA_BENCH_MODES; mode++)
        if (r->timing[mode].launches > 0)
            print_timing(stream, r, first, mode);
    fflush(stream);
}

static void print_limit(FILE *stream, const mla_speed_limit *l, const mla_duel *d, int threads) {
    static const char *const states[] = {
        [MLA_LIMIT_OFF] = "-", [MLA_LIMIT_KEPT] = "ok", [MLA_LIMIT_MISSED] = "MISSED", [MLA_LIMIT_UNKNOWN] = "BUSY"};
    const char *state = states[mla_limit_state_of(l, d, threads)];
    fprintf(stream, "  %-6s %s '%s': %.3g of ", state, l->kernel, l->case_line, d->ratio);
    if (l->base_kernel)
        fprintf(stream, "%s '%s' in %s", l->base_kernel, l->base_case_line, l->of_time ? "time a flop" : "speed");
    else
        fprintf(stream, "the machine's sgemm");
    if (l->low > 0)
        fprintf(stream, ", at least %.3g", l->low);
    if (l->high < INFINITY)
        fprintf(stream, ", at most %.3g", l->high);
    if (threads > l->threads)
        fprintf(stream, ", with up to %d threads", l->threads);
    fprintf(stream, " | %.3g .. %.3g after %d rounds%s\n", d->low, d->high, d->rounds,
            d->busy ? " of processor time on a busy machine" : "");
}

void mla_bench_text_limits(FILE *stream, const mla_bench_report *report) {
    bool any = false, unknown = false;
    for (int i = 0; i < mla_num_speed_limits; i++) {
        const mla_duel *duel = &report->duels[i];
        if (duel->rounds == 0)
            continue;
        if (!any)
            fputs("\nlimits: medians of rounds in which both sides take a turn\n", stream);
        any = true;
        unknown |= mla_limit_state_of(&mla_speed_limits[i], duel, report->threads) == MLA_LIMIT_UNKNOWN;
        print_limit(stream, &mla_speed_limits[i], duel, report->threads);
    }
    if (unknown)
        fputs("  BUSY: other programs had the processors. With OMP_WAIT_POLICY=passive threads that wait take no processor time\n", stream);
}

/* ---- JSON: each false when out of memory -------------------------------------------------------------------------------------------- */

static bool add_text(cJSON *o, const char *name, const char *text) {
    return cJSON_AddStringToObject(o, name, text) != NULL;
}

static bool add_number(cJSON *o, const char *name, double value) {
    return (isfinite(value) ? cJSON_AddNumberToObject(o, name, value) : cJSON_AddNullToObject(o, name)) != NULL;
}

/* A new object at the end of the array, or NULL. */
static cJSON *append(cJSON *array) {
    cJSON *o = cJSON_CreateObject();
    if (o && cJSON_AddItemToArray(array, o))
        return o;
    cJSON_Delete(o);
    return NULL;
}

static bool add_device(cJSON *array, const mla_bench_device *d) {
    cJSON *o = append(array);
    return o && add_text(o, "device", d->device->description) && add_number(o, "bandwidth", d->yardstick.ceiling.bandwidth) &&
           add_number(o, "matrix_rate", d->yardstick.ceiling.matrix_rate > 0 ? d->yardstick.ceiling.matrix_rate : NAN) &&
           add_text(o, "matrix", d->yardstick.matrix);
}

static bool add_timing(cJSON *parent, const char *name, const mla_timing *t, double floor_seconds) {
    if (t->launches == 0)
        return true;
    cJSON *o = cJSON_AddObjectToObject(parent, name);
    return o && add_number(o, "launches", t->launches) && add_number(o, "median", t->median) && add_number(o, "min", t->min) &&
           add_number(o, "p10", t->p10) && add_number(o, "p90", t->p90) && add_number(o, "floor_fraction", floor_seconds / t->median);
}

static bool add_result(cJSON *array, const mla_bench_result *r) {
    cJSON *o = append(array);
    bool good = o && add_text(o, "case", r->case_line ? r->case_line : "") && add_text(o, "kernel", r->kernel) &&
                (!r->device || add_text(o, "device", r->device)) && add_text(o, "status", mla_verdict_name(r->verdict.status)) &&
                add_text(o, "reason", r->verdict.reason) && add_number(o, "bytes", (double)r->work.bytes) &&
                add_number(o, "flops", (double)r->work.flops) && add_number(o, "floor", r->floor.seconds) &&
                add_text(o, "floor_by", r->floor.by_flops ? "flops" : "bytes") && add_number(o, "copies", r->copies) &&
                add_number(o, "copied_bytes", (double)r->copied_bytes);
    for (mla_bench_mode mode = 0; mode < MLA_BENCH_MODES && good; mode++)
        good = add_timing(o, mla_bench_mode_name(mode), &r->timing[mode], r->floor.seconds);
    return good;
}

static bool add_duel(cJSON *o, const mla_duel *d) {
    return add_number(o, "ratio", d->ratio) && add_number(o, "ratio_low", d->low) && add_number(o, "ratio_high", d->high) &&
           add_number(o, "rounds", d->rounds) && cJSON_AddBoolToObject(o, "busy", d->busy);
}

static bool add_limit(cJSON *array, const mla_speed_limit *l, const mla_duel *d, int threads) {
    cJSON *o = append(array);
    return o && add_text(o, "kernel", l->kernel) && add_text(o, "case", l->case_line) &&
           add_text(o, "base_kernel", l->base_kernel ? l->base_kernel : "sgemm") &&
           add_text(o, "base_case", l->base_kernel ? l->base_case_line : "") && add_text(o, "of", l->of_time ? "time" : "speed") &&
           add_duel(o, d) && add_number(o, "low", l->low) && add_number(o, "high", l->high) && add_number(o, "threads", l->threads) &&
           cJSON_AddBoolToObject(o, "missed", mla_limit_state_of(l, d, threads) == MLA_LIMIT_MISSED);
}

char *mla_bench_json(const mla_bench_report *report) {
    cJSON *root = cJSON_CreateObject();
    cJSON *devices = cJSON_AddArrayToObject(root, "devices"), *cases = cJSON_AddArrayToObject(root, "cases");
    cJSON *limits = cJSON_AddArrayToObject(root, "limits");
    bool good = devices && cases && limits;
    for (int i = 0; i < 3 && good; i++)
        good = !report->devices[i].device || add_device(devices, &report->devices[i]);
    for (int i = 0; i < report->num_results && good; i++)
        good = add_result(cases, &report->results[i]);
    for (int i = 0; i < mla_num_speed_limits && good; i++)
        good = report->duels[i].rounds == 0 || add_limit(limits, &mla_speed_limits[i], &report->duels[i], report->threads);
    char *text = good ? cJSON_Print(root) : NULL;
    cJSON_Delete(root);
    return text;
}
