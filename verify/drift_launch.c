#include "drift_launch.h"

#include "../ref/try.h"

mla_status mla_drift_launch_run(const mla_kernel *kernel, mla_device *device, const mla_case *c, mla_drift_launch *launch) {
    char reason[200] = "the kernel gave no reason";
    *launch = (mla_drift_launch){0};
    TRY(mla_inputs_make(c, &launch->inputs));
    TRY(mla_problem_check(&launch->inputs.problem));
    if (launch->inputs.problem.total_q == 0)
        return mla_error(MLA_EUNSUPPORTED, "the case has no query rows");
    if (kernel->supports && !kernel->supports(kernel, &launch->inputs.problem, reason, sizeof reason))
        return mla_error(MLA_EUNSUPPORTED, "%s", reason);
    return mla_trial_run(kernel, device, &launch->inputs, &launch->trial);
}

void mla_drift_launch_free(mla_drift_launch *launch) {
    mla_trial_free(&launch->trial);
    mla_inputs_free(&launch->inputs);
}
