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

/* Where the keys of a sequence lie, for MLA_SPARSE those of a row. */
struct mla_key_slots {
    const int32_t *list; /* of positions' slots, or of pages; NULL: slots follow one another */
    int32_t first;       /* where there is no list: the slot of position 0 */
};

MLA_DEVICE mla_key_slots mla_key_slots_of(const mla_problem &p, int sequence, int64_t row) {
    switch (p.paging) {
    case MLA_PAGED:
        return {p.block_table + sequence * p.block_table_stride, 0};
    case MLA_TOKEN_LIST:
        return {p.kv_indices + p.kv_indptr[sequence], 0};
    case MLA_SPARSE:
        return {p.topk_indices + row / p.heads * p.topk, 0};
    default:
        return {nullptr, p.kv_indptr[sequence]};
    }
}

/* Slot of a key position; for MLA_SPARSE an entry of the row's list: -1 is absent. entry(i) is what the list has at i. */
template <typename Entry> MLA_DEVICE int64_t mla_key_slot(const mla_problem &p, const mla_key_slots &slots, int position, Entry entry) {
    if (!slots.list)
        return slots.first + position;
    if (p.paging != MLA_PAGED)
        return entry(position);
    const int size = mla_late(p.page_size);
    return static_cast<int64_t>(entry(position / size)) * size + position % size;
}
MLA_DEVICE int64_t mla_key_slot(const mla_problem &p, const mla_key_slots &slots, int position) {
    return mla_key_slot(p, slots, position, [&slots](int i) { return slots.list[i]; });
}
/* The entry that a key position's slot follows from. */
MLA_DEVICE int32_t mla_key_entry(const mla_problem &p, const mla_key_slots &slots, int position) {
    if (!slots.list)
        return 0;
    return slots.list[p.paging == MLA_PAGED ? position / mla_late(p.page_size) : position];
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
