/* From measures to a verdict: no tolerance is chosen here, the bound in the measure is the contract's own. */
#include "judge.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "chi.h"

const char *mla_verdict_name(mla_verdict_status status) {
    static const char *const names[] = {[MLA_PASSED] = "PASSED", [MLA_FAILED] = "FAILED",   [MLA_SKIPPED] = "SKIPPED",
                                        [MLA_ERROR] = "ERROR",   [MLA_CRASHED] = "CRASHED", [MLA_TIMEOUT] = "TIMEOUT"};
    return names[status];
}

bool mla_verdict_is_bad(mla_verdict_status status) {
    return status != MLA_PASSED && status != MLA_SKIPPED;
}

mla_verdict_status mla_verdict_parse(const char *name) {
    mla_verdict_status status = MLA_PASSED;
    while (status < MLA_VERDICT_STATUSES && strcmp(mla_verdict_name(status), name) != 0)
        status++;
    return status;
}

mla_verdict mla_verdict_make(mla_verdict_status status, const char *reason) {
    mla_verdict verdict = {.status = status};
    snprintf(verdict.reason, sizeof verdict.reason, "%s", reason);
    for (char *c = verdict.reason; *c; c++)
        if (iscntrl((unsigned char)*c))
            *c = ' ';
    return verdict;
}

/* One more finding: the verdict becomes FAILED and its reason longer. */
static void find(mla_verdict *verdict, const char *format, ...) MLA_PRINTF(2, 3);
static void find(mla_verdict *verdict, const char *format, ...) {
    verdict->status = MLA_FAILED;
    size_t used = strlen(verdict->reason);
    if (used > 0)
        used += (size_t)snprintf(verdict->reason + used, sizeof verdict->reason - used, "; ");
    if (used >= sizeof verdict->reason)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(verdict->reason + used, sizeof verdict->reason - used, format, arguments);
    va_end(arguments);
}

static void judge_integrity(const mla_integrity *integrity, mla_verdict *verdict) {
    if (*integrity->guard_touched)
        find(verdict, "wrote outside %s: byte %" PRId64 " of a buffer of %" PRId64, integrity->guard_touched, integrity->guard_offset,
             integrity->guard_size);
    if (*integrity->input_changed)
        find(verdict, "changed its input %s at byte %" PRId64, integrity->input_changed, integrity->input_offset);
}

static void judge_counts(const mla_counts *counts, const char *noun, mla_verdict *verdict) {
    if (counts->unwritten)
        find(verdict, "%" PRId64 " of %" PRId64 " %s never written", counts->unwritten, counts->total, noun);
    if (counts->anomalies)
        find(verdict, "%" PRId64 " of %" PRId64 " %s NaN or infinite against the truth", counts->anomalies, counts->total, noun);
    if (counts->outside)
        find(verdict, "%" PRId64 " of %" PRId64 " %s outside the bound", counts->outside, counts->total, noun);
    if (counts->inexact)
        find(verdict, "%" PRId64 " of %" PRId64 " %s not the exact result, which these inputs have in any order of summation",
             counts->inexact, counts->total, noun);
}

/* The suspect that exceeds its limit by the largest factor, or NULL. */
static const mla_row_chi *worst_suspect(const mla_chi *chi) {
    const mla_row_chi *worst = NULL;
    for (const mla_row_chi *row = chi->suspects; row < chi->suspects + MLA_CHI_SUSPECTS && row->chi > 0; row++)
        if (!(row->chi <= fmax(row->limit, MLA_CHI_ROW)) && (!worst || row->chi * worst->limit > worst->chi * row->limit))
            worst = row;
    return worst;
}

/* Every element may be within its bound, and their errors still be too large on the whole. Limits that were not settled are those that always pass. */
static void judge_chi(const mla_chi *chi, mla_verdict *verdict) {
    const char *cause = "an undeclared rounding, or a biased one";
    const mla_row_chi *row = worst_suspect(chi);
    const double whole = mla_chi_gating(chi), limit = fmax(chi->limit, MLA_CHI_CASE);
    if (!(whole <= limit))
        find(verdict, "errors are %.2f times the size this contract explains, limit %.2f: %s", whole, limit, cause);
    else if (row)
        find(verdict, "errors of seq %d q %d head %d are %.2f times the size this contract explains, limit %.2f: %s", row->place.sequence,
             row->place.q, row->place.head, row->chi, fmax(row->limit, MLA_CHI_ROW), cause);
}

mla_verdict mla_judge(const mla_measure *measure, const mla_integrity *integrity) {
    mla_verdict verdict = {.status = MLA_PASSED};
    judge_integrity(integrity, &verdict);
    judge_counts(&measure->out, "elements", &verdict);
    judge_counts(&measure->lse, "lse", &verdict);
    if (measure->out.unwritten == 0 && measure->out.anomalies == 0 && measure->out.outside == 0 && measure->out.inexact == 0)
        judge_chi(&measure->chi, &verdict);
    if (verdict.status == MLA_PASSED && (measure->out.total == 0 || (measure->lse.total == 0 && !measure->lse_absent)))
        return mla_verdict_make(MLA_ERROR, "nothing was compared");
    return verdict;
}
