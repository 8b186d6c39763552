/*
 * Planted bugs, to see whether the gate notices: transforms of what a kernel is given, or of what it wrote. They need no source, so they work around
 * any kernel. The truth stays the original problem's. Benign ones change nothing that may matter, and must pass.
 */
#ifndef MLA_MUTANT_H
#define MLA_MUTANT_H

#include "diagnose.h"
#include "inputs.h"

/* What a transform of outputs may look at. */
typedef struct mla_specimen {
    const mla_problem *problem; /* the original */
    const mla_truth *truth;     /* of all its rows */
} mla_specimen;

/* Tokens of one sequence, as slots of the original. */
typedef struct mla_token_list {
    int64_t *slots; /* room for twice the sequence's tokens, and two more */
    int64_t count;
} mla_token_list;

typedef struct mla_mutant mla_mutant;
struct mla_mutant {
    const char *name; /* one word */
    const char *what; /* one line */
    bool benign;
    mla_cause cause;                       /* what a diagnosis should say; NONE: there is no hypothesis for it */
    double amount;                         /* what the hooks make of it */
    bool (*applies)(const mla_problem *p); /* NULL: always. Where the kernel's bits stay as they are, the mutant does not show */
    /* At least one of the three is there. `tokens` lists what a sequence's tokens become (contiguous KV only), `before` edits inputs of its own. */
    void (*tokens)(const mla_problem *p, int32_t sequence, mla_token_list *list);
    void (*before)(const mla_mutant *m, mla_inputs *inputs);
    void (*after)(const mla_mutant *m, const mla_specimen *specimen, const mla_output *output); /* in host memory */
};

/* mutant_table.c */
extern const mla_mutant mla_mutants[];
extern const int mla_num_mutants;
/* NULL: no such mutant. */
const mla_mutant *mla_mutant_find(const char *name);

/* Inputs of `test` as the mutant gives them to the kernel; free with mla_inputs_free, also after failure. */
mla_status mla_mutant_inputs(const mla_mutant *m, const mla_case *test, mla_inputs *inputs) MLA_CHECKED;

/* ---- the table's hooks (mutant_inputs.c, mutant_outputs.c) --------------------------------------------------------------------------- */

bool mla_applies_batch(const mla_problem *p);   /* contiguous, unmasked, several sequences */
bool mla_applies_tokens(const mla_problem *p);  /* contiguous, unmasked */
bool mla_applies_causal(const mla_problem *p);  /* contiguous, causal, no window */
bool mla_applies_queries(const mla_problem *p); /* several query tokens a sequence */
bool mla_applies_window(const mla_problem *p);
bool mla_applies_softcap(const mla_problem *p);
bool mla_applies_sink(const mla_problem *p);
bool mla_applies_paged(const mla_problem *p);
bool mla_applies_list(const mla_problem *p);
bool mla_applies_sparse(const mla_problem *p);
bool mla_applies_mxfp4(const mla_problem *p);
bool mla_applies_block_scales(const mla_problem *p);
bool mla_applies_kv_scale(const mla_problem *p);
bool mla_applies_q_scale(const mla_problem *p);
bool mla_applies_heads(const mla_problem *p);

void mla_tokens_wrong_sequence(const mla_problem *p, int32_t b, mla_token_list *list);
void mla_tokens_shifted(const mla_problem *p, int32_t b, mla_token_list *list);
void mla_tokens_drop_first(const mla_problem *p, int32_t b, mla_token_list *list);
void mla_tokens_drop_middle(const mla_problem *p, int32_t b, mla_token_list *list);
void mla_tokens_drop_last(const mla_problem *p, int32_t b, mla_token_list *list);
void mla_tokens_double_first(const mla_problem *p, int32_t b, mla_token_list *list);
void mla_tokens_double_middle(const mla_problem *p, int32_t b, mla_token_list *list);
void mla_tokens_double_last(const mla_problem *p, int32_t b, mla_token_list *list);
void mla_tokens_leak_before(const mla_problem *p, int32_t b, mla_token_list *list);
void mla_tokens_leak_after(const mla_problem *p, int32_t b, mla_token_list *list);
void mla_tokens_leak_middle(const mla_problem *p, int32_t b, mla_token_list *list);
void mla_tokens_drop_tile(const mla_problem *p, int32_t b, mla_token_list *list);
void mla_tokens_drop_tail(const mla_problem *p, int32_t b, mla_token_list *list);
void mla_tokens_drop_split(const mla_problem *p, int32_t b, mla_token_list *list);
void mla_tokens_first_half(const mla_problem *p, int32_t b, mla_token_list *list);
void mla_tokens_top_left(const mla_problem *p, int32_t b, mla_token_list *list);
void mla_tokens_reversed(const mla_problem *p, int32_t b, mla_token_list *list);
void mla_tokens_rotated(const mla_problem *p, int32_t b, mla_token_list *list);

