/* mla-verify run: everything is read and checked first, then cases run one by one, then files are written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "contract_line.h"
#include "journal.h"
#include "output_file.h"
#include "post_mortem.h"
#include "report.h"
#include "selection.h"
#include "shard.h"

#define MOST_SECONDS 1000000

static const char usage[] = "Grades kernels on cases against the fp64 oracle.\n"
                            "\n"
                            "usage: mla-verify run --kernel KERNEL... CASES... [OPTION...]\n"
                            "\n";
static const char own_help[] =
    "  --contract LINE  grade by this contract instead of what the kernels declare: a preset, key=value pairs, or both, e.g.\n"
    "                   'flashmla p=fp16' (see mla-verify contract --help)\n"
    "  --timeout S      a kernel that shows no sign of life for S seconds is stopped; 0: never (default 120)\n"
    "  --in-process     no process of its own for each kernel: for debuggers; a crash ends everything\n"
    "  --save-outputs DIR  write every output there as a file that mla-verify check reads\n"
    "  --save-failing DIR  of a case that fails, write a golden file and the outputs there\n"
    "  --shrink         look for the smallest case that fails like one that does (at most 100 trials and 2 minutes each)\n"
    "  --junit FILE     results as JUnit XML; '-' as for --json\n"
    "  --html FILE      results as one page with pictures of the errors, for a browser; '-' as for --json\n"
    "  --resume JOURNAL note every result there when it is finished, and do not repeat what is there already\n"
    "  --shard I/N      only part I (0 .. N-1) of the cases, dealt so that all parts take about as long: mla-verify merge joins their "
    "reports\n"
    "\n"
    "Started by mpirun, srun or as an indexed job (with MLA_SHARDS=N), each process takes its part by itself, and %r in names of files "
    "stands\n"
    "for I: mpirun -n 64 mla-verify run ... --json out.%r.json. When a rank exits with 1, Open MPI stops the others; with\n"
    "--mca orte_abort_on_non_zero_status 0 it lets them finish, and then exits with 0 itself: the verdict is that of merge.\n";
static const char exits[] = "\nexit: 0 all that ran passed   1 a case FAILED, CRASHED, or ended in TIMEOUT or ERROR   2 bad usage or input"
                            "   3 nothing could run\n";

typedef struct run_options {
    mla_selection selection;
    mla_worker_options workers;
    mla_shard shard;
    const char *contract;                                    /* NULL: the kernels' own */
    const char *outputs, *failing, *resume, *junit, *html;   /* NULL: none */
    char *json_path, *journal_path, *junit_path, *html_path; /* names of this shard's files, owned */
    bool in_process, shrink;
} run_options;

/* ---- running ------------------------------------------------------------------------------------------------------------------------- */

typedef struct running {
    const run_options *options;
    mla_reports reports;
    mla_journal journal;
    mla_progress progress;
    int32_t *owner; /* [cases] */
    int32_t dealt;  /* cases of this shard */
} running;

static bool run_one(running *r, int test, int kernel) {
    const mla_selection *s = &r->options->selection;
    mla_result result;
    mla_run_case(&s->subjects[kernel], &s->cases.cases[test], &r->progress, &result);
    result.index = test;
    mla_post_mortem_run(&(mla_post_mortem){r->options->shrink, r->options->failing}, &s->subjects[kernel], &r->progress, &result);
    mla_progress_clear(&r->progress);
    const bool good = mla_reports_add(&r->reports, &result);
    mla_result_free(&result);
    return good;
}

static mla_exit run_all(running *r) {
    const mla_selection *s = &r->options->selection;
    mla_progress_begin(&r->progress, (int64_t)r->dealt * s->num_subjects, s->quiet);
    bool good = true;
    for (int i = 0; i < s->cases.count; i++) {
        for (int k = 0; r->owner[i] == r->options->shard.index && k < s->num_subjects && good; k++) {
            struct cJSON *finished = r->reports.journal ? mla_ledger_take(&r->journal.finished, i, k) : NULL;
            good = finished ? mla_reports_add_finished(&r->reports, finished) : run_one(r, i, k);
            mla_progress_step(&r->progress);
        }
    }
    mla_progress_clear(&r->progress);
    const mla_exit code = mla_reports_end(&r->reports);
    return code == MLA_EXIT_NOTHING && r->dealt == 0 ? MLA_EXIT_PASSED : code; /* others have the cases */
}

static struct cJSON *describe(const run_options *o) {
    return mla_run_describe(&o->selection.cases, o->selection.subjects, o->selection.num_subjects, &o->shard);
}

static void print_part(const running *r) {
    const run_options *o = r->options;
    if (o->shard.count > 1)
        fprintf(r->reports.text, "shard %d of %d%s%s: %d of %d cases\n", o->shard.index, o->shard.count, o->shard.origin ? ", by " : "",
                o->shard.origin ? o->shard.origin : "", r->dealt, o->selection.cases.count);
    if (r->reports.journal && r->journal.finished.count > 0)
        fprintf(r->reports.text, "%d results are in %s already\n", r->journal.finished.count, o->journal_path);
}

/* Deals the cases and opens the journal. */
static mla_status prepare(running *r) {
    const run_options *o = r->options;
    r->owner = malloc((size_t)o->selection.cases.count * sizeof *r->owner);
    if (!r->owner)
        return mla_error(MLA_ENOMEM, "no memory for %d cases", o->selection.cases.count);
    TRY(mla_shard_deal(&o->selection.cases, o->shard.count, r->owner));
    for (int i = 0; i < o->selection.cases.count; i++)
        r->dealt += r->owner[i] == o->shard.index;
    if (!o->journal_path)
        return mla_ok();
    r->reports.journal = &r->journal;
    return mla_journal_open(o->journal_path, describe(o), &r->journal);
}

