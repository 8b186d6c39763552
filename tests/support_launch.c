#include "support_launch.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

mla_kernel_handle test_kernel_open(const char *spec) {
    mla_kernel_handle handle;
    const mla_status status = mla_kernel_open(spec, &handle);
    if (status.code == MLA_EUNSUPPORTED)
        cr_skip_test("%s is not built in", spec);
    cr_assert_eq(status.code, MLA_OK, "%s: %s", spec, status.message);
    return handle;
}

mla_output test_launch(const mla_kernel *kernel, const mla_problem *problem) {
    mla_output output = test_output_make(problem);
    const size_t bytes = kernel->workspace ? kernel->workspace(kernel, problem) : 0;
    void *workspace = bytes > 0 ? aligned_alloc(256, (bytes + 255) / 256 * 256) : NULL;
    const mla_launch launch = {.problem = problem, .host = problem, .output = &output, .workspace = workspace};
    mla_status status = mla_kernel_prepare(kernel, &launch);
    if (status.code == MLA_OK)
        status = mla_kernel_run(kernel, &launch);
    cr_assert_eq(status.code, MLA_OK, "%s: %s", kernel->name, status.message);
    free(workspace);
    return output;
}

mla_truth test_truth(const mla_problem *problem, const mla_contract *contract) {
    mla_truth truth;
    const mla_status status = mla_oracle_run(problem, contract, 0, problem->total_q, &truth);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    return truth;
}

static double error_over_bound(double got, double exact, double bound) {
    if (got == exact || (isnan(got) && isnan(exact)))
        return 0;
    const double ratio = fabs(got - exact) / bound;
    return isnan(ratio) ? INFINITY : ratio;
}

double test_worst_error(const mla_problem *problem, const mla_output *output, const mla_truth *truth) {
    double worst = 0;
    for (int64_t r = 0; r < truth->rows; r++) {
        const double lse = (double)mla_lse_convert(output->lse[r], problem->lse_base, problem->lse_empty_positive, MLA_LSE_E, false);
        worst = fmax(worst, error_over_bound(lse, truth->lse[r], truth->lse_bound[r]));
        for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
            const int64_t i = r * MLA_HEAD_DIM_V + c;
            worst = fmax(worst, error_over_bound(test_output_element(problem, output, r, c), truth->out[i], truth->bound[i]));
        }
    }
    return worst;
}
