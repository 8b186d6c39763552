/* How many scores of a row are (nearly) the same: rounding treats equal numbers alike, so their errors add up instead of averaging out. Internal to ref/. */
#ifndef MLA_REPEATS_H
#define MLA_REPEATS_H

#include "mla.h"

/* A hash table's entry: a bin and the scores in it. count 0: free. */
typedef struct mla_repeat_bin {
    int64_t bin;
    int32_t count;
} mla_repeat_bin;

/* Entries that a row with `keys` keys needs: a power of two. */
int64_t mla_repeat_bins(int64_t keys);
/* alike[j] = scores, itself included, in the same bin floor(x / width) as x[j]; 1 for a score that is not finite. `table` holds mla_repeat_bins(keys). */
void mla_repeats_count(const double *x, int64_t keys, double width, mla_repeat_bin *table, int32_t *alike);

#endif
