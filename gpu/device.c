/* Devices by memory space, and the host as a device: memory of its own, everything done when the call returns. */
#include "launcher.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* What plans see of the host. A constant: a plan, and so every bit of a result, must not depend on the machine. */
#define HOST_COMPUTE_UNITS 32
#define ALIGNMENT 256
#define UNKNOWN_CACHE ((size_t)64 << 20) /* where the system does not say */

typedef struct host {
    mla_device device;
    double marks[MLA_DEVICE_MARKS]; /* seconds */
} host;

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

static mla_status host_transfer(mla_device *device, void *to, const void *from, size_t bytes) {
    (void)device;
    if (bytes)
        memcpy(to, from, bytes);
    return mla_ok();
}

/* One piece a thread, as large as can be: memcpy then bypasses the caches. */
static mla_status host_copy(mla_device *device, void *to, const void *from, size_t bytes) {
    (void)device;
#pragma omp parallel
    {
        const size_t threads = (size_t)omp_get_num_threads(), i = (size_t)omp_get_thread_num();
        const size_t begin = bytes / threads * i, end = i + 1 == threads ? bytes : bytes / threads * (i + 1);
        if (begin < end)
            memcpy((char *)to + begin, (const char *)from + begin, end - begin);
    }
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

static mla_status host_mark(mla_device *device, int mark) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    ((host *)device->state)->marks[mark] = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    return mla_ok();
}

static mla_status host_elapsed(mla_device *device, int from, int to, double *seconds) {
    const double *marks = ((host *)device->state)->marks;
    *seconds = marks[to] - marks[from];
    return mla_ok();
}

static void host_close(mla_device *device) {
    free(device->state);
}

/* What the system says of processor 0's last-level cache; "" when it does not. `line` holds `size`. */
static void read_cache_line(const char *name, char *line, int size) {
    char path[80];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index3/%s", name);
    FILE *file = fopen(path, "r");
    if (!file || !fgets(line, size, file))
        line[0] = '\0';
    if (file)
        fclose(file);
}

/* Bits of a mask like "00000000,0000ffff". */
static int count_bits(const char *mask) {
    int bits = 0;
    for (const char *c = mask; *c; c++)
        bits += *c == ',' || *c == '\n' ? 0 : __builtin_popcountl(strtoul((char[]){*c, '\0'}, NULL, 16));
    return bits;
}

/* The last-level caches of all processors together. */
static size_t host_cache(void) {
    char size[32], sharers[4096];
    read_cache_line("size", size, sizeof size);
    read_cache_line("shared_cpu_map", sharers, sizeof sharers);
    const size_t kib = strtoul(size, NULL, 10), sharing = (size_t)count_bits(sharers);
    const size_t processors = (size_t)sysconf(_SC_NPROCESSORS_ONLN);
    if (kib == 0)
        return UNKNOWN_CACHE;
    return kib * 1024 * (sharing > 0 && processors > sharing ? (processors + sharing - 1) / sharing : 1);
}

mla_status mla_host_device_open(mla_device **device) {
    host *h = calloc(1, sizeof *h);
    if (!h)
        return mla_error(MLA_ENOMEM, "no memory for a device");
    h->device = (mla_device){
        .space = MLA_SPACE_HOST,
        .state = h,
        .cache_bytes = host_cache(),
        .compute_units = HOST_COMPUTE_UNITS,
        .allocate = host_allocate,
        .release = host_release,
        .upload = host_transfer,
        .download = host_transfer,
        .fill = host_fill,
        .copy = host_copy,
        .synchronize = host_synchronize,
        .mark = host_mark,
        .elapsed = host_elapsed,
        .close = host_close,
    };
    snprintf(h->device.description, sizeof h->device.description, "host, planned as %d compute units", HOST_COMPUTE_UNITS);
    *device = &h->device;
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
