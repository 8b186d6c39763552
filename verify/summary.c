#include <math.h>

#include "report.h"

void mla_summary_add(mla_summary *summary, const struct cJSON *result) {
    const char *name = mla_json_text(result, "status");
    const mla_verdict_status status = mla_verdict_parse(name ? name : "");
    summary->passed += status == MLA_PASSED;
    summary->failed += status == MLA_FAILED;
    summary->skipped += status == MLA_SKIPPED;
    summary->error += status == MLA_ERROR || status == MLA_VERDICT_STATUSES;
    summary->crashed += status == MLA_CRASHED;
    summary->timeout += status == MLA_TIMEOUT;
    summary->max_chi = fmax(summary->max_chi, mla_json_number(result, "chi"));
    summary->max_err_over_bound = fmax(summary->max_err_over_bound, mla_json_number(result, "max_err_over_bound"));
    summary->max_ulp = fmax(summary->max_ulp, mla_json_number(result, "max_ulp"));
    summary->max_cond_ulp = fmax(summary->max_cond_ulp, mla_json_number(result, "max_cond_ulp"));
    summary->max_lse_over_bound = fmax(summary->max_lse_over_bound, mla_json_number(result, "lse_err_over_bound"));
}

int64_t mla_summary_bad(const mla_summary *s) {
    return s->failed + s->error + s->crashed + s->timeout;
}

mla_exit mla_summary_exit(const mla_summary *summary) {
    if (mla_summary_bad(summary) > 0)
        return MLA_EXIT_MISMATCH;
    return summary->passed > 0 ? MLA_EXIT_PASSED : MLA_EXIT_NOTHING;
}
