/*
 * The host side of bmm: groups of rows that share keys, what lies where in the workspace, and the launches.
 *
 * Workspace, each part aligned to 256 bytes: groups | q and keys as operands, where they are not | scores | weights | values | scaling. It grows with
 * rows times keys: that is what makes this a baseline.
 */
#include "bmm.h"

#include "bmm_args.h"
#include "operands.h"
#include "vendor_gemm.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#define CHUNK 8                                            /* operands */
#define MAX_WORKSPACE ((size_t)32 << 30)                   /* bytes */
#define MAX_BLOCKS ((int64_t)UINT32_MAX / MLA_BMM_THREADS) /* HIP counts a launch's threads in 32 bits */
#define FINISH_ROWS (MLA_BMM_THREADS / 128)                /* rows of a block of mla_bmm_finish */

/* Where the parts of the workspace begin. */
typedef struct layout {
    size_t groups, new_q, new_kv, scores, weights, values, scaling, bytes;
} layout;

/* What follows from a problem. */
typedef struct shape {
    mla_bmm_group *groups;
    int32_t num_groups;
    bool gathers, converts; /* keys, q */
    int64_t keys, rows, scores, score_tiles, value_tiles;
    layout at;
} shape;

typedef struct bmm {
    mla_kernel kernel;
    mla_launcher *launcher;
    mla_vendor_gemm *gemm; /* NULL: our own product kernel */
    char name[64];
    /* What the latest prepare left. */
    const void *workspace;
    shape shape;
} bmm;

static int fail(mla_status status, char *reason, size_t reason_size) {
    snprintf(reason, reason_size, "%s", status.message);
    return 1;
}

/* ---- from the problem to groups ------------------------------------------------------------------------------------------------ */

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Positions that some of the query tokens [token, end) of the sequence sees; empty for none. */
static mla_range keys_of(const mla_problem *p, int32_t sequence, int64_t token, int64_t end) {
    mla_range all = {0, 0};
    for (; token < end; token++) {
        const mla_range seen = mla_visible(p, sequence, token);
        if (seen.begin == seen.end)
            continue;
        if (all.begin == all.end)
            all = seen;
        all.begin = seen.begin < all.begin ? seen.begin : all.begin;
        all.end = seen.end > all.end ? seen.end : all.end;
    }
    return all;
}

/* Query tokens [token, end) of one sequence, or of none (-1). */
static void add_group(shape *s, const mla_problem *p, int32_t sequence, int64_t token, int64_t end) {
    const mla_range keys = sequence < 0 ? (mla_range){0, 0} : keys_of(p, sequence, token, end);
    mla_bmm_group g = {
        .first_row = token * p->heads,
        .rows = (int32_t)((end - token) * p->heads),
        .sequence = sequence,
        .begin = (int32_t)keys.begin,
        .keys = (int32_t)(keys.end - keys.begin),
        .pitch = (int32_t)(ceil_div(keys.end - keys.begin, CHUNK) * CHUNK),
        .first_key = s->keys,
        .first_score = s->scores,
        .first_score_tile = s->score_tiles,
        .first_value_tile = s->value_tiles,
    };
    const int64_t tiles = ceil_div(g.rows, MLA_BMM_TILE_ROWS);
    if (!s->gathers && sequence >= 0)
        g.first_key = p->kv_indptr[sequence] + keys.begin;
    s->keys += g.keys;
    s->scores += (int64_t)g.rows * g.pitch;
    s->score_tiles += tiles * ceil_div(g.keys, MLA_BMM_TILE_COLUMNS);
    s->value_tiles += g.keys ? tiles * (MLA_HEAD_DIM_V / MLA_BMM_TILE_COLUMNS) : 0;
    s->groups[s->num_groups++] = g;
}

static void add_groups(shape *s, const mla_problem *p) {
    for (int32_t b = 0; b < p->batch; b++) {
        const int64_t end = p->qo_indptr[b + 1];
        for (int64_t token = p->qo_indptr[b], next; token < end; token = next) {
            next = p->paging == MLA_SPARSE ? token + 1 : end;
            add_group(s, p, b, token, next);
        }
    }
    if (p->total_q > p->qo_indptr[p->batch])
        add_group(s, p, -1, p->qo_indptr[p->batch], p->total_q);
}

static size_t place(size_t *end, int64_t count, size_t bytes) {
    const size_t at = *end;
    *end = (at + (size_t)count * bytes + 255) / 256 * 256;
    return at;
}

