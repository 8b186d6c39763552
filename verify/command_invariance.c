/* mla-verify invariance: cases one by one, a line an axis. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "invariance.h"
#include "output_file.h"
#include "selection.h"

static const char usage[] = "Do a kernel's bits depend on what they should not?\n"
                            "\n"
                            "usage: mla-verify invariance --kernel KERNEL [OPTION...]\n"
                            "\n"
                            "  Without cases: a few ragged batches of every layout.\n";
static const char exits[] = "\n"
                            "repeat     launched again\n"
                            "permuted   sequences in reverse order; splits of a fixed size\n"
                            "alone      each sequence without the others; splits of a fixed size\n"
                            "neighbour  the KV of every other sequence is NaN\n"
                            "order      host execution: fibers in another order (MLA_FIBER_SEED)\n"
                            "threads    in host memory: one OpenMP thread\n"
                            "splits     another number of splits: reported, no verdict\n"
                            "\n"
                            "exit: 0 nothing varies that may not   1 something does   2 bad usage or input   3 nothing could run\n";

static const char *const default_cases[] = {
    "kv_len=200,65,3,0,129 seed=1",
    "q_len=3,1,2 kv_len=150,40,70 causal=1 page=16 seed=2",
    "q_len=2,1 kv_len=100,60 page=topk:48 seed=3",
    "kv_len=70,33,9 kv=mxfp4 page=list seed=4",
    "kv_len=90,128,31 kv=fp8fnuz sink=rand plan=balanced seed=5",
};

typedef struct invariance_run {
    mla_selection selection;
    cJSON *json, *results;
    int counts[MLA_AXIS_STATUSES];
    bool failed; /* a kernel could not run a case that it said it can */
} invariance_run;

static bool has_cases(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--case", 6) == 0 || strncmp(argv[i], "--random", 8) == 0)
            return true;
    return false;
}

static mla_exit parse(invariance_run *r, int argc, char **argv) {
    for (size_t i = 0; i < sizeof default_cases / sizeof *default_cases && !has_cases(argc, argv); i++) {
        const mla_status status = mla_selection_set(&r->selection, 'c', default_cases[i]);
        if (status.code != MLA_OK)
            return mla_usage_error("%s", status.message);
    }
    return mla_selection_parse(&r->selection, argc, argv, NULL);
}

/* ---- results ---------------------------------------------------------------------------------------------------------------------------- */

static bool add_axis(cJSON *axes, mla_axis axis, const mla_axis_result *result) {
    cJSON *o = cJSON_CreateObject();
    if (!o || !cJSON_AddItemToArray(axes, o)) {
        cJSON_Delete(o);
        return false;
    }
    return cJSON_AddStringToObject(o, "axis", mla_axis_name(axis)) &&
           cJSON_AddStringToObject(o, "status", mla_axis_status_name(result->status)) &&
           cJSON_AddStringToObject(o, "detail", result->detail);
}

static mla_status add_json(invariance_run *r, const char *line, const char *kernel, const mla_axis_result *results) {
    cJSON *o = cJSON_CreateObject();
    bool good = o && cJSON_AddItemToArray(r->results, o);
    if (!good)
        cJSON_Delete(o);
    good = good && cJSON_AddStringToObject(o, "case", line) && cJSON_AddStringToObject(o, "kernel", kernel);
    cJSON *axes = good ? cJSON_AddArrayToObject(o, "axes") : NULL;
    for (int i = 0; i < MLA_AXES && axes; i++)
        axes = add_axis(axes, (mla_axis)i, &results[i]) ? axes : NULL;
    return axes ? mla_ok() : mla_error(MLA_ENOMEM, "no memory for the JSON report");
}

/* Quiet: only what varies. */
static void print(const invariance_run *r, const char *line, const char *kernel, const mla_axis_result *results) {
    FILE *text = mla_selection_text(&r->selection);
    bool headed = false;
    for (int i = 0; i < MLA_AXES; i++) {
        if (r->selection.quiet && results[i].status != MLA_AXIS_VARIES)
            continue;
        if (!headed)
            fprintf(text, "%-80s  %s\n", *line ? line : "(all defaults)", kernel);
        headed = true;
        fprintf(text, "  %-10s %-10s %s\n", mla_axis_status_name(results[i].status), mla_axis_name((mla_axis)i), results[i].detail);
    }
}

