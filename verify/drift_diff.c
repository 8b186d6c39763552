/* mla-verify drift diff: two outputs of the same inputs, of kernels or in files. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "drift.h"
#include "drift_difference.h"
#include "drift_launch.h"
#include "golden.h"
#include "slabs.h"

static const mla_drift_help help = {
    .usage = "Compares two outputs of the same inputs: which bits differ, by how much, where, and which one is farther from the truth.\n"
             "\n"
             "usage: mla-verify drift diff KERNEL KERNEL [CASES...] [OPTION...]\n"
             "       mla-verify drift diff A B --golden GOLDEN [OPTION...]\n"
             "\n",
    .own =
        "  --golden GOLDEN  a file of mla-verify gen, which has the case; A and B are then kernels, or files that mla-verify check reads,\n"
        "                   named *.safetensors\n",
    .exits = "\n"
             "The default case is heads=16 kv_len=1024.\n"
             "\n"
             "exit: 0 the same bits   1 they differ, or one failed   2 bad usage or input   3 nothing could run\n"};

#define MOST_PARTS 16 /* sequences or heads in a line */

typedef struct diff_run {
    mla_selection selection;
    const char *names[2]; /* that came before the options */
    int num_names;
    mla_subject sides[2]; /* the selection's, or a file's name */
    bool is_file[2];
    const char *golden_path; /* NULL: none */
    mla_golden golden;
    mla_golden_result files[2];
    cJSON *json; /* an array */
    int ran, failed;
} diff_run;

typedef struct comparison {
    const diff_run *run;
    mla_drift_launch launch[2];
    mla_problem problem;
    mla_output output[2]; /* the launch's or the file's */
    mla_difference difference;
} comparison;

/* ---- one case -------------------------------------------------------------------------------------------------------------------------- */

static mla_status add_slab(void *context, const mla_truth *truth) {
    comparison *c = context;
    if (c->run->golden_path)
        TRY(mla_golden_agrees(&c->run->golden, truth));
    mla_difference_add(&c->problem, truth, &c->output[0], &c->output[1], &c->difference);
    return mla_ok();
}

/* A kernel's problem is made from the case line, and the golden file's truth then tells whether it is the file's. */
static mla_status take_output(comparison *c, int i, const mla_case *test) {
    const mla_subject *side = &c->run->sides[i];
    if (c->run->is_file[i]) {
        c->output[i] = c->run->files[i].output;
        return mla_ok();
    }
    TRY(mla_drift_launch_run(side->handle.kernel, mla_drift_device(side), test, &c->launch[i]));
    c->output[i] = c->launch[i].trial.output;
    c->problem = c->launch[i].inputs.problem;
    return mla_ok();
}

static mla_status compare(comparison *c, const mla_case *test) {
    c->problem = c->run->golden.problem;
    c->problem.out_format = test->out;
    for (int i = 0; i < 2; i++)
        TRY(take_output(c, i, test));
    const mla_contract contract = mla_contract_default(); /* the truth depends on none */
    TRY(mla_difference_init(&c->difference, &c->problem));
    return mla_slabs_visit(&c->problem, &contract, NULL, add_slab, c);
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
    for (int i = 0; i < 2; i++)
        if (r->sides[i].opened.code != MLA_OK)
            return mla_error(MLA_EUNSUPPORTED, "%s", r->sides[i].opened.message);
    char *line = mla_case_print(test);
    if (!line)
        return mla_error(MLA_ENOMEM, "no memory to print the case");
    comparison c = {.run = r};
    const mla_status status = compare(&c, test);
    if (status.code == MLA_OK) {
        print_difference(mla_selection_text(&r->selection), &c.difference, &c.problem, r->sides, line);
        add_difference(r->json, &c.difference, &c.problem, r->sides, line);
        r->failed += c.difference.out.different + c.difference.lse.different > 0;
    }
    comparison_free(&c);
    free(line);
    return status;
}

static bool names_file(const char *name) {
    const char *ending = strrchr(name, '.');
    return ending && strcmp(ending, ".safetensors") == 0;
}

