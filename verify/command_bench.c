/* mla-verify bench: devices are measured first, then cases are graded and timed one by one, then ratios are held against their limits. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "output_file.h"
#include "processor_time.h"
#include "report_bench.h"
#include "selection.h"

static const char usage[] =
    "Grades kernels as `run` does, and times those that pass, beside what this device reaches in copies and matrix products.\n"
    "\n"
    "usage: mla-verify bench --kernel KERNEL... CASES... [OPTION...]\n"
    "\n"
    "  --repeat N       launches of each kind (default: as many as the time allows, 5 at least)\n"
    "  --seconds S      time for each kind of launch (default 0.5)\n"
    "  --html FILE      results as one page for a browser, with the roofline; '-' as for --json\n"
    "  --require        fail when a ratio that this project promises of its CPU code is outside its limits (data/cpu.cases)\n";
static const char exits[] =
    "\n"
    "cold: launches go round copies of the inputs, several times the last-level cache; warm: one copy; cold+plan: with the "
    "kernel's `prepare`.\n"
    "bytes: every visible key of a sequence once, q and out; flop: 2176 a visible key, query token and head. No kernel is "
    "faster than the floor,\n"
    "the larger of bytes / (copied bytes a second) and flop / (matrix flop a second). Times are of the device's own clock; \"to first\" "
    "is a kernel's\n"
    "median over that of the first kernel on the command line.\n"
    "\n"
    "exit: 0 all that ran passed   1 a case FAILED or ended in ERROR, or --require and a limit was missed\n"
    "      2 bad usage or input    3 nothing could run, or --require and no limit applied, or the machine was too\n"
    "                          busy to tell\n";

#define MAX_LIMITS (int)(sizeof((mla_bench_report){0}.duels) / sizeof(mla_duel))
#define LIMIT_SECONDS 30 /* of rounds for one limit, at most: on a quiet machine it takes a fifth of that */

typedef struct bench_run {
    mla_selection selection;
    mla_bench_options options;
    const char *html; /* NULL: none */
    bool require;
    FILE *text;
    mla_progress progress;
    mla_bench_report report;
    mla_bench_result *results;
    mla_subject oracle; /* for the limits that compare it with the reference */
} bench_run;

/* ---- options -------------------------------------------------------------------------------------------------------------------------- */

static mla_status set_seconds(bench_run *b, const char *text) {
    char *end;
    b->options.seconds = strtod(text, &end);
    if (end == text || *end || !(b->options.seconds > 0 && b->options.seconds <= 3600))
        return mla_error(MLA_EINVAL, "--seconds %s: expected a number above 0, up to 3600", text);
    return mla_ok();
}

static mla_status set_option(void *context, int option, const char *value) {
    bench_run *b = context;
    uint64_t repeat = 0;
    if (option == 'H') {
        b->html = value;
        return mla_output_file_check(value);
    }
    if (option == 'S')
        return set_seconds(b, value);
    if (option == 'R') {
        b->require = true;
        return mla_ok();
    }
    TRY(mla_option_unsigned("--repeat", value, 1, MLA_BENCH_MOST, &repeat));
    b->options.repeat = (int)repeat;
    return mla_ok();
}

static mla_exit parse(bench_run *b, int argc, char **argv) {
    static const struct option options[] = {{"repeat", required_argument, NULL, 'N'},
                                            {"seconds", required_argument, NULL, 'S'},
                                            {"require", no_argument, NULL, 'R'},
                                            {"html", required_argument, NULL, 'H'}};
    const mla_own_options own = {.list = options, .count = 4, .set = set_option, .context = b};
    return mla_selection_parse(&b->selection, argc, argv, &own);
}

/* ---- running -------------------------------------------------------------------------------------------------------------------------- */

static mla_status measure_devices(bench_run *b) {
    for (const mla_subject *s = b->selection.subjects; s < b->selection.subjects + b->selection.num_subjects; s++) {
        if (s->opened.code != MLA_OK || b->report.devices[s->handle.kernel->space].device)
            continue;
        mla_bench_device *d = &b->report.devices[s->handle.kernel->space];
        TRY(mla_yardstick_measure(s->handle.device, &d->yardstick));
        d->device = s->handle.device;
        mla_bench_text_device(b->text, d);
    }
    return mla_ok();
}

