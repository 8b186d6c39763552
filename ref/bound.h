/*
 * How far a kernel with a given contract may stray from the truth. Internal to ref/.
 *
 * Notation, for one query row: z_j = s <q, k_j>; x_j = z_j or its soft-cap; m = max x_j; M = max(m, sink); w_j = exp(x_j - M); l = sum w_j;
 * L = l + exp(sink - M); p_j = w_j / L; p^_j = w_j / l; A_c = sum p_j |v_jc|; a_j = |s| sum_d |q_d k_jd|. N keys are visible.
 *
 * Term by term the smaller of two bounds. The deterministic one is the worst case over every order of summation. The probabilistic one treats
 * roundings to nearest as independent and unbiased: n of them stay within lambda sqrt(n) instead of n, lambda = 7, but for a chance of
 * 2 exp(-lambda^2 / 2) = 5e-11 (Higham and Mary, A new approach to probabilistic rounding error analysis, 2019). Roundings toward zero are biased:
 * they keep the deterministic count. Equal numbers are rounded alike: k equal errors count as one of k times the size.
 */
#ifndef MLA_BOUND_H
#define MLA_BOUND_H

#include "arithmetic.h"

/* Scores closer than this are equal, where sums of their weights are rounded. */
#define MLA_EQUAL_SCORES 0x1p-18
/* Scores closer than this part of P's unit roundoff have weights that are rounded alike. */
#define MLA_ALIKE_SCORES 0.125

/* What contract, formats and N decide alone: one for all rows with N visible keys. Relative errors, unless said otherwise. */
typedef struct mla_bound_model {
    const mla_arithmetic *math;
    double keys;                                           /* N */
    double dot_error;                                      /* of <q, k>, in units of a_j */
    double z_error, x_error, spread_error, constant_error; /* of a score, absolute: in units of |z_j|, |x_j|, M - x_j, and 1 */
    double p_error;                                        /* of a rounded weight; 0 for fp32 */
    bool p_random;                                         /* that rounding is to nearest */
    double p_floor;                                        /* absolute error of a rounded weight, relative to exp(x - m) = 1 */
    double hull_p_error;                                   /* p_error, or 1 where p has so few exponents that weights may vanish */
    double sum_count, sum_step;                            /* roundings of sum p v, and the size of one */
    bool sum_random;                                       /* they are to nearest */
    double value_error;                                    /* of p v by partials and dequantisation */
    double rowsum_count;                                   /* roundings of l, in fp32 */
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

/* Relative errors of one row's sums over its keys. */
typedef struct mla_sum_errors {
    double value;     /* of sum p v: accumulation, partials, dequantisation */
    double rowsum;    /* of l */
    double per_value; /* 1 / (1 + value) */
} mla_sum_errors;

/* Sums over the visible keys of one row, weighted by p^. */
typedef struct mla_key_sums {
    double theta;   /* p^ theta */
    double high;    /* p^ h, h = exp(theta) - 1 */
    double low;     /* p^ (1 - exp(-theta)) */
    double raised;  /* p^ (1 + h) */
    double tiny;    /* p^ (1 + h) r of the weights too small for p's relative error, r > p_error */
    double alike;   /* n (p^ (1 + h))^2, n keys having weights that are rounded alike */
    double offset;  /* p^ (m - x) */
    double offset2; /* p^ (m - x)^2 */
} mla_key_sums;

/* One column of V over the row's visible keys. */
typedef struct mla_value_range {
    double min, max, abs_sum; /* of v, and of |v| */
} mla_value_range;

/* One element's sums over keys, weighted by p unless said otherwise. */
typedef struct mla_element_sums {
    double out;       /* O_c */
    double abs;       /* A_c */
    double numerator; /* |v|, by the weights that mla_bound_keys leaves in `dots` */
    double alike;     /* v^2, by those it leaves in `alike_weights` */
    double tiny;      /* |v|, by those of mla_bound_tiny, or more */
    mla_value_range value;
} mla_element_sums;

/* What one row's bounds share. */
typedef struct mla_bound_row {
    mla_sum_errors errors;
    double p_bias;          /* of P's roundings to nearest, since scores are spread over so little: between 0 and p_error */
    double tiny;            /* sum over tiny weights of p (1 + h) r */
    double sum_error;       /* of L, relative */
    double per_low;         /* 1 / sum_low */
    double sum_low;         /* least computed L / L */
    double underflow;       /* absolute error of out by underflow, but for that of values: */
    double value_underflow; /* in units of sum |v| */
    double lse_error;       /* of the lse that weighs partials, when combine_lse */
    double lse_bound;       /* of the lse handed out, natural log */
    bool hull;              /* errors of the scores are so large that the hull of V caps the bound */
} mla_bound_row;

/* 0 for MLA_NONE. */
double mla_bound_smallest_normal(mla_format format);
/* Unit roundoff; 0 for fp32, whose rounding the scalar counts hold already, and for MLA_NONE. */
double mla_bound_extra_roundoff(mla_format format, mla_rounding rounding);

mla_bound_model mla_bound_model_make(const mla_arithmetic *math, const mla_problem *problem, const mla_contract *contract, int64_t keys);

/* equal [N]: scores that equal this one, itself included. */
mla_sum_errors mla_bound_sum_errors(const mla_bound_model *model, const int32_t *equal);

/*
 * Arrays are [N]: z scores before soft-cap, x after it; alike[j] weights that are rounded like j's, itself included; `weights` exp(x_j - m) on
 * entry and p_j on return; `dots` a_j on entry and on return the weight of |v_j| in the numerator's error but for P's rounding,
 * p_j [(1 + h_j) f - 1]; `alike_weights` on return alike[j] (p_j (1 + h_j))^2. P in fp32: `alike` and `alike_weights` are not touched.
 */
mla_key_sums mla_bound_keys(const mla_bound_model *model, const mla_softmax *softmax, const mla_sum_errors *errors, const double *z,
                            const double *x, const int32_t *alike, double *weights, double *dots, double *alike_weights);
/* p (1 + h) r of a tiny weight, 0 of any other, from what mla_bound_keys returned for the key. */
double mla_bound_tiny(const mla_bound_model *model, const mla_softmax *softmax, const mla_sum_errors *errors, double p, double dot);

mla_bound_row mla_bound_row_make(const mla_bound_model *model, const mla_softmax *softmax, const mla_sum_errors *errors,
                                 const mla_key_sums *sums);
/* B_c. */
double mla_bound_element(const mla_bound_model *model, const mla_softmax *softmax, const mla_bound_row *row, const mla_element_sums *sums);

#endif