static layout layout_of(const shape *s) {
    layout at = {0};
    at.groups = place(&at.bytes, s->num_groups, sizeof *s->groups);
    at.new_q = place(&at.bytes, s->converts ? s->rows * MLA_HEAD_DIM : 0, sizeof(uint16_t));
    at.new_kv = place(&at.bytes, s->gathers ? s->keys * MLA_HEAD_DIM : 0, sizeof(uint16_t));
    at.scores = place(&at.bytes, s->scores, sizeof(float));
    at.weights = place(&at.bytes, s->scores, sizeof(uint16_t));
    at.values = place(&at.bytes, s->rows * MLA_HEAD_DIM_V, sizeof(float));
    at.scaling = place(&at.bytes, s->rows, sizeof(float));
    return at;
}

/* Free with shape_free. */
static mla_status shape_make(const mla_problem *p, const mla_operands *operands, shape *s) {
    *s = (shape){.gathers = !operands->direct || p->paging != MLA_CONTIGUOUS,
                 .converts = p->q_format == MLA_FP8 || p->q_format == MLA_FP8FNUZ,
                 .rows = p->total_q * p->heads};
    s->groups = malloc((size_t)(p->total_q + 1) * sizeof *s->groups); /* a group has a query token, or more */
    if (!s->groups)
        return mla_error(MLA_ENOMEM, "no memory for %lld groups", (long long)p->total_q);
    add_groups(s, p);
    s->at = layout_of(s);
    return mla_ok();
}

static void shape_free(shape *s) {
    free(s->groups);
    *s = (shape){0};
}

/* ---- the kernel's calls ---------------------------------------------------------------------------------------------------------- */

static bool bmm_supports(const mla_kernel *kernel, const mla_problem *host, char *reason, size_t reason_size) {
    (void)kernel;
    const mla_operands *operands = mla_operands_or_reason(host, reason, reason_size);
    shape s;
    if (!operands)
        return false;
    const mla_status status = shape_make(host, operands, &s);
    if (status.code != MLA_OK)
        return !fail(status, reason, reason_size);
    const size_t bytes = s.at.bytes;
    const int64_t gathered = s.gathers ? ceil_div(s.keys, MLA_BMM_GATHER_KEYS) : 0;
    const int64_t blocks = s.score_tiles + s.value_tiles + s.rows + gathered; /* no launch has more */
    shape_free(&s);
    if (bytes > MAX_WORKSPACE)
        snprintf(reason, reason_size, "bmm would write down %.1f GiB of scores and more; it takes problems up to %zu",
                 (double)bytes * 0x1p-30, MAX_WORKSPACE >> 30);
    else if (blocks > MAX_BLOCKS)
        snprintf(reason, reason_size, "bmm would launch %lld blocks; it takes problems up to %lld", (long long)blocks,
                 (long long)MAX_BLOCKS);
    return bytes <= MAX_WORKSPACE && blocks <= MAX_BLOCKS;
}

/* 0 when there is no memory: prepare finds that again, and says it. */
static size_t bmm_workspace(const mla_kernel *kernel, const mla_problem *host) {
    (void)kernel;
    const mla_operands *operands = mla_operands_of(host);
    shape s;
    if (!operands || shape_make(host, operands, &s).code != MLA_OK)
        return 0;
    const size_t bytes = s.at.bytes;
    shape_free(&s);
    return bytes;
}

static int bmm_prepare(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t reason_size) {
    bmm *b = kernel->context;
    mla_device *d = b->launcher->device;
    const mla_operands *operands = mla_operands_or_reason(launch->host, reason, reason_size);
    if (!operands)
        return 1;
    shape_free(&b->shape);
    mla_status status = shape_make(launch->host, operands, &b->shape);
    b->workspace = launch->workspace;
    if (status.code == MLA_OK)
        status = d->upload(d, (char *)launch->workspace + b->shape.at.groups, b->shape.groups,
                           (size_t)b->shape.num_groups * sizeof *b->shape.groups);
    return status.code == MLA_OK ? 0 : fail(status, reason, reason_size);
}

