/*
 * The gates others use, from their published rules, to be judged on the same outputs as ours. They look at `out` alone. Each compares with the
 * truth correctly rounded to the output's type, which is kinder than the low-precision references they are published with.
 */
#ifndef MLA_RIVALS_H
#define MLA_RIVALS_H

#include "../ref/mla.h"

/* The outputs of one case, as values. */
typedef struct mla_rival_sheet {
    int64_t count;
    const double *got;      /* of the kernel: may hold NaN and infinities */
    const double *expected; /* the truth rounded to the output's type */
    const double *exact;    /* the truth */
    const double *baseline; /* of a plain bf16 implementation */
} mla_rival_sheet;

typedef struct mla_rival {
    const char *name;
    const char *rule; /* one line */
    bool (*passes)(const mla_rival_sheet *sheet);
} mla_rival;

extern const mla_rival mla_rivals[];
extern const int mla_num_rivals;

/* |got - expected| <= atol + rtol |expected| for all elements but a share of `allowed`; NaN and unequal infinities are mismatches. */
bool mla_allclose(const mla_rival_sheet *sheet, double rtol, double atol, double allowed);

/*
 * Attention as a framework computes it in bf16 without fusing: dequantised operands, q k^T, its product with the scale, soft-cap, softmax and the
 * output are each rounded to bf16. out [total_q, heads, 512]; empty rows are 0.
 */
mla_status mla_bf16_baseline(const mla_problem *problem, double *out) MLA_CHECKED;

#endif
