/* One launch of a kernel on a case, for the commands that look at its error rather than grade it. */
#ifndef MLA_DRIFT_LAUNCH_H
#define MLA_DRIFT_LAUNCH_H

#include "trial.h"

typedef struct mla_drift_launch {
    mla_inputs inputs;
    mla_trial trial;
} mla_drift_launch;

/* MLA_EUNSUPPORTED: the kernel cannot do the case, or it has no query rows. `device` NULL: host memory. Free also after failure. */
mla_status mla_drift_launch_run(const mla_kernel *kernel, mla_device *device, const mla_case *c, mla_drift_launch *launch) MLA_CHECKED;
/* A zeroed launch is allowed. */
void mla_drift_launch_free(mla_drift_launch *launch);

#endif
