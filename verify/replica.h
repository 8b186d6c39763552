/* A case in a kernel's memory space: its inputs as copies, so that nothing a kernel does reaches the originals, and room for its results. */
#ifndef MLA_REPLICA_H
#define MLA_REPLICA_H

#include "inputs.h"

/* One input: the case's own bytes, and the kernel's copy of them. */
typedef struct mla_mirror {
    const char *name;
    const mla_buffer *original; /* in the mla_inputs */
    mla_buffer copy;
} mla_mirror;

enum { MLA_MIRRORS = 9 };

typedef struct mla_replica {
    mla_mirror mirrors[MLA_MIRRORS];
    mla_problem problem; /* every pointer into the copies */
} mla_replica;

/* Poisoned. */
typedef struct mla_outputs {
    mla_buffer out, lse, workspace;
    mla_output pointers; /* to out and lse */
} mla_outputs;

/* `device` NULL: host memory. `inputs` must outlive the replica. Free with mla_replica_free, also after failure. */
mla_status mla_replica_make(mla_device *device, const mla_inputs *inputs, mla_replica *replica) MLA_CHECKED;
/* A zeroed replica is allowed. */
void mla_replica_free(mla_replica *replica);
/* Bytes of the copies, without guards. */
size_t mla_replica_bytes(const mla_inputs *inputs);

/* As large as the kernel wants them for this problem. Free with mla_outputs_free, also after failure; zeroed outputs are allowed. */
mla_status mla_outputs_make(mla_device *device, const mla_kernel *kernel, const mla_problem *host, mla_outputs *outputs) MLA_CHECKED;
void mla_outputs_free(mla_outputs *outputs);

/* A launch of the replica's problem into the outputs, which must outlive it. */
mla_launch mla_launch_make(const mla_device *device, const mla_problem *host, const mla_replica *replica, const mla_outputs *outputs);

#endif
