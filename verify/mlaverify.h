/*
 * The gate as a library: outputs that a kernel has written, against the fp64 oracle and the bound derived from the kernel's contract. For test suites that
 * have tensors at hand and no wish to change how they build or launch.
 *
 *     cc $(pkg-config --cflags --libs mlaverify) ...
 *
 * Nothing is printed, and no environment is changed. Calls from several threads do not disturb each other.
 */
#ifndef MLAVERIFY_H
#define MLAVERIFY_H

#include "../gpu/mla_gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MLAVERIFY_API __attribute__((visibility("default")))

#define MLAVERIFY_ABI 1
/* MLAVERIFY_ABI and sizeof(mla_problem) that the library was built with: a binding written by hand should compare them with its own. */
MLAVERIFY_API int mlaverify_abi(void);
MLAVERIFY_API size_t mlaverify_problem_bytes(void);

/* Where the worst element is: its error is the largest share of its bound, or it is NaN or infinite and should not be. */
typedef struct mlaverify_worst {
    int32_t sequence, q, head, column; /* q: query token within its sequence. sequence -1: a padding row, or there is no worst */
    double got, exact, bound;
} mlaverify_worst;

typedef struct mlaverify_grade {
    int32_t passed; /* 1: all is within its bound, and errors are of the size the contract explains; otherwise 0 */
    double max_err_over_bound, max_lse_over_bound; /* largest |error| / bound; above 1 it is wrong */
    double max_ulp;                                /* of out; it gates nothing: a right kernel reaches thousands where out is nearly 0 */
    int64_t elements, wrong_elements, lses, wrong_lses;
    mlaverify_worst worst;
    char *text; /* the report as mla-verify prints it, lines that end in a newline */
    char *json; /* all that was measured: an element of "cases" in mla-verify run --json */
} mlaverify_grade;

/*
 * Grades `output` of `problem`. Every pointer in both lies in `space`: host memory, or memory of the first CUDA or HIP device, which the device's work
 * must be done with, and which is copied to the host. output->lse may be NULL. An element whose bytes are all 0xFF counts as never written: fill outputs
 * with that before the launch.
 *
 * `contract` says what the kernel's arithmetic declares, as key=value pairs: "p=fp8 p_scale=256" is weights of P in fp8, and the rest by default: fp32
 * everywhere but P in bf16. NULL or "": all by default. mla-verify info prints those of known kernels; the keys are
 *
 *     acc_rounding acc_bits mma_k scores n_scores q_scaled kv_dequant p p_rounding p_scale rowsum partial combine exp_error tanh_error log_error max ftz
 *     out_rounding tile max_splits
 *
 * MLA_EINVAL: the problem or the contract is malformed; MLA_EDEVICE: the device cannot be used; MLA_ENOMEM. A wrong output is no such failure: then
 * grade->passed is 0. Free with mlaverify_grade_free, also after failure.
 */
MLAVERIFY_API mla_status mlaverify_grade_output(const mla_problem *problem, const mla_output *output, mla_space space, const char *contract,
                                                mlaverify_grade *grade) MLA_CHECKED;
MLAVERIFY_API void mlaverify_grade_free(mlaverify_grade *grade); /* a zeroed grade is allowed */

#ifdef __cplusplus
}
#endif
#endif
