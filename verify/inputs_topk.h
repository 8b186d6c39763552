/* Which entries of a sparse index list are absent. Depends on (seed, query token, position) only. */
#ifndef MLA_INPUTS_TOPK_H
#define MLA_INPUTS_TOPK_H

#include "case.h"

/* Is entry `position` of the query token's list -1 on purpose? Lists are whole, lack a head or a scattered quarter, or are empty. */
bool mla_topk_hole(const mla_case *test, int64_t q_token, int32_t position);
/* Entries of the list that name a token, of a sequence with kv_len tokens. */
int32_t mla_topk_listed(const mla_case *test, int64_t q_token, int64_t kv_len);

#endif
