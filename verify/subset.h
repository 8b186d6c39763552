/* Some sequences of a problem, in any order, as a problem of their own: the same q and KV rows, the same slots where KV is not contiguous. */
#ifndef MLA_SUBSET_H
#define MLA_SUBSET_H

#include "inputs.h"

/* `sequences` [count], distinct. Padding rows are left out. Free `subset` with mla_inputs_free, also after failure. */
mla_status mla_subset_make(const mla_inputs *whole, const int32_t *sequences, int32_t count, mla_inputs *subset) MLA_CHECKED;

#endif
