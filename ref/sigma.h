/*
 * How large the errors of a correct kernel are: the variance of an element's error, its contract's roundings being independent and, within half a
 * unit of the last place, uniform. Internal to ref/; notation of bound.h.
 *
 * A rounding to nearest of a number whose mantissa is spread over the binade has the variance 0.1803 u^2 times the number squared: ulp^2 / 12 with
 * ulp = 2 u 2^t, the mean of 4^t over t in [0, 1) being 2.164.
 */
#ifndef MLA_SIGMA_H
#define MLA_SIGMA_H

#include "bound.h"

#define MLA_ROUNDING_VARIANCE 0.1803

/* What contract, formats and N decide alone. Variances are relative unless said otherwise. */
typedef struct mla_sigma_model {
    double keys, log_keys;     /* N, ln(N + 1) */
    double p_unit;             /* 2^-digits of P; 0 for fp32 */
    bool p_truncates;          /* toward zero */
    bool rowsum_of_rounded_p;  /* errors of P move the row sum as well */
    bool top_is_exact;         /* the largest weight is 1, which no format rounds */
    double score;              /* u^2 of a score's own roundings, summed */
    double product;            /* of a score by rounded operands, in units of b^2: b_j^2 = s^2 sum_d q_d^2 k_jd^2 */
    double q;                  /* of one entry of q */
    mla_format partial_format; /* of splits' partials */
    double partial, value;     /* of a split's partial, 0 for fp32; of a dequantised value */
    double value_floor;        /* the same among subnormals: absolute */
    bool operands_repeat;      /* rounded operands come from so few bits that their roundings repeat */
    mla_format out_format;
    double out_mean;           /* of out toward zero, in units of ulp */
    double dot_walk, dot_bias; /* of z by accumulation, in units of b^2 / 2 + z^2 / 3, and of z^2 */
    double sum_walk, sum_bias; /* of sum p v by accumulation, in units of Q^2 / 2 + O^2 / 3, and of O^2 */
    double step;               /* of one fp32 operation */
    double exponential;        /* of a weight by exp2 and its scalings, absolute errors of scores included */
} mla_sigma_model;

/* Sums over the keys of one row. `rounded` are those whose weights P's rounding moves, `tops` those with the largest weight. */
typedef struct mla_sigma_row {
    double p2;                    /* p^2 */
    double order;                 /* variance of a weight by the order of accumulation: the mean over keys, weighted by p^2 */
    double noise;                 /* p^2 times the variance of x by declared roundings */
    double rounded_p, rounded_p2; /* p and p^2 of rounded keys */
    double top_p;                 /* p of a top */
    double p_variance;     /* of a rounding of P, in units of u^2: MLA_ROUNDING_VARIANCE, or the worst where mantissas lie together */
    double score_variance; /* the same of a score */
    double sum_step2;      /* variance of L by its own accumulation, relative */
    unsigned doubts;       /* mla_chi_doubt */
} mla_sigma_row;

/* One element's sums over keys. Those that the model does not use may be 0. */
typedef struct mla_sigma_sums {
    double out;          /* p v = O_c */
    double square;       /* p^2 v^2 = Q_c^2 */
    double square_value; /* p^2 v */
    double spread;       /* p v^2 */
    double noise_square; /* noise v^2 */
    double noise_value;  /* noise v */
    double top_value;    /* v of tops */
    double top_square;   /* v^2 of tops */
    double tiny;         /* p (1 + h) r |v| of tiny weights */
    double underflow;    /* the most that underflow in fp32 costs */
    double q;            /* s q_c */
} mla_sigma_sums;

/* The parts of an element's variance. */
typedef struct mla_variance {
    double weights;  /* P's rounding */
    double bias;     /* of roundings toward zero, of tiny weights, of underflow: a shift, squared */
    double scores;   /* declared roundings of scores, q and keys */
    double columns;  /* roundings that columns do not share: out, partials, values */
    double partials; /* the part of it that splits' partials make: an estimate, how splits divide a row being unknown */
    double order;    /* accumulation in fp32: an estimate, the order being unknown */
} mla_variance;

mla_sigma_model mla_sigma_model_make(const mla_arithmetic *math, const mla_problem *problem, const mla_contract *contract, int64_t keys);
/* Do declared roundings move the scores? */
bool mla_sigma_has_noise(const mla_sigma_model *model);
/* Must `noise` hold b_j^2 on entry of mla_sigma_row_make? */
bool mla_sigma_has_products(const mla_sigma_model *model);

/* Is p the largest weight, but for a difference that no kernel sees? */
static inline bool mla_sigma_is_top(const mla_sigma_row *row, double p) {
    return p >= row->top_p * (1 - 0x1p-30);
}

/* Is the weight p of a key rounded at all? */
static inline bool mla_sigma_rounds(const mla_sigma_model *model, const mla_sigma_row *row, double p) {
    return !(model->top_is_exact && mla_sigma_is_top(row, p));
}

/*
 * Arrays are [N]: p_j; z and x scores before and after soft-cap; lengths |k_j|^2; equal as in mla_bound_sum_errors. q_length = s^2 |q|^2. noise: NULL unless
 * mla_sigma_has_noise; on return p_j^2 times the variance of x_j.
 */
mla_sigma_row mla_sigma_row_make(const mla_sigma_model *model, const mla_softmax *softmax, const double *p, const double *z,
                                 const double *x, const double *lengths, double q_length, const int32_t *equal, double *noise);
mla_variance mla_sigma_element(const mla_sigma_model *model, const mla_sigma_row *row, const mla_sigma_sums *sums);
double mla_variance_total(const mla_variance *variance);
/*
 * The squared error that rounding O itself makes, as a multiple of its mean over numbers that lie anywhere. Where a kernel's other errors are small, it is the
 * kernel's: outputs on a grid (one key, equal weights, values of few bits) may all be far from what the format holds.
 */
double mla_sigma_luck(mla_format format, mla_rounding rounding, double out);

#endif
