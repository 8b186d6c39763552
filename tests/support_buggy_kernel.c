#include "support_buggy_kernel.h"

#include <math.h>
#include <string.h>

enum { TILE = 16, MAX_SPLITS = 1024, WORK_LIST = 16384 };

/* Normalised; lse in log2 units, -inf where there was no key. */
typedef struct partial {
    float out[MLA_HEAD_DIM_V], lse;
} partial;

/* One row of the output. */
typedef struct row_task {
    const mla_problem *problem;
    test_bug bug;
    int32_t sequence, head;
    int64_t token;
    mla_range seen;
    float q[MLA_HEAD_DIM];
    float z[TILE];               /* scores of a tile in log2 units; -inf: hidden */
    float k[TILE][MLA_HEAD_DIM]; /* zeros where hidden */
} row_task;

/* ---- keys ---- */

static int64_t slot_of(const row_task *task, int64_t position) {
    const mla_problem *p = task->problem;
    if (task->bug == TEST_PAGE_IS_SLOT && p->paging == MLA_PAGED)
        return p->block_table[task->sequence * p->block_table_stride + position / p->page_size] + position % p->page_size;
    return mla_kv_slot(p, task->sequence, task->token, position);
}

static void load_key(const row_task *task, int64_t slot, float *key) {
    const uint64_t offset = (uint64_t)slot * mla_kv_format_get(task->problem->kv_format)->token_bytes;
    const uint64_t scale_offset = (uint64_t)(slot * task->problem->kv_scale_stride);
    mla_problem one = *task->problem;
    const uint64_t kept = task->bug == TEST_OFFSETS_31   ? offset % (UINT64_C(1) << 31)
                          : task->bug == TEST_OFFSETS_32 ? (uint32_t)offset
                                                         : offset;
    one.kv = (const uint8_t *)one.kv + kept;
    if (one.kv_block_scales)
        one.kv_block_scales += task->bug == TEST_SCALE_OFFSETS_32 ? (uint32_t)scale_offset : scale_offset;
    mla_kv_row_f32(&one, 0, key);
}

static float cap_score(const row_task *task, float x) {
    const float cap = task->problem->softcap;
    if (!(cap > 0))
        return x;
    if (task->bug == TEST_TANH_BY_EXP) {
        const float e = expf(2 * (x / cap));
        return cap * ((e - 1) / (e + 1));
    }
    return cap * tanhf(x / cap);
}

static void score_key(row_task *task, int i) {
    float dot = 0;
    for (int d = 0; d < MLA_HEAD_DIM; d++)
        dot += task->q[d] * task->k[i][d];
    task->z[i] = cap_score(task, dot * task->problem->sm_scale) * 1.44269504f;
}

/* Positions [first, first + TILE) of a split that ends at `end`. */
static void load_tile(row_task *task, int64_t first, int64_t end) {
    const mla_problem *p = task->problem;
    const bool tails = task->bug == TEST_PAGE_TAIL && p->paging == MLA_PAGED;
    for (int i = 0; i < TILE; i++) {
        const int64_t position = first + i, page_end = tails ? (end + p->page_size - 1) / p->page_size * p->page_size : end;
        const int64_t slot = position < page_end ? slot_of(task, position) : -1;
        memset(task->k[i], 0, sizeof task->k[i]);
        task->z[i] = -INFINITY;
        if (slot >= 0)
            load_key(task, slot, task->k[i]);
        if (slot >= 0 && position < end && position >= task->seen.begin && position < task->seen.end)
            score_key(task, i);
        else if (!tails)
            memset(task->k[i], 0, sizeof task->k[i]);
    }
}

/* ---- softmax ---- */

/* Adds the tile to sums taken at the maximum *m. */
static void add_tile(const row_task *task, float *m, float *l, float *out) {
    float top = *m;
    for (int i = 0; i < TILE; i++)
        top = fmaxf(top, task->z[i]);
    if (task->bug == TEST_BARE_EXP)
        top = 0;
    if (top == -INFINITY && task->bug != TEST_MASKED_TILE)
        return;
    const float shrink = exp2f(*m - top);
    *m = top;
    *l *= shrink;
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        out[c] *= shrink;
    for (int i = 0; i < TILE; i++) {
        const float weight = exp2f(task->z[i] - top), value = task->bug == TEST_UNSCALED_V ? weight / task->problem->kv_scale : weight;
        *l += weight;
        for (int c = 0; c < MLA_HEAD_DIM_V; c++)
            out[c] += value * task->k[i][c];
    }
}

static void run_split(row_task *task, int64_t begin, int64_t end, partial *result) {
    if (task->bug == TEST_EMPTY_SPLIT && begin == end)
        return;
    float m = -INFINITY, l = 0;
    memset(result->out, 0, sizeof result->out);
    for (int64_t first = begin; first < end; first += TILE) {
        load_tile(task, first, end);
        add_tile(task, &m, &l, result->out);
    }
    result->lse = m + log2f(l);
    for (int c = 0; c < MLA_HEAD_DIM_V && (l != 0 || task->bug == TEST_EMPTY_ROW); c++)
        result->out[c] /= l;
}

