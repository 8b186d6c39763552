/* The oracle over a whole problem, some query tokens at a time: memory is bounded by the problem's inputs and outputs. */
#ifndef MLA_SLABS_H
#define MLA_SLABS_H

#include "../ref/mla.h"
#include "progress.h"

/* The query tokens of one slab: at most 8192 rows, at least one token. */
int64_t mla_slab_tokens(const mla_problem *problem);

typedef mla_status (*mla_slab_visitor)(void *context, const mla_truth *truth);

/* Calls `visit` with the truth of one slab after another, in order; the first failure ends it. `progress` may be NULL. */
mla_status mla_slabs_visit(const mla_problem *problem, const mla_contract *contract, mla_progress *progress, mla_slab_visitor visit,
                           void *context) MLA_CHECKED;

#endif
