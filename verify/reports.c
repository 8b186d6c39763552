#include <stdlib.h>
#include <string.h>

#include "output_file.h"
#include "report.h"

void mla_reports_begin(mla_reports *reports, FILE *text, const char *json_path, bool quiet) {
    *reports = (mla_reports){.text = text, .style = mla_text_style_for(text, quiet), .json = mla_json_begin(), .json_path = json_path};
    reports->good = reports->json != NULL;
}

bool mla_reports_add(mla_reports *reports, const mla_result *result) {
    mla_summary_add(&reports->summary, result);
    mla_text_result(reports->text, reports->style, result);
    reports->good = reports->good && mla_json_add(reports->json, result);
    return reports->good;
}

static mla_status write_json(const mla_reports *reports) {
    char *text = mla_json_print(reports->json, &reports->summary);
    mla_status status =
        text ? mla_output_file_write(reports->json_path, text, strlen(text)) : mla_error(MLA_ENOMEM, "no memory for the JSON report");
    free(text);
    return status;
}

static mla_exit exit_code(const mla_summary *summary) {
    if (mla_summary_bad(summary) > 0)
        return MLA_EXIT_MISMATCH;
    return summary->passed > 0 ? MLA_EXIT_PASSED : MLA_EXIT_NOTHING;
}

mla_exit mla_reports_end(mla_reports *reports) {
    mla_text_summary(reports->text, reports->style, &reports->summary);
    mla_status status = reports->good ? mla_ok() : mla_error(MLA_ENOMEM, "no memory for the JSON report");
    if (status.code == MLA_OK && reports->json_path)
        status = write_json(reports);
    mla_json_free(reports->json);
    return status.code == MLA_OK ? mla_finish_stdout(exit_code(&reports->summary)) : mla_usage_error("%s", status.message);
}
