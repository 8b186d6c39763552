#include "run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "inputs.h"

#define SLAB_ROWS 8192

/* One input: the case's own bytes, and the kernel's copy of them. */
typedef struct mirror {
    const char *name;
    const mla_buffer *original;
    mla_buffer copy;
} mirror;

enum { Q, QO_INDPTR, KV, KV_BLOCK_SCALES, KV_INDPTR, BLOCK_TABLE, KV_INDICES, TOPK_INDICES, SINK, MIRRORS };

typedef struct launch {
    const mla_kernel *kernel;
    mla_device *device; /* NULL: the kernel works in host memory */
    mla_inputs inputs;
    mirror mirrors[MIRRORS];
    mla_problem problem; /* pointers in the kernel's space */
    mla_buffer out, lse, workspace;
    mla_output result; /* host copies of out and lse */
} launch;

static mla_status make_mirrors(launch *l) {
    const mla_inputs *in = &l->inputs;
    const mirror mirrors[MIRRORS] = {
        [Q] = {.name = "q", .original = &in->q},
        [QO_INDPTR] = {.name = "qo_indptr", .original = &in->qo_indptr},
        [KV] = {.name = "kv", .original = &in->kv},
        [KV_BLOCK_SCALES] = {.name = "kv_block_scales", .original = &in->kv_block_scales},
        [KV_INDPTR] = {.name = "kv_indptr", .original = &in->kv_indptr},
        [BLOCK_TABLE] = {.name = "block_table", .original = &in->block_table},
        [KV_INDICES] = {.name = "kv_indices", .original = &in->kv_indices},
        [TOPK_INDICES] = {.name = "topk_indices", .original = &in->topk_indices},
        [SINK] = {.name = "sink", .original = &in->sink},
    };
    memcpy(l->mirrors, mirrors, sizeof mirrors);
    for (mirror *m = l->mirrors; m < l->mirrors + MIRRORS; m++) {
        mla_status status = mla_buffer_make(l->device, m->original->bytes, &m->copy);
        if (status.code == MLA_OK && m->original->bytes > 0)
            status = mla_buffer_upload(&m->copy, m->original->data);
        if (status.code != MLA_OK)
            return status;
    }
    return mla_ok();
}

/* Where the kernel finds what the case keeps at `pointer`. */
static const void *mirrored(const launch *l, int input, const void *pointer) {
    const mirror *m = &l->mirrors[input];
    return pointer ? m->copy.data + ((const uint8_t *)pointer - m->original->data) : NULL;
}

static mla_problem mirrored_problem(const launch *l) {
    mla_problem p = l->inputs.problem;
    p.q = mirrored(l, Q, p.q);
    p.qo_indptr = mirrored(l, QO_INDPTR, p.qo_indptr);
    p.kv = mirrored(l, KV, p.kv);
    p.kv_block_scales = mirrored(l, KV_BLOCK_SCALES, p.kv_block_scales);
    p.kv_indptr = mirrored(l, KV_INDPTR, p.kv_indptr);
    p.block_table = mirrored(l, BLOCK_TABLE, p.block_table);
    p.kv_indices = mirrored(l, KV_INDICES, p.kv_indices);
    p.topk_indices = mirrored(l, TOPK_INDICES, p.topk_indices);
    p.sink = mirrored(l, SINK, p.sink);
    return p;
}

/* Outputs and workspace, poisoned as mla_buffer_make leaves them. */
static mla_status make_outputs(launch *l) {
    const mla_problem *p = &l->inputs.problem;
    size_t rows = (size_t)p->total_q * (size_t)p->heads;
    mla_status status = mla_buffer_make(l->device, rows * MLA_HEAD_DIM_V * mla_format_bytes(p->out_format), &l->out);
    if (status.code == MLA_OK)
        status = mla_buffer_make(l->device, rows * sizeof(float), &l->lse);
    if (status.code == MLA_OK && l->kernel->workspace)
        status = mla_buffer_make(l->device, l->kernel->workspace(l->kernel, p), &l->workspace);
    return status;
}

static mla_status run_kernel(launch *l) {
    const mla_kernel *k = l->kernel;
    mla_output output = {.out = l->out.data, .lse = (float *)(void *)l->lse.data};
    mla_launch arguments = {.problem = &l->problem,
                            .host = &l->inputs.problem,
                            .output = &output,
                            .workspace = l->workspace.data,
                            .stream = l->device ? l->device->stream : NULL};
    char reason[200] = "no reason given";
    if (k->prepare && k->prepare(k, &arguments, reason, sizeof reason) != 0)
        return mla_error(MLA_EDEVICE, "prepare failed: %s", reason);
    if (k->run(k, &arguments, reason, sizeof reason) != 0)
        return mla_error(MLA_EDEVICE, "run failed: %s", reason);
    return l->device ? l->device->synchronize(l->device) : mla_ok();
}

static mla_status download(launch *l) {
    l->result.out = malloc(l->out.bytes + 1);
    l->result.lse = malloc(l->lse.bytes + 1);
    if (!l->result.out || !l->result.lse)
        return mla_error(MLA_ENOMEM, "no memory for %zu bytes of output", l->out.bytes);
    mla_status status = mla_buffer_download(&l->out, l->result.out);
    return status.code == MLA_OK ? mla_buffer_download(&l->lse, l->result.lse) : status;
}

