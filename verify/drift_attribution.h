/* Which roundings explain a kernel's error, and how much of it each. */
#ifndef MLA_DRIFT_ATTRIBUTION_H
#define MLA_DRIFT_ATTRIBUTION_H

#include "../ref/model.h"

/* Groups of choices, in the order in which a row is computed. */
typedef enum mla_stage {
    MLA_STAGE_TILE, /* rounds nothing itself: it decides against which maximum P is rounded */
    MLA_STAGE_OPERANDS,
    MLA_STAGE_QK,
    MLA_STAGE_SCORES,
    MLA_STAGE_SOFTMAX,
    MLA_STAGE_P,
    MLA_STAGE_ROWSUM,
    MLA_STAGE_PV,
    MLA_STAGE_PARTIAL,
    MLA_STAGE_OUT,
    MLA_STAGE_COUNT
} mla_stage;

/* "P", "output", ... */
const char *mla_stage_name(mla_stage stage);
/* What a model chooses there: "bf16 rne". `text` is returned. */
const char *mla_stage_choice(mla_stage stage, const mla_model *model, char *text, size_t size);

/* Rows of a kernel's output, as doubles. */
typedef struct mla_observation {
    const mla_problem *problem;
    const mla_model_splits *splits; /* counted from first_row; NULL: one a row */
    int64_t first_row, rows;
    const double *out; /* [rows, 512] */
} mla_observation;

typedef struct mla_change {
    mla_stage stage;
    double left; /* share of the error's energy that is unexplained once it is made */
} mla_change;

typedef struct mla_attribution {
    mla_model model;                     /* that explains it best */
    mla_change changes[MLA_STAGE_COUNT]; /* from the declared model, the most telling first */
    int num_changes;
    double row_factor,
        left_by_factors;    /* 0: none. Each row is a factor off, by this much (rms): its sum of weights is wrong. Share unexplained then */
    double left_declared;   /* share unexplained by the declared model */
    int64_t elements, same; /* in which the found model gives the very output */
    double apart;           /* rms of output less model */
    double rms;             /* of the error; 0: there is none, and no shares */
    double share[MLA_STAGE_COUNT], share_error[MLA_STAGE_COUNT]; /* of the error's energy; standard error */
    double unexplained, unexplained_error;
} mla_attribution;

/*
 * Starts from the declared model, and changes one stage at a time, always to what explains most, for as long as that explains a fifth of what is left.
 * Then the error is split: each stage of the model found, added to those before it, moves the output by some vector; out - exact is
 * regressed on these vectors, and a vector's coefficient times its product with the error is its share. What no choice explains, but one factor a row
 * does, larger than sums in fp32 allow, is a wrong row sum. MLA_EUNSUPPORTED: the output is not finite.
 */
mla_status mla_attribute(const mla_observation *seen, const mla_model *declared, mla_attribution *result) MLA_CHECKED;

#endif
