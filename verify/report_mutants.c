#include "report_mutants.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- counting -------------------------------------------------------------------------------------------------------------------------- */

static bool shows(const mla_grade *g, int gate) {
    return gate == MLA_OUR_GATE ? g->status > MLA_GRADE_SAME : g->out_changed;
}

static bool fails(const mla_grade *g, int gate) {
    return gate == MLA_OUR_GATE ? g->status == MLA_GRADE_KILLED : g->rivals >> gate & 1;
}

mla_mutant_fate mla_mutant_fate_of(const mla_mutant_report *report, const mla_mutant_row *row, int gate) {
    mla_mutant_fate fate = {0};
    for (int c = 0; c < report->cases->count; c++) {
        const mla_grade *g = &row->grades[c];
        fate.ran += g->status != MLA_GRADE_NONE;
        if (g->status == MLA_GRADE_NONE || !(row->benign || shows(g, gate)))
            continue;
        fate.runs++;
        fate.failed += fails(g, gate);
        fate.killers |= g->killers;
    }
    return fate;
}

static void count_causes(const mla_mutant_report *report, const mla_mutant_row *row, mla_mutant_summary *s) {
    for (int c = 0; c < report->cases->count; c++) {
        const mla_grade *g = &row->grades[c];
        if (g->status != MLA_GRADE_KILLED)
            continue;
        s->diagnosable += row->cause != MLA_CAUSE_NONE;
        s->diagnosed += row->cause != MLA_CAUSE_NONE && g->cause == row->cause;
        s->misnamed += g->cause != MLA_CAUSE_NONE && g->cause != row->cause;
    }
}

static void count_benign(const mla_mutant_fate *fate, mla_mutant_summary *s) {
    s->benign += fate->runs > 0;
    s->benign_passed += fate->runs > 0 && fate->failed == 0;
    s->benign_runs += fate->runs;
    s->false_alarms += fate->failed;
}

static void count_mutant(const mla_mutant_row *row, const mla_mutant_fate *fate, mla_mutant_summary *s) {
    const double caught = s->smallest_scale_error_caught;
    s->mutants += fate->runs > 0;
    s->not_shown += fate->runs == 0;
    s->killed += fate->failed > 0;
    s->mutant_runs += fate->runs;
    s->killed_runs += fate->failed;
    if (fate->failed > 0 && row->scale_error > 0 && !(caught > 0 && caught < row->scale_error))
        s->smallest_scale_error_caught = row->scale_error;
}

mla_killer_count mla_killer_count_of(const mla_mutant_report *report, int killer) {
    mla_killer_count count = {0};
    for (const mla_mutant_row *row = report->rows; row < report->rows + report->num_rows; row++) {
        const int before = count.runs;
        for (int c = 0; c < report->cases->count && !row->benign; c++) {
            const unsigned killers = row->grades[c].killers;
            count.runs += killers >> killer & 1;
            count.alone += killers == 1u << killer;
        }
        count.mutants += count.runs > before;
    }
    return count;
}

mla_mutant_summary mla_mutant_summary_of(const mla_mutant_report *report, int gate) {
    mla_mutant_summary s = {0};
    for (const mla_mutant_row *row = report->rows; row < report->rows + report->num_rows; row++) {
        const mla_mutant_fate fate = mla_mutant_fate_of(report, row, gate);
        if (row->benign)
            count_benign(&fate, &s);
        else
            count_mutant(row, &fate, &s);
        count_causes(report, row, &s);
    }
    return s;
}

bool mla_mutant_summary_good(const mla_mutant_summary *s) {
    return s->mutants > 0 && s->killed == s->mutants && s->benign > 0 && s->benign_passed == s->benign;
}

/* ---- text ------------------------------------------------------------------------------------------------------------------------------ */

#define FAMILY_WIDTH 5

static bool has_family(const mla_case_list *cases, mla_family family) {
    for (int c = 0; c < cases->count; c++)
        if (cases->cases[c].input == family)
            return true;
    return false;
}

