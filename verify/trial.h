/* One launch of a kernel on given inputs: what it wrote, and what it did to the memory around it. */
#ifndef MLA_TRIAL_H
#define MLA_TRIAL_H

#include "judge.h"
#include "replica.h"

typedef struct mla_trial {
    mla_output output; /* host copies of out and lse, owned */
    mla_integrity integrity;
} mla_trial;

/*
 * Prepares and runs `kernel` once, on copies of the inputs in its memory space: `device`, or NULL for host memory. Free with mla_trial_free, also
 * after failure.
 */
mla_status mla_trial_run(const mla_kernel *kernel, mla_device *device, const mla_inputs *inputs, mla_trial *trial) MLA_CHECKED;
void mla_trial_free(mla_trial *trial);

#endif