void mla_before_scale(const mla_mutant *m, mla_inputs *in);
void mla_before_rope_ignored(const mla_mutant *m, mla_inputs *in);
void mla_before_zero_q(const mla_mutant *m, mla_inputs *in);
void mla_before_one_query(const mla_mutant *m, mla_inputs *in);
void mla_before_not_causal(const mla_mutant *m, mla_inputs *in);
void mla_before_window(const mla_mutant *m, mla_inputs *in);
void mla_before_no_softcap(const mla_mutant *m, mla_inputs *in);
void mla_before_no_sink(const mla_mutant *m, mla_inputs *in);
void mla_before_next_page(const mla_mutant *m, mla_inputs *in);
void mla_before_page_tail(const mla_mutant *m, mla_inputs *in);
void mla_before_next_index(const mla_mutant *m, mla_inputs *in);
void mla_before_absent_read(const mla_mutant *m, mla_inputs *in);
void mla_before_swap_nibbles(const mla_mutant *m, mla_inputs *in);
void mla_before_next_scale(const mla_mutant *m, mla_inputs *in);
void mla_before_kv_scale(const mla_mutant *m, mla_inputs *in);
void mla_before_q_scale(const mla_mutant *m, mla_inputs *in);
void mla_before_plan(const mla_mutant *m, mla_inputs *in); /* amount: splits; 0 balanced; negative: tokens a split */

void mla_after_swap_heads(const mla_mutant *m, const mla_specimen *s, const mla_output *output);
void mla_after_shift_columns(const mla_mutant *m, const mla_specimen *s, const mla_output *output);
void mla_after_swap_columns(const mla_mutant *m, const mla_specimen *s, const mla_output *output);
/* amount: the byte to fill with */
void mla_after_fill_element(const mla_mutant *m, const mla_specimen *s, const mla_output *output);
void mla_after_fill_column(const mla_mutant *m, const mla_specimen *s, const mla_output *output);
void mla_after_fill_row(const mla_mutant *m, const mla_specimen *s, const mla_output *output);
void mla_after_fill_head(const mla_mutant *m, const mla_specimen *s, const mla_output *output);
void mla_after_fill_all(const mla_mutant *m, const mla_specimen *s, const mla_output *output);
void mla_after_fill_lse(const mla_mutant *m, const mla_specimen *s, const mla_output *output);
void mla_after_earlier_row(const mla_mutant *m, const mla_specimen *s, const mla_output *output);
void mla_after_scaled_q(const mla_mutant *m, const mla_specimen *s, const mla_output *output);
void mla_after_mean_of_v(const mla_mutant *m, const mla_specimen *s, const mla_output *output);
void mla_after_scale_out(const mla_mutant *m, const mla_specimen *s, const mla_output *output);
void mla_after_toward_zero(const mla_mutant *m, const mla_specimen *s, const mla_output *output);
void mla_after_fewer_bits(const mla_mutant *m, const mla_specimen *s, const mla_output *output);
void mla_after_next_code(const mla_mutant *m, const mla_specimen *s, const mla_output *output);
void mla_after_other_base(const mla_mutant *m, const mla_specimen *s, const mla_output *output);
void mla_after_lse_without_max(const mla_mutant *m, const mla_specimen *s, const mla_output *output);
void mla_after_lse_with_sink(const mla_mutant *m, const mla_specimen *s, const mla_output *output);
void mla_after_swap_lse(const mla_mutant *m, const mla_specimen *s, const mla_output *output);
void mla_after_empty_nan(const mla_mutant *m, const mla_specimen *s, const mla_output *output);
void mla_after_empty_sign(const mla_mutant *m, const mla_specimen *s, const mla_output *output);

#endif
