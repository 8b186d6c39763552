/*
 * How far a kernel with a given contract may stray from the truth: the worst case over every order of summation. Internal to ref/.
 *
 * Notation, for one query row: z_j = s <q, k_j>; x_j = z_j or its soft-cap; m = max x_j; M = max(m, sink); w_j = exp(x_j - M); l = sum w_j;
 * L = l + exp(sink - M); p_j = w_j / L; p^_j = w_j / l; A_c = sum p_j |v_jc|; a_j = |s| sum_d |q_d k_jd|. N keys are visible.
 */
#ifndef MLA_BOUND_H
#define MLA_BOUND_H

#include "arithmetic.h"

/* What contract, formats and N decide alone: one for all rows with N visible keys. Relative errors, unless said otherwise. */
typedef struct mla_bound_model {
    const mla_arithmetic *math;
    double keys;                                           /* N */
    double dot_error;                                      /* of <q, k>, in units of a_j */
    double z_error, x_error, spread_error, constant_error; /* of a score, absolute: in units of |z_j|, |x_j|, M - x_j, and 1 */
    double p_error;                                        /* of a rounded weight */
    double p_floor;                                        /* absolute error of a rounded weight, relative to exp(x - m) = 1 */
    double hull_p_error;                                   /* p_error, or 1 where p has so few exponents that weights may vanish */
    double value_error;                                    /* of sum p v, by accumulation, partials and dequantisation together */
    double rowsum_error;                                   /* of l by accumulation */
    bool rowsum_of_rounded_p;
    double underflow, underflow_step; /* absolute errors of out by underflow: in units of 1, and of N / L */
    bool combine_lse;
    double exp_error, log_error; /* in units of 2^-24 */
    double out_error, out_floor; /* of out's rounding; absolute, from its subnormals */
} mla_bound_model;

/* The softmax of one row, in fp64. */
typedef struct mla_softmax {
    double max;    /* m, sink excluded */
    double sum;    /* sum of exp(x_j - m) */
    double top;    /* M */
    double total;  /* L */
    double share;  /* sum of p_j: 1 without a sink */
    double sink;   /* the sink's logit; -inf: off */
    double p_sink; /* exp(sink - M) / L */
    double lse;    /* m + ln(sum), sink excluded */
} mla_softmax;

/* Sums over the visible keys of one row, weighted by p^. */
typedef struct mla_key_sums {
    double theta; /* p^ theta */
    double high;  /* p^ (exp(theta) - 1) */
    double low;   /* p^ (1 - exp(-theta)) */
    double p;     /* p^ r: error of the rounded weights */
} mla_key_sums;

/* The row's columns of V over its visible keys. */
typedef struct mla_value_range {
    double min, max, abs_sum;
} mla_value_range;

/* 0 for MLA_NONE. */
double mla_bound_smallest_normal(mla_format format);

mla_bound_model mla_bound_model_make(const mla_arithmetic *math, const mla_problem *problem, const mla_contract *contract, int64_t keys);

/*
 * Arrays are [N]: z scores before soft-cap, x after it; `weights` exp(x_j - m) on entry and p_j on return, `dots` a_j on entry and on return the weight of |v_j| in the
 * numerator's error, p_j [(1 + h_j)(1 + r_j) f - 1].
 */
mla_key_sums mla_bound_keys(const mla_bound_model *model, const mla_softmax *softmax, const double *z, const double *x, double *weights,
                            double *dots);

/* What one row's bounds share. */
typedef struct mla_bound_row {
    double sum_error; /* of L, relative */
    double sum_low;   /* least computed L / L */
    double lse_error; /* of the lse that weighs partials, when combine_lse */
    double lse_bound; /* of the lse handed out, natural log */
    bool hull;        /* errors of the scores are so large that the hull of V caps the bound */
} mla_bound_row;

mla_bound_row mla_bound_row_make(const mla_bound_model *model, const mla_softmax *softmax, const mla_key_sums *sums);

/* B_c: `out` is O_c, `numerator` the sum of the weights of |v_jc| from mla_bound_keys. */
double mla_bound_element(const mla_bound_model *model, const mla_softmax *softmax, const mla_bound_row *row, double out, double numerator,
                         mla_value_range value);

#endif
