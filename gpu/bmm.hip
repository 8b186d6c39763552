/*
 * Attention with materialised scores, as five launches: q and keys become operands in one piece where they are not, S = Q K^T, P = softmax(S),
 * P V, and the output. Products are the vendor's library's where there is one (bmm.c), otherwise mla_bmm_scores and mla_bmm_values: fused
 * multiply-adds, no matrix unit. Products of operands are exact in fp32, so these give the same bits on every machine.
 */
#include "bmm_args.h"
#include "splitk_finish.h"
#include "splitk_kv.h"
#include "visible_keys.h"

MLA_DEVICE_BEGIN

/* The last group that begins at or before `index`, by one of its running counts. */
MLA_DEVICE const mla_bmm_group &mla_bmm_find(const mla_bmm_args &args, int64_t mla_bmm_group::*first, int64_t index) {
    int32_t low = 0, high = args.num_groups;
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (args.groups[middle].*first <= index)
            low = middle;
        else
            high = middle;
    }
    return args.groups[low];
}

/* ---- operands ---- */

/* Eight threads a key. Absent entries of a sparse list become zeros: the softmax leaves them out. */
template <typename Kv> MLA_DEVICE void mla_bmm_gather(const mla_bmm_args &args) {
    constexpr int STAGERS = 8, ROUNDS = (Kv::CHUNKS + STAGERS - 1) / STAGERS;
    const mla_problem &p = args.problem;
    const int stager = mla_thread() % STAGERS;
    const int64_t key = static_cast<int64_t>(mla_block()) * MLA_BMM_GATHER_KEYS + mla_thread() / STAGERS;
    const bool real = key < args.num_keys;
    const mla_bmm_group &group = mla_bmm_find(args, &mla_bmm_group::first_key, real ? key : 0);
    const int64_t slot =
        real ? mla_key_slot(p, mla_key_slots_of(p, group.sequence, group.first_row), group.begin + static_cast<int>(key - group.first_key))
             : -1;
    const mla_chunk *source = static_cast<const mla_chunk *>(p.kv) + slot * Kv::CHUNKS;
    const uint8_t *block_scales = p.kv_block_scales + slot * p.kv_scale_stride;
    mla_chunk *row = static_cast<mla_chunk *>(args.new_kv) + key * mla_key_chunks;
    mla_chunk raw[ROUNDS];
    uint8_t scales[ROUNDS];
    MLA_UNROLL
    for (int i = 0; i < ROUNDS; i++) {
        const int c = stager + i * STAGERS;
        const bool there = slot >= 0 && c < Kv::CHUNKS;
        raw[i] = mla_load_chunk(&source[c], there);
        scales[i] = Kv::SCALES && there ? block_scales[c] : 0;
    }
    Kv::template convert<STAGERS>(raw, scales, stager, [row, real](mla_place place, const mla_chunk &chunk) {
        if (real)
            row[place.lane + place.step] = chunk;
    });
}

#define MLA_BMM_GATHER(kv)                                                                                                                 \
    MLA_KERNEL(mla_bmm_gather_##kv, mla_bmm_args, MLA_BMM_THREADS) {                                                                       \
        mla_bmm_gather<mla_kv_##kv>(args);                                                                                                 \
    }

MLA_BMM_GATHER(bf16)
MLA_BMM_GATHER(fp16)
MLA_BMM_GATHER(fp8)
MLA_BMM_GATHER(fp8fnuz)
MLA_BMM_GATHER(fp8b656)
MLA_BMM_GATHER(mxfp4)

template <bool FP16> MLA_DEVICE void mla_bmm_convert_row(const mla_bmm_args &args) {
    const int64_t first = static_cast<int64_t>(mla_block()) * (MLA_HEAD_DIM / 2);
    mla_with_q_format<FP16>(args.problem.q_format, [&](auto format) {
        for (int i = mla_thread(); i < MLA_HEAD_DIM / 2; i += MLA_BMM_THREADS)
            static_cast<uint32_t *>(args.new_q)[first + i] = format.pair(args.problem.q, first + i);
    });
}

