/* mla-verify drift stages: one launch, its error split by rounding. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "drift.h"
#include "drift_attribution.h"
#include "drift_fingerprint.h"
#include "drift_launch.h"
#include "drift_model.h"

static const mla_drift_help help = {
    .usage = "Splits a kernel's error by the rounding that it comes from, and says where the kernel does not do what it declares.\n"
             "\n"
             "usage: mla-verify drift stages --kernel KERNEL... [CASES...] [OPTION...]\n"
             "\n",
    .own = "  --no-order       do not look for the splits and the tile of a kernel that is not ours: one split, and the tile it declares\n",
    .exits =
        "\n"
        "A model of the kernel rounds what the kernel declares to round. One stage after another is changed to whatever explains most of\n"
        "the output's error, as long as that is a fifth of what is left; then each row may be off by a factor of its own. Shares are of "
        "the\n"
        "sum of squared errors, +- one standard error. Long cases are looked at in their first rows. The default case is heads=16\n"
        "kv_len=1024.\n"
        "\n"
        "exit: 0 it does what it declares   1 it does not, or failed   2 bad usage or input   3 nothing could run\n"};

#define MOST_PRODUCTS 3e8 /* a model run's */
#define MOST_ROWS 256

typedef struct stages_run {
    mla_selection selection;
    bool no_order;
    cJSON *json; /* an array */
    int ran, failed;
} stages_run;

typedef struct study {
    const mla_kernel *kernel;
    mla_device *device; /* NULL: host memory */
    mla_drift_launch launch;
    mla_drift_splits splits;
    mla_model declared;
    int64_t rows;
    double *out; /* [rows, 512] */
    mla_attribution found;
} study;

/* ---- one study ------------------------------------------------------------------------------------------------------------------------- */

static int64_t rows_to_study(const mla_problem *p) {
    int64_t longest = 1, rows = p->total_q * p->heads;
    for (int32_t b = 0; b < p->batch; b++)
        longest = mla_kv_len(p, b) > longest ? mla_kv_len(p, b) : longest;
    const int64_t affordable = (int64_t)(MOST_PRODUCTS / ((double)longest * (MLA_HEAD_DIM + MLA_HEAD_DIM_V))) + 1;
    rows = rows < MOST_ROWS ? rows : MOST_ROWS;
    return rows < affordable ? rows : affordable;
}

/* From outside, sequence by sequence; a sequence whose splits do not show keeps one. */
static mla_status find_order(study *s, const mla_case *c) {
    const mla_problem *p = &s->launch.inputs.problem;
    const int32_t last = mla_sequence_of(p, (s->rows - 1) / p->heads);
    for (int32_t b = 0; b <= last; b++) {
        mla_fingerprint f;
        const mla_status status = mla_fingerprint_take(s->kernel, s->device, c, b, &f);
        if (status.code == MLA_OK && f.tile > 0)
            s->declared.tile = (int)f.tile;
        mla_status kept = mla_ok();
        if (status.code == MLA_OK && f.num_splits > 1)
            kept = mla_drift_splits_set(p, b, &f, &s->splits);
        mla_fingerprint_free(&f);
        TRY(kept);
        if (status.code != MLA_OK && status.code != MLA_EUNSUPPORTED)
            return status;
    }
    return mla_ok();
}

static mla_status look(study *s, const mla_subject *subject, const mla_case *c, bool no_order) {
    const mla_problem *p = &s->launch.inputs.problem;
    TRY(mla_drift_launch_run(s->kernel, s->device, c, &s->launch));
    s->rows = rows_to_study(p);
    s->out = malloc((size_t)s->rows * MLA_HEAD_DIM_V * sizeof *s->out);
    if (!s->out)
        return mla_error(MLA_ENOMEM, "no memory for %" PRId64 " rows", s->rows);
    mla_decode_f64(p->out_format, s->launch.trial.output.out, (size_t)s->rows * MLA_HEAD_DIM_V, s->out);
    s->declared = mla_drift_model(s->kernel, p);
    TRY(mla_drift_splits_make(s->kernel, subject->handle.device, p, &s->splits));
    if (!no_order && !mla_drift_knows(s->kernel))
        TRY(find_order(s, c));
    const mla_observation seen = {p, &s->splits.view, 0, s->rows, s->out};
    return mla_attribute(&seen, &s->declared, &s->found);
}

