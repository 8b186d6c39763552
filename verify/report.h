/* Results as text and as JSON. Nothing is measured or judged here. */
#ifndef MLA_REPORT_H
#define MLA_REPORT_H

#include <stdio.h>

#include "command.h"
#include "run.h"

/* Of all results so far. */
typedef struct mla_summary {
    int64_t passed, failed, skipped, error, crashed, timeout;
    double max_err_over_bound, max_ulp, max_cond_ulp, max_lse_over_bound; /* over results with measures */
} mla_summary;

void mla_summary_add(mla_summary *summary, const mla_result *result);
/* Results that are neither passed nor skipped. */
int64_t mla_summary_bad(const mla_summary *summary);

/* ---- text (report_text.c) ------------------------------------------------------------------------------------------------------- */

typedef struct mla_text_style {
    bool colour;
    bool quiet; /* only failures, errors and the summary */
} mla_text_style;

/* Colour when the stream is a terminal that has it and NO_COLOR is not set. */
mla_text_style mla_text_style_for(FILE *stream, bool quiet);
void mla_text_result(FILE *stream, mla_text_style style, const mla_result *result);
void mla_text_summary(FILE *stream, mla_text_style style, const mla_summary *summary);
/* `word` as one word of a POSIX shell: as it is where that is safe, else in single quotes. Allocated; free(). NULL: out of memory. */
char *mla_shell_quote(const char *word);

/* ---- JSON (report_json.c) --------------------------------------------------------------------------------------------------------- */

/*
 * {"summary": {"passed", "failed", "skipped", "error", "crashed", "timeout"}, "cases": [{"case", "kernel", "status", "reason", ...}]}
 * "worst": {"sequence", "q", "head", "column", "fault", "code", "got", "exact", "bound", "abs", "ulp", "err_over_bound"}; sequence -1 is padding, column
 * -1 an lse. Of a case that was not measured, the maxima are null and the details left out.
 * JSON has no NaN and no infinity: they are the strings "NaN", "Infinity" and "-Infinity".
 */
struct cJSON;
/* Free with mla_json_free. NULL: out of memory. */
struct cJSON *mla_json_begin(void);
/* False: out of memory, and the report is as it was. */
bool mla_json_add(struct cJSON *report, const mla_result *result);
/* The document with its summary; call once. Allocated; free(). NULL: out of memory. */
char *mla_json_print(struct cJSON *report, const mla_summary *summary);
void mla_json_free(struct cJSON *report); /* NULL is allowed */

/* ---- both, of a whole command (reports.c) ------------------------------------------------------------------------------------------ */

typedef struct mla_reports {
    FILE *text;
    mla_text_style style;
    mla_summary summary;
    struct cJSON *json;
    const char *json_path; /* NULL: none */
    bool good;             /* nothing went wrong with the reports themselves */
} mla_reports;

void mla_reports_begin(mla_reports *reports, FILE *text, const char *json_path, bool quiet);
/* Prints the result and keeps it. False: out of memory, and there is no point in going on. */
bool mla_reports_add(mla_reports *reports, const mla_result *result);
/* Prints the summary, writes the JSON, frees; returns the command's exit code. Reports an error itself, as MLA_EXIT_USAGE. */
mla_exit mla_reports_end(mla_reports *reports);

#endif
