/*
 * A contract as one line of text: key=value pairs in any order, named after the fields of mla_contract. Unknown or repeated keys are errors. The name of a
 * preset may come first (contract_preset.h): it stands for its pairs, and those that follow take precedence.
 *
 *   acc_rounding  rne rz                       acc_bits, mma_k     integers
 *   scores        fp32 bf16 fp16               n_scores            integer
 *   q_scaled      none bf16 fp16               kv_dequant          none bf16 fp16
 *   p             bf16 fp16 fp32 fp8 fp8fnuz   p_rounding          rne rz
 *   p_scale       number                       rowsum              fp32, or p: of the rounded weights
 *   partial       fp32 bf16 fp16               combine             ml, or lse
 *   exp_error, tanh_error, log_error  numbers  max                 exact lazy
 *   ftz           0 1                          out_rounding        rne rz
 *   tile, max_splits  integers
 */
#ifndef MLA_CONTRACT_LINE_H
#define MLA_CONTRACT_LINE_H

#include "../ref/mla.h"

/* Keys left out have their defaults, or the preset's values. MLA_EINVAL names key and value. */
mla_status mla_contract_parse(const char *line, mla_contract *contract) MLA_CHECKED;
/* Every key, in the table's order. Allocated; free(). NULL: out of memory. */
char *mla_contract_print(const mla_contract *contract);

#endif
