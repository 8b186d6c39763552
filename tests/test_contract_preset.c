#include "../verify/contract_preset.h"

#include <criterion/criterion.h>
#include <string.h>

#include "../verify/chi.h"
#include "../verify/contract_line.h"
#include "../verify/judge.h"
#include "support_problem.h"
#include "support_simkernel.h"

static mla_contract parsed(const char *line) {
    mla_contract contract;
    const mla_status status = mla_contract_parse(line, &contract);
    cr_assert_eq(status.code, MLA_OK, "%s: %s", line, status.message);
    return contract;
}

Test(contract_preset, every_preset_is_a_contract) {
    int count = 0;
    for (const mla_contract_preset *preset = mla_contract_presets; preset->name; preset++, count++) {
        const mla_contract by_name = parsed(preset->name), by_line = parsed(preset->line);
        cr_expect_eq(mla_contract_check(&by_name).code, MLA_OK, "%s", preset->name);
        cr_expect_eq(by_name.max_splits, by_line.max_splits, "%s", preset->name);
        cr_expect_gt(strlen(preset->source), 20);
    }
    cr_expect_eq(count, 4);
}

Test(contract_preset, flashmla) {
    const mla_contract c = parsed("flashmla");
    cr_expect(c.acc_rounding == MLA_RZ && c.mma_k == 16 && c.p == MLA_BF16 && c.partial == MLA_FP32 && c.combine_lse);
    cr_expect_eq(c.max_splits, 160);
}

Test(contract_preset, torch_rounds_scores_twice_and_normalised_weights) {
    const mla_contract c = parsed("torch-bf16");
    cr_expect(c.scores == MLA_BF16 && c.n_scores == 2 && c.p == MLA_BF16 && c.lazy_max);
}

Test(contract_preset, pairs_after_the_name_take_precedence) {
    const mla_contract c = parsed("  aiter p_rounding=rz tile=32");
    cr_expect(c.p_rounding == MLA_RZ && c.tile == 32 && c.combine_lse && c.max_splits == 304);
}

static void expect_refused(const char *line, const char *message) {
    mla_contract contract;
    const mla_status status = mla_contract_parse(line, &contract);
    cr_expect_eq(status.code, MLA_EINVAL);
    cr_expect_str_eq(status.message, message);
}

Test(contract_preset, unknown_names_are_refused) {
    expect_refused("flash", "contract: 'flash' is neither key=value nor a preset (flashmla, aiter, triton-splitk, torch-bf16)");
    expect_refused("flashmla aiter", "contract: aiter: expected key=value");
    cr_expect_null(mla_contract_preset_line("flashmla2", 9));
    cr_expect_str_eq(mla_contract_preset_line("aiter and more", 5), mla_contract_preset_line("aiter", 5));
}

/* ---- kernels of each kind, simulated --------------------------------------------------------------------------------------------------- */

static void expect_passed(const char *name, const sim_kernel *sim) {
    const test_shape shape = {.batch = 2, .heads = 8, .q_len = {1, 1}, .kv_len = {100, 270}, .seed = 31};
    test_problem made = test_problem_make(&shape);
    mla_output output = test_output_make(&made.problem);
    const mla_contract contract = parsed(name);
    const mla_integrity intact = {.guard_offset = 0};
    mla_truth truth;
    mla_measure measure;
    cr_assert_eq(sim_kernel_run(sim, &made.problem, &output).code, MLA_OK);
    cr_assert_eq(mla_oracle_run(&made.problem, &contract, 0, 2, &truth).code, MLA_OK);
    cr_assert_eq(mla_measure_init(&measure, &made.problem).code, MLA_OK);
    mla_compare(&made.problem, &truth, &output, &measure);
    cr_assert_eq(mla_chi_settle(&made.problem, &contract, &measure).code, MLA_OK);
    const mla_verdict verdict = mla_judge(&measure, &intact);
    cr_expect_eq(verdict.status, MLA_PASSED, "%s: %s", name, verdict.reason);
    cr_expect(mla_chi_gating(&measure.chi) > 0.5, "%s: chi %g", name, mla_chi_gating(&measure.chi));
    mla_measure_free(&measure);
    mla_truth_free(&truth);
    test_output_free(&output);
    test_problem_free(&made);
}

Test(contract_preset, kernels_that_do_what_a_preset_says_pass) {
    for (const mla_contract_preset *preset = mla_contract_presets; preset->name; preset++) {
        sim_kernel sim = {.contract = parsed(preset->name), .splits = 4};
        sim.contract.tile = sim.contract.tile > 64 ? 512 : sim.contract.tile;
        expect_passed(preset->name, &sim);
    }
}
