#include "operands.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const mla_operands table[] = {
    {MLA_KV_BF16, "bf16", MLA_BF16, true},        {MLA_KV_FP16, "fp16", MLA_FP16, true},        {MLA_KV_FP8, "fp8", MLA_BF16, false},
    {MLA_KV_FP8FNUZ, "fp8fnuz", MLA_BF16, false}, {MLA_KV_FP8B656, "fp8b656", MLA_BF16, false}, {MLA_KV_MXFP4, "mxfp4", MLA_BF16, false},
};

const mla_operands *mla_operands_of(const mla_problem *p) {
    const bool fp8 = p->q_format == MLA_FP8 || p->q_format == MLA_FP8FNUZ;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].kv == p->kv_format && (fp8 || table[i].operands == p->q_format))
            return &table[i];
    return NULL;
}

const mla_operands *mla_operands_or_reason(const mla_problem *p, char *reason, size_t reason_size) {
    const mla_operands *o = mla_operands_of(p);
    if (!o)
        snprintf(reason, reason_size, "q=%s is not exact in the operands of kv=%s", mla_format_get(p->q_format)->name,
                 mla_kv_format_get(p->kv_format)->name);
    return o;
}

bool mla_operands_exact(const mla_problem *host) {
    if (host->kv_format != MLA_KV_FP8B656)
        return true;
    const size_t token_bytes = mla_kv_format_get(host->kv_format)->token_bytes;
    for (int64_t slot = 0; slot < host->total_kv; slot++) {
        float scales[4];
        memcpy(scales, (const char *)host->kv + (size_t)slot * token_bytes + MLA_HEAD_DIM_V, sizeof scales);
        for (int i = 0; i < 4; i++) {
            int exponent;
            const float significand = frexpf(scales[i], &exponent);
            if (isfinite(scales[i]) && scales[i] != 0 && significand != 0.5f)
                return false;
        }
    }
    return true;
}