static mla_grade family_grade(const mla_mutant_report *report, const mla_mutant_row *row, mla_family family) {
    mla_grade joined = {.status = MLA_GRADE_NONE};
    for (int c = 0; c < report->cases->count; c++)
        if (report->cases->cases[c].input == family)
            mla_grade_join(&joined, &row->grades[c]);
    return joined;
}

/* One letter a killer. */
static void print_cell(FILE *stream, const mla_grade *g) {
    static const char letters[MLA_KILLERS + 1] = "BXLAUMEW";
    char cell[MLA_KILLERS + 1] = {0};
    const char *word[] = {[MLA_GRADE_NONE] = ".", [MLA_GRADE_SAME] = "=", [MLA_GRADE_PASSED] = "-", [MLA_GRADE_KILLED] = cell};
    size_t used = 0;
    for (int i = 0; i < MLA_KILLERS; i++)
        if (g->killers >> i & 1)
            cell[used++] = letters[i];
    fprintf(stream, "%-*s", FAMILY_WIDTH, word[g->status]);
}

static const char *fate_word(const mla_mutant_row *row, const mla_mutant_fate *fate) {
    if (fate->ran == 0)
        return "not run";
    if (row->benign)
        return fate->failed == 0 ? "passed" : "FALSE ALARM";
    return fate->failed > 0 ? "killed" : fate->runs == 0 ? "not shown" : "SURVIVED";
}

static void print_row(FILE *stream, const mla_mutant_report *report, const mla_mutant_row *row) {
    const mla_mutant_fate fate = mla_mutant_fate_of(report, row, MLA_OUR_GATE);
    fprintf(stream, "%-24s %-12s", row->name, fate_word(row, &fate));
    for (mla_family f = 0; f < MLA_INPUT_COUNT; f++)
        if (has_family(report->cases, f)) {
            const mla_grade g = family_grade(report, row, f);
            print_cell(stream, &g);
        }
    fprintf(stream, "%s\n", row->what);
}

static void print_heading(FILE *stream, const mla_mutant_report *report) {
    fprintf(stream, "%-24s %-12s", "mutant", "");
    for (mla_family f = 0; f < MLA_INPUT_COUNT; f++)
        if (has_family(report->cases, f))
            fprintf(stream, "%-*.4s", FAMILY_WIDTH, mla_family_name(f));
    fputc('\n', stream);
}

static void print_gate(FILE *stream, const char *name, const mla_mutant_summary *s, const char *rule) {
    fprintf(stream, "%-24s %4d of %-4d %6d of %-5d %6d of %-4d  %s\n", name, s->killed, s->mutants, s->killed_runs, s->mutant_runs,
            s->false_alarms, s->benign_runs, rule);
}

static void print_gates(FILE *stream, const mla_mutant_report *report, const mla_mutant_summary *ours) {
    fprintf(stream, "\n%-24s %-12s %-15s %-15s rule\n", "gate", "mutants", "their runs", "false alarms");
    print_gate(stream, "mla-verify", ours, "bound, chi, lse, anomalies, unwritten, memory, bits");
    for (int i = 0; i < mla_num_rivals; i++) {
        const mla_mutant_summary s = mla_mutant_summary_of(report, i);
        print_gate(stream, mla_rivals[i].name, &s, mla_rivals[i].rule);
    }
    if (report->tolerance.given) {
        char rule[80];
        const mla_mutant_summary s = mla_mutant_summary_of(report, mla_num_rivals);
        snprintf(rule, sizeof rule, "rtol %g, atol %g, all elements", report->tolerance.rtol, report->tolerance.atol);
        print_gate(stream, "yours", &s, rule);
    }
    fputs("Rivals see out alone, beside the correctly rounded truth: their mutants are those that change out.\n", stream);
}

static void print_killers(FILE *stream, const mla_mutant_report *report) {
    fprintf(stream, "\n%-24s %-12s %-15s runs that it alone fails\n", "part of mla-verify", "mutants", "their runs");
    for (int i = 0; i < MLA_KILLERS; i++) {
        const mla_killer_count count = mla_killer_count_of(report, i);
        fprintf(stream, "%-24s %4d %14d %17d\n", mla_killer_name(i), count.mutants, count.runs, count.alone);
    }
}

