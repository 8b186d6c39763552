/* What differs between two outputs of one problem, and which of them is farther from the truth. It measures and does not judge. */
#ifndef MLA_DRIFT_DIFFERENCE_H
#define MLA_DRIFT_DIFFERENCE_H

#include "compare.h"

#define MLA_ULP_STEPS                                                                                                                      \
    12 /* of the histogram: 1, 2, 3-4, 5-8, ... ulp apart; the last holds everything above 1024, and NaN against a number */

typedef struct mla_apart {
    int64_t total, different;
} mla_apart;

typedef struct mla_difference {
    mla_apart out, lse;
    int64_t steps[MLA_ULP_STEPS];
    uint32_t most_ulp;      /* between two finite elements */
    double most_lse;        /* |a - b|, natural log, over finite lse */
    double square[2];       /* sum of squared errors of either, over elements where both are finite */
    int64_t farther[2];     /* elements in which it is farther from the truth than the other */
    mla_apart *sequences;   /* [batch + 1], elements; the last is padding */
    mla_apart *heads;       /* [heads] */
    bool found;             /* the places below are set */
    mla_place first, worst; /* first: the lowest row that differs, and its lowest column */
    uint32_t first_code[2], worst_code[2];
    double first_exact, worst_exact;
} mla_difference;

/* Zeroes, and allocates; free with mla_difference_free. */
mla_status mla_difference_init(mla_difference *difference, const mla_problem *problem) MLA_CHECKED;
void mla_difference_free(mla_difference *difference);
/* Adds the rows of `truth`; slabs come in order. Both outputs hold all rows; where an lse is NULL, none is compared. */
void mla_difference_add(const mla_problem *problem, const mla_truth *truth, const mla_output *a, const mla_output *b,
                        mla_difference *difference);

#endif