static mla_bmm_args arguments(const bmm *b, const mla_launch *launch, const mla_operands *operands) {
    char *workspace = launch->workspace;
    const shape *s = &b->shape;
    void *new_q = workspace + s->at.new_q, *new_kv = workspace + s->at.new_kv;
    return (mla_bmm_args){
        .problem = *launch->problem,
        .output = *launch->output,
        .groups = (const mla_bmm_group *)(workspace + s->at.groups),
        .num_keys = s->keys,
        .num_groups = s->num_groups,
        .fp16 = operands->operands == MLA_FP16,
        .q = s->converts ? new_q : launch->problem->q,
        .kv = s->gathers ? new_kv : launch->problem->kv,
        .new_q = new_q,
        .new_kv = new_kv,
        .scores = (float *)(workspace + s->at.scores),
        .weights = workspace + s->at.weights,
        .values = (float *)(workspace + s->at.values),
        .scaling = (float *)(workspace + s->at.scaling),
    };
}

static mla_status launch_blocks(const bmm *b, const char *function, int64_t blocks, const mla_bmm_args *args, void *stream) {
    const mla_grid grid = {.blocks = (int)blocks, .threads = MLA_BMM_THREADS, .lds_bytes = MLA_BMM_LDS_BYTES};
    return b->launcher->launch(b->launcher, function, grid, args, sizeof *args, stream);
}

static mla_status make_operands(const bmm *b, const mla_operands *operands, const mla_bmm_args *args, void *stream) {
    char function[40];
    mla_status status = mla_ok();
    snprintf(function, sizeof function, "mla_bmm_gather_%s", operands->name);
    if (b->shape.converts)
        status = launch_blocks(b, "mla_bmm_convert_q", b->shape.rows, args, stream);
    if (status.code == MLA_OK && b->shape.gathers)
        status = launch_blocks(b, function, ceil_div(args->num_keys, MLA_BMM_GATHER_KEYS), args, stream);
    return status;
}

/* ---- products by the vendor's library --------------------------------------------------------------------------------------------- */

/* How many groups from `first` on are alike, and equally far apart: one batch. */
static int32_t batch_of(const mla_bmm_group *first, int32_t left) {
    int32_t n = 1;
    for (; n < left; n++) {
        const mla_bmm_group *g = first + n, *next = first + 1;
        if (g->rows != first->rows || g->keys != first->keys || g->first_row - g[-1].first_row != next->first_row - first->first_row ||
            g->first_key - g[-1].first_key != next->first_key - first->first_key)
            break;
    }
    return n;
}

/* Matrices of a library are stored by columns: a row of ours is a column there, and products change sides. */
static mla_vendor_product product_of(const mla_bmm_args *args, const mla_bmm_group *g, int32_t batch, bool of_values) {
    const int64_t keys_apart = batch > 1 ? g[1].first_key - g->first_key : 0;
    const int64_t rows_apart = batch > 1 ? g[1].first_row - g->first_row : 0;
    const int64_t scores_apart = batch > 1 ? g[1].first_score - g->first_score : 0;
    const mla_vendor_matrix kv = {(const uint16_t *)args->kv + g->first_key * MLA_HEAD_DIM, MLA_HEAD_DIM, keys_apart * MLA_HEAD_DIM};
    mla_vendor_product p = {.n = g->rows, .batch = batch, .fp16 = args->fp16, .a = kv};
    if (of_values) {
        p.m = MLA_HEAD_DIM_V;
        p.k = g->keys;
        p.b = (mla_vendor_matrix){(const uint16_t *)args->weights + g->first_score, g->pitch, scores_apart};
        p.c = (mla_vendor_matrix){args->values + g->first_row * MLA_HEAD_DIM_V, MLA_HEAD_DIM_V, rows_apart * MLA_HEAD_DIM_V};
    } else {
        p.transpose_a = true;
        p.m = g->keys;
        p.k = MLA_HEAD_DIM;
        p.b = (mla_vendor_matrix){(const uint16_t *)args->q + g->first_row * MLA_HEAD_DIM, MLA_HEAD_DIM, rows_apart * MLA_HEAD_DIM};
        p.c = (mla_vendor_matrix){args->scores + g->first_score, g->pitch, scores_apart};
    }
    return p;
}

static mla_status multiply_by_library(const bmm *b, const mla_bmm_args *args, bool of_values) {
    mla_status status = mla_ok();
    for (int32_t g = 0, batch; g < b->shape.num_groups && status.code == MLA_OK; g += batch) {
        batch = batch_of(b->shape.groups + g, b->shape.num_groups - g);
        if (b->shape.groups[g].keys == 0)
            continue;
        const mla_vendor_product product = product_of(args, b->shape.groups + g, batch, of_values);
        status = mla_vendor_gemm_multiply(b->gemm, &product);
    }
    return status;
}

