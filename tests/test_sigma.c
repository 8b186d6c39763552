#include "support_problem.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* ---- numbers -------------------------------------------------------------------------------------------------------------------------- */

/* Of columns 0 and 301 of a problem's only row, and of the row. */
typedef struct expectation {
    double first, other;
    mla_row_spread spread;
    int doubts;
} expectation;

static expectation measure(const mla_problem *problem, const mla_contract *contract) {
    mla_truth truth;
    expectation got;
    mla_status status = mla_oracle_run(problem, contract, 0, 1, &truth);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    status = mla_oracle_row_spread(problem, contract, 0, &got.spread);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    got.first = truth.sigma[0], got.other = truth.sigma[301], got.doubts = truth.doubts[0];
    mla_truth_free(&truth);
    return got;
}

static bool close(double got, double expected, double relative) {
    return fabs(got - expected) <= relative * fabs(expected);
}

/* The power iteration comes from below and has not quite arrived. */
static void expect(const char *name, const mla_problem *problem, const mla_contract *contract, expectation expected) {
    const expectation got = measure(problem, contract);
    cr_expect(close(got.first, expected.first, 1e-9), "%s: sigma %.17g", name, got.first);
    cr_expect(close(got.other, expected.other, 1e-9), "%s: sigma %.17g", name, got.other);
    cr_expect(close(got.spread.trace, expected.spread.trace, 1e-9), "%s: trace %.17g", name, got.spread.trace);
    cr_expect(close(got.spread.frobenius, expected.spread.frobenius, 1e-9), "%s: Frobenius %.17g", name, got.spread.frobenius);
    cr_expect(close(got.spread.spectral, expected.spread.spectral, 1e-5), "%s: spectral %.17g", name, got.spread.spectral);
    cr_expect(close(got.spread.shift, expected.spread.shift, 1e-9), "%s: shift %.17g", name, got.spread.shift);
    cr_expect_eq(got.doubts, expected.doubts, "%s: doubts %d", name, got.doubts);
    cr_expect_eq(got.spread.gates, expected.doubts == 0, "%s", name);
}

/* The expected numbers come from an independent implementation of the same formulas in another language. */
Test(sigma, roundings_of_weights_and_output) {
    test_problem made = test_problem_hashed(300);
    mla_contract contract = mla_contract_default();
    expect("default", &made.problem, &contract,
           (expectation){0.00016231214921419299,
                         0.00033827259182331901,
                         {766.08679796490878, 268.89946198751386, 199.15733864744087, 3.4376379295522878e-34, true},
                         0});
    contract.p = MLA_FP8, contract.p_scale = 256;
    expect("p fp8", &made.problem, &contract,
           (expectation){0.0025817078958885178,
                         0.0030046750025469532,
                         {929.50501092523018, 452.55478993779332, 356.75553506492696, 2.7854572615842141e-35, true},
                         0});
    contract = mla_contract_default();
    contract.p = MLA_FP16;
    expect("p fp16", &made.problem, &contract,
           (expectation){2.6781361607782021e-05,
                         0.00028287640536855702,
                         {576.67705590624621, 72.707794552681065, 50.589056975080439, 1.3898643453478373e-33, true},
                         0});
    contract = mla_contract_default();
    contract.p_rounding = contract.out_rounding = MLA_RZ;
    expect("p, out rz", &made.problem, &contract,
           (expectation){0.00017427303404985413,
                         0.0011482296196594322,
                         {259.64973716381439, 109.93953537778246, 77.071613535319599, 0.81674258668821698, true},
                         0});
    contract = mla_contract_default();
    contract.rowsum_of_rounded_p = true;
    expect("rowsum p", &made.problem, &contract,
           (expectation){0.00016220811892755574,
                         0.00033442739444553688,
                         {763.93934463605171, 268.61737147524838, 199.82629994292063, 3.4466265486633158e-34, true},
                         0});
    contract = mla_contract_default();
    contract.lazy_max = true;
    expect("lazy", &made.problem, &contract,
           (expectation){0.00016298728063736826,
                         0.00034155727174623157,
                         {769.71835187888337, 272.27785613934037, 191.52939443325567, 3.3823829622614778e-34, true},
                         0});
    contract = mla_contract_default();
    contract.p = MLA_FP32, made.problem.out_format = MLA_FP32;
    expect("p, out fp32", &made.problem, &contract,
           (expectation){8.3309270060873659e-08,
                         1.479685280300976e-07,
                         {512, 22.627416997969522, 1.0000000000000002, 7.4622771683800149e-31, false},
                         MLA_CHI_ORDER});
    test_problem_free(&made);
}

