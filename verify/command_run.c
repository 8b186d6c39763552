/* mla-verify run: everything is read and checked first, then cases run one by one, then files are written. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "output_file.h"
#include "report.h"

#define MAX_RANDOM 1000000

static const char help[] = "Grades kernels on cases against the fp64 oracle.\n"
                           "\n"
                           "usage: mla-verify run --kernel KERNEL... CASES... [OPTION...]\n"
                           "\n"
                           "  --kernel KERNEL  reference, splitk@host[:cdna3|:cdna4|:mma], splitk@nvidia, splitk@amd, or the path of a "
                           "plug-in (with a '/'); repeatable\n"
                           "  --case LINE      one case, e.g. 'heads=16 batch=4 kv_len=1024'; '' is all defaults; repeatable\n"
                           "  --cases FILE     a file of cases, one a line, # comments; repeatable\n"
                           "  --random N       N cases drawn over the whole grammar\n"
                           "  --seed S         seed of --random, 0 .. 2^64 - 1 (default 0)\n"
                           "  --json FILE      results as JSON; '-' is standard output, and the text then goes to standard error\n"
                           "  -q, --quiet      print only what did not pass, and the summary\n"
                           "  -h, --help       this text\n"
                           "\n"
                           "exit: 0 all that ran passed   1 a case FAILED or ended in ERROR   2 bad usage or input   3 nothing could run\n";

typedef struct run_options {
    mla_subject *subjects;
    int num_subjects;
    mla_case_list cases;
    int64_t random; /* 0: none */
    uint64_t seed;
    bool seed_given, quiet, help;
    const char *json; /* NULL: none */
} run_options;

/* ---- reading the command line: a failed status is a usage error ----------------------------------------------------------------- */

static mla_status parse_unsigned(const char *option, const char *text, uint64_t low, uint64_t high, uint64_t *value) {
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || *value < low || *value > high)
        return mla_error(MLA_EINVAL, "%s %s: expected a whole number in %" PRIu64 " .. %" PRIu64, option, text, low, high);
    return mla_ok();
}

static mla_status add_subject(run_options *o, const char *spec) {
    mla_subject *grown = realloc(o->subjects, (size_t)(o->num_subjects + 1) * sizeof *grown);
    if (!grown)
        return mla_error(MLA_ENOMEM, "no memory for kernel %s", spec);
    o->subjects = grown;
    o->subjects[o->num_subjects++] = (mla_subject){.spec = spec, .opened = mla_error(MLA_EDEVICE, "not opened")};
    return mla_ok();
}

static mla_status set_random(run_options *o, const char *text) {
    uint64_t count = 0;
    mla_status status = o->random ? mla_error(MLA_EINVAL, "--random given twice") : parse_unsigned("--random", text, 1, MAX_RANDOM, &count);
    if (status.code == MLA_OK)
        o->random = (int64_t)count;
    return status;
}

static mla_status set_seed(run_options *o, const char *text) {
    if (o->seed_given)
        return mla_error(MLA_EINVAL, "--seed given twice");
    o->seed_given = true;
    return parse_unsigned("--seed", text, 0, UINT64_MAX, &o->seed);
}

static mla_status set_json(run_options *o, const char *path) {
    if (o->json)
        return mla_error(MLA_EINVAL, "--json given twice");
    o->json = path;
    return mla_output_file_check(path);
}

static mla_status set_option(run_options *o, int option, const char *value) {
    switch (option) {
    case 'k':
        return add_subject(o, value);
    case 'c':
        return mla_case_list_add(&o->cases, value);
    case 'f':
        return mla_case_list_read(&o->cases, value);
    case 'r':
        return set_random(o, value);
    case 's':
        return set_seed(o, value);
    case 'j':
        return set_json(o, value);
    case 'q':
        o->quiet = true;
        return mla_ok();
    default:
        o->help = true;
        return mla_ok();
    }
}

static mla_status check_options(run_options *o, int argc, char **argv) {
    if (optind < argc)
        return mla_error(MLA_EINVAL, "unexpected argument: %s", argv[optind]);
    if (o->seed_given && !o->random)
        return mla_error(MLA_EINVAL, "--seed needs --random");
    if (o->num_subjects == 0)
        return mla_error(MLA_EINVAL, "no kernel: give --kernel");
    mla_status status = o->random ? mla_case_list_random(&o->cases, (int)o->random, o->seed) : mla_ok();
    if (status.code == MLA_OK && o->cases.count == 0)
        return mla_error(MLA_EINVAL, "no case to run: give --case, --cases or --random");
    return status;
}

static mla_exit parse(run_options *o, int argc, char **argv) {
    static const struct option options[] = {
        {"kernel", required_argument, NULL, 'k'}, {"case", required_argument, NULL, 'c'}, {"cases", required_argument, NULL, 'f'},
        {"random", required_argument, NULL, 'r'}, {"seed", required_argument, NULL, 's'}, {"json", required_argument, NULL, 'j'},
        {"quiet", no_argument, NULL, 'q'},        {"help", no_argument, NULL, 'h'},       {NULL, 0, NULL, 0}};
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":qh", options, NULL)) != -1;) {
        if (option == '?' || option == ':')
            return mla_option_error(option, argv);
        mla_status status = set_option(o, option, optarg);
        if (status.code != MLA_OK)
            return mla_usage_error("%s", status.message);
        if (o->help)
            return MLA_EXIT_PASSED;
    }
    mla_status status = check_options(o, argc, argv);
    return status.code == MLA_OK ? MLA_EXIT_PASSED : mla_usage_error("%s", status.message);
}

/* A kernel that exists but cannot run here stays closed: its cases are skipped. */
static mla_exit open_subjects(run_options *o) {
    for (mla_subject *s = o->subjects; s < o->subjects + o->num_subjects; s++) {
        s->opened = mla_kernel_open(s->spec, &s->handle);
        if (s->opened.code != MLA_OK && s->opened.code != MLA_EDEVICE && s->opened.code != MLA_EUNSUPPORTED)
            return mla_usage_error("%s", s->opened.message);
    }
    return MLA_EXIT_PASSED;
}

static void options_free(run_options *o) {
    for (mla_subject *s = o->subjects; s < o->subjects + o->num_subjects; s++)
        if (s->opened.code == MLA_OK)
            mla_kernel_close(&s->handle);
    free(o->subjects);
    mla_case_list_free(&o->cases);
}

/* ---- running ------------------------------------------------------------------------------------------------------------------------ */

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

static bool run_all(const run_options *o, report_sinks *sinks) {
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

static mla_exit run(const run_options *o) {
    report_sinks sinks = {.text = o->json && strcmp(o->json, "-") == 0 ? stderr : stdout, .json = mla_json_begin()};
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
    run_options options = {0};
    mla_exit code = parse(&options, argc, argv);
    if (options.help && code == MLA_EXIT_PASSED) {
        fputs(help, stdout);
        code = mla_finish_stdout(MLA_EXIT_PASSED);
    } else if (code == MLA_EXIT_PASSED) {
        code = open_subjects(&options);
        if (code == MLA_EXIT_PASSED)
            code = run(&options);
    }
    options_free(&options);
    return code;
}
