/* mla-verify check: outputs made elsewhere, against a golden file. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "chi.h"
#include "contract_line.h"
#include "exactness.h"
#include "golden.h"
#include "kv_profile.h"
#include "output_file.h"
#include "report.h"
#include "selection.h"
#include "slabs.h"

static const char help[] =
    "Grades a kernel's outputs, made elsewhere from a golden file's inputs, as run grades a kernel.\n"
    "\n"
    "usage: mla-verify check GOLDEN RESULT [OPTION...]\n"
    "\n"
    "  GOLDEN           a file of mla-verify gen. The truth is computed anew from its inputs, and must agree with the stored one\n"
    "  RESULT           a safetensors file: out [queries, heads, 512], BF16, F16 or F32 as the kernel wrote it, graded as that type;\n"
    "                   lse [queries, heads], F32, by the case's convention; it may be left out\n"
    "  --contract LINE  what the kernel's arithmetic declares: a preset, key=value pairs, or both, e.g. 'flashmla p=fp8 p_scale=256'\n"
    "                   (default: the golden file's contract; see mla-verify contract --help)\n"
    "  --json FILE      results as JSON; '-' is standard output, and the text then goes to standard error\n"
    "  --html FILE      results as one page with pictures of the errors, for a browser; '-' as for --json\n"
    "  -q, --quiet      print only failures, errors and the summary\n"
    "  -h, --help       this text\n"
    "\n"
    "exit: 0 the result passed   1 it FAILED   2 bad usage or input\n";

typedef struct check_options {
    mla_selection selection; /* quiet, help, json */
    const char *golden, *result, *contract, *html;
} check_options;

static bool is_stdout(const char *path) {
    return path && strcmp(path, "-") == 0;
}

static mla_status set_option(check_options *o, int letter, const char *value) {
    if (letter == 'H') {
        if (o->html)
            return mla_error(MLA_EINVAL, "--html given twice");
        o->html = value;
        return mla_output_file_check(value);
    }
    if (letter != 't')
        return mla_selection_set(&o->selection, letter, value);
    if (o->contract)
        return mla_error(MLA_EINVAL, "--contract given twice");
    o->contract = value;
    return mla_ok();
}

static mla_exit parse(check_options *o, int argc, char **argv) {
    static const struct option options[] = {{"html", required_argument, NULL, 'H'}, {"contract", required_argument, NULL, 't'},
                                            {"json", required_argument, NULL, 'j'}, {"quiet", no_argument, NULL, 'q'},
                                            {"help", no_argument, NULL, 'h'},       {NULL, 0, NULL, 0}};
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
    if (is_stdout(o->html) && is_stdout(o->selection.json))
        return mla_usage_error("--json - and --html -: there is one standard output");
    if (argc - optind != 2)
        return mla_usage_error("expected two files, GOLDEN and RESULT (see mla-verify check --help)");
    o->golden = argv[optind];
    o->result = argv[optind + 1];
    return MLA_EXIT_PASSED;
}

/* ---- grading ------------------------------------------------------------------------------------------------------------------------- */

typedef struct comparison {
    const mla_golden *golden;
    const mla_golden_result *outputs;
    mla_measure *measure;
} comparison;

static mla_status compare_slab(void *context, const mla_truth *truth) {
    const comparison *c = context;
    TRY(mla_golden_agrees(c->golden, truth));
    mla_compare(&c->golden->problem, truth, &c->outputs->output, c->measure);
    return mla_ok();
}

/* A failed status is bad input: what was graded ends up in the verdict. */
static mla_status grade(const check_options *o, mla_golden *golden, const mla_golden_result *outputs, mla_result *result) {
    mla_progress progress;
    comparison c = {golden, outputs, &result->measure};
    golden->problem.out_format = golden->test.out = outputs->out_format;
    if (o->contract)
        TRY(mla_contract_parse(o->contract, &golden->contract));
    *result = (mla_result){.test = &golden->test,
                           .kernel = o->result,
                           .contract = o->contract,
                           .golden = o->golden,
                           .case_line = mla_case_print(&golden->test)};
    if (!result->case_line)
        return mla_error(MLA_ENOMEM, "no memory to print the case");
    result->measured = golden->problem.total_q > 0;
    if (!result->measured) {
        result->verdict = mla_verdict_make(MLA_SKIPPED, "the case has no query rows: there is nothing to compare");
        return mla_ok();
    }
    TRY(mla_measure_init(&result->measure, &golden->problem));
    result->measure.bitwise = mla_is_bitwise(&golden->test, &golden->contract);
    if (o->html)
        TRY(mla_measure_add_pictures(&result->measure, &golden->problem));
    mla_progress_begin(&progress, 1, o->selection.quiet);
    mla_status status = mla_slabs_visit(&golden->problem, &golden->contract, &progress, compare_slab, &c);
    if (status.code == MLA_OK)
        status = mla_chi_settle(&golden->problem, &golden->contract, &result->measure);
    if (status.code == MLA_OK && o->html)
        status = mla_kv_profile_make(&golden->problem, &golden->contract, &outputs->output, &result->measure);
    mla_progress_clear(&progress);
    result->verdict = mla_judge(&result->measure, &result->integrity);
    if (status.code == MLA_OK && result->verdict.status == MLA_FAILED)
        result->diagnosis = mla_diagnose(&golden->problem, &golden->contract, &outputs->output, &result->measure);
    return status.code == MLA_OK ? status : mla_error(status.code, "%.100s: %s", o->golden, status.message);
}

static mla_exit report(const check_options *o, const mla_result *result) {
    mla_reports reports;
    mla_reports_begin(&reports, is_stdout(o->html) ? stderr : mla_selection_text(&o->selection), o->selection.json, o->selection.quiet);
    reports.html_path = o->html;
    mla_reports_add(&reports, result);
    return mla_reports_end(&reports);
}

static mla_exit check(const check_options *o) {
    mla_golden golden;
    mla_golden_result outputs = {.out_format = MLA_BF16};
    mla_result result = {.golden = NULL};
    mla_status status = mla_golden_read(o->golden, &golden);
    if (status.code == MLA_OK)
        status = mla_golden_result_read(o->result, &golden, &outputs);
    if (status.code == MLA_OK)
        status = grade(o, &golden, &outputs, &result);
    const mla_exit code = status.code == MLA_OK ? report(o, &result) : mla_usage_error("%s", status.message);
    mla_result_free(&result);
    mla_golden_result_free(&outputs);
    mla_golden_free(&golden);
    return code;
}

mla_exit mla_command_check(int argc, char **argv) {
    check_options options = {.golden = NULL};
    mla_exit code = parse(&options, argc, argv);
    if (options.selection.help && code == MLA_EXIT_PASSED) {
        fputs(help, stdout);
        code = mla_finish_stdout(MLA_EXIT_PASSED);
    } else if (code == MLA_EXIT_PASSED) {
        code = check(&options);
    }
    mla_selection_free(&options.selection);
    return code;
}
