#include "../verify/chi.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../verify/judge.h"
#include "support_problem.h"
#include "support_simkernel.h"

/* ---- limits by hand ------------------------------------------------------------------------------------------------------------------- */

/* 512 independent errors of unit variance: tr K = 512, |K|_F = sqrt(512), |K|_2 = 1; t = ln(1e6) = 13.8. */
Test(chi, limit_of_independent_columns) {
    const mla_row_spread spread = {.trace = 512, .frobenius = sqrt(512), .spectral = 1};
    const double walk = sqrt(13.8 / 512), tail = 2 * 13.8 / 512;
    cr_expect_float_eq(mla_chi_limit(&spread, 1), sqrt(1 + 2 * walk + tail), 1e-6);
    cr_expect_float_eq(mla_chi_limit(&spread, 100), sqrt(1 + 2 * walk / 10 + tail / 100), 1e-6);
}

/* Mantissas taken for the worst ones: 1.85 for 1, which is more than they stray in many rows. */
Test(chi, limit_of_weights_over_many_rows) {
    const mla_row_spread spread = {.trace = 947, .frobenius = 60, .spectral = 20};
    const double walk = sqrt(13.8 / 64) * 60 / 512;
    cr_expect_float_eq(mla_chi_limit(&spread, 64), sqrt(1 + 2.54 * walk + 2 * 13.8 * 20 / (64 * 512)), 1e-6);
}

/* One rounding that all columns share. */
Test(chi, limit_of_one_error) {
    const mla_row_spread spread = {.trace = 512, .frobenius = 512, .spectral = 512, .shift = 0.25};
    cr_expect_float_eq(mla_chi_limit(&spread, 1), 0.25 + sqrt(1 + 2 * sqrt(13.8) + 2 * 13.8), 1e-6);
}

/* ---- kernels --------------------------------------------------------------------------------------------------------------------------- */

static const test_shape shape = {.batch = 2, .heads = 48, .q_len = {1, 1}, .kv_len = {130, 190}, .seed = 11};

typedef struct grading {
    mla_verdict verdict;
    double chi, over_bound;
} grading;

/* What the verifier says of a kernel that declares `contract`. */
static grading grade(const mla_problem *problem, const sim_kernel *sim, const mla_contract *contract) {
    mla_output output = test_output_make(problem);
    mla_truth truth;
    mla_measure measure;
    const mla_integrity intact = {.guard_offset = 0};
    cr_assert_eq(sim_kernel_run(sim, problem, &output).code, MLA_OK);
    cr_assert_eq(mla_oracle_run(problem, contract, 0, problem->total_q, &truth).code, MLA_OK);
    cr_assert_eq(mla_measure_init(&measure, problem).code, MLA_OK);
    mla_compare(problem, &truth, &output, &measure);
    cr_assert_eq(mla_chi_settle(problem, contract, &measure).code, MLA_OK);
    const grading got = {mla_judge(&measure, &intact), mla_chi_gating(&measure.chi), measure.max_err_over_bound};
    mla_measure_free(&measure);
    mla_truth_free(&truth);
    test_output_free(&output);
    return got;
}

/* Right when what it does is declared. */
static void expect_explained(const mla_problem *problem, const sim_kernel *sim) {
    const grading got = grade(problem, sim, &sim->contract);
    cr_expect_eq(got.verdict.status, MLA_PASSED, "%s", got.verdict.reason);
    cr_expect(got.chi > 0.75 && got.chi < 1.05, "chi %g", got.chi);
}

/* No element is outside its bound; chi alone sees it. */
static void expect_seen(const char *what, const mla_problem *problem, const sim_kernel *sim, const mla_contract *contract) {
    const grading got = grade(problem, sim, contract);
    cr_expect_eq(got.verdict.status, MLA_FAILED, "%s: chi %g", what, got.chi);
    cr_expect(got.chi > 1.10 && got.over_bound < 1, "%s: chi %g, |e|/B %g", what, got.chi, got.over_bound);
}

Test(chi, right_kernels_of_many_contracts_pass) {
    test_problem made = test_problem_make(&shape);
    sim_kernel sim = sim_kernel_default();
    expect_explained(&made.problem, &sim);
    sim.splits = 4;
    sim.contract.combine_lse = true;
    sim.contract.partial = MLA_BF16;
    expect_explained(&made.problem, &sim);
    sim = sim_kernel_default();
    sim.contract.scores = MLA_BF16;
    expect_explained(&made.problem, &sim);
    sim.contract.p = MLA_FP8;
    sim.contract.p_scale = 256;
    sim.contract.rowsum_of_rounded_p = true;
    expect_explained(&made.problem, &sim);
    sim = sim_kernel_default();
    sim.contract.p_rounding = MLA_RZ;
    sim.contract.out_rounding = MLA_RZ;
    expect_explained(&made.problem, &sim);
    sim = sim_kernel_default();
    sim.contract.q_scaled = MLA_BF16;
    expect_explained(&made.problem, &sim);
    test_problem_free(&made);
}