static void study_free(study *s) {
    mla_drift_launch_free(&s->launch);
    mla_drift_splits_free(&s->splits);
    free(s->out);
}

/* ---- text ------------------------------------------------------------------------------------------------------------------------------ */

static void print_changes(FILE *text, const study *s) {
    const mla_attribution *a = &s->found;
    char is[96], said[96];
    if (a->left_declared < 1)
        fprintf(text, "    as declared    leaves %.3g %% of the error unexplained\n", 100 * a->left_declared);
    else
        fprintf(text, "    as declared    explains none of the error\n");
    for (int i = 0; i < a->num_changes; i++) {
        const mla_stage stage = a->changes[i].stage;
        fprintf(text, "    %-14s %s, where %s was declared: leaves %.2g %%\n", mla_stage_name(stage),
                mla_stage_choice(stage, &a->model, is, sizeof is), mla_stage_choice(stage, &s->declared, said, sizeof said),
                100 * a->changes[i].left);
    }
    if (a->row_factor > 0)
        fprintf(text, "    %-14s each row is off by a factor of its own, %.2g (rms): leaves %.2g %%\n", mla_stage_name(MLA_STAGE_ROWSUM),
                a->row_factor, 100 * a->left_by_factors);
}

/* In percent; what is rounded to zero has no sign. */
static double percent(double share) {
    return fabs(share) < 0.00005 ? 0 : 100 * share;
}

static void print_shares(FILE *text, const mla_attribution *a) {
    char choice[96];
    for (int k = 0; k < MLA_STAGE_COUNT; k++)
        if (a->share[k] != 0)
            fprintf(text, "    %6.2f %% +- %-6.2g %s: %s\n", percent(a->share[k]), 100 * a->share_error[k], mla_stage_name((mla_stage)k),
                    mla_stage_choice((mla_stage)k, &a->model, choice, sizeof choice));
    fprintf(text, "    %6.2f %% +- %-6.2g unexplained\n", percent(a->unexplained), 100 * a->unexplained_error);
    fprintf(text, "    that model gives the very output in %" PRId64 " of %" PRId64 " elements", a->same, a->elements);
    if (a->same < a->elements)
        fprintf(text, ", and is %.2g off (rms over all)", a->apart);
    fputc('\n', text);
}

static void print_study(FILE *text, const study *s, const char *kernel, const char *line) {
    const int64_t rows = s->launch.inputs.problem.total_q * s->launch.inputs.problem.heads;
    fprintf(text, "%s  %s\n    rms error %.3g", kernel, *line ? line : "(all defaults)", s->found.rms);
    fprintf(text, s->rows < rows ? " over the first %" PRId64 " of %" PRId64 " rows\n" : " over %" PRId64 " rows\n", s->rows, rows);
    if (s->found.rms == 0) {
        fprintf(text, "    the output is exact: there is nothing to explain\n");
        return;
    }
    print_changes(text, s);
    print_shares(text, &s->found);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------------------------------ */

static void add_choice(cJSON *array, const study *s, const mla_change *change) {
    char text[96];
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "stage", mla_stage_name(change->stage));
    cJSON_AddStringToObject(o, "declared", mla_stage_choice(change->stage, &s->declared, text, sizeof text));
    cJSON_AddStringToObject(o, "found", mla_stage_choice(change->stage, &s->found.model, text, sizeof text));
    cJSON_AddNumberToObject(o, "left", change->left);
    cJSON_AddItemToArray(array, o);
}

static void add_share(cJSON *array, const mla_attribution *a, mla_stage stage) {
    char text[96];
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "stage", mla_stage_name(stage));
    cJSON_AddStringToObject(o, "choice", mla_stage_choice(stage, &a->model, text, sizeof text));
    cJSON_AddNumberToObject(o, "share", a->share[stage]);
    cJSON_AddNumberToObject(o, "standard_error", a->share_error[stage]);
    cJSON_AddItemToArray(array, o);
}

