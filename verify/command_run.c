/* mla-verify run: everything is read and checked first, then cases run one by one, then files are written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "output_file.h"
#include "report.h"
#include "selection.h"

static const char usage[] = "Grades kernels on cases against the fp64 oracle.\n"
                            "\n"
                            "usage: mla-verify run --kernel KERNEL... CASES... [OPTION...]\n"
                            "\n";
static const char exits[] =
    "\nexit: 0 all that ran passed   1 a case FAILED or ended in ERROR   2 bad usage or input   3 nothing could run\n";

typedef struct report_sinks {
    FILE *text;
    mla_text_style style;
    mla_summary summary;
    struct cJSON *json;
} report_sinks;

static bool report_result(report_sinks *sinks, const mla_result *result) {
    mla_summary_add(&sinks->summary, result);
    mla_text_result(sinks->text, sinks->style, result);
    return mla_json_add(sinks->json, result);
}

static bool run_all(const mla_selection *o, report_sinks *sinks) {
    mla_progress progress;
    mla_progress_begin(&progress, (int64_t)o->cases.count * o->num_subjects, o->quiet);
    bool good = true;
    for (int i = 0; i < o->cases.count && good; i++) {
        for (int k = 0; k < o->num_subjects && good; k++) {
            mla_result result;
            mla_run_case(&o->subjects[k], &o->cases.cases[i], &progress, &result);
            mla_progress_clear(&progress);
            good = report_result(sinks, &result);
            mla_result_free(&result);
            mla_progress_step(&progress);
        }
    }
    mla_progress_clear(&progress);
    mla_text_summary(sinks->text, sinks->style, &sinks->summary);
    return good;
}

static mla_status write_json(const char *path, report_sinks *sinks) {
    char *text = mla_json_print(sinks->json, &sinks->summary);
    mla_status status = text ? mla_output_file_write(path, text, strlen(text)) : mla_error(MLA_ENOMEM, "no memory for the JSON report");
    free(text);
    return status;
}

static mla_exit exit_code(const mla_summary *summary) {
    if (summary->failed + summary->error > 0)
        return MLA_EXIT_MISMATCH;
    return summary->passed > 0 ? MLA_EXIT_PASSED : MLA_EXIT_NOTHING;
}

static mla_exit run(const mla_selection *o) {
    report_sinks sinks = {.text = mla_selection_text(o), .json = mla_json_begin()};
    if (!sinks.json)
        return mla_usage_error("no memory for the JSON report");
    sinks.style = mla_text_style_for(sinks.text, o->quiet);
    mla_status status = run_all(o, &sinks) ? mla_ok() : mla_error(MLA_ENOMEM, "no memory for the JSON report");
    if (status.code == MLA_OK && o->json)
        status = write_json(o->json, &sinks);
    mla_json_free(sinks.json);
    return status.code == MLA_OK ? mla_finish_stdout(exit_code(&sinks.summary)) : mla_usage_error("%s", status.message);
}

mla_exit mla_command_run(int argc, char **argv) {
    mla_selection selection = {0};
    mla_exit code = mla_selection_parse(&selection, argc, argv, NULL);
    if (selection.help && code == MLA_EXIT_PASSED) {
        printf("%s%s%s", usage, mla_selection_help, exits);
        code = mla_finish_stdout(MLA_EXIT_PASSED);
    } else if (code == MLA_EXIT_PASSED) {
        code = mla_selection_open(&selection);
        if (code == MLA_EXIT_PASSED)
            code = run(&selection);
    }
    mla_selection_free(&selection);
    return code;
}