/* A block is a row of q. */
MLA_KERNEL(mla_bmm_convert_q, mla_bmm_args, MLA_BMM_THREADS) {
    if (args.fp16)
        mla_bmm_convert_row<true>(args);
    else
        mla_bmm_convert_row<false>(args);
}

/* ---- products ---- */

/* fp16 is read with fp32's bias, then scaled to its own, subnormals too; what is not finite stays so. */
MLA_DEVICE float mla_bmm_float(uint16_t operand, bool fp16) {
    if (!fp16)
        return mla_float(operand);
    const uint32_t magnitude = operand & 0x7FFF;
    const float value = mla_from_bits(magnitude << 13) * 0x1p112f;
    return mla_from_bits(mla_to_bits(value) | (operand & 0x8000u) << 16 | (magnitude >= 0x7C00 ? 0x7F800000u : 0u));
}

/* Chunks of operands of one matrix: a row has `pitch` entries, and only so many rows are there. */
struct mla_bmm_matrix {
    const uint16_t *data;
    int64_t pitch;
    int rows;
    MLA_DEVICE mla_chunk chunk(int row, int column) const {
        const uint16_t *at = data + row * pitch + column;
        return mla_load_chunk(reinterpret_cast<const mla_chunk *>(at), row < rows);
    }
};

/*
 * One tile of c = a b: 16 rows, 64 columns, the inner dimension in steps of 32. Of b the inner dimension runs along its rows (BY_ROWS: b is stored
 * transposed) or down its columns. A thread has four neighbouring columns of a row, and adds its products one by one, in order.
 */
template <bool BY_ROWS> struct mla_bmm_product {
    static constexpr int ROWS = MLA_BMM_TILE_ROWS, COLUMNS = MLA_BMM_TILE_COLUMNS, DEPTH = 32, RUN = 4;
    static_assert(ROWS * COLUMNS == MLA_BMM_THREADS * RUN && COLUMNS * DEPTH == MLA_BMM_THREADS * 8,
                  "a thread has a run of c and a chunk of b");

    struct shared {
        float a[ROWS][DEPTH];
        float b[DEPTH][COLUMNS];
    };
    static_assert(sizeof(shared) <= MLA_BMM_LDS_BYTES, "bmm_args.h says less LDS than is used");
    shared &lds;
    const mla_bmm_matrix a, b;
    const bool fp16;
    float sum[RUN];

    MLA_DEVICE mla_bmm_product(const mla_bmm_matrix &left, const mla_bmm_matrix &right, bool halves)
        : lds(*mla_lds<shared>()), a(left), b(right), fp16(halves), sum{} {}

    static MLA_DEVICE int row() { return mla_thread() / (COLUMNS / RUN); }
    static MLA_DEVICE int column() { return mla_thread() % (COLUMNS / RUN) * RUN; }

    MLA_DEVICE float entry(const mla_chunk &chunk, int i) const {
        return mla_bmm_float(static_cast<uint16_t>(chunk.w[i / 2] >> i % 2 * 16), fp16);
    }

    MLA_DEVICE void stage(int k, int first_column) {
        constexpr int A_CHUNKS = DEPTH / 8, B_CHUNKS = BY_ROWS ? DEPTH / 8 : COLUMNS / 8;
        const int t = mla_thread(), row_of_b = t / B_CHUNKS, chunk_of_b = t % B_CHUNKS * 8;
        const mla_chunk part =
            BY_ROWS ? b.chunk(first_column + row_of_b, k + chunk_of_b) : b.chunk(k + row_of_b, first_column + chunk_of_b);
        MLA_UNROLL
        for (int i = 0; i < 8; i++)
            (BY_ROWS ? lds.b[chunk_of_b + i][row_of_b] : lds.b[row_of_b][chunk_of_b + i]) = entry(part, i);
        if (t >= ROWS * A_CHUNKS)
            return;
        const mla_chunk rest = k + t % A_CHUNKS * 8 < a.pitch ? a.chunk(t / A_CHUNKS, k + t % A_CHUNKS * 8) : mla_chunk{};
        MLA_UNROLL
        for (int i = 0; i < 8; i++)
            lds.a[t / A_CHUNKS][t % A_CHUNKS * 8 + i] = entry(rest, i);
    }

    /* Sums over `depth`; columns from first_column on. */
    MLA_DEVICE void run(int depth, int first_column) {
        for (int k = 0; k < depth; k += DEPTH) {
            stage(k, first_column);
            mla_barrier();
            MLA_UNROLL
            for (int i = 0; i < DEPTH; i++) {
                MLA_UNROLL
                for (int e = 0; e < RUN; e++)
                    sum[e] += lds.a[row()][i] * lds.b[i][column() + e];
            }
            mla_barrier();
        }
    }

    /* Into c, whose first row is the tile's; `rows` and `columns` are what is left of it there. */
    MLA_DEVICE void store(float *c, int64_t pitch, int rows, int columns) const {
        MLA_UNROLL
        for (int e = 0; e < RUN; e++)
            if (row() < rows && column() + e < columns)
                c[row() * pitch + column() + e] = sum[e];
    }
};