Test(sigma, roundings_of_operands_scores_and_partials) {
    test_problem made = test_problem_hashed(300);
    mla_contract contract = mla_contract_default();
    contract.scores = MLA_BF16;
    expect("scores bf16", &made.problem, &contract,
           (expectation){0.00042790640821693674,
                         0.00058875851733336797,
                         {561.49833076440871, 241.92518346414718, 172.29122265541619, 1.5246654142194813e-34, true},
                         0});
    contract.n_scores = 2;
    expect("scores bf16 x2", &made.problem, &contract,
           (expectation){0.00058297731911602607,
                         0.00076081853098245822,
                         {540.23227044180805, 245.4473883755266, 174.40545292491055, 1.1518923247448498e-34, true},
                         0});
    contract = mla_contract_default();
    contract.q_scaled = MLA_BF16;
    expect("q_scaled", &made.problem, &contract,
           (expectation){0.00020100307439676943,
                         0.00036491508903445017,
                         {5067.1596979316892, 3129.4185977697748, 2411.3770893000378, 2.9131695142600976e-34, true},
                         0});
    contract = mla_contract_default();
    contract.kv_dequant = MLA_BF16;
    expect("kv_dequant", &made.problem, &contract,
           (expectation){0.00025372929075189414,
                         0.00040846383433666586,
                         {695.38520361582073, 194.675187558608, 141.22869495114628, 2.414285240769908e-34, true},
                         0});
    contract = mla_contract_default();
    contract.combine_lse = true, contract.partial = MLA_BF16;
    expect("lse", &made.problem, &contract,
           (expectation){0.00023002191306858676,
                         0.0004807178948046487,
                         {896.55024549301584, 136.74742253326312, 98.528785635079899, 2.4121447914896035e-34, true},
                         0});
    contract = mla_contract_default();
    contract.acc_rounding = MLA_RZ, contract.mma_k = 16;
    expect("acc rz", &made.problem, &contract,
           (expectation){0.00016231238861807971,
                         0.00033827281526300498,
                         {766.08619540237794, 268.89882931467974, 199.15686491704307, 3.4376338614471776e-34, true},
                         0});
    contract = mla_contract_default();
    made.problem.softcap = 2;
    expect("softcap", &made.problem, &contract,
           (expectation){0.00014916192372349643,
                         0.00032318555742504338,
                         {777.50728220431847, 275.13436719982838, 196.72418568883259, 2.2950421714036755e-34, true},
                         0});
    made.problem.softcap = 0;
    const float sink = 1.5f;
    made.problem.sink = &sink;
    expect("sink", &made.problem, &contract,
           (expectation){0.00016100214373131091,
                         0.00033743099706660072,
                         {766.28582380702767, 269.20070636848186, 199.7221524798511, 3.4392061360014455e-34, true},
                         0});
    test_problem_free(&made);
}

/* Every score comes several times: errors of equal weights are one row of Y. */
Test(sigma, repeated_scores) {
    test_problem made = test_problem_patterned(70);
    mla_contract contract = mla_contract_default();
    expect("default", &made.problem, &contract,
           (expectation){0.00013611955259351741,
                         0.00013992033626193448,
                         {3808.7854680707351, 1607.4638106452246, 863.09248120302891, 0.00026214181029427018, false},
                         MLA_CHI_REPEATED});
    contract.p = MLA_FP8, contract.p_scale = 256;
    expect("p fp8", &made.problem, &contract,
           (expectation){0.00186459258498838,
                         0.0019352758224191159,
                         {4564.6368290523869, 2433.2132242717985, 1676.5870084302783, 0.00026214181029427018, false},
                         MLA_CHI_NARROW | MLA_CHI_REPEATED});
    contract = mla_contract_default();
    contract.rowsum_of_rounded_p = true;
    expect("rowsum p", &made.problem, &contract,
           (expectation){0.00013751480171500218,
                         0.0001401287050735233,
                         {3824.2914032201957, 1585.1622793866625, 843.7584486480398, 0.00026214181029427018, false},
                         MLA_CHI_REPEATED});
    contract = mla_contract_default();
    contract.scores = MLA_BF16, contract.n_scores = 2;
    expect("scores bf16 x2", &made.problem, &contract,
           (expectation){0.00014161158589565115,
                         0.00014185052167003937,
                         {3891.543100519827, 1559.1679485282796, 794.11419182463874, 0.00026214181029427018, false},
                         MLA_CHI_REPEATED});
    test_problem_free(&made);
}

