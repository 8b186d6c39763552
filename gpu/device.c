/* Devices by memory space, and the host as a device: memory of its own, everything done when the call returns. */
#include "launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What plans see of the host. A constant: a plan, and so every bit of a result, must not depend on the machine. */
#define HOST_COMPUTE_UNITS 32
#define ALIGNMENT 256

static mla_status host_allocate(mla_device *device, size_t bytes, void **pointer) {
    (void)device;
    *pointer = NULL;
    if (bytes > SIZE_MAX - ALIGNMENT)
        return mla_error(MLA_ENOMEM, "no host memory for %zu bytes", bytes);
    *pointer = aligned_alloc(ALIGNMENT, (bytes / ALIGNMENT + 1) * ALIGNMENT);
    return *pointer ? mla_ok() : mla_error(MLA_ENOMEM, "no host memory for %zu bytes", bytes);
}

static void host_release(mla_device *device, void *pointer) {
    (void)device;
    free(pointer);
}

static mla_status host_copy(mla_device *device, void *to, const void *from, size_t bytes) {
    (void)device;
    if (bytes)
        memcpy(to, from, bytes);
    return mla_ok();
}

static mla_status host_fill(mla_device *device, void *to, uint8_t byte, size_t bytes) {
    (void)device;
    if (bytes)
        memset(to, byte, bytes);
    return mla_ok();
}

static mla_status host_synchronize(mla_device *device) {
    (void)device;
    return mla_ok();
}

static void host_close(mla_device *device) {
    free(device);
}

mla_status mla_host_device_open(mla_device **device) {
    mla_device *d = calloc(1, sizeof *d);
    if (!d)
        return mla_error(MLA_ENOMEM, "no memory for a device");
    *d = (mla_device){
        .space = MLA_SPACE_HOST,
        .compute_units = HOST_COMPUTE_UNITS,
        .allocate = host_allocate,
        .release = host_release,
        .upload = host_copy,
        .download = host_copy,
        .fill = host_fill,
        .synchronize = host_synchronize,
        .close = host_close,
    };
    snprintf(d->description, sizeof d->description, "host, planned as %d compute units", HOST_COMPUTE_UNITS);
    *device = d;
    return mla_ok();
}

mla_status mla_device_open(mla_space space, mla_device **device) {
    *device = NULL;
    switch (space) {
    case MLA_SPACE_HOST:
        return mla_host_device_open(device);
    case MLA_SPACE_CUDA:
        return mla_cuda_device_open(device);
    case MLA_SPACE_HIP:
        return mla_hip_device_open(device);
    }
    return mla_error(MLA_EINVAL, "memory space %d does not exist", (int)space);
}
