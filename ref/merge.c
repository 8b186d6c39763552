/* Two partial softmaxes over disjoint keys weigh as their sums of exponentials do: w_i = exp(lse_i) / (exp(lse_1) + exp(lse_2)). */
#include "mla.h"

#include <math.h>
#include <string.h>

#define LN_2 0x1.62e42fefa39efp-1

static bool is_empty(float lse, bool empty_positive) {
    return isinf(lse) && (lse < 0 || empty_positive);
}

static void merge_row(float *out, float *lse, const float *other_out, float other_lse, mla_lse_base base) {
    const float top = fmaxf(*lse, other_lse);
    float weight = *lse - top, other_weight = other_lse - top;
    weight = base == MLA_LSE_2 ? exp2f(weight) : expf(weight);
    other_weight = base == MLA_LSE_2 ? exp2f(other_weight) : expf(other_weight);
    const float sum = weight + other_weight;
    weight /= sum;
    other_weight /= sum;
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        out[c] = weight * out[c] + other_weight * other_out[c];
    *lse = top + (base == MLA_LSE_2 ? log2f(sum) : logf(sum));
}

void mla_merge(int64_t rows, float *out, float *lse, const float *other_out, const float *other_lse, mla_lse_base base,
               bool empty_positive) {
    for (int64_t r = 0; r < rows; r++) {
        float *row = out + r * MLA_HEAD_DIM_V;
        const float *other_row = other_out + r * MLA_HEAD_DIM_V;
        if (is_empty(other_lse[r], empty_positive))
            continue;
        if (is_empty(lse[r], empty_positive)) {
            memcpy(row, other_row, MLA_HEAD_DIM_V * sizeof *row);
            lse[r] = other_lse[r];
        } else
            merge_row(row, &lse[r], other_row, other_lse[r], base);
    }
}

float mla_lse_convert(float lse, mla_lse_base from, bool from_empty_positive, mla_lse_base to, bool to_empty_positive) {
    if (is_empty(lse, from_empty_positive))
        return to_empty_positive ? INFINITY : -INFINITY;
    if (from == to)
        return lse;
    return (float)(to == MLA_LSE_2 ? (double)lse / LN_2 : (double)lse * LN_2);
}