/* A block is a tile of a group's scores. */
MLA_KERNEL(mla_bmm_scores, mla_bmm_args, MLA_BMM_THREADS) {
    const mla_bmm_group &group = mla_bmm_find(args, &mla_bmm_group::first_score_tile, mla_block());
    const int tile = static_cast<int>(mla_block() - group.first_score_tile);
    const int across = (group.keys + MLA_BMM_TILE_COLUMNS - 1) / MLA_BMM_TILE_COLUMNS;
    const int first_row = tile / across * MLA_BMM_TILE_ROWS, first_key = tile % across * MLA_BMM_TILE_COLUMNS;
    const uint16_t *q = static_cast<const uint16_t *>(args.q) + (group.first_row + first_row) * MLA_HEAD_DIM;
    const uint16_t *kv = static_cast<const uint16_t *>(args.kv) + group.first_key * MLA_HEAD_DIM;
    mla_bmm_product<true> product({q, MLA_HEAD_DIM, group.rows - first_row}, {kv, MLA_HEAD_DIM, group.keys}, args.fp16);
    product.run(MLA_HEAD_DIM, first_key);
    product.store(args.scores + group.first_score + static_cast<int64_t>(first_row) * group.pitch + first_key, group.pitch,
                  group.rows - first_row, group.keys - first_key);
}

/* A block is a tile of a group's sums of p v. */
MLA_KERNEL(mla_bmm_values, mla_bmm_args, MLA_BMM_THREADS) {
    const mla_bmm_group &group = mla_bmm_find(args, &mla_bmm_group::first_value_tile, mla_block());
    const int tile = static_cast<int>(mla_block() - group.first_value_tile);
    constexpr int across = MLA_HEAD_DIM_V / MLA_BMM_TILE_COLUMNS;
    const int first_row = tile / across * MLA_BMM_TILE_ROWS, first_column = tile % across * MLA_BMM_TILE_COLUMNS;
    const uint16_t *p = static_cast<const uint16_t *>(args.weights) + group.first_score + static_cast<int64_t>(first_row) * group.pitch;
    const uint16_t *kv = static_cast<const uint16_t *>(args.kv) + group.first_key * MLA_HEAD_DIM;
    mla_bmm_product<false> product({p, group.pitch, group.rows - first_row}, {kv, MLA_HEAD_DIM, group.keys}, args.fp16);
    product.run(group.keys, first_column);
    product.store(args.values + (group.first_row + first_row) * MLA_HEAD_DIM_V + first_column, MLA_HEAD_DIM_V, group.rows - first_row,
                  MLA_BMM_TILE_COLUMNS);
}

/* ---- softmax ---- */

struct mla_bmm_lanes {
    float v[MLA_BMM_THREADS];
};

/* (all) What `join` makes of everybody's value, to everybody. */
template <typename Join> MLA_DEVICE float mla_bmm_reduce(float value, Join join) {
    mla_bmm_lanes &lds = *mla_lds<mla_bmm_lanes>();
    const int t = mla_thread();
    lds.v[t] = value;
    mla_barrier();
    for (int half = MLA_BMM_THREADS / 2; half > 0; half /= 2) {
        if (t < half)
            lds.v[t] = join(lds.v[t], lds.v[t + half]);
        mla_barrier();
    }
    const float all = lds.v[0];
    mla_barrier();
    return all;
}

