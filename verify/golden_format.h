/* What writing and reading golden files share: which tensors there are. */
#ifndef MLA_GOLDEN_FORMAT_H
#define MLA_GOLDEN_FORMAT_H

#include "safetensors.h"

#define MLA_GOLDEN_KEY "mla_golden"
#define MLA_GOLDEN_VERSION "1" /* one more whenever a file of the same case would differ */

static inline mla_dtype mla_golden_q_dtype(mla_format format) {
    switch (format) {
    case MLA_BF16:
        return MLA_DTYPE_BF16;
    case MLA_FP16:
        return MLA_DTYPE_F16;
    case MLA_FP32:
        return MLA_DTYPE_F32;
    case MLA_FP8:
        return MLA_DTYPE_F8_E4M3;
    default: /* e4m3fnuz has no name in the format */
        return MLA_DTYPE_U8;
    }
}

static inline mla_dtype mla_golden_kv_dtype(mla_kv_format format) {
    switch (format) {
    case MLA_KV_BF16:
        return MLA_DTYPE_BF16;
    case MLA_KV_FP16:
        return MLA_DTYPE_F16;
    case MLA_KV_FP8:
        return MLA_DTYPE_F8_E4M3;
    default: /* bytes: e4m3fnuz, rows of mixed types, pairs of fp4 */
        return MLA_DTYPE_U8;
    }
}

/* Elements of a token's row. */
static inline int64_t mla_golden_kv_columns(mla_kv_format format) {
    return (int64_t)(mla_kv_format_get(format)->token_bytes / mla_dtype_bytes(mla_golden_kv_dtype(format)));
}

static inline bool mla_golden_has_q_scale(const mla_problem *problem) {
    return problem->q_format == MLA_FP8 || problem->q_format == MLA_FP8FNUZ;
}

#endif
