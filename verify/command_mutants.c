/* mla-verify mutants: every case is run by the kernel itself, then by each transform around it, then by each plug-in of a folder. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../ref/try.h"
#include "mutant.h"
#include "mutant_base.h"
#include "output_file.h"
#include "report_mutants.h"
#include "selection.h"

#define DEFAULT_CASES "data/mutants.cases"
#define FIBER_SEEDS 4 /* orders in which a host plug-in's fibers run */

static const char usage[] = "Plants bugs in and around a kernel, and counts those the gate notices, beside the gates that others use.\n"
                            "\n"
                            "usage: mla-verify mutants --kernel KERNEL [OPTION...]\n"
                            "\n"
                            "  --dir FOLDER          plug-ins of mutated kernels as well; benign_*.so must pass\n"
                            "  --only NAME           this transform alone; repeatable\n"
                            "  --tolerance RTOL,ATOL your own gate, beside the rivals\n"
                            "  Cases are those of " DEFAULT_CASES " unless given.\n";
static const char exits[] = "\nexit: 0 every mutant that showed was killed, and every benign variant passed   1 not so   2 bad usage or "
                            "input   3 nothing could run\n";

enum { MAX_ONLY = 64 };

typedef struct mutants_run {
    mla_selection selection;
    const char *folder; /* NULL: none */
    const char *only[MAX_ONLY];
    int num_only;
    struct plugin {
        char *path, *name; /* its file's, without .so */
    } * plugins;           /* [num_plugins], sorted */
    int num_plugins;
    mla_exam *exams; /* [cases] */
    mla_mutant_bases bases;
    mla_progress progress;
    mla_mutant_report report;
} mutants_run;

/* ---- options -------------------------------------------------------------------------------------------------------------------------- */

static mla_status set_tolerance(mla_tolerance *t, const char *text) {
    char *middle, *end = NULL;
    t->given = true;
    t->rtol = strtod(text, &middle);
    t->atol = *middle == ',' ? strtod(middle + 1, &end) : -1;
    const bool read = middle != text && end && end != middle + 1 && !*end;
    if (!read || !(t->rtol >= 0 && t->atol >= 0 && isfinite(t->rtol) && isfinite(t->atol)))
        return mla_error(MLA_EINVAL, "--tolerance %s: expected RTOL,ATOL", text);
    return mla_ok();
}

static mla_status set_folder(mutants_run *r, const char *folder) {
    struct stat info;
    if (stat(folder, &info) != 0 || !S_ISDIR(info.st_mode))
        return mla_error(MLA_EINVAL, "--dir %.150s: there is no such folder", folder);
    r->folder = folder;
    return mla_ok();
}

static mla_status add_only(mutants_run *r, const char *name) {
    if (!mla_mutant_find(name))
        return mla_error(MLA_EINVAL, "--only %.100s: no such mutant", name);
    if (r->num_only == MAX_ONLY)
        return mla_error(MLA_EINVAL, "--only given more than %d times", MAX_ONLY);
    r->only[r->num_only++] = name;
    return mla_ok();
}

static mla_status set_option(void *context, int option, const char *value) {
    mutants_run *r = context;
    if (option == 'D')
        return set_folder(r, value);
    return option == 'O' ? add_only(r, value) : set_tolerance(&r->report.tolerance, value);
}

static bool wanted(const mutants_run *r, const char *name) {
    for (int i = 0; i < r->num_only; i++)
        if (strcmp(r->only[i], name) == 0)
            return true;
    return r->num_only == 0;
}

static bool names_cases(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--case", 6) == 0 || strncmp(argv[i], "--random", 8) == 0)
            return true;
    return false;
}

static mla_exit parse(mutants_run *r, int argc, char **argv) {
    static const struct option options[] = {
        {"dir", required_argument, NULL, 'D'}, {"only", required_argument, NULL, 'O'}, {"tolerance", required_argument, NULL, 'T'}};
    const mla_own_options own = {.list = options, .count = 3, .set = set_option, .context = r};
    if (!names_cases(argc, argv) && access(DEFAULT_CASES, R_OK) == 0) {
        const mla_status status = mla_selection_set(&r->selection, 'f', DEFAULT_CASES);
        if (status.code != MLA_OK)
            return mla_usage_error("%s", status.message);
    }
    const mla_exit code = mla_selection_parse(&r->selection, argc, argv, &own);
    if (code == MLA_EXIT_PASSED && !r->selection.help && r->selection.num_subjects != 1)
        return mla_usage_error("one --kernel at a time");
    return code;
}