static void add_study(cJSON *studies, const study *s, const char *kernel, const char *line) {
    const mla_attribution *a = &s->found;
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "kernel", kernel);
    cJSON_AddStringToObject(o, "case", line);
    cJSON_AddNumberToObject(o, "rows", (double)s->rows);
    cJSON_AddNumberToObject(o, "rms", a->rms);
    cJSON_AddNumberToObject(o, "left_as_declared", a->left_declared);
    cJSON *changes = cJSON_AddArrayToObject(o, "changes"), *shares = cJSON_AddArrayToObject(o, "shares");
    for (int i = 0; i < a->num_changes; i++)
        add_choice(changes, s, &a->changes[i]);
    for (int k = 0; k < MLA_STAGE_COUNT; k++)
        if (a->share[k] != 0)
            add_share(shares, a, (mla_stage)k);
    cJSON_AddNumberToObject(o, "row_factor", a->row_factor);
    cJSON_AddNumberToObject(o, "elements", (double)a->elements);
    cJSON_AddNumberToObject(o, "same_as_model", (double)a->same);
    cJSON_AddNumberToObject(o, "rms_from_model", a->apart);
    cJSON_AddNumberToObject(o, "unexplained", a->unexplained);
    cJSON_AddNumberToObject(o, "unexplained_standard_error", a->unexplained_error);
    cJSON_AddItemToArray(studies, o);
}

/* ---- the command ----------------------------------------------------------------------------------------------------------------------- */

/* The tile is no rounding: another one than declared is told, and breaks no promise. */
static bool keeps_its_word(const mla_attribution *a) {
    for (int i = 0; i < a->num_changes; i++)
        if (a->changes[i].stage != MLA_STAGE_TILE)
            return false;
    return !(a->row_factor > 0);
}

static mla_status study_case(stages_run *r, const mla_subject *subject, const mla_case *c) {
    char *line = mla_case_print(c);
    if (!line)
        return mla_error(MLA_ENOMEM, "no memory to print the case");
    study s = {.kernel = subject->handle.kernel, .device = mla_drift_device(subject)};
    const mla_status status = look(&s, subject, c, r->no_order);
    if (status.code == MLA_OK) {
        print_study(mla_selection_text(&r->selection), &s, subject->spec, line);
        add_study(r->json, &s, subject->spec, line);
        r->failed += !keeps_its_word(&s.found);
    }
    study_free(&s);
    free(line);
    return status;
}

static mla_exit run(stages_run *r) {
    const mla_selection *s = &r->selection;
    r->json = cJSON_CreateArray();
    for (int i = 0; i < s->cases.count; i++)
        for (int k = 0; k < s->num_subjects; k++) {
            const mla_subject *subject = &s->subjects[k];
            const mla_status status = subject->opened.code == MLA_OK ? study_case(r, subject, &s->cases.cases[i]) : subject->opened;
            mla_drift_count(mla_selection_text(s), subject, &s->cases.cases[i], &status, &r->ran, &r->failed);
        }
    const mla_status written = mla_drift_write_json(s->json, r->json);
    return written.code == MLA_OK ? mla_drift_exit(r->ran, r->failed) : mla_usage_error("%s", written.message);
}

static mla_status set_option(void *context, int option, const char *value) {
    (void)option, (void)value;
    ((stages_run *)context)->no_order = true;
    return mla_ok();
}

mla_exit mla_drift_stages(int argc, char **argv) {
    static const struct option options[] = {{"no-order", no_argument, NULL, 'O'}};
    stages_run r = {.selection.default_case = "heads=16 kv_len=1024"};
    const mla_own_options own = {.list = options, .count = 1, .set = set_option, .context = &r};
    mla_exit code;
    if (mla_drift_begin(&r.selection, argc, argv, &own, &help, &code))
        code = run(&r);
    mla_selection_free(&r.selection);
    return code;
}
