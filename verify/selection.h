/* What a command works on, as `run` and `bench` read it from the command line: kernels, cases, and where the results go. */
#ifndef MLA_SELECTION_H
#define MLA_SELECTION_H

#include <getopt.h>

#include "command.h"
#include "run.h"
#include "worker.h"

typedef struct mla_selection {
    mla_subject *subjects;
    int num_subjects;
    mla_case_list cases;
    int64_t random; /* 0: none */
    uint64_t seed;
    bool seed_given, quiet, help;
    const char *json;                  /* NULL: none */
    const mla_worker_options *workers; /* NULL: kernels are opened in this process */
    const char *default_case;          /* the case when none is given; NULL: there must be one */
    bool kernels_optional;             /* there need be no --kernel */
} mla_selection;

/* Options that a command has beside those of the selection. `letters` are none of kcfrsjqh. */
typedef struct mla_own_options {
    const struct option *list;
    int count; /* at most MLA_OWN_OPTIONS */
    mla_status (*set)(void *context, int option, const char *value);
    void *context;
} mla_own_options;

#define MLA_OWN_OPTIONS 16

/* The options' lines in a command's help. */
extern const char mla_selection_help[];

/* For a command with a list of options of its own: takes one that a selection has, by its letter. A failed status is a usage error. */
mla_status mla_selection_set(mla_selection *selection, int letter, const char *value) MLA_CHECKED;
/* After the last option: draws the random cases. There must be a case, unless there is a default. */
mla_status mla_selection_draw(mla_selection *selection) MLA_CHECKED;

/* Reads argv into a selection that is zeroed but for `workers`, `default_case` and `kernels_optional`; `own` may be NULL. Reports an error itself, as MLA_EXIT_USAGE; stops at --help. */
mla_exit mla_selection_parse(mla_selection *selection, int argc, char **argv, const mla_own_options *own);
/* A kernel that exists but cannot run here stays closed: its cases are skipped. Reports an error itself, as MLA_EXIT_USAGE. */
mla_exit mla_selection_open(mla_selection *selection);
/* Closes what was opened; a zeroed selection is allowed. */
void mla_selection_free(mla_selection *selection);
/* Where the text goes: standard output, unless the JSON goes there. */
FILE *mla_selection_text(const mla_selection *selection);

/* Digits only, within [low, high]; an error names the option. */
mla_status mla_option_unsigned(const char *option, const char *text, uint64_t low, uint64_t high, uint64_t *value) MLA_CHECKED;

#endif