static bool is_stdout(const char *path) {
    return path && strcmp(path, "-") == 0;
}

static mla_exit run(const run_options *o) {
    running r = {.options = o, .journal.file = -1};
    mla_reports_begin(&r.reports, is_stdout(o->junit) || is_stdout(o->html) ? stderr : mla_selection_text(&o->selection), o->selection.json,
                      o->selection.quiet);
    r.reports.junit_path = o->junit_path;
    r.reports.html_path = o->html_path;
    if (r.reports.status.code == MLA_OK)
        r.reports.status = prepare(&r);
    if (r.reports.status.code == MLA_OK && mla_reports_describe(&r.reports, describe(o)))
        print_part(&r);
    const mla_exit code = r.reports.status.code == MLA_OK ? run_all(&r) : mla_reports_end(&r.reports);
    mla_journal_close(&r.journal);
    free(r.owner);
    return code;
}

/* ---- options ------------------------------------------------------------------------------------------------------------------------- */

static mla_status set_timeout(run_options *o, const char *text) {
    uint64_t seconds = 0;
    TRY(mla_option_unsigned("--timeout", text, 0, MOST_SECONDS, &seconds));
    o->workers.timeout = (double)seconds;
    return mla_ok();
}

static mla_status set_contract(run_options *o, const char *line) {
    mla_contract contract;
    if (o->contract)
        return mla_error(MLA_EINVAL, "--contract given twice");
    o->contract = line;
    return mla_contract_parse(line, &contract);
}

static mla_status set_file(const char *option, const char *path, const char **kept) {
    if (*kept)
        return mla_error(MLA_EINVAL, "%s given twice", option);
    *kept = path;
    return mla_output_file_check(path);
}

static mla_status set_option(void *context, int option, const char *value) {
    run_options *o = context;
    switch (option) {
    case 't':
        return set_timeout(o, value);
    case 'C':
        return set_contract(o, value);
    case 'o':
        o->outputs = value;
        return mla_ok();
    case 'F':
        o->failing = value;
        return mla_ok();
    case 'm':
        o->shrink = true;
        return mla_ok();
    case 'S':
        return mla_shard_parse(value, &o->shard);
    case 'u':
        return set_file("--resume", value, &o->resume);
    case 'x':
        return set_file("--junit", value, &o->junit);
    case 'H':
        return set_file("--html", value, &o->html);
    default:
        o->in_process = true;
        return mla_ok();
    }
}

/* The name of this shard's own file. Processes that a launcher started must not share one. */
static mla_status name_file(const run_options *o, const char *option, const char *pattern, char **path) {
    if (!pattern)
        return mla_ok();
    if (o->shard.origin && o->shard.count > 1 && !is_stdout(pattern) && !strstr(pattern, "%r"))
        return mla_error(MLA_EINVAL, "%s %.100s: %d processes would write this one file; %%r in its name stands for the rank", option,
                         pattern, o->shard.count);
    *path = mla_shard_path(&o->shard, pattern);
    return *path ? mla_ok() : mla_error(MLA_ENOMEM, "no memory for a file name");
}

static mla_status finish_options(run_options *o) {
    mla_selection *s = &o->selection;
    if (o->outputs && o->failing)
        return mla_error(MLA_EINVAL, "--save-outputs and --save-failing: outputs go to one folder");
    if (is_stdout(s->json) + is_stdout(o->junit) + is_stdout(o->html) > 1)
        return mla_error(MLA_EINVAL, "more than one of --json, --junit and --html is '-': there is one standard output");
    if (o->shard.count == 0)
        TRY(mla_shard_from_environment(&o->shard));
    TRY(name_file(o, "--json", s->json, &o->json_path));
    TRY(name_file(o, "--resume", o->resume, &o->journal_path));
    TRY(name_file(o, "--junit", o->junit, &o->junit_path));
    TRY(name_file(o, "--html", o->html, &o->html_path));
    if (o->outputs || o->failing)
        TRY(mla_output_folder_make(o->outputs ? "--save-outputs" : "--save-failing", o->outputs ? o->outputs : o->failing));
    s->json = o->json_path;
    for (int k = 0; k < s->num_subjects; k++) {
        s->subjects[k].contract = o->contract;
        s->subjects[k].outputs = o->outputs ? o->outputs : o->failing;
        s->subjects[k].only_failing = !o->outputs;
        s->subjects[k].pictures = o->html;
    }
    s->workers = o->in_process ? NULL : &o->workers;
    return mla_ok();
}

static mla_exit parse(run_options *o, int argc, char **argv) {
    static const struct option options[] = {{"timeout", required_argument, NULL, 't'},      {"contract", required_argument, NULL, 'C'},
                                            {"in-process", no_argument, NULL, 'p'},         {"save-outputs", required_argument, NULL, 'o'},
                                            {"save-failing", required_argument, NULL, 'F'}, {"shrink", no_argument, NULL, 'm'},
                                            {"shard", required_argument, NULL, 'S'},        {"junit", required_argument, NULL, 'x'},
                                            {"html", required_argument, NULL, 'H'},         {"resume", required_argument, NULL, 'u'}};
    const mla_own_options own = {.list = options, .count = sizeof options / sizeof *options, .set = set_option, .context = o};
    const mla_exit code = mla_selection_parse(&o->selection, argc, argv, &own);
    if (code != MLA_EXIT_PASSED || o->selection.help)
        return code;
    const mla_status status = finish_options(o);
    return status.code == MLA_OK ? MLA_EXIT_PASSED : mla_usage_error("%s", status.message);
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
            code = run(&options);
    }
    mla_selection_free(&options.selection);
    free(options.json_path);
    free(options.journal_path);
    free(options.junit_path);
    free(options.html_path);
    return code;
}
