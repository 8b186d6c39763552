/*
 * The rounding model: split-K decode attention in software, where every choice that moves a bit is a parameter, and every rounding can be left out.
 * With a kernel's own choices it gives that kernel's bits; with one rounding alone it gives that rounding's share of the error.
 *
 * Values are held in double. A float operation is done in double and rounded to float once more, which gives the float operation's own result for
 * + - * / (Figueroa, "When is double rounding innocuous?", 1995); fused ones use fmaf.
 */
#ifndef MLA_MODEL_H
#define MLA_MODEL_H

#include "mla.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where what does not fit goes: toward zero, or toward minus infinity (two's complement). */
typedef enum mla_cut { MLA_CUT_ZERO, MLA_CUT_DOWN } mla_cut;

/*
 * A matrix unit: how a step of `k` products joins the accumulator.
 *   bits == 0  one by one in double, and the sum is rounded (k = 1: a chain of fused multiply-adds; k = 16: host execution)
 *   bits > 0   addends are aligned to the largest exponent e, that of a product being the sum of its factors', and cut to multiples of 2^(e - bits);
 *              then the sum is rounded. The accumulator is one of the addends, or, `apart`, joins their sum in a second such step
 */
typedef struct mla_unit {
    mla_format sum; /* type of the accumulator: fp32, bf16, fp16; MLA_NONE: nothing is rounded, and the rest is without effect */
    mla_rounding rounding;
    int k; /* >= 1 */
    int bits;
    bool apart;
    mla_cut cut;
} mla_unit;

typedef enum mla_score_point {
    MLA_SCORE_SUM,    /* <q, k> as it leaves the matrix unit */
    MLA_SCORE_SCALED, /* times sm_scale: the natural logarithm's units */
    MLA_SCORE_LOG2    /* times log2(e), as exp2 takes it */
} mla_score_point;

typedef enum mla_exp2_form {
    MLA_EXP2_LIBM,   /* exp2f, log2f and tanhf */
    MLA_EXP2_NEAREST /* rounded from double, off by up to exp2_ulp ulp, as a hash of the argument says */
} mla_exp2_form;

/* Formats: MLA_NONE is "not rounded" everywhere. */
typedef struct mla_model {
    /* Q K^T */
    mla_format q_scaled;    /* q * sm_scale * log2(e) rounded to this first */
    mla_format kv_operands; /* dequantised KV */
    mla_unit qk;
    int dim_parts;                    /* consecutive parts of the 576 dimensions, summed apart, added in order; divides 576 */
    int dim_chains;                   /* within a part, step s joins chain s % dim_chains; chains are added in order */
    const uint16_t *dim_order;        /* [576], a permutation: the order in which dimensions are taken; NULL: as they come */
    const uint16_t *tile_token_order; /* [tile], a permutation of a tile's tokens: the order in which P V takes them; NULL: as they come */
    /* softmax */
    mla_format scores;
    mla_score_point score_point;
    mla_format softmax; /* fp32 or MLA_NONE: scale, exp2, sums of weights, normaliser, lse, combine */
    mla_exp2_form exp2;
    double exp2_ulp;
    bool ftz;         /* exp2 gives no subnormals */
    double max_slack; /* the running maximum moves when it is exceeded by more than this, in log2 units */
    int tile;         /* tokens between two looks at the maximum; more than a split holds: one look */
    int row_lanes;    /* a row's weights are summed by this many lanes, a power of two, then pairwise */
    int lane_run;     /* consecutive tokens of one lane */
    int row_groups;   /* equal parts of a tile, each with its share of the lanes; a power of two, at most row_lanes */
    bool fma;         /* a * b + c of the end and the combine is rounded once */
    /* P V */
    mla_format p;
    mla_rounding p_rounding;
    double p_scale;
    bool rowsum_of_rounded_p;
    mla_unit pv;
    /* combine */
    mla_format partial;
    mla_rounding partial_rounding;
    bool combine_lse; /* partials are normalised, and merged by lse */
    /* out */
    mla_format out; /* the problem's out_format, or MLA_NONE */
    mla_rounding out_rounding;
} mla_model;

/* Nothing is rounded: the truth, to double's own accuracy. Tiles of 64 tokens. */
mla_model mla_model_exact(void);
/* What a contract declares, for a problem; what it leaves open (orders, exp2) is taken as plain as possible. */
mla_model mla_model_of_contract(const mla_contract *contract, const mla_problem *problem);

/* Key ranges of the splits of each row, in the order of the combine: row r's are ranges[first[r]] .. ranges[first[r + 1]]. One split: no combine. */
typedef struct mla_model_splits {
    const mla_range *ranges;
    const int64_t *first; /* [rows + 1] */
    const int64_t
        *positions; /* ranges are of entries of this list, positions in the order in which a split takes them; NULL: of positions */
} mla_model_splits;

/*
 * Rows [first_row, first_row + rows), row = query token * heads + head. out [rows, 512] and lse [rows] (the problem's base and convention) are what the
 * kernel would write, as doubles. `splits` counts rows from first_row; NULL: each row is one split of all it sees.
 * MLA_EINVAL: a malformed model names its field. MLA_ENOMEM.
 */
mla_status mla_model_run(const mla_problem *problem, const mla_model *model, const mla_model_splits *splits, int64_t first_row,
                         int64_t rows, double *out, double *lse) MLA_CHECKED;

/* c plus the products a[i] * b[i * stride], i < n, in steps of the unit. */
double mla_unit_accumulate(const mla_unit *unit, double c, const double *a, const double *b, size_t stride, int n);
/* The same for 512 columns, of one step at most: sums [512], b [n, 512]. */
void mla_unit_step(const mla_unit *unit, double *sums, const double *a, const double *b, int n);
/* Rounded to a format and back; MLA_NONE: as it is. */
double mla_round(mla_format format, mla_rounding rounding, double value);
void mla_round_all(mla_format format, mla_rounding rounding, double *values, int count);

#ifdef __cplusplus
}
#endif
#endif
