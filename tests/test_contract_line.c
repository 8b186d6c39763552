#include "../verify/contract_line.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static mla_contract parsed(const char *line) {
    mla_contract contract;
    const mla_status status = mla_contract_parse(line, &contract);
    cr_assert_eq(status.code, MLA_OK, "%s: %s", line, status.message);
    return contract;
}

static void expect_line(const char *line, const char *printed) {
    const mla_contract contract = parsed(line);
    char *text = mla_contract_print(&contract);
    cr_expect_str_eq(text, printed);
    free(text);
}

#define DEFAULTS_BEFORE_P "acc_rounding=rne acc_bits=24 mma_k=1 scores=fp32 n_scores=1 q_scaled=none kv_dequant=none "

Test(contract_line, the_empty_line_is_the_default) {
    expect_line("", DEFAULTS_BEFORE_P "p=bf16 p_rounding=rne p_scale=1 rowsum=fp32 partial=fp32 combine=ml exp_error=4 tanh_error=8 "
                                      "log_error=4 max=exact ftz=0 out_rounding=rne tile=64 max_splits=32");
}

/* Every key away from its default, and back. */
Test(contract_line, a_printed_contract_parses_to_itself) {
    const char *line = "acc_rounding=rz acc_bits=14 mma_k=16 scores=bf16 n_scores=2 q_scaled=fp16 kv_dequant=bf16 p=fp8 p_rounding=rz "
                       "p_scale=256 rowsum=p partial=fp16 combine=lse exp_error=1.5 tanh_error=0 log_error=0.10000000000000001 max=lazy "
                       "ftz=1 out_rounding=rz tile=32 max_splits=7";
    expect_line(line, line);
    const mla_contract c = parsed(line);
    cr_expect(c.acc_rounding == MLA_RZ && c.scores == MLA_BF16 && c.q_scaled == MLA_FP16 && c.p == MLA_FP8 && c.p_scale == 256);
    cr_expect(c.rowsum_of_rounded_p && c.combine_lse && c.lazy_max && c.ftz && c.out_rounding == MLA_RZ);
    cr_expect(c.exp_error == 1.5 && c.log_error == 0.1 && c.tile == 32 && c.max_splits == 7);
}

Test(contract_line, any_order_and_blanks) {
    const mla_contract c = parsed("\ttile=16   p=fp16 ");
    cr_expect(c.tile == 16 && c.p == MLA_FP16);
}

static void expect_error(const char *line, const char *reason) {
    mla_contract contract;
    const mla_status status = mla_contract_parse(line, &contract);
    cr_expect_eq(status.code, MLA_EINVAL, "%s", line);
    cr_expect(strstr(status.message, reason) != NULL, "'%s' is not in '%s'", reason, status.message);
}

Test(contract_line, errors_name_key_and_value) {
    expect_error("fast", "'fast' is neither key=value nor a preset");
    expect_error("speed=1", "there is no key 'speed'");
    expect_error("tile=16 tile=16", "tile is given twice");
    expect_error("tile=x", "tile=x: expected an integer");
    expect_error("tile=", "tile=: expected an integer");
    expect_error("tile=-1", "tile=-1: expected an integer");
    expect_error("tile=99999999999999999999", "expected an integer in 0 .. 2147483647");
    expect_error("p=fp7", "p=fp7");
    expect_error("p_rounding=up", "p_rounding=up: expected rne or rz");
    expect_error("ftz=yes", "ftz=yes: expected 0 or 1");
    expect_error("exp_error=nan", "exp_error=nan: expected a decimal number");
    expect_error("exp_error=1e999", "expected a decimal number");
    expect_error("p_scale=0x10", "expected a decimal number");
    expect_error("tile=0", "tile = 0 is less than 1");
    expect_error("p=none", "p = none");
}
