/* Kernels in host memory, by name, on problems made by hand. */
#ifndef SUPPORT_LAUNCH_H
#define SUPPORT_LAUNCH_H

#include "../gpu/mla_gpu.h"
#include "support_problem.h"

/* Skips the running test where the kernel is not built in. Close with mla_kernel_close. */
mla_kernel_handle test_kernel_open(const char *spec);

/* The kernel's results, or a failed test. Free with test_output_free. */
mla_output test_launch(const mla_kernel *kernel, const mla_problem *problem);

/* All rows of the problem; free with mla_truth_free. */
mla_truth test_truth(const mla_problem *problem, const mla_contract *contract);

/* The largest error of an element or lse of the problem's rows over its bound; infinity where one is NaN and not the other. Empty rows are exact. */
double test_worst_error(const mla_problem *problem, const mla_output *output, const mla_truth *truth);

#endif