static mla_status write_json(invariance_run *r) {
    cJSON *summary = cJSON_AddObjectToObject(r->json, "summary");
    static const char *const names[MLA_AXIS_STATUSES] = {"invariant", "varies", "reported", "skipped"};
    for (int i = 0; i < MLA_AXIS_STATUSES && summary; i++)
        summary = cJSON_AddNumberToObject(summary, names[i], r->counts[i]) ? summary : NULL;
    char *text = summary ? cJSON_Print(r->json) : NULL;
    const mla_status status =
        text ? mla_output_file_write(r->selection.json, text, strlen(text)) : mla_error(MLA_ENOMEM, "no memory for the JSON report");
    free(text);
    return status;
}

/* ---- running ---------------------------------------------------------------------------------------------------------------------------- */

/* A kernel that fails is no reason to stop, but no pass either. */
static mla_status run_pair(invariance_run *r, const mla_subject *subject, const mla_case *test) {
    mla_axis_result results[MLA_AXES];
    if (subject->opened.code != MLA_OK) {
        fprintf(stderr, "mla-verify: %s: %s\n", subject->spec, subject->opened.message);
        return mla_ok();
    }
    const mla_status ran = mla_invariance_case(subject, test, results);
    char *line = mla_case_print(test);
    if (!line)
        return mla_error(MLA_ENOMEM, "no memory to print the case");
    mla_status status = mla_ok();
    if (ran.code == MLA_OK) {
        for (int i = 0; i < MLA_AXES; i++)
            r->counts[results[i].status]++;
        print(r, line, subject->spec, results);
        status = add_json(r, line, subject->spec, results);
    } else {
        r->failed = true;
        fprintf(mla_selection_text(&r->selection), "%-80s  %s\n  ERROR      %s\n", line, subject->spec, ran.message);
    }
    free(line);
    return status;
}

static mla_status run_all(invariance_run *r) {
    r->json = cJSON_CreateObject();
    r->results = r->json ? cJSON_AddArrayToObject(r->json, "cases") : NULL;
    if (!r->results)
        return mla_error(MLA_ENOMEM, "no memory for the JSON report");
    for (int c = 0; c < r->selection.cases.count; c++)
        for (int k = 0; k < r->selection.num_subjects; k++)
            TRY(run_pair(r, &r->selection.subjects[k], &r->selection.cases.cases[c]));
    fprintf(mla_selection_text(&r->selection), "\n%d invariant, %d vary, %d reported, %d skipped\n", r->counts[MLA_AXIS_INVARIANT],
            r->counts[MLA_AXIS_VARIES], r->counts[MLA_AXIS_REPORTED], r->counts[MLA_AXIS_SKIPPED]);
    return r->selection.json ? write_json(r) : mla_ok();
}

static mla_exit run(invariance_run *r) {
    const mla_status status = run_all(r);
    if (status.code != MLA_OK)
        return mla_usage_error("%s", status.message);
    if (r->failed || r->counts[MLA_AXIS_VARIES] > 0)
        return mla_finish_stdout(MLA_EXIT_MISMATCH);
    return mla_finish_stdout(r->counts[MLA_AXIS_INVARIANT] > 0 ? MLA_EXIT_PASSED : MLA_EXIT_NOTHING);
}

mla_exit mla_command_invariance(int argc, char **argv) {
    invariance_run r = {0};
    mla_exit code = parse(&r, argc, argv);
    if (r.selection.help && code == MLA_EXIT_PASSED) {
        printf("%s\n%s%s", usage, mla_selection_help, exits);
        code = mla_finish_stdout(MLA_EXIT_PASSED);
    } else if (code == MLA_EXIT_PASSED) {
        code = mla_selection_open(&r.selection);
        if (code == MLA_EXIT_PASSED)
            code = run(&r);
    }
    cJSON_Delete(r.json);
    mla_selection_free(&r.selection);
    return code;
}
