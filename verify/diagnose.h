/*
 * Why is it wrong? Hypotheses about one bug each predict what a kernel would have written; the one that fits the errors best is named, if it explains
 * nearly all of them to within the bound. Silence is the usual answer: most bugs are none of these.
 */
#ifndef MLA_DIAGNOSE_H
#define MLA_DIAGNOSE_H

#include "compare.h"

typedef enum mla_cause {
    MLA_CAUSE_NONE, /* no hypothesis fits */
    MLA_CAUSE_TOKEN_MISSING,
    MLA_CAUSE_TOKEN_TWICE,
    MLA_CAUSE_TOKEN_LEAKED,  /* a slot that is not the sequence's */
    MLA_CAUSE_RANGE_MISSING, /* a tile, a split */
    MLA_CAUSE_SHIFT,         /* the sequence read one slot early or late */
    MLA_CAUSE_SEQUENCE,      /* the KV of another sequence */
    MLA_CAUSE_SCALE,         /* scores multiplied by a factor; 0: equal weights */
    MLA_CAUSE_KV_SCALE,      /* keys and values multiplied by a factor */
    MLA_CAUSE_ROPE,          /* scores without the last 64 entries */
    MLA_CAUSE_HEAD,          /* the result of another head */
    MLA_CAUSE_COLUMNS,       /* columns shifted, or two of them swapped */
    MLA_CAUSE_OUT_SCALE,     /* out multiplied by a factor */
    MLA_CAUSE_MEAN,          /* the plain mean of V, under the right lse */
    MLA_CAUSE_SCALED_Q,      /* q times sm_scale: no KV read */
    MLA_CAUSE_ZERO,
    MLA_CAUSE_UNWRITTEN,
    MLA_CAUSE_LSE_BASE,
    MLA_CAUSE_LSE_MAX, /* the maximum is not in the lse */
    MLA_CAUSES
} mla_cause;

typedef struct mla_diagnosis {
    mla_cause cause;
    char where[160]; /* heads and columns that are wrong at the worst query token; empty: nothing was found wrong */
    char text[160];  /* the cause in words, or why none was looked for; empty: none */
} mla_diagnosis;

/*
 * Of outputs that `measure` found wrong: looks at the query token of the worst element, and at up to four of its rows. A token that sees more than
 * 16384 keys is located only. Where memory is short, `text` says so instead of a cause.
 */
mla_diagnosis mla_diagnose(const mla_problem *problem, const mla_contract *contract, const mla_output *output, const mla_measure *measure);

#endif