/* The first touched guard is the one reported. */
static mla_status check_guards(const mla_buffer *buffer, const char *name, mla_integrity *integrity) {
    bool touched = false;
    int64_t offset = 0;
    if (buffer->bytes == 0 || integrity->guard_touched)
        return mla_ok();
    mla_status status = mla_buffer_guards(buffer, &touched, &offset);
    if (status.code == MLA_OK && touched) {
        integrity->guard_touched = name;
        integrity->guard_offset = offset;
        integrity->guard_size = (int64_t)buffer->bytes;
    }
    return status;
}

static mla_status check_unchanged(const mirror *m, mla_integrity *integrity) {
    int64_t offset = -1;
    if (m->original->bytes == 0 || integrity->input_changed)
        return mla_ok();
    mla_status status = mla_buffer_changed(&m->copy, m->original->data, &offset);
    if (status.code == MLA_OK && offset >= 0) {
        integrity->input_changed = m->name;
        integrity->input_offset = offset;
    }
    return status;
}

static mla_status check_integrity(const launch *l, mla_integrity *integrity) {
    mla_status status = check_guards(&l->out, "out", integrity);
    if (status.code == MLA_OK)
        status = check_guards(&l->lse, "lse", integrity);
    if (status.code == MLA_OK)
        status = check_guards(&l->workspace, "workspace", integrity);
    for (const mirror *m = l->mirrors; m < l->mirrors + MIRRORS && status.code == MLA_OK; m++) {
        status = check_guards(&m->copy, m->name, integrity);
        if (status.code == MLA_OK)
            status = check_unchanged(m, integrity);
    }
    return status;
}

static mla_status compare_slabs(const launch *l, mla_progress *progress, mla_measure *measure) {
    const mla_problem *p = &l->inputs.problem;
    const mla_contract contract = mla_kernel_contract(l->kernel, p);
    mla_status status = mla_measure_init(measure, p);
    int64_t slab = p->heads < SLAB_ROWS ? SLAB_ROWS / p->heads : 1;
    for (int64_t token = 0; token < p->total_q && status.code == MLA_OK; token += slab) {
        mla_progress_update(progress, (double)token / (double)p->total_q);
        mla_truth truth = {0};
        int64_t tokens = p->total_q - token < slab ? p->total_q - token : slab;
        status = mla_oracle_run(p, &contract, token, tokens, &truth);
        if (status.code == MLA_OK)
            mla_compare(p, &truth, &l->result, measure);
        mla_truth_free(&truth);
    }
    return status;
}

static mla_status launch_and_measure(launch *l, mla_progress *progress, mla_result *result) {
    mla_status status = make_mirrors(l);
    if (status.code == MLA_OK)
        status = make_outputs(l);
    if (status.code != MLA_OK)
        return status;
    l->problem = mirrored_problem(l);
    status = run_kernel(l);
    if (status.code == MLA_OK)
        status = check_integrity(l, &result->integrity);
    if (status.code == MLA_OK)
        status = download(l);
    if (status.code == MLA_OK)
        status = compare_slabs(l, progress, &result->measure);
    result->measured = status.code == MLA_OK;
    return status;
}

static mla_verdict grade(launch *l, mla_progress *progress, mla_result *result) {
    char reason[200] = "the kernel gave no reason";
    const mla_kernel *k = l->kernel;
    mla_status status = mla_contract_check(&k->contract);
    if (status.code == MLA_OK)
        status = mla_inputs_make(result->test, &l->inputs);
    if (status.code == MLA_OK)
        status = mla_problem_check(&l->inputs.problem);
    if (status.code != MLA_OK)
        return mla_verdict_make(MLA_ERROR, status.message);
    if (l->inputs.problem.total_q == 0)
        return mla_verdict_make(MLA_SKIPPED, "the case has no query rows: there is nothing to compare");
    if (k->supports && !k->supports(k, &l->inputs.problem, reason, sizeof reason))
        return mla_verdict_make(MLA_SKIPPED, reason);
    status = launch_and_measure(l, progress, result);
    if (status.code != MLA_OK)
        return mla_verdict_make(MLA_ERROR, status.message);
    return mla_judge(&result->measure, &result->integrity);
}

static void launch_free(launch *l) {
    for (int i = 0; i < MIRRORS; i++)
        mla_buffer_free(&l->mirrors[i].copy);
    mla_buffer_free(&l->out);
    mla_buffer_free(&l->lse);
    mla_buffer_free(&l->workspace);
    mla_inputs_free(&l->inputs);
    free(l->result.out);
    free(l->result.lse);
}

void mla_run_case(const mla_subject *subject, const mla_case *test, mla_progress *progress, mla_result *result) {
    *result = (mla_result){.test = test, .kernel = subject->spec, .case_line = mla_case_print(test)};
    if (!result->case_line) {
        result->verdict = mla_verdict_make(MLA_ERROR, "no memory to print the case");
    } else if (subject->opened.code != MLA_OK) {
        result->verdict = mla_verdict_make(MLA_SKIPPED, subject->opened.message);
    } else {
        const mla_kernel *kernel = subject->handle.kernel;
        launch l = {.kernel = kernel, .device = kernel->space == MLA_SPACE_HOST ? NULL : subject->handle.device};
        result->verdict = grade(&l, progress, result);
        launch_free(&l);
    }
}

void mla_result_free(mla_result *result) {
    free(result->case_line);
    mla_measure_free(&result->measure);
    *result = (mla_result){0};
}