static bool worth_showing(const mla_mutant_report *report, const mla_mutant_row *row) {
    const mla_mutant_fate fate = mla_mutant_fate_of(report, row, MLA_OUR_GATE);
    return row->benign ? fate.failed > 0 : fate.runs > 0 && fate.failed == 0;
}

void mla_mutant_text(FILE *stream, const mla_mutant_report *report, bool quiet) {
    const mla_mutant_summary s = mla_mutant_summary_of(report, MLA_OUR_GATE);
    print_heading(stream, report);
    for (const mla_mutant_row *row = report->rows; row < report->rows + report->num_rows; row++)
        if (!quiet || worth_showing(report, row))
            print_row(stream, report, row);
    fputs("B bound  X chi  L lse  A anomaly  U unwritten  M memory  E error  W bits  - survived  = same bits  . does not apply\n", stream);
    print_gates(stream, report, &s);
    print_killers(stream, report);
    fprintf(stream, "\n%s: %d of %d mutants killed, %d not shown; %d of %d benign variants passed, %d false alarms in %d runs",
            report->kernel, s.killed, s.mutants, s.not_shown, s.benign_passed, s.benign, s.false_alarms, s.benign_runs);
    if (s.smallest_scale_error_caught > 0)
        fprintf(stream, "; smallest scale error caught: %g %%", 100 * s.smallest_scale_error_caught);
    fputc('\n', stream);
    if (s.diagnosable > 0)
        fprintf(stream, "causes: %d of %d killed runs were diagnosed rightly (%.0f %%), %d were given another cause\n", s.diagnosed,
                s.diagnosable, 100.0 * s.diagnosed / s.diagnosable, s.misnamed);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------------------------------ */

static bool add_text(cJSON *o, const char *name, const char *text) {
    return cJSON_AddStringToObject(o, name, text) != NULL;
}

static bool add_number(cJSON *o, const char *name, double value) {
    return cJSON_AddNumberToObject(o, name, value) != NULL;
}

static bool append(cJSON *array, const char *text) {
    cJSON *item = cJSON_CreateString(text);
    if (item && cJSON_AddItemToArray(array, item))
        return true;
    cJSON_Delete(item);
    return false;
}

static cJSON *add_object(cJSON *array) {
    cJSON *o = cJSON_CreateObject();
    if (o && cJSON_AddItemToArray(array, o))
        return o;
    cJSON_Delete(o);
    return NULL;
}

static bool add_killers(cJSON *o, unsigned killers) {
    cJSON *names = cJSON_AddArrayToObject(o, "killed_by");
    bool good = names != NULL;
    for (int i = 0; i < MLA_KILLERS && good; i++)
        good = !(killers >> i & 1) || append(names, mla_killer_name(i));
    return good;
}

static bool add_cell(cJSON *cells, int c, const mla_grade *g) {
    static const char *const words[] = {
        [MLA_GRADE_NONE] = "none", [MLA_GRADE_SAME] = "same", [MLA_GRADE_PASSED] = "passed", [MLA_GRADE_KILLED] = "killed"};
    if (g->status == MLA_GRADE_NONE)
        return true;
    cJSON *o = add_object(cells);
    return o && add_number(o, "case", c) && add_text(o, "status", words[g->status]) && add_killers(o, g->killers) &&
           add_number(o, "cause", g->cause) && add_text(o, "reason", g->reason);
}

/* A rival could see it, and never failed it. */
static bool lets_through(const mla_mutant_report *report, const mla_mutant_row *row, int rival) {
    const mla_mutant_fate fate = mla_mutant_fate_of(report, row, rival);
    return fate.runs > 0 && fate.failed == 0;
}

static bool add_row(cJSON *rows, const mla_mutant_report *report, const mla_mutant_row *row) {
    const mla_mutant_fate fate = mla_mutant_fate_of(report, row, MLA_OUR_GATE);
    cJSON *o = add_object(rows), *passed_by = o ? cJSON_AddArrayToObject(o, "passed_by") : NULL;
    bool good = passed_by && add_text(o, "name", row->name) && add_text(o, "what", row->what) &&
                cJSON_AddBoolToObject(o, "benign", row->benign) && add_text(o, "status", fate_word(row, &fate)) &&
                add_killers(o, fate.killers);
    for (int i = 0; i < mla_num_rivals && good; i++)
        good = !lets_through(report, row, i) || append(passed_by, mla_rivals[i].name);
    cJSON *cells = good ? cJSON_AddArrayToObject(o, "cells") : NULL;
    good = cells != NULL;
    for (int c = 0; c < report->cases->count && good; c++)
        good = add_cell(cells, c, &row->grades[c]);
    return good;
}

static bool add_killer_counts(cJSON *root, const mla_mutant_report *report) {
    cJSON *list = cJSON_AddArrayToObject(root, "killers");
    bool good = list != NULL;
    for (int i = 0; i < MLA_KILLERS && good; i++) {
        const mla_killer_count count = mla_killer_count_of(report, i);
        cJSON *o = add_object(list);
        good = o && add_text(o, "name", mla_killer_name(i)) && add_number(o, "mutants", count.mutants) &&
               add_number(o, "runs", count.runs) && add_number(o, "alone", count.alone);
    }
    return good;
}

static bool add_gate(cJSON *gates, const char *name, const char *rule, const mla_mutant_summary *s) {
    cJSON *o = add_object(gates);
    return o && add_text(o, "name", name) && add_text(o, "rule", rule) && add_number(o, "mutants", s->mutants) &&
           add_number(o, "killed", s->killed) && add_number(o, "mutant_runs", s->mutant_runs) &&
           add_number(o, "killed_runs", s->killed_runs) && add_number(o, "benign_runs", s->benign_runs) &&
           add_number(o, "false_alarms", s->false_alarms);
}

static bool add_gates(cJSON *gates, const mla_mutant_report *report) {
    bool good = true;
    for (int i = 0; i < mla_num_rivals && good; i++) {
        const mla_mutant_summary s = mla_mutant_summary_of(report, i);
        good = add_gate(gates, mla_rivals[i].name, mla_rivals[i].rule, &s);
    }
    if (report->tolerance.given && good) {
        const mla_mutant_summary s = mla_mutant_summary_of(report, mla_num_rivals);
        good = add_gate(gates, "yours", "--tolerance", &s);
    }
    return good;
}

static bool add_summary(cJSON *root, const mla_mutant_summary *s) {
    cJSON *o = cJSON_AddObjectToObject(root, "summary");
    return o && add_number(o, "mutants", s->mutants) && add_number(o, "killed", s->killed) && add_number(o, "not_shown", s->not_shown) &&
           add_number(o, "benign", s->benign) && add_number(o, "benign_passed", s->benign_passed) &&
           add_number(o, "false_alarms", s->false_alarms) && add_number(o, "smallest_scale_error_caught", s->smallest_scale_error_caught) &&
           add_number(o, "diagnosable", s->diagnosable) && add_number(o, "diagnosed", s->diagnosed) &&
           add_number(o, "misnamed", s->misnamed);
}

static bool add_cases(cJSON *cases, const mla_case_list *list) {
    bool good = true;
    for (int c = 0; c < list->count && good; c++) {
        char *line = mla_case_print(&list->cases[c]);
        good = line && append(cases, line);
        free(line);
    }
    return good;
}

char *mla_mutant_json(const mla_mutant_report *report) {
    const mla_mutant_summary s = mla_mutant_summary_of(report, MLA_OUR_GATE);
    cJSON *root = cJSON_CreateObject();
    bool good = root && add_text(root, "kernel", report->kernel) && add_summary(root, &s) && add_killer_counts(root, report);
    cJSON *gates = cJSON_AddArrayToObject(root, "gates"), *cases = cJSON_AddArrayToObject(root, "cases");
    cJSON *rows = cJSON_AddArrayToObject(root, "mutants");
    good = good && gates && cases && rows && add_gate(gates, "mla-verify", "bound, chi, lse, anomalies, unwritten, memory, bits", &s) &&
           add_gates(gates, report) && add_cases(cases, report->cases);
    for (int i = 0; i < report->num_rows && good; i++)
        good = add_row(rows, report, &report->rows[i]);
    char *text = good ? cJSON_Print(root) : NULL;
    cJSON_Delete(root);
    return text;
}
