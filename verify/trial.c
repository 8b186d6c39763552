#include "trial.h"

#include <stdio.h>
#include <stdlib.h>

#include "../ref/try.h"

/* The first touched guard is the one reported. */
static mla_status check_guards(const mla_buffer *buffer, const char *name, mla_integrity *integrity) {
    bool touched = false;
    int64_t offset = 0;
    if (buffer->bytes == 0 || *integrity->guard_touched)
        return mla_ok();
    TRY(mla_buffer_guards(buffer, &touched, &offset));
    if (touched) {
        snprintf(integrity->guard_touched, sizeof integrity->guard_touched, "%s", name);
        integrity->guard_offset = offset;
        integrity->guard_size = (int64_t)buffer->bytes;
    }
    return mla_ok();
}

static mla_status check_unchanged(const mla_mirror *m, mla_integrity *integrity) {
    int64_t offset = -1;
    if (m->original->bytes == 0 || *integrity->input_changed)
        return mla_ok();
    TRY(mla_buffer_changed(&m->copy, m->original->data, &offset));
    if (offset >= 0) {
        snprintf(integrity->input_changed, sizeof integrity->input_changed, "%s", m->name);
        integrity->input_offset = offset;
    }
    return mla_ok();
}

static mla_status check_integrity(const mla_replica *replica, const mla_outputs *outputs, mla_integrity *integrity) {
    TRY(check_guards(&outputs->out, "out", integrity));
    TRY(check_guards(&outputs->lse, "lse", integrity));
    TRY(check_guards(&outputs->workspace, "workspace", integrity));
    for (const mla_mirror *m = replica->mirrors; m < replica->mirrors + MLA_MIRRORS; m++) {
        TRY(check_guards(&m->copy, m->name, integrity));
        TRY(check_unchanged(m, integrity));
    }
    return mla_ok();
}

static mla_status download(const mla_outputs *outputs, mla_output *output) {
    output->out = malloc(outputs->out.bytes + 1);
    output->lse = malloc(outputs->lse.bytes + 1);
    if (!output->out || !output->lse)
        return mla_error(MLA_ENOMEM, "no memory for %zu bytes of output", outputs->out.bytes);
    TRY(mla_buffer_download(&outputs->out, output->out));
    return mla_buffer_download(&outputs->lse, output->lse);
}

static mla_status launch(const mla_kernel *kernel, mla_device *device, const mla_launch *arguments) {
    TRY(mla_kernel_prepare(kernel, arguments));
    TRY(mla_kernel_run(kernel, arguments));
    return device ? device->synchronize(device) : mla_ok();
}

static mla_status run(const mla_kernel *kernel, mla_device *device, const mla_inputs *inputs, mla_replica *replica, mla_outputs *outputs,
                      mla_trial *trial) {
    TRY(mla_replica_make(device, inputs, replica));
    TRY(mla_outputs_make(device, kernel, &inputs->problem, outputs));
    const mla_launch arguments = mla_launch_make(device, &inputs->problem, replica, outputs);
    TRY(launch(kernel, device, &arguments));
    TRY(check_integrity(replica, outputs, &trial->integrity));
    return download(outputs, &trial->output);
}

mla_status mla_trial_run(const mla_kernel *kernel, mla_device *device, const mla_inputs *inputs, mla_trial *trial) {
    mla_replica replica = {0};
    mla_outputs outputs = {0};
    *trial = (mla_trial){0};
    const mla_status status = run(kernel, device, inputs, &replica, &outputs, trial);
    mla_replica_free(&replica);
    mla_outputs_free(&outputs);
    return status;
}

void mla_trial_free(mla_trial *trial) {
    free(trial->output.out);
    free(trial->output.lse);
    *trial = (mla_trial){0};
}
