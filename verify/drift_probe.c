#include "drift_probe.h"

#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "trial.h"

static mla_status check_case(const mla_case *c, int32_t sequence) {
    if (c->q != MLA_BF16 || c->kv != MLA_KV_BF16)
        return mla_error(MLA_EUNSUPPORTED, "values are planted in bf16: q and kv must be bf16");
    if (c->paging == MLA_SPARSE)
        return mla_error(MLA_EUNSUPPORTED, "tokens of a sparse list may repeat: page must not be topk");
    if (sequence < 0 || sequence >= c->batch)
        return mla_error(MLA_EINVAL, "no sequence %d in a batch of %d", sequence, c->batch);
    if (c->q_len[sequence] == 0)
        return mla_error(MLA_EUNSUPPORTED, "sequence %d has no query", sequence);
    return mla_ok();
}

static mla_status check_kernel(const mla_kernel *kernel, const mla_problem *host) {
    char reason[200] = "the kernel gave no reason";
    if (kernel->supports && !kernel->supports(kernel, host, reason, sizeof reason))
        return mla_error(MLA_EUNSUPPORTED, "%s", reason);
    return mla_ok();
}

mla_status mla_probe_make(const mla_kernel *kernel, mla_device *device, const mla_case *c, int32_t sequence, mla_probe *probe) {
    *probe = (mla_probe){.kernel = kernel, .device = device, .sequence = sequence};
    TRY(check_case(c, sequence));
    mla_case plain = *c;
    plain.has_sink = false;
    plain.softcap = 0;
    TRY(mla_inputs_make(&plain, &probe->inputs));
    const mla_problem *p = &probe->inputs.problem;
    TRY(check_kernel(kernel, p));
    memset(probe->inputs.q.data, 0, probe->inputs.q.bytes);
    if (probe->inputs.kv.bytes > 0)
        memset(probe->inputs.kv.data, 0, probe->inputs.kv.bytes);
    const int64_t token = p->qo_indptr[sequence + 1] - 1;
    probe->row = token * p->heads;
    probe->keys = mla_visible(p, sequence, token);
    return probe->keys.begin < probe->keys.end ? mla_ok() : mla_error(MLA_EUNSUPPORTED, "sequence %d has no key to sum over", sequence);
}

void mla_probe_free(mla_probe *probe) {
    mla_inputs_free(&probe->inputs);
    *probe = (mla_probe){0};
}

static void put(uint8_t *codes, int64_t index, double value) {
    const uint16_t code = (uint16_t)mla_encode(MLA_BF16, value, MLA_RNE);
    memcpy(codes + index * 2, &code, sizeof code);
}

void mla_probe_plant(mla_probe *probe, int64_t position, int dim, double value) {
    const int64_t slot = mla_kv_slot(&probe->inputs.problem, probe->sequence, probe->row / probe->inputs.problem.heads, position);
    put(probe->inputs.kv.data, slot * MLA_HEAD_DIM + dim, value);
}

void mla_probe_plant_q(mla_probe *probe, int dim, double value) {
    for (int64_t r = 0; r < probe->inputs.problem.total_q * probe->inputs.problem.heads; r++)
        put(probe->inputs.q.data, r * MLA_HEAD_DIM + dim, value);
}

mla_status mla_probe_run(mla_probe *probe, double *out) {
    const mla_format format = probe->inputs.problem.out_format;
    mla_trial trial;
    const mla_status status = mla_trial_run(probe->kernel, probe->device, &probe->inputs, &trial);
    probe->launches++;
    if (status.code == MLA_OK)
        mla_decode_f64(format, (const uint8_t *)trial.output.out + (size_t)probe->row * MLA_HEAD_DIM_V * mla_format_bytes(format),
                       MLA_HEAD_DIM_V, out);
    mla_trial_free(&trial);
    return status;
}
