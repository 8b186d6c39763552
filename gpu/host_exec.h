/*
 * Host execution: a GPU kernel's source compiled by g++ and run on the CPU, one fiber a thread.
 *
 * The C side: launch a kernel function over blocks. The C++ side (device code with MLA_HOST_EXEC defined) gets the primitives of device.h.
 */
#ifndef MLA_HOST_EXEC_H
#define MLA_HOST_EXEC_H

#include "mla_gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mla_host_launch {
    void (*kernel)(const void *args);
    const void *args;
    int blocks, threads, wave; /* wave divides threads */
    size_t lds_bytes;
    uint64_t fiber_seed; /* 0: fibers run in thread order; otherwise each round runs them in an order drawn from it */
} mla_host_launch;

/* Runs all blocks (OpenMP tasks) to their end. MLA_EDEVICE: a barrier, shuffle or matrix step was not reached by all: names file and line. */
mla_status mla_host_execute(const mla_host_launch *launch) MLA_CHECKED;

#ifdef __cplusplus
}
#endif
#endif