/* ---- the run ----------------------------------------------------------------------------------------------------------------------- */

static mla_status multiply(const bmm *b, const mla_bmm_args *args, bool of_values, void *stream) {
    if (b->gemm)
        return multiply_by_library(b, args, of_values);
    return of_values ? launch_blocks(b, "mla_bmm_values", b->shape.value_tiles, args, stream)
                     : launch_blocks(b, "mla_bmm_scores", b->shape.score_tiles, args, stream);
}

static int bmm_run(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t reason_size) {
    const bmm *b = kernel->context;
    const mla_operands *operands = mla_operands_of(launch->host);
    if (!launch->workspace || launch->workspace != b->workspace || !operands)
        return fail(mla_error(MLA_EINVAL, "run without a prepare of this problem and workspace"), reason, reason_size);
    const mla_bmm_args args = arguments(b, launch, operands);
    mla_status status = b->gemm ? mla_vendor_gemm_set_stream(b->gemm, launch->stream) : mla_ok();
    if (status.code == MLA_OK)
        status = make_operands(b, operands, &args, launch->stream);
    if (status.code == MLA_OK)
        status = multiply(b, &args, false, launch->stream);
    if (status.code == MLA_OK)
        status = launch_blocks(b, "mla_bmm_softmax", b->shape.rows, &args, launch->stream);
    if (status.code == MLA_OK)
        status = multiply(b, &args, true, launch->stream);
    if (status.code == MLA_OK)
        status = launch_blocks(b, "mla_bmm_finish", ceil_div(b->shape.rows, FINISH_ROWS), &args, launch->stream);
    return status.code == MLA_OK ? 0 : fail(status, reason, reason_size);
}

/* ---- what it declares --------------------------------------------------------------------------------------------------------------- */

/*
 * Scores stay fp32 and the maximum is known before the first weight, so nothing is rescaled; P is rounded to operands, and its sum taken before that. A
 * library's products are the matrix unit's, and it may split them; ours are summed one by one, to nearest.
 */
static mla_contract contract_of(const bmm *b) {
    mla_contract c = mla_contract_default();
    c.acc_rounding = b->gemm ? b->launcher->engine->acc_rounding : MLA_RNE;
    c.mma_k = b->gemm ? b->launcher->engine->mma_k : 1;
    c.ftz = b->launcher->device->space != MLA_SPACE_HOST; /* a fast exp2 flushes subnormals */
    c.tile = INT_MAX;
    return c;
}

static mla_contract bmm_contract_for(const mla_kernel *kernel, const mla_problem *host) {
    mla_contract c = contract_of(kernel->context);
    const mla_operands *operands = mla_operands_of(host);
    if (operands) {
        c.p = operands->operands;
        c.kv_dequant = mla_operands_exact(host) ? MLA_NONE : operands->operands;
    }
    return c;
}

mla_status mla_bmm_open(mla_launcher *launcher, const char *name, bool own, mla_kernel **kernel) {
    bmm *b = calloc(1, sizeof *b);
    if (!b) {
        launcher->close(launcher);
        return mla_error(MLA_ENOMEM, "no memory for kernel %s", name);
    }
    b->launcher = launcher;
    const bool library = !own && mla_vendor_gemm_open(launcher->device, &b->gemm).code == MLA_OK;
    snprintf(b->name, sizeof b->name, "%s%s", name, library || own || launcher->device->space == MLA_SPACE_HOST ? "" : ":own");
    b->kernel = (mla_kernel){
        .abi_version = MLA_KERNEL_ABI,
        .name = b->name,
        .space = launcher->device->space,
        .contract = contract_of(b),
        .context = b,
        .contract_for = bmm_contract_for,
        .supports = bmm_supports,
        .workspace = bmm_workspace,
        .prepare = bmm_prepare,
        .run = bmm_run,
    };
    *kernel = &b->kernel;
    return mla_ok();
}

void mla_bmm_close(mla_kernel *kernel) {
    bmm *b = kernel->context;
    if (b->gemm)
        mla_vendor_gemm_close(b->gemm);
    shape_free(&b->shape);
    b->launcher->close(b->launcher);
    free(b);
}
