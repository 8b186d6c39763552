/* A kernel as a black box: one sequence's keys and values planted entry by entry, launched, and one row of the output read. */
#ifndef MLA_DRIFT_PROBE_H
#define MLA_DRIFT_PROBE_H

#include "inputs.h"

typedef struct mla_probe {
    const mla_kernel *kernel;
    mla_device *device; /* NULL: host memory */
    mla_inputs inputs;  /* q and KV all zero, but for what is planted */
    mla_range keys;     /* positions that the row sees */
    int64_t row;        /* the first head of the sequence's last query token */
    int32_t sequence;
    int64_t launches;
} mla_probe;

/*
 * For a case's shapes; its values, sink and soft-cap are left out. MLA_EUNSUPPORTED, with the reason: KV or q are not bf16, tokens are sparse, the
 * row sees nothing, or the kernel cannot do it. Free with mla_probe_free, also after failure.
 */
mla_status mla_probe_make(const mla_kernel *kernel, mla_device *device, const mla_case *c, int32_t sequence, mla_probe *probe) MLA_CHECKED;
void mla_probe_free(mla_probe *probe);

/* Values are exact in bf16. An entry of the key at `position`; 0 takes it away. */
void mla_probe_plant(mla_probe *probe, int64_t position, int dim, double value);
/* An entry of every row of q. */
void mla_probe_plant_q(mla_probe *probe, int dim, double value);
/* Launches, and reads the row: out [512]. */
mla_status mla_probe_run(mla_probe *probe, double *out) MLA_CHECKED;

#endif
