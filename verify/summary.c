#include <math.h>

#include "report.h"

void mla_summary_add(mla_summary *summary, const mla_result *result) {
    summary->passed += result->verdict.status == MLA_PASSED;
    summary->failed += result->verdict.status == MLA_FAILED;
    summary->skipped += result->verdict.status == MLA_SKIPPED;
    summary->error += result->verdict.status == MLA_ERROR;
    summary->crashed += result->verdict.status == MLA_CRASHED;
    summary->timeout += result->verdict.status == MLA_TIMEOUT;
    if (!result->measured)
        return;
    summary->max_err_over_bound = fmax(summary->max_err_over_bound, result->measure.max_err_over_bound);
    summary->max_ulp = fmax(summary->max_ulp, result->measure.max_ulp);
    summary->max_cond_ulp = fmax(summary->max_cond_ulp, result->measure.max_cond_ulp);
    summary->max_lse_over_bound = fmax(summary->max_lse_over_bound, result->measure.max_lse_over_bound);
}

int64_t mla_summary_bad(const mla_summary *s) {
    return s->failed + s->error + s->crashed + s->timeout;
}
