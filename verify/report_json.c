#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

struct cJSON *mla_json_begin(void) {
    cJSON *report = cJSON_CreateObject();
    if (cJSON_AddObjectToObject(report, "summary") && cJSON_AddArrayToObject(report, "cases"))
        return report;
    cJSON_Delete(report);
    return NULL;
}

void mla_json_free(struct cJSON *report) {
    cJSON_Delete(report);
}

/* ---- values: each false when out of memory --------------------------------------------------------------------------------------- */

static bool add_text(cJSON *object, const char *name, const char *text) {
    return cJSON_AddStringToObject(object, name, text ? text : "") != NULL;
}

static bool add_text_or_null(cJSON *object, const char *name, const char *text) {
    return *text ? add_text(object, name, text) : cJSON_AddNullToObject(object, name) != NULL;
}

static bool add_count(cJSON *object, const char *name, int64_t count) {
    return cJSON_AddNumberToObject(object, name, (double)count) != NULL;
}

static bool add_number(cJSON *object, const char *name, double value) {
    if (isnan(value))
        return add_text(object, name, "NaN");
    if (isinf(value))
        return add_text(object, name, value > 0 ? "Infinity" : "-Infinity");
    return cJSON_AddNumberToObject(object, name, value) != NULL;
}

static bool add_measured(cJSON *object, const char *name, bool measured, double value) {
    return measured ? add_number(object, name, value) : cJSON_AddNullToObject(object, name) != NULL;
}

/* ---- parts of a case ---------------------------------------------------------------------------------------------------------------- */

static const char *fault_name(mla_fault fault) {
    static const char *const names[] = {[MLA_FAULT_NONE] = "none",
                                        [MLA_FAULT_INEXACT] = "inexact",
                                        [MLA_FAULT_OUTSIDE] = "outside",
                                        [MLA_FAULT_ANOMALY] = "anomaly",
                                        [MLA_FAULT_UNWRITTEN] = "unwritten"};
    return names[fault];
}

static bool add_counts(cJSON *object, const char *name, const mla_counts *counts) {
    cJSON *o = cJSON_AddObjectToObject(object, name);
    return o && add_count(o, "total", counts->total) && add_count(o, "unwritten", counts->unwritten) &&
           add_count(o, "anomalies", counts->anomalies) && add_count(o, "outside", counts->outside) &&
           add_count(o, "inexact", counts->inexact);
}

static bool add_sample(cJSON *object, const char *name, const mla_sample *s, size_t code_bytes) {
    if (!s->present)
        return cJSON_AddNullToObject(object, name) != NULL;
    char code[16];
    snprintf(code, sizeof code, "0x%0*X", (int)(2 * code_bytes), s->code);
    cJSON *o = cJSON_AddObjectToObject(object, name);
    return o && add_count(o, "sequence", s->place.sequence) && add_count(o, "q", s->place.q) && add_count(o, "head", s->place.head) &&
           add_count(o, "column", s->place.column) && add_text(o, "fault", fault_name(s->fault)) && add_text(o, "code", code) &&
           add_number(o, "got", s->got) && add_number(o, "exact", s->exact) && add_number(o, "bound", s->bound) &&
           add_number(o, "abs", s->abs) && add_number(o, "ulp", s->ulp) && add_number(o, "err_over_bound", s->err_over_bound);
}

/* A row's chi; null where there is none. */
static bool add_row_chi(cJSON *object, const char *name, const mla_row_chi *row) {
    if (!(row->chi > 0))
        return cJSON_AddNullToObject(object, name) != NULL;
    cJSON *o = cJSON_AddObjectToObject(object, name);
    return o && add_count(o, "sequence", row->place.sequence) && add_count(o, "q", row->place.q) && add_count(o, "head", row->place.head) &&
           add_number(o, "chi", row->chi);
}

static bool add_chi(cJSON *object, const mla_measure *m) {
    const mla_chi *chi = &m->chi;
    return add_count(object, "chi_rows", chi->rows) && add_number(object, "chi_limit", chi->limit) &&
           add_row_chi(object, "chi_worst_row", &chi->worst) && add_count(object, "chi_doubted_rows", chi->doubted_rows) &&
           add_measured(object, "chi_doubted", chi->doubted_rows > 0, mla_chi_doubted(chi)) &&
           add_count(object, "loose_elements", m->loose_elements);
}

