#include <criterion/criterion.h>
#include <math.h>

#include "../ref/mla.h"

static void refused(mla_contract contract, const char *message) {
    const mla_status status = mla_contract_check(&contract);
    cr_assert_eq(status.code, MLA_EINVAL, "accepted: %s", message);
    cr_assert_str_eq(status.message, message);
}

#define REFUSED(message, field, ...)                                                                                                       \
    do {                                                                                                                                   \
        mla_contract contract = mla_contract_default();                                                                                    \
        contract.field = __VA_ARGS__;                                                                                                      \
        refused(contract, message);                                                                                                        \
    } while (0)

Test(contract, default_is_that_of_the_header) {
    const mla_contract contract = mla_contract_default();
    cr_assert_eq(mla_contract_check(&contract).code, MLA_OK);
    cr_assert_eq(contract.acc_bits, 24);
    cr_assert_eq(contract.mma_k, 1);
    cr_assert_eq(contract.scores, MLA_FP32);
    cr_assert_eq(contract.n_scores, 1);
    cr_assert_eq(contract.q_scaled, MLA_NONE);
    cr_assert_eq(contract.kv_dequant, MLA_NONE);
    cr_assert_eq(contract.p, MLA_BF16);
    cr_assert_eq(contract.p_scale, 1);
    cr_assert_eq(contract.partial, MLA_FP32);
    cr_assert_eq(contract.exp_error, 4);
    cr_assert_eq(contract.tanh_error, 8);
    cr_assert_eq(contract.log_error, 4);
    cr_assert_eq(contract.tile, 64);
    cr_assert_eq(contract.max_splits, 32);
    cr_assert(!contract.rowsum_of_rounded_p && !contract.combine_lse && !contract.lazy_max && !contract.ftz);
}

Test(contract, ranges) {
    REFUSED("acc_bits = 7 is not in 8 .. 53", acc_bits, 7);
    REFUSED("acc_bits = 54 is not in 8 .. 53", acc_bits, 54);
    REFUSED("acc_rounding = 2 is no rounding", acc_rounding, (mla_rounding)2);
    REFUSED("p_rounding = 3 is no rounding", p_rounding, (mla_rounding)3);
    REFUSED("out_rounding = 9 is no rounding", out_rounding, (mla_rounding)9);
    REFUSED("mma_k = 0 is less than 1", mma_k, 0);
    REFUSED("n_scores = 0 is less than 1", n_scores, 0);
    REFUSED("tile = -1 is less than 1", tile, -1);
    REFUSED("max_splits = 0 is less than 1", max_splits, 0);
}

Test(contract, formats) {
    REFUSED("scores = fp8 (3) is not one of fp32, bf16, fp16", scores, MLA_FP8);
    REFUSED("scores = none (7) is not one of fp32, bf16, fp16", scores, MLA_NONE);
    REFUSED("q_scaled = fp32 (2) is not one of none, bf16, fp16", q_scaled, MLA_FP32);
    REFUSED("kv_dequant = e2m1 (5) is not one of none, bf16, fp16", kv_dequant, MLA_E2M1);
    REFUSED("p = e8m0 (6) is not one of bf16, fp16, fp32, fp8, fp8fnuz", p, MLA_E8M0);
    REFUSED("p = no format (99) is not one of bf16, fp16, fp32, fp8, fp8fnuz", p, (mla_format)99);
    REFUSED("partial = fp8 (3) is not one of fp32, bf16, fp16", partial, MLA_FP8);
}

Test(contract, errors_of_functions) {
    REFUSED("exp_error = -1 is not finite and >= 0", exp_error, -1);
    REFUSED("tanh_error = inf is not finite and >= 0", tanh_error, INFINITY);
    REFUSED("log_error = nan is not finite and >= 0", log_error, NAN);
}

Test(contract, p_scale_must_fit_p) {
    REFUSED("p_scale = 0.5 is less than 1", p_scale, 0.5);
    REFUSED("p_scale = nan is less than 1", p_scale, NAN);
    mla_contract contract = mla_contract_default();
    contract.p = MLA_FP8;
    contract.p_scale = 256;
    cr_assert_eq(mla_contract_check(&contract).code, MLA_OK);
    contract.p = MLA_FP8FNUZ;
    refused(contract, "p_scale = 256 overflows p = fp8fnuz, whose largest value is 240");
}

Test(contract, everything_allowed_is_accepted) {
    mla_contract contract = mla_contract_default();
    contract.acc_rounding = contract.p_rounding = contract.out_rounding = MLA_RZ;
    contract.acc_bits = 53;
    contract.scores = contract.q_scaled = contract.kv_dequant = contract.p = contract.partial = MLA_FP16;
    contract.exp_error = contract.tanh_error = contract.log_error = 0;
    cr_assert_eq(mla_contract_check(&contract).code, MLA_OK);
}
