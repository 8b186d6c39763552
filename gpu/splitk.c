/*
 * The host side of the split-K kernel: what it supports, where plan and partials lie in the workspace, and its two launches.
 *
 * Workspace, each part aligned to 256 bytes: items | groups | worker_indptr | partial_out | partial_ml.
 */
#include "splitk.h"

#include "operands.h"
#include "splitk_args.h"

#include <stdio.h>
#include <stdlib.h>

/* Byte offsets into the workspace. */
typedef struct layout {
    size_t items, groups, worker_indptr, partial_out, partial_ml, bytes;
} layout;

typedef struct splitk {
    mla_kernel kernel;
    mla_launcher *launcher;
    char name[64];
    /* What the latest prepare left in the workspace. */
    const void *workspace;
    layout at;
    int32_t num_workers, num_groups;
    bool combines; /* some group was not written by its one item */
} splitk;

static int fail(mla_status status, char *reason, size_t reason_size) {
    snprintf(reason, reason_size, "%s", status.message);
    return 1;
}

static bool has_kernel(const mla_engine *engine, const mla_operands *operands) {
    return engine->kv == MLA_ENGINE_ALL_KV || operands->direct == (engine->kv == MLA_ENGINE_DIRECT_KV);
}

/*
 * Does a sequence, under sparse attention a query token, have at least `rows` rows, on average over those that have any? Splits of a fixed size give a
 * sequence the same bits in any company: there only what all sequences share decides, a query token's rows.
 */
static bool has_rows(const mla_problem *p, int32_t rows) {
    int64_t sequences = 0;
    if (p->paging == MLA_SPARSE || p->split_policy == MLA_SPLIT_SIZE)
        return p->heads >= rows;
    for (int32_t b = 0; b < p->batch; b++)
        sequences += mla_q_len(p, b) > 0;
    return (int64_t)p->qo_indptr[p->batch] * p->heads >= sequences * rows;
}

static mla_launcher *launcher_for(const splitk *s, const mla_problem *host) {
    const mla_operands *operands = mla_operands_of(host);
    mla_launcher *l = operands ? s->launcher->better : NULL;
    while (l && !(has_kernel(l->engine, operands) && has_rows(host, l->engine->min_rows)))
        l = l->better;
    return l ? l : s->launcher;
}

static mla_status make_plan(const splitk *s, const mla_problem *host, mla_plan *plan) {
    const mla_launcher *launcher = launcher_for(s, host);
    const mla_plan_options options = mla_engine_plan_options(launcher->engine, launcher->device);
    return mla_plan_make(host, &options, plan);
}

static size_t place(size_t *end, size_t bytes) {
    size_t at = *end;
    *end = (at + bytes + 255) / 256 * 256;
    return at;
}

static layout layout_of(const mla_plan *plan) {
    size_t slot_rows = (size_t)plan->num_slots * (size_t)plan->row_tile;
    layout at = {0};
    at.items = place(&at.bytes, (size_t)plan->num_items * sizeof *plan->items);
    at.groups = place(&at.bytes, (size_t)plan->num_groups * sizeof *plan->groups);
    at.worker_indptr = place(&at.bytes, ((size_t)plan->num_workers + 1) * sizeof *plan->worker_indptr);
    at.partial_out = place(&at.bytes, slot_rows * MLA_HEAD_DIM_V * sizeof(float));
    at.partial_ml = place(&at.bytes, slot_rows * 2 * sizeof(float));
    return at;
}

static int32_t most_splits(const mla_plan *plan) {
    int32_t most = 0;
    for (int32_t g = 0; g < plan->num_groups; g++)
        most = plan->groups[g].splits > most ? plan->groups[g].splits : most;
    return most;
}

static bool splitk_supports(const mla_kernel *kernel, const mla_problem *host, char *reason, size_t reason_size) {
    const mla_engine *engine = mla_splitk_engine(kernel, host);
    const mla_operands *operands = mla_operands_or_reason(host, reason, reason_size);
    if (!operands)
        return false;
    if (!has_kernel(engine, operands)) {
        snprintf(reason, reason_size, "engine %s has no kernel for kv=%s", engine->name, operands->name);
        return false;
    }
    mla_plan plan;
    mla_status status = make_plan(kernel->context, host, &plan);
    if (status.code != MLA_OK)
        return !fail(status, reason, reason_size);
    int32_t splits = most_splits(&plan);
    mla_plan_free(&plan);
    if (splits > MLA_SPLITK_MAX_SPLITS)
        snprintf(reason, reason_size, "the plan has %d splits a row; splitk declares at most %d", splits, MLA_SPLITK_MAX_SPLITS);
    return splits <= MLA_SPLITK_MAX_SPLITS;
}

/* 0 when no plan can be made: prepare makes it again, and says why not. */
static size_t splitk_workspace(const mla_kernel *kernel, const mla_problem *host) {
    mla_plan plan;
    if (make_plan(kernel->context, host, &plan).code != MLA_OK)
        return 0;
    size_t bytes = layout_of(&plan).bytes;
    mla_plan_free(&plan);
    return bytes;
}