/* ---- by hand --------------------------------------------------------------------------------------------------------------------------- */

/* Two keys whose scores are 2 and 0; v_0 is 1 and 0.75 in column 0 of either. */
static test_problem two_keys(void) {
    const test_shape shape = {.heads = 1, .q_len = {1}, .kv_len = {2}, .seed = 3};
    test_problem made = test_problem_make(&shape);
    float q[MLA_HEAD_DIM] = {[520] = 48}, first[MLA_HEAD_DIM] = {[0] = 1, [520] = 1}, second[MLA_HEAD_DIM] = {[0] = 0.75f};
    mla_encode_f32(MLA_BF16, q, MLA_HEAD_DIM, made.q);
    test_problem_set_slot(&made, 0, first);
    test_problem_set_slot(&made, 1, second);
    return made;
}

/*
 * The first weight is 1 and exact. The second is off by u / sqrt(3) in the worst case, which counts since one mantissa is no spread of mantissas. out
 * lies between 1/2 and 1, where bf16 has steps of 2^-8.
 */
Test(sigma, two_keys_by_hand) {
    test_problem made = two_keys();
    mla_contract contract = mla_contract_default();
    const double p = 1 / (1 + exp(2)), out2 = 0x1p-16 / 12, rounded2 = 0x1p-16 / 3 * p * p * 0.75 * 0.75;
    expectation got = measure(&made.problem, &contract);
    cr_expect(close(got.first, sqrt(out2 + rounded2), 1e-5), "%.17g", got.first);
    cr_expect_eq(got.doubts, MLA_CHI_NARROW, "one rounding does not average");
    contract.p_rounding = MLA_RZ;
    got = measure(&made.problem, &contract);
    cr_expect(close(got.first, sqrt(out2 + 4 * rounded2), 1e-5), "%.17g", got.first);
    contract.p = MLA_FP32;
    got = measure(&made.problem, &contract);
    cr_expect(close(got.first, sqrt(out2), 1e-5), "%.17g", got.first);
    cr_expect_eq(got.doubts, 0);
    contract.scores = MLA_BF16;
    got = measure(&made.problem, &contract);
    const double o = 1 - 0.25 * p, score = 0x1p-8 / sqrt(3) * 2 * (1 - p) * (1 - o);
    cr_expect(close(got.first, sqrt(out2 + score * score), 1e-5), "%.17g", got.first);
    test_problem_free(&made);
}

/* K of the same row: the diagonal, and one rounding that moves column 0 alone. */
Test(sigma, two_keys_spread_by_hand) {
    test_problem made = two_keys();
    const mla_contract contract = mla_contract_default();
    const expectation got = measure(&made.problem, &contract);
    cr_expect(close(got.spread.trace, 512, 1e-6), "%.17g", got.spread.trace);
    cr_expect(close(got.spread.frobenius, sqrt(512), 1e-6), "%.17g", got.spread.frobenius);
    cr_expect(close(got.spread.spectral, 1, 1e-6), "%.17g", got.spread.spectral);
    cr_expect_lt(got.spread.shift, 1e-3, "%.17g", got.spread.shift);
    test_problem_free(&made);
}

/* ---- rows that do not gate ----------------------------------------------------------------------------------------------------------------- */

Test(sigma, doubts) {
    test_problem made = test_problem_hashed(60);
    mla_contract contract = mla_contract_default();
    cr_expect_eq(measure(&made.problem, &contract).doubts, 0);
    contract.acc_bits = 14;
    cr_expect_eq(measure(&made.problem, &contract).doubts, MLA_CHI_ORDER);
    contract.acc_bits = 8;
    cr_expect_eq(measure(&made.problem, &contract).doubts, MLA_CHI_ORDER | MLA_CHI_HULL);
    contract = mla_contract_default();
    made.problem.sm_scale = 2.5e-4f;
    cr_expect_eq(measure(&made.problem, &contract).doubts, MLA_CHI_NARROW);
    test_problem_free(&made);
}

