/*
 * The bytes of a case: q, KV, indptrs, tables, scales. Counter-based (Philox: seed, tensor, index) and built from integer or correctly rounded
 * operations only: the same bytes on any machine, compiler and thread count.
 */
#ifndef MLA_INPUTS_H
#define MLA_INPUTS_H

#include "case.h"
#include "memory.h"

/* Everything in guarded, poisoned host memory. `problem` points into `buffers`. */
typedef struct mla_inputs {
    mla_problem problem;
    mla_buffer q, qo_indptr, kv, kv_block_scales, kv_indptr, block_table, kv_indices, topk_indices, sink;
} mla_inputs;

/*
 * Free with mla_inputs_free, also after failure. Slots that no sequence with queries owns, last pages' tails and padding rows of q hold NaN codes,
 * unused table entries garbage. Paged, listed and sparse tokens lie in pseudo-random slots, some of them spare. Under `spread` they lie anywhere in
 * the cache (contiguous ones follow one another: tokens of sequences without queries push the others out), and only what is near used slots is
 * NaN: the rest is 0, and takes no host memory. MLA_EINVAL: q's format cannot hold what the case's scale needs; MLA_ENOMEM names tensor and size.
 */
mla_status mla_inputs_make(const mla_case *c, mla_inputs *inputs) MLA_CHECKED;
void mla_inputs_free(mla_inputs *inputs);

#endif