static void merge(const row_task *task, partial *sum, const partial *next) {
    const float top = fmaxf(sum->lse, next->lse);
    if (top == -INFINITY && task->bug != TEST_MERGE_EMPTY)
        return;
    const bool natural = task->bug == TEST_MERGE_BASE;
    const float a = natural ? expf(sum->lse - top) : exp2f(sum->lse - top), b = natural ? expf(next->lse - top) : exp2f(next->lse - top);
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        sum->out[c] = (a * sum->out[c] + b * next->out[c]) / (a + b);
    sum->lse = top + (natural ? logf(a + b) : log2f(a + b));
}

/* Tokens a split. */
static int64_t split_size(const mla_problem *p, test_bug bug, int64_t kv_len) {
    const int64_t splits = bug == TEST_BATCH_SPLITS ? p->batch : p->split_policy == MLA_SPLIT_FIXED ? p->split_arg : 1;
    const int64_t size = p->split_policy == MLA_SPLIT_SIZE && bug != TEST_BATCH_SPLITS ? p->split_arg : (kv_len + splits - 1) / splits;
    return size > 0 ? size : 1;
}

/* Asked for so many splits, it makes so many, with or without keys. */
static int64_t split_count(const mla_problem *p, test_bug bug, int64_t kv_len) {
    if (p->split_policy == MLA_SPLIT_FIXED && bug != TEST_BATCH_SPLITS)
        return p->split_arg;
    const int64_t size = split_size(p, bug, kv_len), splits = (kv_len + size - 1) / size;
    return splits > 0 ? splits : 1;
}

/* ---- rows ---- */

static void store(const row_task *task, const partial *result, const mla_output *output) {
    const mla_problem *p = task->problem;
    const int64_t row = task->token * p->heads + task->head;
    const float natural = result->lse * 0.693147181f, share = p->sink ? 1 / (1 + expf(p->sink[task->head] - natural)) : 1;
    float out[MLA_HEAD_DIM_V];
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        out[c] = result->out[c] * share;
    mla_encode_f32(p->out_format, out, MLA_HEAD_DIM_V,
                   (char *)output->out + (size_t)row * MLA_HEAD_DIM_V * mla_format_bytes(p->out_format));
    output->lse[row] = mla_lse_convert(result->lse, MLA_LSE_2, false, p->lse_base, p->lse_empty_positive);
}

static void run_row(row_task *task, partial *partials, bool backwards, const mla_output *output) {
    const mla_problem *p = task->problem;
    const int64_t kv_len = task->sequence < 0 ? 0 : mla_kv_len(p, task->sequence), splits = split_count(p, task->bug, kv_len);
    const int64_t size = split_size(p, task->bug, kv_len);
    const int32_t q_len = task->sequence < 0 ? 0 : mla_q_len(p, task->sequence);
    const bool first_row = task->bug == TEST_ONE_QUERY && (q_len & (q_len - 1)) != 0;
    mla_q_row_f32(p, first_row ? p->qo_indptr[task->sequence] : task->token, task->head, task->q);
    for (int64_t i = 0; i < splits; i++) {
        const int64_t begin = i * size < kv_len ? i * size : kv_len, end = begin + size < kv_len ? begin + size : kv_len;
        run_split(task, begin, end, &partials[i]);
    }
    partial sum = partials[backwards ? splits - 1 : 0];
    for (int64_t i = 1; i < splits; i++)
        merge(task, &sum, &partials[backwards ? splits - 1 - i : i]);
    store(task, &sum, output);
}

static int run(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t reason_size) {
    (void)reason, (void)reason_size;
    test_buggy *buggy = kernel->context;
    const mla_problem *p = launch->problem;
    const bool backwards = buggy->bug == TEST_LAUNCH_ORDER && buggy->launches++ % 2 == 1;
    const int64_t tokens = buggy->bug == TEST_PADDING_ROWS ? p->qo_indptr[p->batch] : p->total_q;
    for (int64_t token = 0; token < tokens; token++) {
        row_task task = {.problem = p, .bug = buggy->bug, .sequence = mla_sequence_of(p, token), .token = token};
        task.seen = mla_visible(p, task.sequence, token);
        if (task.bug == TEST_WORK_LIST && task.sequence >= WORK_LIST)
            continue;
        for (task.head = 0; task.head < p->heads; task.head++)
            run_row(&task, launch->workspace, backwards, launch->output);
    }
    return 0;
}

static size_t workspace(const mla_kernel *kernel, const mla_problem *p) {
    const test_buggy *buggy = kernel->context;
    int64_t most = 1;
    for (int32_t b = 0; b < p->batch; b++) {
        const int64_t splits = split_count(p, buggy->bug, mla_kv_len(p, b));
        most = splits > most ? splits : most;
    }
    return (size_t)most * sizeof(partial);
}

mla_kernel test_buggy_kernel(test_buggy *buggy) {
    mla_contract contract = mla_reference_contract();
    contract.combine_lse = true;
    contract.tile = TILE;
    contract.max_splits = MAX_SPLITS;
    return (mla_kernel){
        .abi_version = MLA_KERNEL_ABI, .name = "buggy", .contract = contract, .context = buggy, .workspace = workspace, .run = run};
}
