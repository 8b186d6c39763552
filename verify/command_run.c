/* mla-verify run: everything is read and checked first, then cases run one by one, then files are written. */
#include <stdio.h>
#include <sys/stat.h>

#include "../ref/try.h"
#include "report.h"
#include "selection.h"

#define MOST_SECONDS 1000000

static const char usage[] = "Grades kernels on cases against the fp64 oracle.\n"
                            "\n"
                            "usage: mla-verify run --kernel KERNEL... CASES... [OPTION...]\n"
                            "\n";
static const char own_help[] = "  --timeout S      a kernel that shows no sign of life for S seconds is stopped; 0: never (default 120)\n"
                               "  --in-process     no process of its own for each kernel: for debuggers; a crash ends everything\n"
                               "  --save-outputs DIR  write every output there as a file that mla-verify check reads\n";
static const char exits[] = "\nexit: 0 all that ran passed   1 a case FAILED, CRASHED, or ended in TIMEOUT or ERROR   2 bad usage or input"
                            "   3 nothing could run\n";

typedef struct run_options {
    mla_selection selection;
    mla_worker_options workers;
    const char *outputs;
    bool in_process;
} run_options;

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

/* ---- options ------------------------------------------------------------------------------------------------------------------------- */

static mla_status set_folder(const char *option, const char *folder, const char **kept) {
    struct stat info;
    if (stat(folder, &info) != 0 || !S_ISDIR(info.st_mode))
        return mla_error(MLA_EINVAL, "%s %.150s: there is no such folder", option, folder);
    *kept = folder;
    return mla_ok();
}

static mla_status set_timeout(run_options *o, const char *text) {
    uint64_t seconds = 0;
    TRY(mla_option_unsigned("--timeout", text, 0, MOST_SECONDS, &seconds));
    o->workers.timeout = (double)seconds;
    return mla_ok();
}

static mla_status set_option(void *context, int option, const char *value) {
    run_options *o = context;
    switch (option) {
    case 't':
        return set_timeout(o, value);
    case 'o':
        return set_folder("--save-outputs", value, &o->outputs);
    default:
        o->in_process = true;
        return mla_ok();
    }
}

static mla_exit parse(run_options *o, int argc, char **argv) {
    static const struct option options[] = {
        {"timeout", required_argument, NULL, 't'}, {"in-process", no_argument, NULL, 'p'}, {"save-outputs", required_argument, NULL, 'o'}};
    const mla_own_options own = {.list = options, .count = sizeof options / sizeof *options, .set = set_option, .context = o};
    const mla_exit code = mla_selection_parse(&o->selection, argc, argv, &own);
    for (int k = 0; k < o->selection.num_subjects; k++)
        o->selection.subjects[k].outputs = o->outputs;
    o->workers.outputs = o->outputs;
    o->selection.workers = o->in_process ? NULL : &o->workers;
    return code;
}

mla_exit mla_command_run(int argc, char **argv) {
    run_options options = {.workers.timeout = 120};
    mla_exit code = parse(&options, argc, argv);
    if (options.selection.help && code == MLA_EXIT_PASSED) {
        printf("%s%s%s%s", usage, mla_selection_help, own_help, exits);
        code = mla_finish_stdout(MLA_EXIT_PASSED);
    } else if (code == MLA_EXIT_PASSED) {
        code = mla_selection_open(&options.selection);
        if (code == MLA_EXIT_PASSED)
            code = run(&options.selection);
    }
    mla_selection_free(&options.selection);
    return code;
}
