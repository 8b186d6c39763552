/* The planted bugs that need no source. To add one: a line here, and its hook in mutant_inputs.c or mutant_outputs.c. */
#include <math.h>
#include <string.h>

#include "memory.h"
#include "mutant.h"

const mla_mutant mla_mutants[] = {
    /* which tokens */
    {"wrong_sequence", "a sequence reads the next one's KV", .cause = MLA_CAUSE_SEQUENCE, .applies = mla_applies_batch,
     .tokens = mla_tokens_wrong_sequence},
    {"shifted_indptr", "a sequence's KV begins one token early", .cause = MLA_CAUSE_SHIFT, .applies = mla_applies_batch,
     .tokens = mla_tokens_shifted},
    {"drop_first", "the first token is missing", .cause = MLA_CAUSE_TOKEN_MISSING, .applies = mla_applies_tokens,
     .tokens = mla_tokens_drop_first},
    {"drop_middle", "the middle token is missing", .cause = MLA_CAUSE_TOKEN_MISSING, .applies = mla_applies_tokens,
     .tokens = mla_tokens_drop_middle},
    {"drop_last", "the last token is missing", .cause = MLA_CAUSE_TOKEN_MISSING, .applies = mla_applies_tokens,
     .tokens = mla_tokens_drop_last},
    {"double_first", "the first token counts twice", .cause = MLA_CAUSE_TOKEN_TWICE, .applies = mla_applies_tokens,
     .tokens = mla_tokens_double_first},
    {"double_middle", "the middle token counts twice", .cause = MLA_CAUSE_TOKEN_TWICE, .applies = mla_applies_tokens,
     .tokens = mla_tokens_double_middle},
    {"double_last", "the last token counts twice", .cause = MLA_CAUSE_TOKEN_TWICE, .applies = mla_applies_tokens,
     .tokens = mla_tokens_double_last},
    {"leak_before", "the token before the sequence is seen", .cause = MLA_CAUSE_TOKEN_LEAKED, .applies = mla_applies_batch,
     .tokens = mla_tokens_leak_before},
    {"leak_middle", "a neighbour's token is seen", .cause = MLA_CAUSE_TOKEN_LEAKED, .applies = mla_applies_batch,
     .tokens = mla_tokens_leak_middle},
    {"leak_after", "the token after the sequence is seen", .cause = MLA_CAUSE_TOKEN_LEAKED, .applies = mla_applies_batch,
     .tokens = mla_tokens_leak_after},
    {"drop_tile", "tokens 32 .. 63 are missing", .cause = MLA_CAUSE_RANGE_MISSING, .applies = mla_applies_tokens,
     .tokens = mla_tokens_drop_tile},
    {"drop_tail", "tokens after the last whole tile of 32 are missing", .cause = MLA_CAUSE_RANGE_MISSING, .applies = mla_applies_tokens,
     .tokens = mla_tokens_drop_tail},
    {"drop_split", "the second of three splits is missing", .cause = MLA_CAUSE_RANGE_MISSING, .applies = mla_applies_tokens,
     .tokens = mla_tokens_drop_split},
    {"first_half", "the second half is missing", .cause = MLA_CAUSE_RANGE_MISSING, .applies = mla_applies_tokens,
     .tokens = mla_tokens_first_half},
    {"next_page", "the page table is read one entry late", .applies = mla_applies_paged, .before = mla_before_next_page},
    {"page_tail", "one token too many of the last page", .applies = mla_applies_paged, .before = mla_before_page_tail},
    {"next_index", "the token list is read one entry late", .applies = mla_applies_list, .before = mla_before_next_index},
    {"absent_read", "absent entries of a sparse list read slot 0", .applies = mla_applies_sparse, .before = mla_before_absent_read},
    /* masks and scores */
    {"causal_off", "the causal mask is ignored", .applies = mla_applies_causal, .before = mla_before_not_causal},
    {"causal_less", "every query sees one key too few", .applies = mla_applies_causal, .tokens = mla_tokens_drop_last},
    {"causal_more", "every query sees one key too many", .applies = mla_applies_causal, .tokens = mla_tokens_leak_after},
    {"causal_top_left", "the mask is aligned top left", .applies = mla_applies_causal, .tokens = mla_tokens_top_left},
    {"window_off", "the window is ignored", .amount = -INFINITY, .applies = mla_applies_window, .before = mla_before_window},
    {"window_less", "the window is one key short", .amount = -1, .applies = mla_applies_window, .before = mla_before_window},
    {"window_more", "the window is one key long", .amount = 1, .applies = mla_applies_window, .before = mla_before_window},
    {"softcap_off", "the soft-cap is ignored", .applies = mla_applies_softcap, .before = mla_before_no_softcap},
    {"sink_off", "the sink is ignored", .applies = mla_applies_sink, .before = mla_before_no_sink},
    {"one_query", "every query token gets the first one's result", .applies = mla_applies_queries, .before = mla_before_one_query},
    {"rope_ignored", "scores leave out the last 64 entries", .cause = MLA_CAUSE_ROPE, .before = mla_before_rope_ignored},
    {"equal_weights", "scores are 0", .cause = MLA_CAUSE_SCALE, .before = mla_before_zero_q},
    {"no_log2e", "exp2 for exp", .cause = MLA_CAUSE_SCALE, .amount = 0x1.62e42fefa39efp-1 - 1, .before = mla_before_scale},
    {"scale_0.05%", "sm_scale is 0.05 % too large", .cause = MLA_CAUSE_SCALE, .amount = 0.0005, .before = mla_before_scale},
    {"scale_0.1%", "sm_scale is 0.1 % too large", .cause = MLA_CAUSE_SCALE, .amount = 0.001, .before = mla_before_scale},
    {"scale_0.2%", "sm_scale is 0.2 % too large", .cause = MLA_CAUSE_SCALE, .amount = 0.002, .before = mla_before_scale},
    {"scale_0.5%", "sm_scale is 0.5 % too large", .cause = MLA_CAUSE_SCALE, .amount = 0.005, .before = mla_before_scale},
    {"scale_1%", "sm_scale is 1 % too large", .cause = MLA_CAUSE_SCALE, .amount = 0.01, .before = mla_before_scale},
    {"scale_5%", "sm_scale is 5 % too large", .cause = MLA_CAUSE_SCALE, .amount = 0.05, .before = mla_before_scale},
    {"scale_20%", "sm_scale is 20 % too large", .cause = MLA_CAUSE_SCALE, .amount = 0.2, .before = mla_before_scale},
    /* formats */
    {"swap_nibbles", "mxfp4: high nibble first", .applies = mla_applies_mxfp4, .before = mla_before_swap_nibbles},
    {"next_scale", "a block takes its neighbour's scale", .applies = mla_applies_block_scales, .before = mla_before_next_scale},
    {"fn_as_fnuz", "fp8: the other bias", .cause = MLA_CAUSE_KV_SCALE, .amount = 0.5, .applies = mla_applies_kv_scale,
     .before = mla_before_kv_scale},
    {"kv_scale_1%", "kv_scale is 1 % too large", .cause = MLA_CAUSE_KV_SCALE, .amount = 1.01, .applies = mla_applies_kv_scale,
     .before = mla_before_kv_scale},
    {"q_scale_1%", "q_scale is 1 % too large", .cause = MLA_CAUSE_SCALE, .amount = 1.01, .applies = mla_applies_q_scale,
     .before = mla_before_q_scale},
    /* where the output goes */
    {"swap_heads", "heads 0 and 1 are swapped", .cause = MLA_CAUSE_HEAD, .applies = mla_applies_heads, .after = mla_after_swap_heads},
    {"shift_columns", "columns are shifted by one", .cause = MLA_CAUSE_COLUMNS, .after = mla_after_shift_columns},
    {"swap_columns", "columns 8 and 9 are swapped", .cause = MLA_CAUSE_COLUMNS, .after = mla_after_swap_columns},
    {"earlier_row", "half a row is the row's before it", .after = mla_after_earlier_row},
    {"stale_element", "one element is never written", .cause = MLA_CAUSE_UNWRITTEN, .amount = MLA_POISON, .after = mla_after_fill_element},
    {"stale_column", "one column is never written", .cause = MLA_CAUSE_UNWRITTEN, .amount = MLA_POISON, .after = mla_after_fill_column},
    {"stale_row", "one row is never written", .cause = MLA_CAUSE_UNWRITTEN, .amount = MLA_POISON, .after = mla_after_fill_row},
    {"stale_head", "one head is never written", .cause = MLA_CAUSE_UNWRITTEN, .amount = MLA_POISON, .after = mla_after_fill_head},
    {"stale_lse", "one lse is never written", .cause = MLA_CAUSE_UNWRITTEN, .amount = MLA_POISON, .after = mla_after_fill_lse},
    {"zero_element", "one element is zero", .cause = MLA_CAUSE_ZERO, .after = mla_after_fill_element},
    {"zero_column", "one column is zero", .cause = MLA_CAUSE_ZERO, .after = mla_after_fill_column},
    {"zero_row", "one row is zero", .cause = MLA_CAUSE_ZERO, .after = mla_after_fill_row},
    {"zero_head", "one head is zero", .cause = MLA_CAUSE_ZERO, .after = mla_after_fill_head},
    {"all_zero", "the output is zero", .cause = MLA_CAUSE_ZERO, .after = mla_after_fill_all},
    /* the output's values */
    {"scaled_q", "the output is sm_scale q, no KV read", .cause = MLA_CAUSE_SCALED_Q, .after = mla_after_scaled_q},
    {"mean_of_v", "the output is the plain mean of V", .cause = MLA_CAUSE_MEAN, .after = mla_after_mean_of_v},
    {"v_scale_1%", "the output is 1 % too large", .cause = MLA_CAUSE_OUT_SCALE, .amount = 0.01, .after = mla_after_scale_out},
    {"toward_zero", "the output is cut, not rounded", .after = mla_after_toward_zero},
    {"one_bit_less", "the output is rounded to one bit less", .amount = 1, .after = mla_after_fewer_bits},
    {"two_bits_less", "the output is rounded to two bits less", .amount = 2, .after = mla_after_fewer_bits},
    {"next_code", "every output is one code too large", .after = mla_after_next_code},
    {"empty_nan", "rows without a key are NaN", .after = mla_after_empty_nan},
    /* the log-sum-exp */
    {"lse_base", "lse in base 2 for e, or e for 2", .cause = MLA_CAUSE_LSE_BASE, .after = mla_after_other_base},
    {"lse_no_max", "lse without the maximum", .cause = MLA_CAUSE_LSE_MAX, .after = mla_after_lse_without_max},
    {"lse_sink", "the sink is in the lse", .applies = mla_applies_sink, .after = mla_after_lse_with_sink},
    {"lse_swap", "lse of heads 0 and 1 are swapped", .applies = mla_applies_heads, .after = mla_after_swap_lse},
    {"lse_empty", "lse of rows without a key has the other sign", .after = mla_after_empty_sign},
    /* what may not matter */
    {"plan_whole", "no split", .benign = true, .amount = 1, .before = mla_before_plan},
    {"plan_7", "seven splits", .benign = true, .amount = 7, .before = mla_before_plan},
    {"plan_size_64", "splits of 64 tokens", .benign = true, .amount = -64, .before = mla_before_plan},
    {"plan_balanced", "a worker a compute unit", .benign = true, .before = mla_before_plan},
    {"reversed", "tokens in reverse order", .benign = true, .applies = mla_applies_tokens, .tokens = mla_tokens_reversed},
    {"rotated", "tokens rotated by a third", .benign = true, .applies = mla_applies_tokens, .tokens = mla_tokens_rotated},
};
const int mla_num_mutants = sizeof mla_mutants / sizeof *mla_mutants;

const mla_mutant *mla_mutant_find(const char *name) {
    for (int i = 0; i < mla_num_mutants; i++)
        if (strcmp(mla_mutants[i].name, name) == 0)
            return &mla_mutants[i];
    return NULL;
}