/* Names before the options, in their order, and then what --kernel gave. */
static mla_status choose_sides(diff_run *r) {
    int taken = 0, sides = 0;
    for (; sides < r->num_names; sides++) {
        r->is_file[sides] = names_file(r->names[sides]);
        r->sides[sides] = r->is_file[sides] ? (mla_subject){.spec = r->names[sides]} : r->selection.subjects[taken++];
    }
    while (sides < 2 && taken < r->selection.num_subjects)
        r->sides[sides++] = r->selection.subjects[taken++];
    if (sides < 2 || taken < r->selection.num_subjects)
        return mla_error(MLA_EINVAL, "drift diff takes two kernels or results");
    if ((r->is_file[0] || r->is_file[1]) && !r->golden_path)
        return mla_error(MLA_EINVAL, "%.150s: outputs need --golden, the file that has their inputs", r->sides[r->is_file[0] ? 0 : 1].spec);
    if (r->golden_path && r->selection.cases.count > 1)
        return mla_error(MLA_EINVAL, "--golden has the case: there can be no other");
    return mla_ok();
}

/* Bits are compared in one type: kernels write that of the file. */
static mla_status read_files(diff_run *r) {
    for (int i = 0; i < 2; i++) {
        if (!r->is_file[i])
            continue;
        TRY(mla_golden_result_read(r->sides[i].spec, &r->golden, &r->files[i]));
        r->selection.cases.cases[0].out = r->files[i].out_format;
    }
    if (r->is_file[0] && r->is_file[1] && r->files[0].out_format != r->files[1].out_format)
        return mla_error(MLA_EINVAL, "%.100s holds %s, %.100s %s: bits of two types cannot be compared", r->sides[0].spec,
                         mla_format_get(r->files[0].out_format)->name, r->sides[1].spec, mla_format_get(r->files[1].out_format)->name);
    return mla_ok();
}

/* A golden file that contradicts itself is bad input. */
static mla_status diff_all(diff_run *r) {
    const mla_selection *s = &r->selection;
    for (int i = 0; i < s->cases.count; i++) {
        const mla_status status = diff_case(r, &s->cases.cases[i]);
        if (r->golden_path && status.code == MLA_EINVAL)
            return status;
        mla_drift_count(mla_selection_text(s), &r->sides[0], &s->cases.cases[i], &status, &r->ran, &r->failed);
    }
    return mla_ok();
}

static mla_exit run(diff_run *r) {
    mla_status status = choose_sides(r);
    if (status.code == MLA_OK)
        status = read_files(r);
    if (status.code != MLA_OK)
        return mla_usage_error("%s", status.message);
    r->json = cJSON_CreateArray();
    status = diff_all(r);
    const mla_status written = mla_drift_write_json(status.code == MLA_OK ? r->selection.json : NULL, r->json);
    status = status.code == MLA_OK ? written : status;
    return status.code == MLA_OK ? mla_drift_exit(r->ran, r->failed) : mla_usage_error("%s", status.message);
}

/* ---- the command line ------------------------------------------------------------------------------------------------------------------ */

/* What comes before the first option needs no --kernel. */
static mla_status take_names(diff_run *r, int *argc, char ***argv) {
    char *command = (*argv)[0];
    for (; *argc > 1 && (*argv)[1][0] != '-'; --*argc, ++*argv) {
        if (r->num_names == 2)
            return mla_error(MLA_EINVAL, "drift diff takes two kernels or results, not %.150s too", (*argv)[1]);
        r->names[r->num_names++] = (*argv)[1];
        if (!names_file((*argv)[1]))
            TRY(mla_selection_set(&r->selection, 'k', (*argv)[1]));
    }
    (*argv)[0] = command;
    return mla_ok();
}

static mla_status set_golden(void *context, int option, const char *path) {
    diff_run *r = context;
    (void)option;
    if (r->golden_path)
        return mla_error(MLA_EINVAL, "--golden given twice");
    r->golden_path = path;
    TRY(mla_golden_read(path, &r->golden));
    char *line = mla_case_print(&r->golden.test);
    const mla_status status = line ? mla_case_list_add(&r->selection.cases, line) : mla_error(MLA_ENOMEM, "no memory to print the case");
    free(line);
    return status;
}

mla_exit mla_drift_diff(int argc, char **argv) {
    static const struct option options[] = {{"golden", required_argument, NULL, 'G'}};
    diff_run r = {.selection = {.default_case = "heads=16 kv_len=1024", .kernels_optional = true}};
    const mla_own_options own = {.list = options, .count = 1, .set = set_golden, .context = &r};
    const mla_status status = take_names(&r, &argc, &argv);
    mla_exit code = MLA_EXIT_PASSED;
    if (status.code != MLA_OK)
        code = mla_usage_error("%s", status.message);
    else if (mla_drift_begin(&r.selection, argc, argv, &own, &help, &code))
        code = run(&r);
    mla_golden_result_free(&r.files[0]);
    mla_golden_result_free(&r.files[1]);
    mla_golden_free(&r.golden);
    mla_selection_free(&r.selection);
    return code;
}
