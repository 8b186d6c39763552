/* Mutants by input family, what killed them, and what rival gates made of them: counted, as text and as JSON. */
#ifndef MLA_REPORT_MUTANTS_H
#define MLA_REPORT_MUTANTS_H

#include <stdio.h>

#include "exam.h"

/* The kernel itself, a transform around it, or a plug-in. */
typedef struct mla_mutant_row {
    const char *name, *what;
    bool benign;        /* must pass; the kernel itself is */
    mla_cause cause;    /* that a diagnosis should name; NONE: none */
    double scale_error; /* of a mutant that is a wrong sm_scale, else 0 */
    mla_grade *grades;  /* [cases] */
} mla_mutant_row;

typedef struct mla_mutant_report {
    const char *kernel;
    const mla_case_list *cases;
    mla_mutant_row *rows;
    int num_rows;
    mla_tolerance tolerance;
} mla_mutant_report;

/* A row over all its cases, before one gate. */
typedef struct mla_mutant_fate {
    int ran;          /* cases it ran in */
    int runs, failed; /* of these a mutant's that show, or all of a benign row's; and those that the gate failed */
    unsigned killers; /* of our gate */
} mla_mutant_fate;

enum { MLA_OUR_GATE = -1 };

/* `gate` is MLA_OUR_GATE, or a bit of mla_grade.rivals: these see out alone, so that only mutants that change out show. */
mla_mutant_fate mla_mutant_fate_of(const mla_mutant_report *report, const mla_mutant_row *row, int gate);

typedef struct mla_mutant_summary {
    int mutants, killed;                /* mutants that showed in some case */
    int mutant_runs, killed_runs;       /* by case */
    int not_shown;                      /* mutants that changed nothing anywhere */
    int benign, benign_passed;          /* benign rows */
    int benign_runs, false_alarms;      /* by case */
    int diagnosable, diagnosed;         /* killed runs of mutants with a cause, and those whose cause was named */
    int misnamed;                       /* killed runs that were given another cause */
    double smallest_scale_error_caught; /* 0: none */
} mla_mutant_summary;

/* What one part of our gate notices, over mutants. */
typedef struct mla_killer_count {
    int mutants, runs, alone; /* alone: runs that nothing else failed */
} mla_killer_count;

mla_killer_count mla_killer_count_of(const mla_mutant_report *report, int killer); /* a bit of mla_killer */

mla_mutant_summary mla_mutant_summary_of(const mla_mutant_report *report, int gate);
/* All mutants that showed were killed, at least one did, and all benign rows passed. */
bool mla_mutant_summary_good(const mla_mutant_summary *summary);

/* quiet: only mutants that survived, benign rows that did not pass, and the summary. */
void mla_mutant_text(FILE *stream, const mla_mutant_report *report, bool quiet);
/*
 * {"kernel", "summary": {"mutants", "killed", "not_shown", "benign", "benign_passed", "false_alarms", "smallest_scale_error_caught",
 *              "diagnosable", "diagnosed", "misnamed"},
 *  "killers": [{"name", "mutants", "runs", "alone"}],
 *  "gates": [{"name", "rule", "mutants", "killed", "mutant_runs", "killed_runs", "benign_runs", "false_alarms"}], "cases": [line],
 *  "mutants": [{"name", "what", "benign", "status", "killed_by": [name], "passed_by": [rival], "cells": [{"case", "status", "killed_by", "reason"}]}]}
 * "case" is an index. Allocated; free(). NULL: out of memory.
 */
char *mla_mutant_json(const mla_mutant_report *report);

#endif
