#include "replica.h"

#include <string.h>

#include "../ref/try.h"

enum { Q, QO_INDPTR, KV, KV_BLOCK_SCALES, KV_INDPTR, BLOCK_TABLE, KV_INDICES, TOPK_INDICES, SINK };

static void name_mirrors(const mla_inputs *in, mla_mirror *mirrors) {
    const mla_mirror all[MLA_MIRRORS] = {
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
    memcpy(mirrors, all, sizeof all);
}

/* Where the kernel finds what the case keeps at `pointer`. */
static const void *mirrored(const mla_replica *replica, int input, const void *pointer) {
    const mla_mirror *m = &replica->mirrors[input];
    return pointer ? m->copy.data + ((const uint8_t *)pointer - m->original->data) : NULL;
}

static mla_problem mirrored_problem(const mla_replica *replica, const mla_problem *original) {
    mla_problem p = *original;
    p.q = mirrored(replica, Q, p.q);
    p.qo_indptr = mirrored(replica, QO_INDPTR, p.qo_indptr);
    p.kv = mirrored(replica, KV, p.kv);
    p.kv_block_scales = mirrored(replica, KV_BLOCK_SCALES, p.kv_block_scales);
    p.kv_indptr = mirrored(replica, KV_INDPTR, p.kv_indptr);
    p.block_table = mirrored(replica, BLOCK_TABLE, p.block_table);
    p.kv_indices = mirrored(replica, KV_INDICES, p.kv_indices);
    p.topk_indices = mirrored(replica, TOPK_INDICES, p.topk_indices);
    p.sink = mirrored(replica, SINK, p.sink);
    return p;
}

mla_status mla_replica_make(mla_device *device, const mla_inputs *inputs, mla_replica *replica) {
    name_mirrors(inputs, replica->mirrors);
    for (mla_mirror *m = replica->mirrors; m < replica->mirrors + MLA_MIRRORS; m++)
        TRY(mla_buffer_copy(device, m->original, &m->copy));
    replica->problem = mirrored_problem(replica, &inputs->problem);
    return mla_ok();
}

void mla_replica_free(mla_replica *replica) {
    for (mla_mirror *m = replica->mirrors; m < replica->mirrors + MLA_MIRRORS; m++)
        mla_buffer_free(&m->copy);
    *replica = (mla_replica){0};
}

size_t mla_replica_bytes(const mla_inputs *inputs) {
    mla_mirror mirrors[MLA_MIRRORS];
    size_t bytes = 0;
    name_mirrors(inputs, mirrors);
    for (int i = 0; i < MLA_MIRRORS; i++)
        bytes += mirrors[i].original->bytes;
    return bytes;
}

mla_status mla_outputs_make(mla_device *device, const mla_kernel *kernel, const mla_problem *host, mla_outputs *outputs) {
    const size_t rows = (size_t)host->total_q * (size_t)host->heads;
    *outputs = (mla_outputs){0};
    TRY(mla_buffer_make(device, rows * MLA_HEAD_DIM_V * mla_format_bytes(host->out_format), &outputs->out));
    TRY(mla_buffer_make(device, rows * sizeof(float), &outputs->lse));
    if (kernel->workspace)
        TRY(mla_buffer_make(device, kernel->workspace(kernel, host), &outputs->workspace));
    outputs->pointers = (mla_output){.out = outputs->out.data, .lse = (float *)(void *)outputs->lse.data};
    return mla_ok();
}

void mla_outputs_free(mla_outputs *outputs) {
    mla_buffer_free(&outputs->out);
    mla_buffer_free(&outputs->lse);
    mla_buffer_free(&outputs->workspace);
    *outputs = (mla_outputs){0};
}

mla_launch mla_launch_make(const mla_device *device, const mla_problem *host, const mla_replica *replica, const mla_outputs *outputs) {
    return (mla_launch){.problem = &replica->problem,
                        .host = host,
                        .output = &outputs->pointers,
                        .workspace = outputs->workspace.data,
                        .stream = device ? device->stream : NULL};
}