static mla_status upload_plan(const splitk *s, const mla_plan *plan, const layout *at, char *workspace) {
    mla_device *d = s->launcher->device;
    mla_status status = d->upload(d, workspace + at->items, plan->items, (size_t)plan->num_items * sizeof *plan->items);
    if (status.code == MLA_OK)
        status = d->upload(d, workspace + at->groups, plan->groups, (size_t)plan->num_groups * sizeof *plan->groups);
    if (status.code == MLA_OK)
        status =
            d->upload(d, workspace + at->worker_indptr, plan->worker_indptr, ((size_t)plan->num_workers + 1) * sizeof *plan->worker_indptr);
    return status;
}

static int splitk_prepare(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t reason_size) {
    splitk *s = kernel->context;
    mla_plan plan;
    mla_status status = make_plan(s, launch->host, &plan);
    if (status.code != MLA_OK)
        return fail(status, reason, reason_size);
    s->workspace = launch->workspace;
    s->at = layout_of(&plan);
    s->num_workers = plan.num_workers;
    s->num_groups = plan.num_groups;
    s->combines = false;
    for (int32_t g = 0; g < plan.num_groups; g++)
        s->combines |= plan.groups[g].splits != 1;
    status = upload_plan(s, &plan, &s->at, launch->workspace);
    mla_plan_free(&plan);
    return status.code == MLA_OK ? 0 : fail(status, reason, reason_size);
}

static mla_splitk_args arguments(const splitk *s, const mla_launch *launch) {
    char *workspace = launch->workspace;
    return (mla_splitk_args){
        .problem = *launch->problem,
        .output = *launch->output,
        .items = (const mla_plan_item *)(workspace + s->at.items),
        .groups = (const mla_plan_group *)(workspace + s->at.groups),
        .worker_indptr = (const int32_t *)(workspace + s->at.worker_indptr),
        .partial_out = (float *)(workspace + s->at.partial_out),
        .partial_ml = (float *)(workspace + s->at.partial_ml),
        .num_groups = s->num_groups,
        .row_tile = launcher_for(s, launch->host)->engine->row_tile,
    };
}

static int splitk_run(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t reason_size) {
    splitk *s = kernel->context;
    const mla_operands *operands = mla_operands_of(launch->host);
    char function[32];
    if (!launch->workspace || launch->workspace != s->workspace || !operands)
        return fail(mla_error(MLA_EINVAL, "run without a prepare of this problem and workspace"), reason, reason_size);
    mla_launcher *launcher = launcher_for(s, launch->host);
    const mla_engine *engine = launcher->engine;
    mla_splitk_args args = arguments(s, launch);
    snprintf(function, sizeof function, "%s_%s", engine->kernels, operands->name);
    const mla_grid walk = {.blocks = s->num_workers, .threads = engine->threads, .lds_bytes = engine->lds_bytes};
    const mla_grid combine = {.blocks = s->num_groups * engine->row_tile, .threads = MLA_COMBINE_THREADS, .early = s->num_workers > 0};
    mla_status status = launcher->launch(launcher, function, walk, &args, sizeof args, launch->stream);
    if (status.code == MLA_OK && s->combines)
        status = launcher->launch(launcher, "mla_combine", combine, &args, sizeof args, launch->stream);
    return status.code == MLA_OK ? 0 : fail(status, reason, reason_size);
}

static mla_contract contract_of(const mla_launcher *launcher) {
    mla_contract c = mla_contract_default();
    bool emulated = launcher->device->space == MLA_SPACE_HOST;
    c.acc_rounding = emulated ? MLA_RNE : launcher->engine->acc_rounding;
    c.mma_k = emulated ? 16 : launcher->engine->mma_k;
    c.ftz = !emulated; /* gfx90a's matrix unit flushes subnormals, as does a fast exp2 elsewhere */
    c.lazy_max = launcher->engine->max_slack > 0;
    c.tile = launcher->engine->kv_tile;
    c.max_splits = MLA_SPLITK_MAX_SPLITS;
    return c;
}

/* One rounding to fp16 of the smallest weights is far from relative: P's type matters, and it is the operands'. */
static mla_contract splitk_contract_for(const mla_kernel *kernel, const mla_problem *host) {
    mla_contract c = contract_of(launcher_for(kernel->context, host));
    const mla_operands *operands = mla_operands_of(host);
    if (operands) {
        c.p = operands->operands;
        c.kv_dequant = mla_operands_exact(host) ? MLA_NONE : operands->operands;
    }
    return c;
}

mla_status mla_splitk_open(mla_launcher *launcher, const char *name, mla_kernel **kernel) {
    splitk *s = calloc(1, sizeof *s);
    if (!s) {
        launcher->close(launcher);
        return mla_error(MLA_ENOMEM, "no memory for kernel %s", name);
    }
    s->launcher = launcher;
    snprintf(s->name, sizeof s->name, "%s", name);
    s->kernel = (mla_kernel){
        .abi_version = MLA_KERNEL_ABI,
        .name = s->name,
        .space = launcher->device->space,
        .contract = contract_of(launcher),
        .context = s,
        .contract_for = splitk_contract_for,
        .supports = splitk_supports,
        .workspace = splitk_workspace,
        .prepare = splitk_prepare,
        .run = splitk_run,
    };
    *kernel = &s->kernel;
    return mla_ok();
}

const mla_engine *mla_splitk_engine(const mla_kernel *kernel, const mla_problem *host) {
    return launcher_for(kernel->context, host)->engine;
}

void mla_splitk_close(mla_kernel *kernel) {
    splitk *s = kernel->context;
    s->launcher->close(s->launcher);
    free(s);
}
