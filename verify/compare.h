/*
 * What differs between a kernel's output and the truth. It measures and does not judge (after libxsmm_matdiff). NaN never counts as close.
 */
#ifndef MLA_COMPARE_H
#define MLA_COMPARE_H

#include "../ref/mla.h"

/* Where an element lies. column is -1 for an lse. */
typedef struct mla_place {
    int32_t sequence; /* -1: a padding row */
    int32_t q;        /* query token within its sequence */
    int32_t head;
    int32_t column;
} mla_place;

/* One element worth showing. */
typedef struct mla_sample {
    bool present;
    mla_place place;
    uint32_t code;                 /* what the kernel wrote */
    double got, exact, bound, abs; /* abs = A_c */
} mla_sample;

/* Why an element is wrong. An element counts once, under the first that fits. */
typedef struct mla_counts {
    int64_t total, unwritten, anomalies, outside;
} mla_counts;

#define MLA_ULP_BINS 512 /* logarithmic: 8 bins an octave from 2^-24; bin 0 holds everything below */

typedef struct mla_measure {
    mla_counts out, lse;
    int64_t rows, empty_rows, hull_rows;
    double max_err_over_bound; /* |e| / B over finite elements with B > 0; infinity where B == 0 and e != 0 */
    double max_ulp, max_cond_ulp;
    double max_lse_err, max_lse_over_bound; /* natural log */
    mla_sample worst;                       /* first unwritten, else first anomaly, else largest |e| / B */
    mla_sample worst_ulp;                   /* largest ulp */
    mla_sample worst_lse;
    int64_t ulp_histogram[MLA_ULP_BINS];
    mla_counts *sequences; /* [batch + 1], elements of out and lse by sequence; the last is padding */
    int32_t batch;
} mla_measure;

/* Zeroes; free with mla_measure_free. */
mla_status mla_measure_init(mla_measure *measure, const mla_problem *problem) MLA_CHECKED;
void mla_measure_free(mla_measure *measure);

/*
 * Adds the rows of `truth` to the measure. `output` (host memory) holds all total_q rows, indexed from row 0. Elements that still hold the poison
 * pattern (every byte MLA_POISON) count as unwritten. Slabs may come in any order; the result is the same.
 */
void mla_compare(const mla_problem *problem, const mla_truth *truth, const mla_output *output, mla_measure *measure);

/* The ulp error below which the share q of the finite elements lies, from the histogram (upper edge of its bin). */
double mla_measure_ulp_quantile(const mla_measure *measure, double q);

#endif
