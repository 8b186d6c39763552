/* From a kernel's errors to the roundings that explain them. */
#ifndef MLA_CONTRACT_INFER_H
#define MLA_CONTRACT_INFER_H

#include "../gpu/mla_gpu.h"
#include "chi.h"

#define MLA_INFER_PROBES 3

/* How a contract fares on one probe. */
typedef struct mla_infer_fit {
    bool run;               /* the kernel could do the probe */
    const char *case_line;  /* as it was run */
    double chi, over_bound; /* the rms of error / sigma over all rows; largest |e| / B, and of lse */
    double size;            /* geometric mean of sigma: how large the errors are that it explains */
} mla_infer_fit;

typedef struct mla_inference {
    mla_contract contract;                /* of those that explain the errors, the likeliest; when none does, that with the smallest chi */
    bool explains;                        /* chi <= MLA_CHI_CASE and all within bounds, on every probe */
    int candidates;                       /* contracts tried */
    mla_infer_fit fits[MLA_INFER_PROBES]; /* of `contract` */
    mla_infer_fit declared[MLA_INFER_PROBES]; /* of the kernel's own */
} mla_inference;

/*
 * Runs the kernel on probes that tell roundings apart, then tries every choice of scores, P and its rounding, row sum, partials and out's rounding; the
 * rest is as the kernel declares. MLA_EUNSUPPORTED when it can do none of the probes. `device` is NULL for host memory.
 */
mla_status mla_contract_infer(const mla_kernel *kernel, mla_device *device, mla_inference *inference) MLA_CHECKED;

#endif
