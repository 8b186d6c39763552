/* mla-verify gen: one golden file a case. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "golden.h"
#include "output_file.h"
#include "selection.h"

static const char help[] =
    "Writes golden files: the inputs of a case, the exact result and the bound for kernels of the default contract.\n"
    "\n"
    "usage: mla-verify gen --out DIR CASES... [OPTION...]\n"
    "\n"
    "  --out DIR        where the files go: safetensors, named after their cases\n"
    "  --case LINE      one case, e.g. 'heads=16 batch=4 kv_len=1024'; '' is all defaults; repeatable\n"
    "  --cases FILE     a file of cases, one a line, # comments; repeatable\n"
    "  --random N       N cases drawn over the whole grammar\n"
    "  --seed S         seed of --random, 0 .. 2^64 - 1 (default 0)\n"
    "  --resume         keep files that are there already, and whole\n"
    "  -q, --quiet      do not print the files' names\n"
    "  -h, --help       this text\n"
    "\n"
    "exit: 0 every file is there   2 bad usage or input, or a file could not be written\n";

typedef struct gen_options {
    mla_selection selection; /* of cases */
    const char *folder;
    bool resume;
} gen_options;

static mla_status set_option(gen_options *o, int letter, const char *value) {
    if (letter == 'o')
        o->folder = value;
    else if (letter == 'u')
        o->resume = true;
    else
        return mla_selection_set(&o->selection, letter, value);
    return mla_ok();
}

static mla_status check_options(gen_options *o, int argc, char **argv) {
    if (optind < argc)
        return mla_error(MLA_EINVAL, "unexpected argument: %s", argv[optind]);
    if (!o->folder)
        return mla_error(MLA_EINVAL, "no folder: give --out");
    TRY(mla_selection_draw(&o->selection));
    return mla_output_folder_make("--out", o->folder);
}

static mla_exit parse(gen_options *o, int argc, char **argv) {
    static const struct option options[] = {
        {"out", required_argument, NULL, 'o'},    {"case", required_argument, NULL, 'c'}, {"cases", required_argument, NULL, 'f'},
        {"random", required_argument, NULL, 'r'}, {"seed", required_argument, NULL, 's'}, {"resume", no_argument, NULL, 'u'},
        {"quiet", no_argument, NULL, 'q'},        {"help", no_argument, NULL, 'h'},       {NULL, 0, NULL, 0}};
    opterr = 0;
    for (int letter; (letter = getopt_long(argc, argv, ":qh", options, NULL)) != -1;) {
        if (letter == '?' || letter == ':')
            return mla_option_error(letter, argv);
        const mla_status status = set_option(o, letter, optarg);
        if (status.code != MLA_OK)
            return mla_usage_error("%s", status.message);
        if (o->selection.help)
            return MLA_EXIT_PASSED;
    }
    const mla_status status = check_options(o, argc, argv);
    return status.code == MLA_OK ? MLA_EXIT_PASSED : mla_usage_error("%s", status.message);
}

/* Says what became of the file. */
static void print_file(const gen_options *o, const char *verb, const char *path, int64_t doubtful) {
    if (o->selection.quiet)
        return;
    printf("%-8s%s", verb, path);
    if (doubtful > 0)
        printf("  (%lld rows rounded by MPFR)", (long long)doubtful);
    putchar('\n');
    fflush(stdout);
}

static mla_status write_one(const gen_options *o, const mla_case *c, const char *case_line, const char *path, mla_progress *progress) {
    int64_t doubtful = 0;
    const bool kept = o->resume && mla_golden_exists(path, case_line);
    const mla_status status = kept ? mla_ok() : mla_golden_write(path, c, progress, &doubtful);
    mla_progress_clear(progress);
    if (status.code == MLA_OK)
        print_file(o, kept ? "kept" : "wrote", path, doubtful);
    return status;
}

static mla_status gen_case(const gen_options *o, const mla_case *c, mla_progress *progress) {
    char *case_line = mla_case_print(c), *path = NULL;
    char *name = case_line ? mla_golden_name(case_line) : NULL;
    mla_status status = name && asprintf(&path, "%s/%s", o->folder, name) >= 0 ? write_one(o, c, case_line, path, progress)
                                                                               : mla_error(MLA_ENOMEM, "no memory for a file name");
    free(path);
    free(name);
    free(case_line);
    return status;
}

static mla_exit gen(const gen_options *o) {
    const mla_case_list *cases = &o->selection.cases;
    mla_progress progress;
    mla_status status = mla_ok();
    mla_progress_begin(&progress, cases->count, o->selection.quiet);
    for (int i = 0; i < cases->count && status.code == MLA_OK; i++) {
        status = gen_case(o, &cases->cases[i], &progress);
        mla_progress_step(&progress);
    }
    mla_progress_clear(&progress);
    return status.code == MLA_OK ? mla_finish_stdout(MLA_EXIT_PASSED) : mla_usage_error("%s", status.message);
}

mla_exit mla_command_gen(int argc, char **argv) {
    gen_options options = {.resume = false};
    mla_exit code = parse(&options, argc, argv);
    if (options.selection.help && code == MLA_EXIT_PASSED) {
        fputs(help, stdout);
        code = mla_finish_stdout(MLA_EXIT_PASSED);
    } else if (code == MLA_EXIT_PASSED) {
        code = gen(&options);
    }
    mla_selection_free(&options.selection);
    return code;
}