/* One row's scores, in log2 units; -inf where it does not see the key. */
struct mla_bmm_row {
    const mla_problem &problem;
    const mla_bmm_group &group;
    const mla_positions seen;
    const mla_score_map map;
    const int32_t *list; /* of a sparse row; NULL: none */
    const float *scores;

    MLA_DEVICE float score(int key) const {
        const int position = group.begin + key;
        if (position < seen.begin || position >= seen.end || (list && list[position] < 0))
            return -mla_infinity;
        const float x = mla_mul(scores[key], map.scale);
        return map.cap > 0.0f ? mla_mul(mla_tanh(x), map.cap) : x;
    }
};

MLA_DEVICE mla_bmm_row mla_bmm_row_of(const mla_bmm_args &args, const mla_bmm_group &group, int64_t row) {
    const mla_problem &p = args.problem;
    return {p,
            group,
            group.keys == 0 ? mla_positions{0, 0} : mla_visible_keys(p, group.sequence, row, {group.begin, group.begin + group.keys}),
            mla_score_map_of(p),
            p.paging == MLA_SPARSE ? p.topk_indices + row / p.heads * p.topk : nullptr,
            args.scores + group.first_score + (row - group.first_row) * group.pitch};
}

/* A block is a row. The weights of a row that sees nothing are 0, as is the sum of them. */
MLA_KERNEL(mla_bmm_softmax, mla_bmm_args, MLA_BMM_THREADS) {
    const int64_t row = mla_block();
    const mla_bmm_group &group = mla_bmm_find(args, &mla_bmm_group::first_row, row);
    const mla_bmm_row x = mla_bmm_row_of(args, group, row);
    uint16_t *weights = static_cast<uint16_t *>(args.weights) + group.first_score + (row - group.first_row) * group.pitch;
    float m = -mla_infinity, l = 0.0f;
    MLA_UNROLL_BY_8
    for (int key = mla_thread(); key < group.keys; key += MLA_BMM_THREADS)
        m = mla_max(m, x.score(key));
    m = mla_bmm_reduce(m, [](float a, float b) { return mla_max(a, b); });
    const float base = m == -mla_infinity ? 0.0f : m;
    MLA_UNROLL_BY_8
    for (int key = mla_thread(); key < group.pitch; key += MLA_BMM_THREADS) {
        const float weight = key < group.keys ? mla_exp2(x.score(key) - base) : 0.0f;
        weights[key] = static_cast<uint16_t>(args.fp16 ? mla_fp16x2(weight, 0.0f) : mla_bf16x2(weight, 0.0f));
        l += weight;
    }
    l = mla_bmm_reduce(l, [](float a, float b) { return a + b; });
    if (mla_thread() == 0) {
        const mla_row_end end = mla_finish_row(args.problem, row, m, l);
        args.output.lse[row] = end.lse;
        args.scaling[row] = end.scale;
    }
}

/* ---- the output ---- */

/* Half of a block is a row. A row without weights is zeros, whatever lies in its sums. */
MLA_KERNEL(mla_bmm_finish, mla_bmm_args, MLA_BMM_THREADS) {
    constexpr int COLUMNS = 4, THREADS_A_ROW = MLA_HEAD_DIM_V / COLUMNS, ROWS = MLA_BMM_THREADS / THREADS_A_ROW;
    const int64_t row = static_cast<int64_t>(mla_block()) * ROWS + mla_thread() / THREADS_A_ROW;
    const int column = mla_thread() % THREADS_A_ROW * COLUMNS;
    if (row >= args.problem.total_q * args.problem.heads)
        return;
    const float scaling = args.scaling[row];
    float out[COLUMNS] = {};
    if (scaling != 0.0f) {
        MLA_UNROLL
        for (int e = 0; e < COLUMNS; e++)
            out[e] = args.values[row * MLA_HEAD_DIM_V + column + e] * scaling;
    }
    mla_store_out(args, row, column, out);
}

MLA_DEVICE_END