/* fp8 has eight mantissas: rounded once more, it has eight errors. */
Test(sigma, coarse_operands_that_are_rounded_again_do_not_gate) {
    const test_shape shape = {
        .heads = 1, .q_len = {1}, .kv_len = {200}, .q_format = MLA_FP8, .kv_format = MLA_KV_FP8, .kv_std = 1, .seed = 7};
    test_problem made = test_problem_make(&shape);
    mla_contract contract = mla_contract_default();
    cr_expect_eq(measure(&made.problem, &contract).doubts, 0);
    contract.q_scaled = MLA_BF16;
    cr_expect_eq(measure(&made.problem, &contract).doubts, MLA_CHI_REPEATED);
    contract = mla_contract_default();
    contract.kv_dequant = MLA_BF16;
    cr_expect_eq(measure(&made.problem, &contract).doubts, MLA_CHI_REPEATED);
    test_problem_free(&made);
}

/* Weights that are 1 but for exp2's own error: truncated, they lose a whole step. */
Test(sigma, truncated_weights_next_to_one_do_not_gate) {
    test_problem made = test_problem_hashed(60);
    mla_contract contract = mla_contract_default();
    memset(made.q, 0, MLA_HEAD_DIM * 2);
    made.problem.out_format = MLA_FP16;
    contract.p_rounding = MLA_RZ;
    cr_expect_eq(measure(&made.problem, &contract).doubts & MLA_CHI_REPEATED, MLA_CHI_REPEATED);
    test_problem_free(&made);
}

/* All weights are 1: no rounding, nothing to doubt. */
Test(sigma, flat_scores_gate_by_the_output_alone) {
    const test_shape shape = {.heads = 1, .q_len = {1}, .kv_len = {60}, .seed = 5};
    test_problem made = test_problem_make(&shape);
    const mla_contract contract = mla_contract_default();
    memset(made.q, 0, MLA_HEAD_DIM * 2);
    mla_truth truth;
    cr_assert_eq(mla_oracle_run(&made.problem, &contract, 0, 1, &truth).code, MLA_OK);
    cr_expect_eq(truth.doubts[0], 0);
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        cr_expect(fabs(truth.out[c]) < 0x1p-6 || close(truth.sigma[c], mla_ulp(MLA_BF16, truth.out[c]) / sqrt(12), 1e-4),
                  "column %d: %.17g", c, truth.sigma[c]);
    mla_truth_free(&truth);
    test_problem_free(&made);
}

/* The mean of 1 and 1 + 2^-7 is half way between two neighbours of bf16, in every column. */
Test(sigma, outputs_far_from_what_the_format_holds_do_not_gate) {
    test_problem made = two_keys();
    float first[MLA_HEAD_DIM], second[MLA_HEAD_DIM];
    for (int d = 0; d < MLA_HEAD_DIM; d++)
        first[d] = 1, second[d] = 1 + 0x1p-7f;
    test_problem_set_slot(&made, 0, first);
    test_problem_set_slot(&made, 1, second);
    memset(made.q, 0, MLA_HEAD_DIM * 2);
    const mla_contract contract = mla_contract_default();
    cr_expect_eq(measure(&made.problem, &contract).doubts, MLA_CHI_REPEATED);
    made.problem.out_format = MLA_FP16;
    cr_expect_eq(measure(&made.problem, &contract).doubts, 0, "fp16 holds it");
    test_problem_free(&made);
}

Test(sigma, an_empty_row_has_none) {
    const test_shape shape = {.heads = 2, .q_len = {1}, .kv_len = {0}, .seed = 4};
    test_problem made = test_problem_make(&shape);
    const mla_contract contract = mla_contract_default();
    mla_truth truth;
    mla_row_spread spread;
    cr_assert_eq(mla_oracle_run(&made.problem, &contract, 0, 1, &truth).code, MLA_OK);
    cr_expect(truth.sigma[0] == 0 && truth.doubts[1] == 0);
    cr_expect_eq(mla_oracle_row_spread(&made.problem, &contract, 1, &spread).code, MLA_OK);
    cr_expect(spread.trace == 0 && spread.shift == 0 && !spread.gates);
    cr_expect_eq(mla_oracle_row_spread(&made.problem, &contract, 2, &spread).code, MLA_EINVAL);
    cr_expect_eq(mla_oracle_row_spread(&made.problem, &contract, -1, &spread).code, MLA_EINVAL);
    mla_truth_free(&truth);
    test_problem_free(&made);
}