static void bench_pair(bench_run *b, const mla_subject *subject, const mla_case *test, const mla_bench_result *first) {
    mla_bench_result *r = &b->results[b->report.num_results++];
    const mla_space space = subject->opened.code == MLA_OK ? subject->handle.kernel->space : MLA_SPACE_HOST;
    mla_bench_case(subject, test, &b->options, &b->report.devices[space].yardstick, &b->progress, r);
    mla_progress_clear(&b->progress);
    r->device = subject->opened.code == MLA_OK ? b->report.devices[space].device->description : NULL;
    if (!b->selection.quiet || r->verdict.status != MLA_PASSED)
        mla_bench_text_result(b->text, r, first, r == first || b->selection.quiet);
}

static void bench_case(bench_run *b, const mla_case *test) {
    const mla_bench_result *first = &b->results[b->report.num_results];
    for (int k = 0; k < b->selection.num_subjects; k++) {
        bench_pair(b, &b->selection.subjects[k], test, first);
        mla_progress_step(&b->progress);
    }
}

/* ---- limits ------------------------------------------------------------------------------------------------------------------------------ */

/* The selected kernel of that name, or the oracle; NULL: neither. */
static const mla_subject *find_subject(const bench_run *b, const char *kernel) {
    const mla_selection *s = &b->selection;
    for (int k = 0; k < s->num_subjects; k++)
        if (strcmp(s->subjects[k].spec, kernel) == 0)
            return &s->subjects[k];
    return strcmp(kernel, b->oracle.spec) == 0 ? &b->oracle : NULL;
}

/* The selected case of that line, if a selected kernel passed it; otherwise NULL. */
static const mla_case *find_case(const bench_run *b, const char *line) {
    for (int i = 0; i < b->report.num_results; i++) {
        const mla_bench_result *r = &b->results[i];
        if (r->verdict.status == MLA_PASSED && strcmp(r->case_line, line) == 0)
            return &b->selection.cases.cases[i / b->selection.num_subjects];
    }
    return NULL;
}

/* A side of a limit; kernel NULL: the machine's sgemm. *found is false, and no racer made, where the run was not asked for it. */
static mla_status open_racer(const bench_run *b, const char *kernel, const char *line, mla_racer *racer, bool *found) {
    const mla_subject *subject = kernel ? find_subject(b, kernel) : NULL;
    const mla_case *test = kernel ? find_case(b, line) : NULL;
    *found = !kernel || (subject && test);
    if (!*found)
        return mla_ok();
    return kernel ? mla_bench_racer(subject, test, racer) : mla_yardstick_racer(b->oracle.handle.device, racer);
}

/* Racers as the limit's ratio wants them: `of_time` the limited kernel first, otherwise its base. */
static mla_status race(bench_run *b, const mla_speed_limit *l, const mla_racer *limited, const mla_racer *base, mla_duel *duel) {
    const mla_duel_rules rules = {.low = l->low,
                                  .high = l->high,
                                  .seconds = LIMIT_SECONDS,
                                  .threads = b->report.threads,
                                  .used = mla_processor_used,
                                  .waited = mla_processor_waited};
    return mla_duel_run(b->oracle.handle.device, l->of_time ? limited : base, l->of_time ? base : limited, &rules, duel);
}

static mla_status try_limit(bench_run *b, const mla_speed_limit *l, mla_duel *duel) {
    mla_racer limited, base;
    bool found = false;
    if (!find_subject(b, "reference") || find_subject(b, "reference")->opened.code != MLA_OK)
        return mla_ok();
    TRY(open_racer(b, l->kernel, l->case_line, &limited, &found));
    if (!found)
        return mla_ok();
    mla_status status = open_racer(b, l->base_kernel, l->base_case_line, &base, &found);
    if (status.code == MLA_OK && found) {
        status = race(b, l, &limited, &base, duel);
        base.close(base.call.context);
    }
    limited.close(limited.call.context);
    return status;
}

static mla_status try_limits(bench_run *b) {
    for (int i = 0; i < mla_num_speed_limits && i < MAX_LIMITS; i++)
        TRY(try_limit(b, &mla_speed_limits[i], &b->report.duels[i]));
    return mla_ok();
}

