/* mla-verify drift: the instrument for numerical drift. Each of its commands is a file, drift_NAME.c. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drift.h"
#include "output_file.h"

static const struct {
    const char *name, *full, *summary;
    mla_exit (*run)(int argc, char **argv);
} commands[] = {
    {"stages", "drift stages", "the rounding that each part of a kernel's error comes from", mla_drift_stages},
    {"order", "drift order", "splits, tile and order of summation of any kernel, found from outside", mla_drift_order},
    {"sweep", "drift sweep", "the error as kv_len, splits, heads or the spread of the scores grow", mla_drift_sweep},
    {"diff", "drift diff", "two kernels or results on the same inputs: which bits differ, and who is farther from the truth",
     mla_drift_diff},
};
#define COMMANDS (sizeof commands / sizeof *commands)

static mla_exit help(void) {
    puts("Finds where a kernel's error comes from.\n\nusage: mla-verify drift COMMAND [OPTION...]\n");
    for (size_t i = 0; i < COMMANDS; i++)
        printf("  %-12s%s\n", commands[i].name, commands[i].summary);
    puts("\nmla-verify drift COMMAND --help says more.");
    return mla_finish_stdout(MLA_EXIT_PASSED);
}

mla_exit mla_command_drift(int argc, char **argv) {
    if (argc < 2)
        return mla_usage_error("drift: no command: try mla-verify drift --help");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help();
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        char name[32];
        snprintf(name, sizeof name, "%s", commands[i].full);
        argv[1] = name;
        return commands[i].run(argc - 1, argv + 1);
    }
    return mla_usage_error("drift: no such command: %s (try mla-verify drift --help)", argv[1]);
}

/* ---- what they share ------------------------------------------------------------------------------------------------------------------ */

bool mla_drift_begin(mla_selection *selection, int argc, char **argv, const mla_own_options *own, const mla_drift_help *help_text,
                     mla_exit *code) {
    *code = mla_selection_parse(selection, argc, argv, own);
    if (*code == MLA_EXIT_PASSED && selection->help) {
        printf("%s%s%s%s", help_text->usage, mla_selection_help, help_text->own, help_text->exits);
        *code = mla_finish_stdout(MLA_EXIT_PASSED);
        return false;
    }
    if (*code == MLA_EXIT_PASSED)
        *code = mla_selection_open(selection);
    return *code == MLA_EXIT_PASSED;
}

mla_device *mla_drift_device(const mla_subject *subject) {
    return subject->handle.kernel->space == MLA_SPACE_HOST ? NULL : subject->handle.device;
}

void mla_drift_count(FILE *text, const mla_subject *subject, const mla_case *c, const mla_status *status, int *ran, int *failed) {
    if (status->code == MLA_OK) {
        ++*ran;
        return;
    }
    const bool skipped = status->code == MLA_EUNSUPPORTED || subject->opened.code != MLA_OK;
    char *line = mla_case_print(c);
    fprintf(text, "%-8s%s  %s\n        %s\n", skipped ? "SKIPPED" : "ERROR", line ? line : "(no memory)", subject->spec, status->message);
    free(line);
    *failed += !skipped;
}

mla_exit mla_drift_exit(int ran, int failed) {
    return mla_finish_stdout(failed > 0 ? MLA_EXIT_MISMATCH : ran > 0 ? MLA_EXIT_PASSED : MLA_EXIT_NOTHING);
}

mla_status mla_drift_write_json(const char *path, struct cJSON *json) {
    char *text = path ? cJSON_Print(json) : NULL;
    mla_status status = mla_ok();
    if (path)
        status = text ? mla_output_file_write(path, text, strlen(text)) : mla_error(MLA_ENOMEM, "no memory for the JSON report");
    free(text);
    cJSON_Delete(json);
    return status;
}
