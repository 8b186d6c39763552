/* A compiled set of kernels (code object, cubin, or host functions) that can be launched by name on one device. */
#ifndef MLA_LAUNCHER_H
#define MLA_LAUNCHER_H

#include "engine.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mla_grid {
    int blocks; /* 0: nothing is launched */
    int threads;
    size_t lds_bytes;
    /* May begin while the launch before it on the stream still runs: its kernel then waits by mla_wait_for_launch_before (device.h). */
    bool early;
} mla_grid;

typedef struct mla_launcher mla_launcher;
struct mla_launcher {
    const mla_engine *engine;
    mla_device *device;
    void *state;
    mla_launcher *
        better; /* another engine of the same device, which runs what suits it, and may know a better one; closed with this one; NULL: none */
    /* Enqueues a kernel; `args` is copied before it returns. */
    mla_status (*launch)(mla_launcher *launcher, const char *function, mla_grid grid, const void *args, size_t args_bytes, void *stream);
    void (*close)(mla_launcher *launcher);
};

/* backend_cuda.c, backend_hip.c, backend_host.cpp. The device must outlive the launcher. MLA_EUNSUPPORTED when not built in. */
mla_status mla_cuda_device_open(mla_device **device) MLA_CHECKED;
/* `engine`: "mma", "hopper" or "hopper16"; NULL: mma, with the others as its `better` ones where the device has them. */
mla_status mla_cuda_launcher_open(mla_device *device, const char *engine, mla_launcher **launcher) MLA_CHECKED;
mla_status mla_hip_device_open(mla_device **device) MLA_CHECKED;
mla_status mla_hip_launcher_open(mla_device *device, mla_launcher **launcher) MLA_CHECKED;
mla_status mla_host_device_open(mla_device **device) MLA_CHECKED;
mla_status mla_host_launcher_open(mla_device *device, const char *engine, mla_launcher **launcher) MLA_CHECKED;

#ifdef __cplusplus
}
#endif
#endif
