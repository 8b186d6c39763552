/*
 * One block of the oracle: a query token and some of its heads, so all its rows see the same keys, and a key that none of them sees is never read.
 * Scores of a block are kept as doubles: a first pass over the keys makes them, the softmax turns them into weights in place, a second pass sums the
 * values. What it leaves in the scratch is there for whoever derives a row further. Internal to ref/.
 */
#ifndef MLA_ORACLE_BLOCK_H
#define MLA_ORACLE_BLOCK_H

#include "bound.h"
#include "repeats.h"
#include "sigma.h"

enum {
    MLA_ORACLE_TILE = 128, /* keys dequantised at a time */
    MLA_ORACLE_HEADS = 32  /* of a block, at most */
};

/* Sums over keys of a weight times an operand; those of one operand stand together. */
typedef enum mla_oracle_sum {
    MLA_SUM_OUT,          /* p v */
    MLA_SUM_SQUARE_VALUE, /* p^2 v */
    MLA_SUM_NOISE_VALUE,  /* noise v */
    MLA_SUM_ABS,          /* p |v| */
    MLA_SUM_NUMERATOR,    /* of the bound, |v| */
    MLA_SUM_TINY,         /* of tiny weights, |v| */
    MLA_SUM_SQUARE,       /* p^2 v^2 */
    MLA_SUM_ALIKE,        /* of the bound, v^2 */
    MLA_SUM_NOISE_SQUARE, /* noise v^2 */
    MLA_SUM_SPREAD,       /* p v^2 */
    MLA_SUMS
} mla_oracle_sum;

/* What is known of one row beside its keys. */
typedef struct mla_oracle_row {
    mla_softmax softmax;
    mla_sum_errors errors;
    mla_bound_row bound;
    mla_sigma_row sigma;
} mla_oracle_row;

/* Largest of any block. */
typedef struct mla_oracle_sizes {
    int64_t positions;
    int64_t scores; /* heads * positions of a block */
} mla_oracle_sizes;

/* One thread's. Arrays [heads, keys] have the block's keys as stride. */
typedef struct mla_oracle_scratch {
    double *memory;                 /* owns all below */
    double *q, *q_abs;              /* [heads, 576] */
    double *kv, *kv_abs;            /* [MLA_ORACLE_TILE, 576] */
    double *weights;                /* [heads, keys]: z, later p */
    double *dots;                   /* [heads, keys]: a, later the weights of the numerator */
    double *alike_weights;          /* [heads, keys] */
    double *noise;                  /* [heads, keys]: b^2, later p^2 times the variance of x */
    double *x, *exps;               /* [keys], one row's */
    double *lengths;                /* [keys], |k|^2 */
    double *stack;                  /* [MLA_SUMS, heads, MLA_ORACLE_TILE]: weights of a tile */
    double *sums;                   /* [MLA_SUMS, heads, 512] */
    double *top_value, *top_square; /* [heads, 512]: v and v^2 of keys whose weight is not rounded */
    double *min, *max, *abs_sum;    /* [512]: of v, and of |v| */
    int64_t *slots;                 /* [keys] */
    mla_repeat_bin *bins;           /* mla_repeat_bins(keys) */
    int32_t *equal, *alike;         /* [keys], one row's */
    mla_oracle_row *rows;           /* [heads] */
} mla_oracle_scratch;

/* A query token and the heads [head, head + heads) of it, and where they go. */
typedef struct mla_oracle_block {
    const mla_arithmetic *math;
    const mla_problem *problem;
    const mla_contract *contract;
    mla_truth *truth;
    int64_t token, first_row; /* the row in truth */
    int32_t head, heads;
    int64_t keys;
    mla_bound_model bound;
    mla_sigma_model sigma;
    int32_t made;            /* sums that this block needs */
    int32_t place[MLA_SUMS]; /* of a sum among those made, in order; -1: not made */
} mla_oracle_block;

/* Positions that the token's rows may see. */
int64_t mla_oracle_positions(const mla_problem *problem, int64_t token);
/* Heads that a block of so many positions takes, by the memory of its scores. */
int32_t mla_oracle_block_heads(const mla_problem *problem, int64_t positions);

/* False: out of memory. Free scratch->memory. */
bool mla_oracle_scratch_make(mla_oracle_scratch *scratch, const mla_oracle_sizes *sizes);
/* Fills the block's rows of its truth, whose out and bounds are 0. The caller sets math, problem, contract, truth, token, first_row, head and heads. */
void mla_oracle_block_run(mla_oracle_block *block, mla_oracle_scratch *scratch);
/* After a run with keys > 0: the variance of column c of row h. */
mla_variance mla_oracle_block_variance(const mla_oracle_block *block, const mla_oracle_scratch *scratch, int32_t h, size_t c);

/* All arrays zeroed. Free with mla_truth_free. */
mla_status mla_truth_make(int64_t first_token, int64_t tokens, int64_t rows, mla_truth *truth) MLA_CHECKED;

#endif
