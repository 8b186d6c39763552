#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "output_file.h"
#include "report.h"

static mla_status no_memory(void) {
    return mla_error(MLA_ENOMEM, "no memory for the report");
}

void mla_reports_begin(mla_reports *reports, FILE *text, const char *json_path, bool quiet) {
    *reports = (mla_reports){.text = text, .style = mla_text_style_for(text, quiet), .json = mla_json_begin(), .json_path = json_path};
    reports->status = reports->json ? mla_ok() : no_memory();
}

bool mla_reports_describe(mla_reports *reports, struct cJSON *run) {
    if (reports->status.code == MLA_OK && !mla_json_describe(reports->json, run))
        reports->status = no_memory();
    return reports->status.code == MLA_OK;
}

static bool keep(mla_reports *reports, struct cJSON *result) {
    mla_summary_add(&reports->summary, result);
    if (reports->status.code == MLA_OK && !mla_json_add(reports->json, result))
        reports->status = no_memory();
    return reports->status.code == MLA_OK;
}

bool mla_reports_add_finished(mla_reports *reports, struct cJSON *result) {
    const char *text = mla_json_text(result, "text");
    fputs(text ? text : "", reports->text);
    return keep(reports, result);
}

bool mla_reports_add(mla_reports *reports, const mla_result *result) {
    struct cJSON *item = mla_json_result(result);
    mla_text_result(reports->text, reports->style, result);
    if (item && reports->journal && reports->status.code == MLA_OK)
        reports->status = mla_journal_add(reports->journal, item);
    const int32_t place = cJSON_GetArraySize(cJSON_GetObjectItem(reports->json, "cases"));
    if (reports->html_path && reports->status.code == MLA_OK && !mla_html_album_add(&reports->album, place, result))
        reports->status = no_memory();
    return keep(reports, item);
}

/* Takes the text; NULL: there was no memory for it. */
static mla_status write_file(const char *path, char *text) {
    const mla_status status = text ? mla_output_file_write(path, text, strlen(text)) : no_memory();
    free(text);
    return status;
}

static mla_status write_files(const mla_reports *reports) {
    if (reports->json_path)
        TRY(write_file(reports->json_path, mla_json_print(reports->json, &reports->summary)));
    if (reports->html_path)
        TRY(write_file(reports->html_path, mla_html_print(reports->json, &reports->summary, &reports->album)));
    return reports->junit_path ? write_file(reports->junit_path, mla_junit_print(reports->json)) : mla_ok();
}

mla_exit mla_reports_end(mla_reports *reports) {
    if (reports->status.code == MLA_OK) {
        mla_text_summary(reports->text, reports->style, &reports->summary);
        reports->status = write_files(reports);
    }
    mla_json_free(reports->json);
    mla_html_album_free(&reports->album);
    if (reports->status.code != MLA_OK)
        return mla_usage_error("%s", reports->status.message);
    return mla_finish_stdout(mla_summary_exit(&reports->summary));
}
