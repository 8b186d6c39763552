/* mla-verify drift diff: two kernels on the same inputs. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../ref/try.h"
#include "drift.h"
#include "drift_difference.h"
#include "drift_launch.h"
#include "slabs.h"

static const mla_drift_help help = {
    .usage = "Compares two kernels on the same inputs: which bits differ, by how much, where, and which kernel is farther from the truth.\n"
             "\n"
             "usage: mla-verify drift diff KERNEL KERNEL [CASES...] [OPTION...]\n"
             "\n",
    .own = "",
    .exits = "\n"
             "The default case is heads=16 kv_len=1024.\n"
             "\n"
             "exit: 0 the same bits   1 they differ, or one failed   2 bad usage or input   3 nothing could run\n"};

#define MOST_PARTS 16 /* sequences or heads in a line */

typedef struct diff_run {
    mla_selection selection;
    cJSON *json; /* an array */
    int ran, failed;
} diff_run;

typedef struct comparison {
    mla_drift_launch launch[2];
    mla_difference difference;
} comparison;

/* ---- one case -------------------------------------------------------------------------------------------------------------------------- */

static mla_status add_slab(void *context, const mla_truth *truth) {
    comparison *c = context;
    mla_difference_add(&c->launch[0].inputs.problem, truth, &c->launch[0].trial.output, &c->launch[1].trial.output, &c->difference);
    return mla_ok();
}

static mla_status compare(comparison *c, const mla_subject *subjects, const mla_case *test) {
    for (int i = 0; i < 2; i++)
        TRY(mla_drift_launch_run(subjects[i].handle.kernel, mla_drift_device(&subjects[i]), test, &c->launch[i]));
    const mla_problem *p = &c->launch[0].inputs.problem;
    const mla_contract contract = mla_kernel_contract(subjects[0].handle.kernel, p);
    TRY(mla_difference_init(&c->difference, p));
    return mla_slabs_visit(p, &contract, NULL, add_slab, c);
}

static void comparison_free(comparison *c) {
    mla_difference_free(&c->difference);
    mla_drift_launch_free(&c->launch[0]);
    mla_drift_launch_free(&c->launch[1]);
}

static double rms(const mla_difference *d, int i) {
    return sqrt(d->square[i] / (double)d->out.total);
}

/* ---- text ------------------------------------------------------------------------------------------------------------------------------ */

static void print_steps(FILE *text, const mla_difference *d) {
    fprintf(text, "    ulp apart    0: %" PRId64, d->out.total - d->out.different);
    for (int s = 0; s < MLA_ULP_STEPS; s++) {
        if (d->steps[s] == 0)
            continue;
        if (s < 2)
            fprintf(text, "   %d: %" PRId64, 1 + s, d->steps[s]);
        else if (s < MLA_ULP_STEPS - 1)
            fprintf(text, "   %d-%d: %" PRId64, (1 << (s - 1)) + 1, 1 << s, d->steps[s]);
        else
            fprintf(text, "   more: %" PRId64, d->steps[s]);
    }
    fputc('\n', text);
}

static void print_place(FILE *text, const char *what, const mla_place *p, const uint32_t *code, double exact, mla_format format) {
    fprintf(text, "    %-12s seq %d q %d head %d col %d: 0x%0*X = %.9g and 0x%0*X = %.9g, exact %.9g\n", what, p->sequence, p->q, p->head,
            p->column, (int)(2 * mla_format_bytes(format)), code[0], mla_decode(format, code[0]), (int)(2 * mla_format_bytes(format)),
            code[1], mla_decode(format, code[1]), exact);
}

static void print_parts(FILE *text, const char *what, const mla_apart *parts, int count) {
    int printed = 0, differing = 0;
    for (int i = 0; i < count; i++)
        differing += parts[i].different > 0;
    fprintf(text, "    by %-9s %d of %d differ:", what, differing, count);
    for (int i = 0; i < count && printed < MOST_PARTS; i++)
        if (parts[i].different > 0) {
            fprintf(text, " %d (%.3g %%)", i, 100.0 * (double)parts[i].different / (double)parts[i].total);
            printed++;
        }
    fprintf(text, printed < differing ? " ...\n" : "\n");
}

static void print_truth(FILE *text, const mla_difference *d, const mla_subject *subjects) {
    fprintf(text, "    to the truth rms error %.4g and %.4g", rms(d, 0), rms(d, 1));
    if (d->square[0] == d->square[1])
        fprintf(text, ": equally far\n");
    else
        fprintf(text, ": %s is farther (in %" PRId64 " elements, the other in %" PRId64 ")\n", subjects[d->square[1] > d->square[0]].spec,
                d->farther[d->square[1] > d->square[0]], d->farther[d->square[0] > d->square[1]]);
}