/* ---- the run ----------------------------------------------------------------------------------------------------------------------------- */

/* Takes the text; NULL: there was no memory for it. */
static mla_status write_file(const char *path, char *text) {
    const mla_status status = text ? mla_output_file_write(path, text, strlen(text)) : mla_error(MLA_ENOMEM, "no memory for the report");
    free(text);
    return status;
}

static mla_status run_all(bench_run *b) {
    const mla_selection *s = &b->selection;
    b->results = calloc((size_t)s->cases.count * (size_t)s->num_subjects, sizeof *b->results);
    if (!b->results)
        return mla_error(MLA_ENOMEM, "no memory for results");
    b->report.results = b->results;
    TRY(mla_kernel_open(b->oracle.spec, &b->oracle.handle));
    b->oracle.opened = mla_ok();
    TRY(measure_devices(b));
    mla_progress_begin(&b->progress, (int64_t)s->cases.count * s->num_subjects, s->quiet);
    for (int i = 0; i < s->cases.count; i++)
        bench_case(b, &s->cases.cases[i]);
    mla_progress_clear(&b->progress);
    TRY(try_limits(b));
    mla_bench_text_limits(b->text, &b->report);
    if (s->json)
        TRY(write_file(s->json, mla_bench_json(&b->report)));
    return b->html ? write_file(b->html, mla_bench_html(&b->report)) : mla_ok();
}

/* ---- the verdict ------------------------------------------------------------------------------------------------------------------------ */

static int count_limits(const bench_run *b, mla_limit_state state) {
    int count = 0;
    for (int i = 0; i < mla_num_speed_limits && i < MAX_LIMITS; i++)
        count += mla_limit_state_of(&mla_speed_limits[i], &b->report.duels[i], b->report.threads) == state;
    return count;
}

static mla_exit exit_code(const bench_run *b) {
    bool wrong = false, timed = false;
    for (const mla_bench_result *r = b->results; r < b->results + b->report.num_results; r++) {
        wrong |= r->verdict.status == MLA_FAILED || r->verdict.status == MLA_ERROR;
        timed |= r->verdict.status == MLA_PASSED;
    }
    if (wrong || (b->require && count_limits(b, MLA_LIMIT_MISSED) > 0))
        return MLA_EXIT_MISMATCH;
    const bool known = count_limits(b, MLA_LIMIT_KEPT) > 0 && count_limits(b, MLA_LIMIT_UNKNOWN) == 0;
    return timed && (known || !b->require) ? MLA_EXIT_PASSED : MLA_EXIT_NOTHING;
}

static void bench_free(bench_run *b) {
    for (int i = 0; i < b->report.num_results; i++)
        mla_bench_result_free(&b->results[i]);
    free(b->results);
    if (b->oracle.opened.code == MLA_OK)
        mla_kernel_close(&b->oracle.handle);
    mla_selection_free(&b->selection);
}

static bool is_stdout(const char *path) {
    return path && strcmp(path, "-") == 0;
}

static mla_exit run(bench_run *b) {
    b->text = is_stdout(b->html) ? stderr : mla_selection_text(&b->selection);
    if (is_stdout(b->html) && is_stdout(b->selection.json))
        return mla_usage_error("--json - and --html -: there is one standard output");
    const mla_status status = run_all(b);
    return status.code == MLA_OK ? mla_finish_stdout(exit_code(b)) : mla_usage_error("%s", status.message);
}

mla_exit mla_command_bench(int argc, char **argv) {
    bench_run b = {.options.seconds = 0.5,
                   .report.threads = omp_get_max_threads(),
                   .oracle = {.spec = "oracle", .opened = mla_error(MLA_EDEVICE, "not opened")}};
    mla_exit code = parse(&b, argc, argv);
    if (b.selection.help && code == MLA_EXIT_PASSED) {
        printf("%s%s%s", usage, mla_selection_help, exits);
        code = mla_finish_stdout(MLA_EXIT_PASSED);
    } else if (code == MLA_EXIT_PASSED) {
        code = mla_selection_open(&b.selection);
        if (code == MLA_EXIT_PASSED)
            code = run(&b);
    }
    bench_free(&b);
    return code;
}
