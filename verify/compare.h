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

/*
 * What is wrong with an element, the gravest last; it counts once, under the gravest that fits.
 *   unwritten  every byte still holds the poison, and the truth is not NaN
 *   anomaly    NaN or infinity where the truth is finite, or anything but the truth's own NaN or infinity. Infinity is right where a
 *              finite truth, moved by its bound, rounds to it
 *   outside    finite, and not within the bound
 *   inexact    within the bound, and not the truth rounded once, where only that is right (mla_measure.bitwise)
 */
typedef enum mla_fault { MLA_FAULT_NONE, MLA_FAULT_INEXACT, MLA_FAULT_OUTSIDE, MLA_FAULT_ANOMALY, MLA_FAULT_UNWRITTEN } mla_fault;

/* One element worth showing. */
typedef struct mla_sample {
    bool present;
    mla_fault fault;
    mla_place place;
    uint32_t code;         /* the bits the kernel wrote */
    double got, exact;     /* an lse in natural log */
    double bound, abs;     /* B_c and A_c; abs is 0 for an lse */
    double ulp;            /* ulp error, infinity for a fault that has none; 0 for an lse */
    double err_over_bound; /* |got - exact| / bound; infinity where unwritten, anomalous, or bound == 0 and got != exact */
    int64_t index;         /* row * 512 + column, of an lse the row: of equals the first is kept */
} mla_sample;

typedef struct mla_counts {
    int64_t total, unwritten, anomalies, outside, inexact;
} mla_counts;

/* How large a row's errors are, against what the contract explains. */
typedef struct mla_row_chi {
    int64_t row;     /* query token * heads + head */
    mla_place place; /* column -1 */
    double chi;      /* rms of error / sigma over the row; 0: no such row */
    double limit;    /* mla_chi_settle's; 0 until then */
} mla_row_chi;

#define MLA_CHI_ROW 1.15    /* rows up to here pass; beyond, a row has a limit of its own */
#define MLA_CHI_SUSPECTS 16 /* rows beyond it that are kept, those with the largest chi */

/* Over rows whose outputs are finite. The sums are integers, in steps of 2^-16, each row cut at 2^20: any order of summation gives the same bits. */
typedef struct mla_chi {
    int64_t rows, square_sum;               /* rows that gate; of their chi^2 */
    int64_t doubted_rows, doubted_sum;      /* rows that are only reported, for mla_truth's doubts */
    int64_t doubts;                         /* reasons that any of those had, as bits of mla_chi_doubt */
    mla_row_chi worst, doubted_worst;       /* largest chi; of equals the first row */
    int64_t suspected;                      /* gating rows beyond MLA_CHI_ROW */
    mla_row_chi suspects[MLA_CHI_SUSPECTS]; /* the largest first */
    double limit;                           /* of the rms over gating rows: mla_chi_settle's; 0 until then */
} mla_chi;

#define MLA_ULP_BINS 512 /* 8 equal steps in every octave from 2^-24 up; bin 0 holds everything below, the last everything above */

/* What pictures are drawn from: where errors lie, and how they go with cancellation. Octave i of n from 2^k is [2^(k+i), 2^(k+i+1)); the first holds all
 * below as well, the last all above. */
#define MLA_BANDS 64
#define MLA_BLOCKS 16 /* of 32 columns */
#define MLA_SHARE_OCTAVES 24
#define MLA_SHARE_LOWEST (-24)
#define MLA_ERROR_OCTAVES 40
#define MLA_ERROR_LOWEST (-16)

/* Some keys of a row. Relative to the other keys, their weights reached the output 1 + excess times: 0 as they should, -1 not at all, 1 twice. */
typedef struct mla_kv_part {
    int64_t begin, end;       /* positions */
    double excess, deviation; /* its standard deviation; above MLA_KV_VAGUE the keys weigh too little to tell */
    double allowed;           /* excess that the contract's roundings of P, scores and operands may make */
} mla_kv_part;

#define MLA_KV_BLOCKS 65
#define MLA_KV_TOKENS 256
#define MLA_KV_VAGUE 0.5

/* Error along the KV of one row: kv_profile.h. */
typedef struct mla_kv_profile {
    mla_place place;            /* of the row; column -1 */
    int32_t blocks, tokens;     /* 0 blocks: there is no profile; 0 tokens: the blocks are tokens */
    double explained, expected; /* share of the row's squared error that the parts explain, and that as many explain of mere noise */
    mla_kv_part block[MLA_KV_BLOCKS];
    mla_kv_part token[MLA_KV_TOKENS]; /* of the block whose excess stands out most */
} mla_kv_profile;

typedef struct mla_pictures {
    int64_t rows_per_band;                                 /* a band is that many rows, the last perhaps fewer */
    int32_t bands;                                         /* at most MLA_BANDS */
    double worst[MLA_BANDS][MLA_BLOCKS];                   /* largest |e| / B; infinity where an element is unwritten or an anomaly */
    int64_t density[MLA_ERROR_OCTAVES][MLA_SHARE_OCTAVES]; /* finite elements with A > 0, by ulp error and by |O| / A */
    mla_kv_profile profile;                                /* mla_kv_profile_make's */
} mla_pictures;

typedef struct mla_measure {
    mla_counts out, lse;
    int64_t rows, empty_rows, hull_rows;
    bool lse_absent; /* the output has no lse: none was compared */
    bool bitwise;    /* to be set before comparing: elements of out that do not cancel must be the truth, rounded once (exactness.h) */
    int64_t loose_elements; /* whose bound is at least A: an output of 0 would pass */
    mla_chi chi;
    double max_err_over_bound; /* |e| / B over finite elements; infinity where B == 0 and e != 0 */
    double max_ulp, max_cond_ulp;
    double max_lse_err, max_lse_over_bound; /* natural log, over finite lse */
    mla_sample worst;                       /* first unwritten, else first anomaly, else largest |e| / B */
    mla_sample worst_ulp;                   /* largest ulp error of a finite element */
    mla_sample worst_lse;                   /* as worst */
    int64_t ulp_histogram[MLA_ULP_BINS];    /* finite elements */
    mla_counts *sequences;                  /* [batch + 1], elements of out and lse by sequence; the last is padding */
    int32_t batch;
    mla_pictures *pictures; /* NULL unless asked for */
} mla_measure;

/* Zeroes, and allocates `sequences`; free with mla_measure_free. */
mla_status mla_measure_init(mla_measure *measure, const mla_problem *problem) MLA_CHECKED;
/* Asks for pictures: after mla_measure_init, before any comparison. */
mla_status mla_measure_add_pictures(mla_measure *measure, const mla_problem *problem) MLA_CHECKED;
void mla_measure_free(mla_measure *measure);

/*
 * Adds the rows of `truth` to the measure. `output` (host memory) holds all total_q rows, indexed from row 0. Elements that still hold the poison
 * pattern (every byte MLA_POISON) count as unwritten. output->lse may be NULL: it is then left out. Slabs may come in any order; the result is the same.
 */
void mla_compare(const mla_problem *problem, const mla_truth *truth, const mla_output *output, mla_measure *measure);

/* The rms of error / sigma over gating rows, or over rows that are only reported; 0 where there are none. */
double mla_chi_gating(const mla_chi *chi);
double mla_chi_doubted(const mla_chi *chi);

/* Elements that are wrong for any reason. */
int64_t mla_counts_wrong(const mla_counts *counts);

/* The ulp error below which the share q of the finite elements lies, from the histogram (upper edge of its bin, at most max_ulp). 0 <= q <= 1. */
double mla_measure_ulp_quantile(const mla_measure *measure, double q);

#endif
