#include "../verify/exactness.h"

#include <criterion/criterion.h>

#include "../verify/contract_line.h"

static bool is_bitwise(const char *case_line, const char *contract_line) {
    mla_case test;
    mla_contract contract;
    cr_assert_eq(mla_case_parse(case_line, &test).code, MLA_OK);
    cr_assert_eq(mla_contract_parse(contract_line, &contract).code, MLA_OK);
    const bool bitwise = mla_is_bitwise(&test, &contract);
    mla_case_free(&test);
    return bitwise;
}

Test(exactness, of_inputs) {
    cr_expect(is_bitwise("kv_len=40 input=exact", ""));
    cr_expect(is_bitwise("kv_len=40 input=exact out=fp16", ""));
    cr_expect_not(is_bitwise("kv_len=40 input=exact out=fp32", ""), "l may err, and fp32 would show it");
    cr_expect_not(is_bitwise("kv_len=40", ""));
}

Test(exactness, of_contracts) {
    const char *line = "kv_len=40 input=exact";
    cr_expect(is_bitwise(line, "acc_rounding=rz acc_bits=8 mma_k=16 scores=bf16 q_scaled=bf16 kv_dequant=bf16 rowsum=p ftz=1"));
    cr_expect(is_bitwise(line, "p=fp8 p_scale=256"));
    cr_expect_not(is_bitwise(line, "p=fp8 p_scale=100"), "100 is rounded to 104");
    cr_expect_not(is_bitwise(line, "p=fp32"), "a weight next to 1 stays there");
    cr_expect_not(is_bitwise(line, "p_rounding=rz"));
    cr_expect_not(is_bitwise(line, "max=lazy"));
    cr_expect_not(is_bitwise(line, "partial=bf16"));
    cr_expect_not(is_bitwise(line, "combine=lse"));
    cr_expect_not(is_bitwise(line, "out_rounding=rz"));
}
