/* mla-verify run: everything is read and checked first, then cases run one by one, then files are written. */
#include <stdio.h>
#include <sys/stat.h>

#include "report.h"
#include "selection.h"

static const char usage[] = "Grades kernels on cases against the fp64 oracle.\n"
                            "\n"
                            "usage: mla-verify run --kernel KERNEL... CASES... [OPTION...]\n"
                            "\n";
static const char own_help[] = "  --save-outputs DIR  write every output there as a file that mla-verify check reads\n";
static const char exits[] =
    "\nexit: 0 all that ran passed   1 a case FAILED or ended in ERROR   2 bad usage or input   3 nothing could run\n";

static mla_exit run(const mla_selection *o) {
    mla_progress progress;
    mla_reports reports;
    mla_reports_begin(&reports, mla_selection_text(o), o->json, o->quiet);
    mla_progress_begin(&progress, (int64_t)o->cases.count * o->num_subjects, o->quiet);
    bool good = reports.good;
    for (int i = 0; i < o->cases.count && good; i++) {
        for (int k = 0; k < o->num_subjects && good; k++) {
            mla_result result;
            mla_run_case(&o->subjects[k], &o->cases.cases[i], &progress, &result);
            mla_progress_clear(&progress);
            good = mla_reports_add(&reports, &result);
            mla_result_free(&result);
            mla_progress_step(&progress);
        }
    }
    mla_progress_clear(&progress);
    return mla_reports_end(&reports);
}

static mla_status set_folder(void *context, int option, const char *folder) {
    const char **kept = context;
    struct stat info;
    (void)option;
    if (stat(folder, &info) != 0 || !S_ISDIR(info.st_mode))
        return mla_error(MLA_EINVAL, "--save-outputs %.150s: there is no such folder", folder);
    *kept = folder;
    return mla_ok();
}

mla_exit mla_command_run(int argc, char **argv) {
    static const struct option folder_option = {"save-outputs", required_argument, NULL, 'o'};
    mla_selection selection = {0};
    const char *folder = NULL;
    const mla_own_options own = {.list = &folder_option, .count = 1, .set = set_folder, .context = &folder};
    mla_exit code = mla_selection_parse(&selection, argc, argv, &own);
    if (selection.help && code == MLA_EXIT_PASSED) {
        printf("%s%s%s%s", usage, mla_selection_help, own_help, exits);
        code = mla_finish_stdout(MLA_EXIT_PASSED);
    } else if (code == MLA_EXIT_PASSED) {
        for (int k = 0; k < selection.num_subjects; k++)
            selection.subjects[k].outputs = folder;
        code = mla_selection_open(&selection);
        if (code == MLA_EXIT_PASSED)
            code = run(&selection);
    }
    mla_selection_free(&selection);
    return code;
}
