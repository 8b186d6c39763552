/* The second pass: merges the partial results of a group's splits, and writes the rows that nobody else writes. A block is a row. */
#include "engine.h"
#include "splitk_args.h"
#include "splitk_finish.h"

MLA_DEVICE_BEGIN

constexpr int mla_combine_columns = MLA_HEAD_DIM_V / MLA_COMBINE_THREADS;

struct alignas(16) mla_quad {
    float v[mla_combine_columns];
};

/* Slots in order, so the result does not depend on timing. An empty split has m == -inf and l == 0: its weight is 0, also when all are empty. */
MLA_DEVICE void mla_combine_row(const mla_splitk_args &args, const mla_plan_group &group, int r) {
    const int column = mla_thread() * mla_combine_columns;
    const int64_t first = static_cast<int64_t>(group.first_slot) * args.row_tile + r, row = group.first_row + r;
    const float *ml = args.partial_ml + first * 2;
    const float *out = args.partial_out + first * MLA_HEAD_DIM_V + column;
    float m = -mla_infinity, l = 0.0f, sum[mla_combine_columns] = {};
    MLA_UNROLL_BY_8
    for (int s = 0; s < group.splits; s++)
        m = mla_max(m, ml[static_cast<int64_t>(s) * args.row_tile * 2]);
    const float base = m == -mla_infinity ? 0.0f : m;
    MLA_UNROLL_BY_8
    for (int s = 0; s < group.splits; s++) {
        const int64_t slot = static_cast<int64_t>(s) * args.row_tile;
        const float weight = mla_exp2(ml[slot * 2] - base);
        const mla_quad part = *reinterpret_cast<const mla_quad *>(out + slot * MLA_HEAD_DIM_V);
        l += weight * ml[slot * 2 + 1];
        MLA_UNROLL
        for (int e = 0; e < mla_combine_columns; e++)
            sum[e] += weight * part.v[e];
    }
    const mla_row_end end = mla_finish_row(args.problem, row, m, l);
    MLA_UNROLL
    for (int e = 0; e < mla_combine_columns; e++)
        sum[e] *= end.scale;
    mla_store_out(args, row, column, sum);
    if (mla_thread() == 0)
        args.output.lse[row] = end.lse;
}

MLA_KERNEL(mla_combine, mla_splitk_args, MLA_COMBINE_THREADS) {
    const mla_plan_group group = args.groups[mla_block() / args.row_tile];
    const int r = mla_block() % args.row_tile;
    mla_wait_for_launch_before();
    if (group.splits != 1 && r < group.rows)
        mla_combine_row(args, group, r);
}

MLA_DEVICE_END
