/* The page of drift sweep. Nothing is measured here. */
#ifndef MLA_REPORT_SWEEP_H
#define MLA_REPORT_SWEEP_H

struct cJSON;

/*
 * Of the JSON of drift sweep, [{"kernel", "case", "over", "points": [{"value", "rms_error", "rms_sigma", "chi", "max_err_over_bound", "max_cond_ulp",
 * "max_lse_error"}], "error_law": {"slope", "standard_error", "at_one"}, "sigma_law", "chi_law"}]: one page that needs no other file, with each sweep's
 * errors and laws drawn. Allocated; free(). NULL: out of memory.
 */
char *mla_sweep_html(const struct cJSON *sweeps);

#endif