static void print_difference(FILE *text, const mla_difference *d, const mla_problem *p, const mla_subject *subjects, const char *line) {
    fprintf(text, "%s and %s  %s\n", subjects[0].spec, subjects[1].spec, *line ? line : "(all defaults)");
    if (d->out.different + d->lse.different == 0) {
        fprintf(text, "    the same bits: %" PRId64 " elements, %" PRId64 " lse\n", d->out.total, d->lse.total);
        return;
    }
    fprintf(text,
            "    %" PRId64 " of %" PRId64 " elements differ (%.3g %%), by at most %u ulp; %" PRId64 " of %" PRId64
            " lse, by at most %.2g\n",
            d->out.different, d->out.total, 100.0 * (double)d->out.different / (double)d->out.total, d->most_ulp, d->lse.different,
            d->lse.total, d->most_lse);
    print_steps(text, d);
    print_truth(text, d, subjects);
    if (!d->found)
        return;
    print_place(text, "first", &d->first, d->first_code, d->first_exact, p->out_format);
    print_place(text, "most", &d->worst, d->worst_code, d->worst_exact, p->out_format);
    print_parts(text, "sequence", d->sequences, p->batch);
    print_parts(text, "head", d->heads, p->heads);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------------------------------ */

static void add_place(cJSON *to, const char *name, const mla_place *p, const uint32_t *code, double exact, mla_format format) {
    cJSON *o = cJSON_AddObjectToObject(to, name);
    cJSON_AddNumberToObject(o, "sequence", p->sequence);
    cJSON_AddNumberToObject(o, "q", p->q);
    cJSON_AddNumberToObject(o, "head", p->head);
    cJSON_AddNumberToObject(o, "column", p->column);
    cJSON_AddNumberToObject(o, "a", mla_decode(format, code[0]));
    cJSON_AddNumberToObject(o, "b", mla_decode(format, code[1]));
    cJSON_AddNumberToObject(o, "exact", exact);
}

static void add_difference(cJSON *all, const mla_difference *d, const mla_problem *p, const mla_subject *subjects, const char *line) {
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "a", subjects[0].spec);
    cJSON_AddStringToObject(o, "b", subjects[1].spec);
    cJSON_AddStringToObject(o, "case", line);
    cJSON_AddNumberToObject(o, "elements", (double)d->out.total);
    cJSON_AddNumberToObject(o, "different", (double)d->out.different);
    cJSON_AddNumberToObject(o, "max_ulp", d->most_ulp);
    cJSON_AddNumberToObject(o, "lse_different", (double)d->lse.different);
    cJSON_AddNumberToObject(o, "max_lse", d->most_lse);
    cJSON_AddNumberToObject(o, "rms_error_a", rms(d, 0));
    cJSON_AddNumberToObject(o, "rms_error_b", rms(d, 1));
    cJSON_AddNumberToObject(o, "farther_a", (double)d->farther[0]);
    cJSON_AddNumberToObject(o, "farther_b", (double)d->farther[1]);
    if (d->found) {
        add_place(o, "first", &d->first, d->first_code, d->first_exact, p->out_format);
        add_place(o, "most", &d->worst, d->worst_code, d->worst_exact, p->out_format);
    }
    cJSON_AddItemToArray(all, o);
}

/* ---- the command ----------------------------------------------------------------------------------------------------------------------- */

static mla_status diff_case(diff_run *r, const mla_case *test) {
    const mla_subject *subjects = r->selection.subjects;
    for (int i = 0; i < 2; i++)
        if (subjects[i].opened.code != MLA_OK)
            return mla_error(MLA_EUNSUPPORTED, "%s", subjects[i].opened.message);
    char *line = mla_case_print(test);
    if (!line)
        return mla_error(MLA_ENOMEM, "no memory to print the case");
    comparison c = {0};
    const mla_status status = compare(&c, subjects, test);
    if (status.code == MLA_OK) {
        const mla_problem *p = &c.launch[0].inputs.problem;
        print_difference(mla_selection_text(&r->selection), &c.difference, p, subjects, line);
        add_difference(r->json, &c.difference, p, subjects, line);
        r->failed += c.difference.out.different + c.difference.lse.different > 0;
    }
    comparison_free(&c);
    free(line);
    return status;
}

static mla_exit run(diff_run *r) {
    const mla_selection *s = &r->selection;
    if (s->num_subjects != 2)
        return mla_usage_error("drift diff takes two kernels");
    r->json = cJSON_CreateArray();
    for (int i = 0; i < s->cases.count; i++) {
        const mla_status status = diff_case(r, &s->cases.cases[i]);
        mla_drift_count(mla_selection_text(s), &s->subjects[0], &s->cases.cases[i], &status, &r->ran, &r->failed);
    }
    const mla_status written = mla_drift_write_json(s->json, r->json);
    return written.code == MLA_OK ? mla_drift_exit(r->ran, r->failed) : mla_usage_error("%s", written.message);
}

/* Kernels before the first option need no --kernel. */
static mla_status take_kernels(mla_selection *selection, int *argc, char ***argv) {
    char *name = (*argv)[0];
    while (*argc > 1 && (*argv)[1][0] != '-') {
        TRY(mla_selection_set(selection, 'k', (*argv)[1]));
        --*argc;
        ++*argv;
    }
    (*argv)[0] = name;
    return mla_ok();
}

mla_exit mla_drift_diff(int argc, char **argv) {
    diff_run r = {.selection.default_case = "heads=16 kv_len=1024"};
    const mla_status status = take_kernels(&r.selection, &argc, &argv);
    mla_exit code = MLA_EXIT_PASSED;
    if (status.code != MLA_OK)
        code = mla_usage_error("%s", status.message);
    else if (mla_drift_begin(&r.selection, argc, argv, NULL, &help, &code))
        code = run(&r);
    mla_selection_free(&r.selection);
    return code;
}
