#include "try.h"

#include <math.h>

mla_contract mla_contract_default(void) {
    return (mla_contract){
        .acc_rounding = MLA_RNE,
        .acc_bits = 24,
        .mma_k = 1,
        .scores = MLA_FP32,
        .n_scores = 1,
        .q_scaled = MLA_NONE,
        .kv_dequant = MLA_NONE,
        .p = MLA_BF16,
        .p_rounding = MLA_RNE,
        .p_scale = 1,
        .partial = MLA_FP32,
        .exp_error = 4,
        .tanh_error = 8,
        .log_error = 4,
        .out_rounding = MLA_RNE,
        .tile = 64,
        .max_splits = 32,
    };
}

static mla_status check_rounding(const char *field, mla_rounding value) {
    if (value == MLA_RNE || value == MLA_RZ)
        return mla_ok();
    return mla_error(MLA_EINVAL, "%s = %d is no rounding", field, (int)value);
}

static mla_status check_at_least_one(const char *field, int value) {
    if (value >= 1)
        return mla_ok();
    return mla_error(MLA_EINVAL, "%s = %d is less than 1", field, value);
}

static mla_status check_error(const char *field, double value) {
    if (isfinite(value) && value >= 0)
        return mla_ok();
    return mla_error(MLA_EINVAL, "%s = %g is not finite and >= 0", field, value);
}

/* `allowed` is a set of formats, bit MLA_NONE included, and `names` says them. */
static mla_status check_format(const char *field, mla_format value, unsigned allowed, const char *names) {
    if ((unsigned)value <= MLA_NONE && (allowed >> value & 1))
        return mla_ok();
    const char *name = (unsigned)value < MLA_FORMAT_COUNT ? mla_format_get(value)->name : value == MLA_NONE ? "none" : "no format";
    return mla_error(MLA_EINVAL, "%s = %s (%d) is not one of %s", field, name, (int)value, names);
}

static mla_status check_formats(const mla_contract *contract) {
    const unsigned low = 1u << MLA_BF16 | 1u << MLA_FP16, floats = low | 1u << MLA_FP32, none = 1u << MLA_NONE;
    TRY(check_format("scores", contract->scores, floats, "fp32, bf16, fp16"));
    TRY(check_format("q_scaled", contract->q_scaled, low | none, "none, bf16, fp16"));
    TRY(check_format("kv_dequant", contract->kv_dequant, low | none, "none, bf16, fp16"));
    TRY(check_format("p", contract->p, floats | 1u << MLA_FP8 | 1u << MLA_FP8FNUZ, "bf16, fp16, fp32, fp8, fp8fnuz"));
    return check_format("partial", contract->partial, floats, "fp32, bf16, fp16");
}

static mla_status check_p_scale(const mla_contract *contract) {
    const mla_format_info *p = mla_format_get(contract->p);
    if (!(contract->p_scale >= 1))
        return mla_error(MLA_EINVAL, "p_scale = %g is less than 1", contract->p_scale);
    if (!(contract->p_scale <= p->max_finite))
        return mla_error(MLA_EINVAL, "p_scale = %g overflows p = %s, whose largest value is %g", contract->p_scale, p->name, p->max_finite);
    return mla_ok();
}

mla_status mla_contract_check(const mla_contract *contract) {
    if (contract->acc_bits < 8 || contract->acc_bits > 53)
        return mla_error(MLA_EINVAL, "acc_bits = %d is not in 8 .. 53", contract->acc_bits);
    TRY(check_rounding("acc_rounding", contract->acc_rounding));
    TRY(check_rounding("p_rounding", contract->p_rounding));
    TRY(check_rounding("out_rounding", contract->out_rounding));
    TRY(check_formats(contract));
    TRY(check_p_scale(contract));
    TRY(check_at_least_one("mma_k", contract->mma_k));
    TRY(check_at_least_one("n_scores", contract->n_scores));
    TRY(check_at_least_one("tile", contract->tile));
    TRY(check_at_least_one("max_splits", contract->max_splits));
    TRY(check_error("exp_error", contract->exp_error));
    TRY(check_error("tanh_error", contract->tanh_error));
    return check_error("log_error", contract->log_error);
}