/* ---- plug-ins --------------------------------------------------------------------------------------------------------------------------- */

static int is_library(const struct dirent *entry) {
    const size_t length = strlen(entry->d_name);
    return length > 3 && strcmp(entry->d_name + length - 3, ".so") == 0;
}

/* The kernel's own loader takes a name with a '/' for a path. */
static bool add_plugin(mutants_run *r, const char *file) {
    struct plugin *p = &r->plugins[r->num_plugins++];
    const bool printed = asprintf(&p->path, "%s%s/%s", strchr(r->folder, '/') ? "" : "./", r->folder, file) > 0;
    p->path = printed ? p->path : NULL;
    p->name = strndup(file, strlen(file) - 3);
    return p->path && p->name;
}

static mla_status list_plugins(mutants_run *r) {
    struct dirent **entries;
    if (!r->folder)
        return mla_ok();
    const int count = scandir(r->folder, &entries, is_library, alphasort);
    if (count <= 0)
        return mla_error(MLA_EINVAL, "--dir %.150s: it holds no plug-in (*.so)", r->folder);
    r->plugins = calloc((size_t)count, sizeof *r->plugins);
    bool good = r->plugins != NULL;
    for (int i = 0; i < count; i++) {
        good = good && add_plugin(r, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return good ? mla_ok() : mla_error(MLA_ENOMEM, "no memory for %d plug-ins", count);
}

/* ---- rows ---------------------------------------------------------------------------------------------------------------------------------- */

static mla_status add_row(mutants_run *r, const char *name, const char *what, bool benign, mla_mutant_row **row) {
    mla_mutant_report *report = &r->report;
    *row = &report->rows[report->num_rows++];
    **row = (mla_mutant_row){.name = name, .what = what, .benign = benign};
    (*row)->grades = calloc((size_t)r->selection.cases.count, sizeof(mla_grade));
    return (*row)->grades ? mla_ok() : mla_error(MLA_ENOMEM, "no memory for the grades of %s", name);
}

static mla_status make_tables(mutants_run *r) {
    r->report.kernel = r->selection.subjects[0].spec;
    r->report.cases = &r->selection.cases;
    r->report.rows = calloc((size_t)mla_num_mutants + (size_t)r->num_plugins + 1, sizeof *r->report.rows);
    r->exams = calloc((size_t)r->selection.cases.count, sizeof *r->exams);
    return r->report.rows && r->exams ? mla_ok() : mla_error(MLA_ENOMEM, "no memory for %d plug-ins", r->num_plugins);
}

static mla_status run_itself(mutants_run *r) {
    mla_mutant_row *row;
    TRY(add_row(r, "(itself)", "the kernel as it is", true, &row));
    for (int c = 0; c < r->selection.cases.count; c++) {
        TRY(mla_exam_make(r->selection.subjects, &r->selection.cases.cases[c], r->report.tolerance, &r->exams[c], &row->grades[c]));
        mla_progress_step(&r->progress);
    }
    return mla_ok();
}

/* ---- transforms ------------------------------------------------------------------------------------------------------------------------------ */

/* A mutant that only touches outputs starts from what the kernel wrote. */
static mla_status copy_plain(const mla_exam *exam, mla_trial *trial) {
    const mla_problem *p = &exam->inputs.problem;
    const size_t lse = (size_t)(p->total_q * p->heads) * sizeof(float), out = (size_t)exam->elements * mla_format_bytes(p->out_format);
    *trial = (mla_trial){.output = {malloc(out), malloc(lse)}};
    if (!trial->output.out || !trial->output.lse)
        return mla_error(MLA_ENOMEM, "no memory for %zu bytes of output", out);
    memcpy(trial->output.out, exam->plain.output.out, out);
    memcpy(trial->output.lse, exam->plain.output.lse, lse);
    return mla_ok();
}

/* `ran` is false where the kernel refuses what the mutant gives it: then there is nothing to grade. */
static mla_status run_mutant(const mla_mutant *m, const mla_subject *subject, const mla_exam *exam, mla_trial *trial, bool *ran) {
    const mla_kernel *kernel = subject->handle.kernel;
    mla_inputs inputs = {0};
    *ran = true;
    if (!m->tokens && !m->before)
        return copy_plain(exam, trial);
    mla_status status = mla_mutant_inputs(m, exam->test, &inputs);
    if (status.code == MLA_OK) {
        char reason[200];
        *ran = !kernel->supports || kernel->supports(kernel, &inputs.problem, reason, sizeof reason);
        if (*ran)
            *ran = mla_trial_run(kernel, kernel->space == MLA_SPACE_HOST ? NULL : subject->handle.device, &inputs, trial).code == MLA_OK;
    }
    mla_inputs_free(&inputs);
    return status;
}

static mla_status try_mutant(const mla_mutant *m, const mla_subject *subject, mla_exam *exam, mla_tolerance tolerance, mla_grade *grade) {
    mla_trial trial = {0};
    const mla_contract contract = mla_kernel_contract(subject->handle.kernel, &exam->inputs.problem);
    const mla_truth *truth;
    bool ran = false;
    TRY(mla_exam_truth(exam, &contract, &truth));
    mla_status status = run_mutant(m, subject, exam, &trial, &ran);
    if (status.code == MLA_OK && ran) {
        const mla_specimen specimen = {&exam->inputs.problem, truth};
        if (m->after)
            m->after(m, &specimen, &trial.output);
        status = mla_exam_grade(exam, &contract, &trial, &exam->plain.output, tolerance, grade);
    }
    mla_trial_free(&trial);
    return status;
}

static mla_status run_transforms(mutants_run *r) {
    for (const mla_mutant *m = mla_mutants; m < mla_mutants + mla_num_mutants; m++) {
        mla_mutant_row *row;
        if (!wanted(r, m->name))
            continue;
        TRY(add_row(r, m->name, m->what, m->benign, &row));
        row->cause = m->cause;
        row->scale_error = strncmp(m->name, "scale_", 6) == 0 ? m->amount : 0;
        for (int c = 0; c < r->selection.cases.count; c++)
            if (r->exams[c].able && (!m->applies || m->applies(&r->exams[c].inputs.problem)))
                TRY(try_mutant(m, r->selection.subjects, &r->exams[c], r->report.tolerance, &row->grades[c]));
        mla_progress_step(&r->progress);
    }
    return mla_ok();
}

/* ---- plug-ins ---------------------------------------------------------------------------------------------------------------------------------- */

/* A launch that fails is noticed by everybody. `plain` is what the plug-in writes without its bug. */
static mla_status try_plugin(const mla_subject *subject, mla_exam *exam, const mla_output *plain, mla_tolerance tolerance,
                             mla_grade *grade) {
    const mla_kernel *kernel = subject->handle.kernel;
    if (!mla_exam_able(exam, kernel))
        return mla_ok();
    const mla_contract contract = mla_kernel_contract(kernel, &exam->inputs.problem);
    mla_trial trial;
    mla_grade one = {.status = MLA_GRADE_KILLED, .killers = MLA_BY_ERROR, .out_changed = true, .rivals = ~0u};
    mla_status status = mla_trial_run(kernel, kernel->space == MLA_SPACE_HOST ? NULL : subject->handle.device, &exam->inputs, &trial);
    if (status.code == MLA_OK)
        status = mla_exam_grade(exam, &contract, &trial, plain, tolerance, &one);
    else
        snprintf(one.reason, sizeof one.reason, "%s", status.message);
    mla_grade_join(grade, &one);
    mla_trial_free(&trial);
    return one.killers & MLA_BY_ERROR ? mla_ok() : status;
}

/* Host execution takes the order of its fibers from the environment: a race may show in one order alone. */
static mla_status set_fiber_seed(int seed) {
    char text[16];
    snprintf(text, sizeof text, "%d", seed);
    return setenv("MLA_FIBER_SEED", text, 1) == 0 ? mla_ok() : mla_error(MLA_ENOMEM, "no memory for MLA_FIBER_SEED");
}

/* `base`: what its kernel without the bug wrote [cases]; NULL: the kernel around which mutants are planted is that kernel. */
static mla_status run_plugin_once(mutants_run *r, const mla_subject *subject, const mla_trial *base, mla_mutant_row *row) {
    for (int c = 0; c < r->selection.cases.count; c++) {
        mla_exam *exam = &r->exams[c];
        const mla_output *plain = base && base[c].output.out ? &base[c].output : &exam->plain.output;
        if (exam->able)
            TRY(try_plugin(subject, exam, plain, r->report.tolerance, &row->grades[c]));
    }
    return mla_ok();
}

/* In one order of fibers after the other, until the gate fails one. */
static mla_status run_orders(mutants_run *r, const mla_subject *subject, mla_mutant_row *row) {
    const mla_trial *base;
    TRY(mla_mutant_base(&r->bases, subject->handle.kernel, r->exams, r->selection.cases.count, &base));
    for (int seed = 0; seed < FIBER_SEEDS && mla_mutant_fate_of(&r->report, row, MLA_OUR_GATE).failed == 0; seed++) {
        TRY(set_fiber_seed(seed));
        TRY(run_plugin_once(r, subject, base, row));
    }
    return mla_ok();
}

static mla_status run_plugin(mutants_run *r, const struct plugin *plugin) {
    mla_subject subject = {.spec = plugin->path};
    mla_mutant_row *row;
    TRY(add_row(r, plugin->name, "plug-in", strncmp(plugin->name, "benign_", 7) == 0, &row));
    TRY(mla_kernel_open(plugin->path, &subject.handle));
    const mla_status status = run_orders(r, &subject, row);
    mla_kernel_close(&subject.handle);
    mla_progress_step(&r->progress);
    return status;
}

/* ---- the command ---------------------------------------------------------------------------------------------------------------------------------- */

static mla_status run_all(mutants_run *r) {
    TRY(list_plugins(r));
    TRY(make_tables(r));
    mla_progress_begin(&r->progress, r->selection.cases.count + mla_num_mutants + r->num_plugins, r->selection.quiet);
    TRY(run_itself(r));
    TRY(run_transforms(r));
    for (int i = 0; i < r->num_plugins; i++)
        TRY(run_plugin(r, &r->plugins[i]));
    return mla_ok();
}

static mla_status write_json(const mutants_run *r) {
    char *text = mla_mutant_json(&r->report);
    const mla_status status =
        text ? mla_output_file_write(r->selection.json, text, strlen(text)) : mla_error(MLA_ENOMEM, "no memory for the JSON report");
    free(text);
    return status;
}

static mla_exit report(const mutants_run *r) {
    const mla_mutant_summary s = mla_mutant_summary_of(&r->report, MLA_OUR_GATE);
    mla_mutant_text(mla_selection_text(&r->selection), &r->report, r->selection.quiet);
    if (r->selection.json) {
        const mla_status status = write_json(r);
        if (status.code != MLA_OK)
            return mla_usage_error("%s", status.message);
    }
    if (s.benign == 0)
        return mla_finish_stdout(MLA_EXIT_NOTHING);
    return mla_finish_stdout(mla_mutant_summary_good(&s) ? MLA_EXIT_PASSED : MLA_EXIT_MISMATCH);
}

static mla_exit run(mutants_run *r) {
    const mla_subject *subject = r->selection.subjects;
    if (subject->opened.code != MLA_OK) {
        fprintf(stderr, "mla-verify: %s\n", subject->opened.message);
        return MLA_EXIT_NOTHING;
    }
    const mla_status status = run_all(r);
    mla_progress_clear(&r->progress);
    return status.code == MLA_OK ? report(r) : mla_usage_error("%s", status.message);
}

static void release(mutants_run *r) {
    for (int c = 0; r->exams && c < r->selection.cases.count; c++)
        mla_exam_free(&r->exams[c]);
    mla_mutant_bases_free(&r->bases, r->selection.cases.count);
    for (int i = 0; i < r->report.num_rows; i++)
        free(r->report.rows[i].grades);
    for (int i = 0; i < r->num_plugins; i++) {
        free(r->plugins[i].path);
        free(r->plugins[i].name);
    }
    free(r->exams);
    free(r->report.rows);
    free(r->plugins);
    mla_selection_free(&r->selection);
}

mla_exit mla_command_mutants(int argc, char **argv) {
    mutants_run r = {0};
    mla_exit code = parse(&r, argc, argv);
    if (r.selection.help && code == MLA_EXIT_PASSED) {
        printf("%s\n%s%s", usage, mla_selection_help, exits);
        code = mla_finish_stdout(MLA_EXIT_PASSED);
    } else if (code == MLA_EXIT_PASSED) {
        code = mla_selection_open(&r.selection);
        if (code == MLA_EXIT_PASSED)
            code = run(&r);
    }
    release(&r);
    return code;
}
