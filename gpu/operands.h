/* What a matrix unit is fed with: the 16-bit type in which q and KV of a problem are multiplied. */
#ifndef MLA_OPERANDS_H
#define MLA_OPERANDS_H

#include "mla_gpu.h"

typedef struct mla_operands {
    mla_kv_format kv;
    const char *name;    /* of the KV format's device code, e.g. mla_splitk_NAME */
    mla_format operands; /* bf16 or fp16: q, dequantised KV and P are of this type */
    bool direct;         /* KV lies in memory as operands */
} mla_operands;

/* NULL where q is not exact in the operands of KV: fp8 queries are exact in either, but fp16 ones are not in bf16, nor the other way round. */
const mla_operands *mla_operands_of(const mla_problem *problem);
/* NULL, or `reason` says why the problem has no operands. */
const mla_operands *mla_operands_or_reason(const mla_problem *problem, char *reason, size_t reason_size);

/*
 * Are dequantised KV exact as operands? A per-tensor scale is applied after the products, and e2m1 times a power of two is exact; so is e4m3 unless a
 * block's scale has a significand. Reads the problem's KV.
 */
bool mla_operands_exact(const mla_problem *host);

#endif
