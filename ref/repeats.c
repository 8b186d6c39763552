#include "repeats.h"
#include "wide_vectors.h"

#include <math.h>
#include <string.h>

int64_t mla_repeat_bins(int64_t keys) {
    int64_t bins = 16;
    while (bins < 2 * keys)
        bins *= 2;
    return bins;
}

/* Beyond 2^62 bins a score has one to itself as good as always. */
static bool bin_of(double x, double width, int64_t *bin) {
    const double place = floor(x / width);
    if (!(fabs(place) < 0x1p62))
        return false;
    *bin = (int64_t)place;
    return true;
}

/* The bin's entry, or the free one where it belongs: linear probing from a multiplicative hash (Knuth 6.4). */
static mla_repeat_bin *find(mla_repeat_bin *table, int64_t bins, int64_t bin) {
    uint64_t at = ((uint64_t)bin * 0x9E3779B97F4A7C15u) >> 20 & (uint64_t)(bins - 1);
    while (table[at].count > 0 && table[at].bin != bin)
        at = (at + 1) & (uint64_t)(bins - 1);
    return &table[at];
}

/* A score's entry is kept in its place in `alike`, as an unsigned index: looking it up again would cost as much as the first time. */
WIDE_VECTORS void mla_repeats_count(const double *x, int64_t keys, double width, mla_repeat_bin *table, int32_t *alike) {
    const int64_t bins = mla_repeat_bins(keys);
    const uint32_t alone = UINT32_MAX;
    int64_t bin;
    memset(table, 0, (size_t)bins * sizeof *table);
    for (int64_t j = 0; j < keys; j++) {
        alike[j] = (int32_t)alone;
        if (!bin_of(x[j], width, &bin))
            continue;
        mla_repeat_bin *entry = find(table, bins, bin);
        entry->bin = bin;
        entry->count++;
        alike[j] = (int32_t)(uint32_t)(entry - table);
    }
    for (int64_t j = 0; j < keys; j++)
        alike[j] = (uint32_t)alike[j] == alone ? 1 : table[(uint32_t)alike[j]].count;
}