static bool add_measure(cJSON *object, const mla_measure *m, mla_format out) {
    return add_count(object, "rows", m->rows) && add_count(object, "empty_rows", m->empty_rows) &&
           add_count(object, "hull_rows", m->hull_rows) && add_counts(object, "elements", &m->out) && add_counts(object, "lse", &m->lse) &&
           add_number(object, "ulp_p50", mla_measure_ulp_quantile(m, 0.5)) &&
           add_number(object, "ulp_p99", mla_measure_ulp_quantile(m, 0.99)) &&
           add_number(object, "ulp_p99.9", mla_measure_ulp_quantile(m, 0.999)) &&
           add_number(object, "lse_err_over_bound", m->max_lse_over_bound) && add_chi(object, m) &&
           add_sample(object, "worst", &m->worst, mla_format_bytes(out)) &&
           add_sample(object, "worst_ulp", &m->worst_ulp, mla_format_bytes(out)) &&
           add_sample(object, "worst_lse", &m->worst_lse, sizeof(float));
}

static bool fill_case(cJSON *o, const mla_result *r) {
    const mla_measure *m = &r->measure;
    return add_count(o, "index", r->index) && add_text(o, "case", r->case_line) && add_text(o, "kernel", r->kernel) &&
           (!r->golden || add_text(o, "golden", r->golden)) && (!r->contract || add_text(o, "contract", r->contract)) &&
           add_text(o, "status", mla_verdict_name(r->verdict.status)) && add_text(o, "reason", r->verdict.reason) &&
           add_number(o, "seconds", round(1e6 * r->seconds) / 1e6) && add_measured(o, "max_ulp", r->measured, m->max_ulp) &&
           add_measured(o, "max_cond_ulp", r->measured, m->max_cond_ulp) &&
           add_measured(o, "max_err_over_bound", r->measured, m->max_err_over_bound) &&
           add_measured(o, "chi", r->measured && m->chi.rows > 0, mla_chi_gating(&m->chi)) &&
           add_measured(o, "lse_err", r->measured && !m->lse_absent, m->max_lse_err) &&
           add_text_or_null(o, "guard_touched", r->integrity.guard_touched) &&
           add_text_or_null(o, "input_changed", r->integrity.input_changed) && add_text_or_null(o, "where", r->diagnosis.where) &&
           add_text_or_null(o, "cause", r->diagnosis.text) && (!r->measured || add_measure(o, m, r->test->out));
}

bool mla_json_describe(struct cJSON *report, struct cJSON *run) {
    if (run && cJSON_AddItemToObject(report, "run", run))
        return true;
    cJSON_Delete(run);
    return false;
}

static bool add_report(cJSON *object, const mla_result *result) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream)
        return false;
    mla_text_result(stream, (mla_text_style){.colour = false}, result);
    const bool good = fclose(stream) == 0 && add_text(object, "text", text);
    free(text);
    return good;
}

struct cJSON *mla_json_result(const mla_result *result) {
    cJSON *o = cJSON_CreateObject();
    bool good = o && fill_case(o, result);
    if (good && result->smallest)
        good = add_text(o, "smallest", result->smallest);
    if (good && mla_verdict_is_bad(result->verdict.status))
        good = add_report(o, result);
    if (good)
        return o;
    cJSON_Delete(o);
    return NULL;
}

bool mla_json_add(struct cJSON *report, struct cJSON *result) {
    if (result && cJSON_AddItemToArray(cJSON_GetObjectItem(report, "cases"), result))
        return true;
    cJSON_Delete(result);
    return false;
}

double mla_json_number(const struct cJSON *result, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(result, name);
    return cJSON_IsNumber(item) ? item->valuedouble : cJSON_IsString(item) ? strtod(item->valuestring, NULL) : NAN;
}

const char *mla_json_text(const struct cJSON *result, const char *name) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(result, name));
}

char *mla_json_print(struct cJSON *report, const mla_summary *summary) {
    cJSON *o = cJSON_GetObjectItem(report, "summary");
    bool good = add_count(o, "passed", summary->passed) && add_count(o, "failed", summary->failed) &&
                add_count(o, "skipped", summary->skipped) && add_count(o, "error", summary->error) &&
                add_count(o, "crashed", summary->crashed) && add_count(o, "timeout", summary->timeout);
    return good ? cJSON_Print(report) : NULL;
}
