#include "../verify/contract_infer.h"

#include <criterion/criterion.h>
#include <stdio.h>

#include "support_simkernel.h"

/* ---- a simulated kernel as a plug-in ---------------------------------------------------------------------------------------------------- */

static int run_sim(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t reason_size) {
    const mla_status status = sim_kernel_run(kernel->context, launch->host, launch->output);
    snprintf(reason, reason_size, "%s", status.message);
    return status.code != MLA_OK;
}

static bool supports_bf16(const mla_kernel *kernel, const mla_problem *host, char *reason, size_t reason_size) {
    (void)kernel;
    snprintf(reason, reason_size, "out must be bf16");
    return host->out_format == MLA_BF16;
}

static bool supports_nothing(const mla_kernel *kernel, const mla_problem *host, char *reason, size_t reason_size) {
    (void)kernel;
    snprintf(reason, reason_size, "%d heads", host->heads);
    return false;
}

/* It declares the default contract, whatever it does. */
static mla_kernel kernel_of(sim_kernel *sim) {
    return (mla_kernel){
        .abi_version = MLA_KERNEL_ABI, .name = "simulated", .contract = mla_contract_default(), .context = sim, .run = run_sim};
}

static mla_inference infer(const mla_kernel *kernel) {
    mla_inference inference;
    const mla_status status = mla_contract_infer(kernel, NULL, &inference);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    cr_expect(inference.explains);
    return inference;
}

/* ---- what is found --------------------------------------------------------------------------------------------------------------------- */

Test(contract_infer, the_default_is_found) {
    sim_kernel sim = sim_kernel_default();
    sim.splits = 4;
    const mla_kernel kernel = kernel_of(&sim);
    const mla_contract found = infer(&kernel).contract;
    cr_expect_eq(found.p, MLA_BF16);
    cr_expect_eq(found.p_rounding, MLA_RNE);
    cr_expect_eq(found.scores, MLA_FP32);
    cr_expect_eq(found.partial, MLA_FP32);
    cr_expect_eq(found.out_rounding, MLA_RNE);
    cr_expect_not(found.rowsum_of_rounded_p);
}

Test(contract_infer, rounded_scores_and_truncated_weights_are_found) {
    sim_kernel sim = sim_kernel_default();
    sim.contract.scores = MLA_BF16;
    sim.contract.p_rounding = MLA_RZ;
    const mla_kernel kernel = kernel_of(&sim);
    const mla_inference inference = infer(&kernel);
    cr_expect_eq(inference.contract.scores, MLA_BF16);
    cr_expect_eq(inference.contract.n_scores, 1);
    cr_expect_eq(inference.contract.p, MLA_BF16);
    cr_expect_eq(inference.contract.p_rounding, MLA_RZ);
    cr_expect_not(inference.contract.rowsum_of_rounded_p);
    cr_expect_gt(inference.declared[0].chi, MLA_CHI_CASE, "the default does not explain it");
}

/* Outputs in bf16 alone hide less than they seem to. */
Test(contract_infer, row_sum_and_output_of_a_kernel_that_writes_bf16) {
    sim_kernel sim = sim_kernel_default();
    sim.contract.rowsum_of_rounded_p = true;
    sim.contract.out_rounding = MLA_RZ;
    mla_kernel kernel = kernel_of(&sim);
    kernel.supports = supports_bf16;
    const mla_inference inference = infer(&kernel);
    cr_expect_eq(inference.contract.p, MLA_BF16);
    cr_expect_eq(inference.contract.p_rounding, MLA_RNE);
    cr_expect(inference.contract.rowsum_of_rounded_p);
    cr_expect_eq(inference.contract.out_rounding, MLA_RZ);
}

Test(contract_infer, weights_in_fp8) {
    sim_kernel sim = sim_kernel_default();
    sim.contract.p = MLA_FP8;
    sim.contract.p_scale = 256;
    const mla_kernel kernel = kernel_of(&sim);
    const mla_contract found = infer(&kernel).contract;
    cr_expect_eq(found.p, MLA_FP8);
    cr_expect_eq(found.p_scale, 256);
}

Test(contract_infer, partials_in_bf16) {
    sim_kernel sim = sim_kernel_default();
    sim.contract.partial = MLA_BF16;
    sim.splits = 4;
    const mla_kernel kernel = kernel_of(&sim);
    const mla_contract found = infer(&kernel).contract;
    cr_expect_eq(found.p, MLA_BF16);
    cr_expect_eq(found.partial, MLA_BF16);
}

/* A scale that is off by 3 % is no rounding. */
Test(contract_infer, a_wrong_kernel_is_not_explained_away) {
    sim_kernel sim = sim_kernel_default();
    sim.scale_error = 0.03;
    const mla_kernel kernel = kernel_of(&sim);
    mla_inference inference;
    cr_assert_eq(mla_contract_infer(&kernel, NULL, &inference).code, MLA_OK);
    cr_expect_not(inference.explains);
}

Test(contract_infer, a_kernel_that_can_do_no_probe) {
    sim_kernel sim = sim_kernel_default();
    mla_kernel kernel = kernel_of(&sim);
    kernel.supports = supports_nothing;
    mla_inference inference;
    cr_assert_eq(mla_contract_infer(&kernel, NULL, &inference).code, MLA_EUNSUPPORTED);
}
