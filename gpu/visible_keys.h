/* Which keys a row sees, where they lie, and how a sum of products becomes a score: mla_visible and mla_kv_slot of ref/mla.h on the device. */
#ifndef MLA_VISIBLE_KEYS_H
#define MLA_VISIBLE_KEYS_H

#include "device.h"
#include "mla_gpu.h"

MLA_DEVICE_BEGIN

/* Key positions, half-open. */
struct mla_positions {
    int begin, end;
};

/* What `row` (query token * heads + head) of the sequence sees of `keys`; entries that a sparse list lacks are not left out. */
MLA_DEVICE mla_positions mla_visible_keys(const mla_problem &p, int sequence, int64_t row, mla_positions keys) {
    if (p.paging == MLA_SPARSE || !(p.causal || p.window > 0))
        return keys;
    const int32_t *qo = p.qo_indptr + sequence, *kv = p.kv_indptr + sequence;
    const int token = static_cast<int>(row / mla_late(p.heads));
    const int self = (kv[1] - kv[0]) - (qo[1] - token);
    if (p.causal && self + 1 < keys.end)
        keys.end = self + 1;
    if (p.window > 0 && self - p.window + 1 > keys.begin)
        keys.begin = self - p.window + 1;
    return keys;
}

/* Slot of a key position; for MLA_SPARSE an entry of the row's list: -1 is absent. */
MLA_DEVICE int64_t mla_key_slot(const mla_problem &p, int sequence, int64_t row, int position) {
    switch (p.paging) {
    case MLA_PAGED: {
        const int size = mla_late(p.page_size);
        const int64_t page = p.block_table[sequence * p.block_table_stride + position / size];
        return page * size + position % size;
    }
    case MLA_TOKEN_LIST:
        return p.kv_indices[static_cast<int64_t>(p.kv_indptr[sequence]) + position];
    case MLA_SPARSE:
        return p.topk_indices[row / p.heads * p.topk + position];
    default:
        return static_cast<int64_t>(p.kv_indptr[sequence]) + position;
    }
}

/* From a sum of products of operands to log2 units: x = sum * scale, or cap * tanh(sum * scale). */
struct mla_score_map {
    float scale, cap; /* cap 0: no soft-cap */
};

/* The constant factors are multiplied in double: one rounding. */
MLA_DEVICE mla_score_map mla_score_map_of(const mla_problem &p) {
    constexpr double log2_e = 1.44269504088896340736;
    const double scale = static_cast<double>(p.sm_scale) * p.q_scale * p.kv_scale;
    if (p.softcap > 0.0f)
        return {static_cast<float>(scale / p.softcap), static_cast<float>(p.softcap * log2_e)};
    return {static_cast<float>(scale * log2_e), 0.0f};
}

MLA_DEVICE_END

#endif