Test(chi, undeclared_roundings_fail) {
    test_problem made = test_problem_make(&shape);
    const mla_contract contract = mla_contract_default();
    sim_kernel sim = sim_kernel_default();
    sim.hides_scores = true, sim.hidden_scores = MLA_BF16;
    expect_seen("scores in bf16", &made.problem, &sim, &contract);
    sim = sim_kernel_default();
    sim.truncates_p = true;
    expect_seen("P toward zero", &made.problem, &sim, &contract);
    sim = sim_kernel_default();
    sim.accumulator_bits = 11;
    expect_seen("accumulator of 11 bits", &made.problem, &sim, &contract);
    sim = sim_kernel_default();
    sim.contract.out_rounding = MLA_RZ;
    expect_seen("out toward zero", &made.problem, &sim, &contract);
    sim = sim_kernel_default();
    sim.splits = 8, sim.contract.partial = MLA_BF16;
    expect_seen("partials in bf16", &made.problem, &sim, &contract);
    test_problem_free(&made);
}

Test(chi, a_scale_off_by_a_thousandth_fails) {
    test_problem made = test_problem_make(&shape);
    const mla_contract contract = mla_contract_default();
    sim_kernel sim = sim_kernel_default();
    sim.scale_error = 1e-3;
    expect_seen("scale", &made.problem, &sim, &contract);
    test_problem_free(&made);
}

/* A bf16 accumulator is too coarse for the bound, too. */
Test(chi, an_accumulator_in_bf16_fails) {
    test_problem made = test_problem_make(&shape);
    const mla_contract contract = mla_contract_default();
    sim_kernel sim = sim_kernel_default();
    sim.accumulator_bits = 8;
    cr_expect_eq(grade(&made.problem, &sim, &contract).verdict.status, MLA_FAILED);
    test_problem_free(&made);
}

/* One key takes nearly all the weight: its rounding moves all columns, and a row's chi may be large by chance. */
Test(chi, a_row_on_one_rounding_has_a_limit_of_its_own) {
    const test_shape one = {.heads = 16, .q_len = {1}, .kv_len = {3}, .q_std = 0.7f, .out_format = MLA_FP32, .seed = 12};
    test_problem made = test_problem_make(&one);
    const sim_kernel sim = sim_kernel_default();
    const grading got = grade(&made.problem, &sim, &sim.contract);
    cr_expect_eq(got.verdict.status, MLA_PASSED, "%s", got.verdict.reason);
    test_problem_free(&made);
}

/* Flat rows in fp32 have no error but accumulation's, and do not gate. Of 128 rows the first alone does: no sample at equal steps meets it. */
Test(chi, a_case_of_one_gating_row_has_that_rows_limit) {
    const test_shape flat = {.heads = 128, .q_len = {1}, .kv_len = {60}, .out_format = MLA_FP32, .seed = 21};
    test_problem made = test_problem_make(&flat);
    const mla_contract contract = mla_contract_default();
    mla_row_spread spread;
    mla_measure measure;
    memset((char *)made.q + MLA_HEAD_DIM * sizeof(uint16_t), 0, 127 * MLA_HEAD_DIM * sizeof(uint16_t));
    cr_assert_eq(mla_measure_init(&measure, &made.problem).code, MLA_OK);
    measure.chi = (mla_chi){.rows = 1, .square_sum = 2 << 16, .worst = {.row = 0, .chi = sqrt(2)}};
    cr_assert_eq(mla_chi_settle(&made.problem, &contract, &measure).code, MLA_OK);
    cr_assert_eq(mla_oracle_row_spread(&made.problem, &contract, 1, &spread).code, MLA_OK);
    cr_assert_not(spread.gates);
    cr_assert_eq(mla_oracle_row_spread(&made.problem, &contract, 0, &spread).code, MLA_OK);
    cr_assert(spread.gates && mla_chi_limit(&spread, 1) > MLA_CHI_CASE);
    cr_expect_eq(measure.chi.limit, mla_chi_limit(&spread, 1));
    mla_measure_free(&measure);
    test_problem_free(&made);
}

/* Two halves of opposite sums, each rounded to bf16: how large they are is the data's doing, and no estimate's. */
Test(chi, partials_of_unknown_size_have_a_wider_limit) {
    test_problem made = test_problem_make(&shape);
    mla_contract contract = mla_contract_default();
    mla_row_spread spread;
    contract.p = MLA_FP32;
    contract.partial = MLA_BF16;
    cr_assert_eq(mla_oracle_row_spread(&made.problem, &contract, 0, &spread).code, MLA_OK);
    cr_expect_gt(spread.frobenius, 1.5 * sqrt(512), "%g", spread.frobenius);
    cr_expect_lt(spread.frobenius, 2 * sqrt(512), "%g", spread.frobenius);
    test_problem_free(&made);
}
