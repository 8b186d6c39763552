#include "post_mortem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"
#include "report.h"
#include "shrink.h"

#define TRIALS 100
#define SECONDS 120

typedef struct suspect {
    mla_subject subject;
    mla_verdict_status status; /* of the whole case */
    mla_progress *progress;
} suspect;

static bool still_fails(void *context, const mla_case *test) {
    const suspect *s = context;
    mla_result result;
    mla_run_case(&s->subject, test, s->progress, &result);
    const bool same = result.verdict.status == s->status;
    mla_result_free(&result);
    return same;
}

/*
 * A hang is not repeated: every trial would take the whole time limit. Neither is an error in this process: a device that has faulted fails whatever
 * comes after.
 */
static bool is_repeatable(const mla_subject *subject, mla_verdict_status status) {
    return status == MLA_FAILED || (subject->worker && (status == MLA_CRASHED || status == MLA_ERROR));
}

static void shrink(const mla_subject *subject, mla_progress *progress, mla_result *result) {
    suspect s = {.subject = *subject, .status = result->verdict.status, .progress = progress};
    s.subject.outputs = NULL;
    s.subject.pictures = false;
    if (is_repeatable(subject, s.status))
        result->smallest = mla_shrink(result->test, (mla_shrink_limits){TRIALS, SECONDS}, still_fails, &s);
}

/* Takes the name. */
static char *path_in(const char *folder, char *name) {
    char *path = NULL;
    if (name && asprintf(&path, "%s/%s", folder, name) < 0)
        path = NULL;
    free(name);
    return path;
}

/* A kernel that crashed has left no outputs. */
static char *print_kept(const char *golden, const char *outputs) {
    char *first = mla_shell_quote(golden), *second = outputs ? mla_shell_quote(outputs) : NULL, *kept = NULL;
    const int length = !first ? -1 : second ? asprintf(&kept, "mla-verify check %s %s", first, second) : asprintf(&kept, "%s", first);
    free(first);
    free(second);
    return length < 0 ? NULL : kept;
}

static void keep(const char *folder, mla_progress *progress, mla_result *result) {
    const bool with_outputs = result->verdict.status == MLA_FAILED;
    char *golden = path_in(folder, mla_golden_name(result->case_line));
    char *outputs = with_outputs ? path_in(folder, mla_golden_result_name(result->case_line, result->kernel)) : NULL;
    int64_t doubtful = 0;
    const mla_status status =
        golden ? mla_golden_write(golden, result->test, progress, &doubtful) : mla_error(MLA_ENOMEM, "no memory for a file name");
    const size_t used = strlen(result->verdict.reason);
    if (status.code == MLA_OK)
        result->kept = print_kept(golden, outputs);
    else
        snprintf(result->verdict.reason + used, sizeof result->verdict.reason - used, "; not kept: %s", status.message);
    free(golden);
    free(outputs);
}

void mla_post_mortem_run(const mla_post_mortem *what, const mla_subject *subject, mla_progress *progress, mla_result *result) {
    if (!mla_verdict_is_bad(result->verdict.status) || !result->case_line)
        return;
    if (what->folder)
        keep(what->folder, progress, result);
    if (what->shrink)
        shrink(subject, progress, result);
}
