/* The rounding model of a kernel: exact for the project's own, and what the contract says for anybody else's. */
#ifndef MLA_DRIFT_MODEL_H
#define MLA_DRIFT_MODEL_H

#include "../gpu/engine.h"
#include "../ref/model.h"
#include "drift_fingerprint.h"

/* Key ranges of every row's splits; `view` points into the arrays. */
typedef struct mla_drift_splits {
    mla_range *ranges;
    int64_t *first;
    int64_t *positions; /* NULL unless some splits interleave: first every position, then the tokens of fingerprints */
    int64_t listed;     /* entries of it */
    mla_model_splits view;
} mla_drift_splits;

/* Is it the project's own kernel, whose plan and engine are known? */
bool mla_drift_knows(const mla_kernel *kernel);
/* The model of an engine of the project's split-K kernel, in this space. */
mla_model mla_drift_model_of_engine(const mla_engine *engine, mla_space space, const mla_contract *contract, const mla_problem *host);
/* The kernel's model for this problem. */
mla_model mla_drift_model(const mla_kernel *kernel, const mla_problem *host);
/* Splits of all rows: those of the project's own kernel, or one a row. Free with mla_drift_splits_free, also after failure. */
mla_status mla_drift_splits_make(const mla_kernel *kernel, const mla_device *device, const mla_problem *host,
                                 mla_drift_splits *splits) MLA_CHECKED;
/* What a fingerprint of one sequence found becomes the splits of its rows. */
mla_status mla_drift_splits_set(const mla_problem *host, int32_t sequence, const mla_fingerprint *fingerprint,
                                mla_drift_splits *splits) MLA_CHECKED;
/* Zeroed splits are allowed. */
void mla_drift_splits_free(mla_drift_splits *splits);

#endif
