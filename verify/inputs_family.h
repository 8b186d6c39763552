/*
 * The values of a family, as rows of floats: before they are put into a format and a place.
 *
 * Families with planned scores (all but normal, uniform, flat, subnormal) scale q by 1 / (24 sm_scale), so that their scores are the same under
 * any sm_scale. Where a score must be steered, q and k have a part along one random vector of signs over the 64 RoPE columns; V is left alone,
 * so that every token carries a value of its own.
 */
#ifndef MLA_INPUTS_FAMILY_H
#define MLA_INPUTS_FAMILY_H

#include "case.h"
#include "random.h"

#define MLA_ROPE (MLA_HEAD_DIM - MLA_HEAD_DIM_V)
#define MLA_MAX_PLANTED 16
#define MLA_MAX_LISTINGS 64

/* Standard deviations of the parts of a row, before q's gain. */
typedef struct mla_recipe {
    float q_latent, q_rope, q_signs; /* q_signs: the part along the signs */
    float k_latent, k_rope;
    bool planned; /* q is scaled so that scores do not depend on sm_scale */
} mla_recipe;

typedef struct mla_values {
    const mla_case *test;
    const mla_problem *problem; /* shapes, masks, indptrs */
    mla_recipe recipe;
    float table[MLA_DEVIATES]; /* of deviates, or of the family's own distribution: its first 4096 */
    float signs[MLA_ROPE];
    float gain;     /* q = gain * row */
    float q_scale;  /* of the problem: gain included; 1 without a scale */
    float q_unit;   /* quantise a row (without gain) by this; fp8 only */
    float kv_scale; /* of the problem; 1 without a scale */
} mla_values;

/* Tokens of a sequence that one RoPE column of `exact` makes live: position i is begin + (i * length + offset) / count. */
typedef struct mla_live_set {
    int64_t begin, length, offset;
    int32_t count; /* a power of two, or 0 */
} mla_live_set;

/* What the rows of one sequence share. */
typedef struct mla_sequence {
    int32_t index;
    int64_t kv_begin, kv_len;
    int planted_count;
    int64_t planted[MLA_MAX_PLANTED]; /* needle */
    float planted_bias;
    mla_live_set live[MLA_ROPE]; /* exact */
} mla_sequence;

/* A token that must stand at a position of a sparse index list. */
typedef struct mla_listing {
    int32_t position;
    int64_t token;
} mla_listing;

/* `problem` holds all but the tensors. MLA_EINVAL when q's format cannot hold what this sm_scale needs. */
mla_status mla_values_init(const mla_case *test, const mla_problem *problem, mla_values *values) MLA_CHECKED;
void mla_sequence_init(const mla_values *values, int32_t index, mla_sequence *sequence);

/* Row [576] of query token `t` of the sequence, without gain. */
void mla_values_q_row(const mla_values *values, const mla_sequence *sequence, int64_t t, int32_t head, float *row);
/* Row [576] of token `j` of the sequence. */
void mla_values_kv_row(const mla_values *values, const mla_sequence *sequence, int64_t j, float *row);
/* What the list of query token `t`, which has `listed` entries, must hold for the family's sake; returns how many, up to MLA_MAX_LISTINGS. */
int mla_values_listings(const mla_values *values, const mla_sequence *sequence, int64_t t, int32_t listed, mla_listing *listings);

#endif
