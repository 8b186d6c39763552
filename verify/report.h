/* Results as text and as JSON. Nothing is measured or judged here. */
#ifndef MLA_REPORT_H
#define MLA_REPORT_H

#include <stdio.h>

#include "command.h"
#include "journal.h"
#include "run.h"

struct cJSON;

/* Of all results so far. */
typedef struct mla_summary {
    int64_t passed, failed, skipped, error, crashed, timeout;
    double max_chi;                                                       /* of cases, rows that gate */
    double max_err_over_bound, max_ulp, max_cond_ulp, max_lse_over_bound; /* over results with measures */
} mla_summary;

/* A result as mla_json_result has it: this run's, or one that was read. */
void mla_summary_add(mla_summary *summary, const struct cJSON *result);
/* Results that are neither passed nor skipped. */
int64_t mla_summary_bad(const mla_summary *summary);
mla_exit mla_summary_exit(const mla_summary *summary);

/* ---- text (report_text.c) ------------------------------------------------------------------------------------------------------- */

typedef struct mla_text_style {
    bool colour;
    bool quiet; /* only failures, errors and the summary */
} mla_text_style;

/* Colour when the stream is a terminal that has it and NO_COLOR is not set. */
mla_text_style mla_text_style_for(FILE *stream, bool quiet);
void mla_text_result(FILE *stream, mla_text_style style, const mla_result *result);
void mla_text_summary(FILE *stream, mla_text_style style, const mla_summary *summary);
/* What repeats a result in a shell. `golden` is of `check`, otherwise NULL; `contract` the line of --contract, or NULL. Allocated; free(). NULL: out of memory. */
char *mla_repeat_command(const char *kernel, const char *case_line, const char *golden, const char *contract);
/* `word` as one word of a POSIX shell: as it is where that is safe, else in single quotes. Allocated; free(). NULL: out of memory. */
char *mla_shell_quote(const char *word);

/* ---- JSON (report_json.c) --------------------------------------------------------------------------------------------------------- */

/*
 * {"summary": {"passed", "failed", "skipped", "error", "crashed", "timeout"}, "run": {...}, "cases": [{"index", "case", "kernel", "status", "reason", ...}]}
 * "run" is left out where there is no list of cases; ledger.h says what is in it. "index" is the case's in that list, "seconds" the time it took, and
 * "smallest" the smallest case like it that was seen to fail; "text", where it neither passed nor was skipped, the text report.
 * "worst": {"sequence", "q", "head", "column", "fault", "code", "got", "exact", "bound", "abs", "ulp", "err_over_bound"}; sequence -1 is padding, column
 * -1 an lse. Of a case that was not measured, the maxima are null and the details left out. "chi" is null where no row gates by it.
 * JSON has no NaN and no infinity: they are the strings "NaN", "Infinity" and "-Infinity".
 */
/* Free with mla_json_free. NULL: out of memory. */
struct cJSON *mla_json_begin(void);
/* Takes the description of a run, also when it fails. False: out of memory. */
bool mla_json_describe(struct cJSON *report, struct cJSON *run);
/* An element of "cases". cJSON_Delete; NULL: out of memory. */
struct cJSON *mla_json_result(const mla_result *result);
/* What it says under `name`. NaN and NULL where it says nothing. */
double mla_json_number(const struct cJSON *result, const char *name);
const char *mla_json_text(const struct cJSON *result, const char *name);
/* Takes a result, also when it fails. False: out of memory. */
bool mla_json_add(struct cJSON *report, struct cJSON *result);
/* The document with its summary; call once. Allocated; free(). NULL: out of memory. */
char *mla_json_print(struct cJSON *report, const mla_summary *summary);
void mla_json_free(struct cJSON *report); /* NULL is allowed */

/* ---- JUnit XML (report_junit.c) --------------------------------------------------------------------------------------------------- */

/* Of a JSON report: a suite a kernel, a test case a case; FAILED is a failure with the text report, CRASHED, TIMEOUT and ERROR are errors. free(); NULL: out of memory. */
char *mla_junit_print(const struct cJSON *report);

/* ---- HTML (report_html.c) ----------------------------------------------------------------------------------------------------------- */

/* Pictures of results, for the page. Those of the first results alone: of some hundred that passed, and twice as many that did not. */
typedef struct mla_html_album {
    char **pictures; /* [count] by place in the report's "cases"; NULL: none */
    int32_t count, good, bad;
} mla_html_album;

/* The result will be at that place in "cases". False: out of memory. */
bool mla_html_album_add(mla_html_album *album, int32_t place, const mla_result *result);
void mla_html_album_free(mla_html_album *album);

/* Of a JSON report: one page that needs no other file and no network. free(); NULL: out of memory. */
char *mla_html_print(const struct cJSON *report, const mla_summary *summary, const mla_html_album *album);

/* ---- all, of a whole command (reports.c) ------------------------------------------------------------------------------------------ */

typedef struct mla_reports {
    FILE *text;
    mla_text_style style;
    mla_summary summary;
    struct cJSON *json;
    const char *json_path, *junit_path, *html_path; /* NULL: none */
    mla_html_album album;
    mla_journal *journal; /* NULL: none */
    mla_status status;    /* of the reports themselves */
} mla_reports;

void mla_reports_begin(mla_reports *reports, FILE *text, const char *json_path, bool quiet);
/* Takes a description of the run, for the JSON. False: as below. */
bool mla_reports_describe(mla_reports *reports, struct cJSON *run);
/* Prints the result, notes it in the journal and keeps it. False: the reports failed, and there is no point in going on. */
bool mla_reports_add(mla_reports *reports, const mla_result *result);
/* Takes a result of an earlier run, prints it where it neither passed nor was skipped, and keeps it. */
bool mla_reports_add_finished(mla_reports *reports, struct cJSON *result);
/* Prints the summary, writes the JSON, frees; returns the command's exit code. Reports an error, its own or an earlier one, as MLA_EXIT_USAGE. */
mla_exit mla_reports_end(mla_reports *reports);

#endif
