/*
 * NVIDIA through the CUDA driver API, opened at run time: no CUDA header or library is needed to build or to start. The few declarations below
 * are those of cuda.h (CUDA 12 and 13; the names with _v2 are what its macros expand to).
 *
 * The device's primary context is current on the thread that opened the device; use the device on that thread.
 */
#include "launcher.h"
#include "library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;

enum {
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NO_DEVICE = 100,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
    CU_STREAM_NON_BLOCKING = 1
};

typedef struct CUlaunchAttribute {
    int id;
    char pad[4];
    union {
        char pad[64];
        int programmaticStreamSerializationAllowed;
    } value;
} CUlaunchAttribute;

typedef struct CUlaunchConfig {
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    void *hStream;
    CUlaunchAttribute *attrs;
    unsigned numAttrs;
} CUlaunchConfig;

#define STATIC_LDS_LIMIT (48 * 1024) /* a kernel that wants more must say so before its launch */
#define MAX_FUNCTIONS 32
#define HOPPER 9 /* major compute capability */

#define FUNCTIONS(X)                                                                                                                       \
    X(cuInit, (unsigned flags))                                                                                                            \
    X(cuDriverGetVersion, (int *version))                                                                                                  \
    X(cuGetErrorString, (CUresult error, const char **text))                                                                               \
    X(cuDeviceGetCount, (int *count))                                                                                                      \
    X(cuDeviceGet, (CUdevice * device, int ordinal))                                                                                       \
    X(cuDeviceGetName, (char *name, int size, CUdevice device))                                                                            \
    X(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device))                                                                  \
    X(cuDevicePrimaryCtxRetain, (void **context, CUdevice device))                                                                         \
    X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                                                     \
    X(cuCtxSetCurrent, (void *context))                                                                                                    \
    X(cuStreamCreate, (void **stream, unsigned flags))                                                                                     \
    X(cuStreamDestroy_v2, (void *stream))                                                                                                  \
    X(cuStreamSynchronize, (void *stream))                                                                                                 \
    X(cuMemAlloc_v2, (CUdeviceptr * pointer, size_t bytes))                                                                                \
    X(cuMemFree_v2, (CUdeviceptr pointer))                                                                                                 \
    X(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, void *stream))                                                \
    X(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, void *stream))                                                      \
    X(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, void *stream))                                                \
    X(cuMemsetD8Async, (CUdeviceptr to, unsigned char byte, size_t bytes, void *stream))                                                   \
    X(cuEventCreate, (void **event, unsigned flags))                                                                                       \
    X(cuEventDestroy_v2, (void *event))                                                                                                    \
    X(cuEventRecord, (void *event, void *stream))                                                                                          \
    X(cuEventSynchronize, (void *event))                                                                                                   \
    X(cuEventElapsedTime, (float *milliseconds, void *from, void *to))                                                                     \
    X(cuModuleLoadData, (void **module, const void *image))                                                                                \
    X(cuModuleUnload, (void *module))                                                                                                      \
    X(cuModuleGetFunction, (void **function, void *module, const char *name))                                                              \
    X(cuFuncSetAttribute, (void *function, int attribute, int value))                                                                      \
    X(cuLaunchKernelEx, (const CUlaunchConfig *config, void *function, void **parameters, void **extra))

typedef struct api {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declarator takes none */
#define FIELD(name, parameters) CUresult(*name) parameters;
    FUNCTIONS(FIELD)
#undef FIELD
} api;

static const mla_symbol symbols[] = {
#define SYMBOL(name, parameters) {#name, offsetof(api, name)},
    FUNCTIONS(SYMBOL)
#undef SYMBOL
};

typedef struct cuda {
    mla_device device;
    api api;
    void *library, *context;
    CUdevice ordinal;
    int generation;                 /* major compute capability */
    void *events[MLA_DEVICE_MARKS]; /* made when first marked */
} cuda;

typedef struct cuda_launcher {
    mla_launcher launcher;
    cuda *cuda;
    void *module;
    struct {
        char name[64];
        void *function;
        size_t lds_bytes; /* allowed so far */
    } functions[MAX_FUNCTIONS];
    int count;
} cuda_launcher;

extern const unsigned char mla_image_nvidia[] __attribute__((weak, visibility("hidden")));
extern const unsigned char mla_image_hopper[] __attribute__((weak, visibility("hidden")));
extern const unsigned char mla_image_hopper16[] __attribute__((weak, visibility("hidden")));

static mla_status check(const api *a, const char *what, CUresult result) {
    const char *text = NULL;
    if (result == 0)
        return mla_ok();
    if (a->cuGetErrorString(result, &text) != 0 || !text)
        text = "unknown error";
    return mla_error(result == CUDA_ERROR_OUT_OF_MEMORY ? MLA_ENOMEM : MLA_EDEVICE, "%s: %s (CUDA error %d)", what, text, result);
}

#define CALL(a, function, ...) check(a, #function, (a)->function(__VA_ARGS__))

/* ---- the device ------------------------------------------------------------------------------------------------------------- */

static mla_status cuda_synchronize(mla_device *device) {
    cuda *c = device->state;
    return CALL(&c->api, cuStreamSynchronize, device->stream);
}

static mla_status cuda_allocate(mla_device *device, size_t bytes, void **pointer) {
    cuda *c = device->state;
    CUdeviceptr address = 0;
    mla_status status = CALL(&c->api, cuMemAlloc_v2, &address, bytes ? bytes : 1);
    *pointer = (void *)(uintptr_t)address;
    return status;
}

static void cuda_release(mla_device *device, void *pointer) {
    cuda *c = device->state;
    if (pointer)
        c->api.cuMemFree_v2((uintptr_t)pointer);
}

static mla_status cuda_upload(mla_device *device, void *to, const void *from, size_t bytes) {
    cuda *c = device->state;
    if (!bytes)
        return mla_ok();
    mla_status status = CALL(&c->api, cuMemcpyHtoDAsync_v2, (uintptr_t)to, from, bytes, device->stream);
    return status.code == MLA_OK ? cuda_synchronize(device) : status;
}

static mla_status cuda_download(mla_device *device, void *to, const void *from, size_t bytes) {
    cuda *c = device->state;
    if (!bytes)
        return mla_ok();
    mla_status status = CALL(&c->api, cuMemcpyDtoHAsync_v2, to, (uintptr_t)from, bytes, device->stream);
    return status.code == MLA_OK ? cuda_synchronize(device) : status;
}

static mla_status cuda_fill(mla_device *device, void *to, uint8_t byte, size_t bytes) {
    cuda *c = device->state;
    return bytes ? CALL(&c->api, cuMemsetD8Async, (uintptr_t)to, byte, bytes, device->stream) : mla_ok();
}

static mla_status cuda_copy(mla_device *device, void *to, const void *from, size_t bytes) {
    cuda *c = device->state;
    return bytes ? CALL(&c->api, cuMemcpyDtoDAsync_v2, (uintptr_t)to, (uintptr_t)from, bytes, device->stream) : mla_ok();
}

static mla_status cuda_mark(mla_device *device, int mark) {
    cuda *c = device->state;
    if (!c->events[mark]) {
        mla_status status = CALL(&c->api, cuEventCreate, &c->events[mark], 0);
        if (status.code != MLA_OK)
            return status;
    }
    return CALL(&c->api, cuEventRecord, c->events[mark], device->stream);
}

static mla_status cuda_elapsed(mla_device *device, int from, int to, double *seconds) {
    cuda *c = device->state;
    float milliseconds = 0;
    mla_status status = CALL(&c->api, cuEventSynchronize, c->events[to]);
    if (status.code == MLA_OK)
        status = CALL(&c->api, cuEventElapsedTime, &milliseconds, c->events[from], c->events[to]);
    *seconds = (double)milliseconds * 1e-3;
    return status;
}

static void cuda_close(mla_device *device) {
    cuda *c = device->state;
    for (int i = 0; i < MLA_DEVICE_MARKS; i++)
        if (c->events[i])
            c->api.cuEventDestroy_v2(c->events[i]);
    if (device->stream)
        c->api.cuStreamDestroy_v2(device->stream);
    if (c->context)
        c->api.cuDevicePrimaryCtxRelease_v2(c->ordinal);
    mla_library_close(c->library);
    free(c);
}

static mla_status open_context(cuda *c) {
    const api *a = &c->api;
    int devices = 0;
    CUresult result = a->cuInit(0);
    mla_status status = check(a, "cuInit", result);
    if (status.code == MLA_OK)
        status = check(a, "cuDeviceGetCount", result = a->cuDeviceGetCount(&devices));
    if (result == CUDA_ERROR_NO_DEVICE || (result == 0 && devices == 0))
        return mla_error(MLA_EDEVICE, "no NVIDIA device");
    if (status.code == MLA_OK)
        status = CALL(a, cuDeviceGet, &c->ordinal, 0);
    if (status.code == MLA_OK)
        status = CALL(a, cuDevicePrimaryCtxRetain, &c->context, c->ordinal);
    if (status.code == MLA_OK)
        status = CALL(a, cuCtxSetCurrent, c->context);
    if (status.code == MLA_OK)
        status = CALL(a, cuStreamCreate, &c->device.stream, CU_STREAM_NON_BLOCKING);
    return status;
}

static mla_status describe(cuda *c) {
    const api *a = &c->api;
    char name[80] = "";
    int version = 0, cache_bytes = 0;
    mla_status status = CALL(a, cuDeviceGetName, name, (int)sizeof name, c->ordinal);
    if (status.code == MLA_OK)
        status = CALL(a, cuDriverGetVersion, &version);
    if (status.code == MLA_OK)
        status = CALL(a, cuDeviceGetAttribute, &c->device.compute_units, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, c->ordinal);
    if (status.code == MLA_OK)
        status = CALL(a, cuDeviceGetAttribute, &cache_bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, c->ordinal);
    if (status.code == MLA_OK)
        status = CALL(a, cuDeviceGetAttribute, &c->generation, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, c->ordinal);
    c->device.cache_bytes = (size_t)cache_bytes;
    snprintf(c->device.description, sizeof c->device.description, "%s, %d SMs, driver %d.%d", name, c->device.compute_units, version / 1000,
             version % 1000 / 10);
    return status;
}

mla_status mla_cuda_device_open(mla_device **device) {
    static const char *const names[] = {"libcuda.so.1", NULL};
    cuda *c = calloc(1, sizeof *c);
    if (!c)
        return mla_error(MLA_ENOMEM, "no memory for a device");
    c->device = (mla_device){
        .space = MLA_SPACE_CUDA,
        .state = c,
        .allocate = cuda_allocate,
        .release = cuda_release,
        .upload = cuda_upload,
        .download = cuda_download,
        .fill = cuda_fill,
        .copy = cuda_copy,
        .synchronize = cuda_synchronize,
        .mark = cuda_mark,
        .elapsed = cuda_elapsed,
        .close = cuda_close,
    };
    mla_status status = mla_library_open("NVIDIA", names, symbols, sizeof symbols / sizeof *symbols, &c->api, &c->library);
    if (status.code == MLA_OK)
        status = open_context(c);
    if (status.code == MLA_OK)
        status = describe(c);
    if (status.code == MLA_OK)
        *device = &c->device;
    else
        cuda_close(&c->device);
    return status;
}

/* ---- the launcher -------------------------------------------------------------------------------------------------------------- */

/* Looked up once a name: a launch should cost the host little. */
static mla_status find_function(cuda_launcher *l, const char *name, size_t lds_bytes, void **function) {
    const api *a = &l->cuda->api;
    int i = 0;
    while (i < l->count && strcmp(l->functions[i].name, name) != 0)
        i++;
    if (i == MAX_FUNCTIONS || strlen(name) >= sizeof l->functions[i].name)
        return mla_error(MLA_EUNSUPPORTED, "kernel function %s: too many, or too long a name", name);
    if (i == l->count) {
        mla_status status = check(a, name, a->cuModuleGetFunction(&l->functions[i].function, l->module, name));
        if (status.code != MLA_OK)
            return status;
        snprintf(l->functions[i].name, sizeof l->functions[i].name, "%s", name);
        l->functions[i].lds_bytes = STATIC_LDS_LIMIT;
        l->count++;
    }
    *function = l->functions[i].function;
    if (lds_bytes <= l->functions[i].lds_bytes)
        return mla_ok();
    l->functions[i].lds_bytes = lds_bytes;
    return CALL(a, cuFuncSetAttribute, *function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)lds_bytes);
}

static mla_status cuda_launch(mla_launcher *launcher, const char *name, mla_grid grid, const void *args, size_t args_bytes, void *stream) {
    cuda_launcher *l = launcher->state;
    const api *a = &l->cuda->api;
    void *function = NULL;
    (void)args_bytes; /* the driver knows the size of the kernel's one parameter */
    if (grid.blocks == 0)
        return mla_ok();
    mla_status status = find_function(l, name, grid.lds_bytes, &function);
    if (status.code != MLA_OK)
        return status;
    void *parameters[] = {(void *)(uintptr_t)args};
    CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                               .value.programmaticStreamSerializationAllowed = 1};
    const CUlaunchConfig config = {.gridDimX = (unsigned)grid.blocks,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = (unsigned)grid.threads,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .sharedMemBytes = (unsigned)grid.lds_bytes,
                                   .hStream = stream,
                                   .attrs = &early,
                                   .numAttrs = grid.early && l->cuda->generation >= HOPPER};
    return check(a, name, a->cuLaunchKernelEx(&config, function, parameters, NULL));
}

static void cuda_launcher_close(mla_launcher *launcher) {
    cuda_launcher *l = launcher->state;
    if (launcher->better)
        launcher->better->close(launcher->better);
    if (l->module)
        l->cuda->api.cuModuleUnload(l->module);
    free(l);
}

/* NULL: not built in. */
static const unsigned char *image_of(const char *engine) {
    if (strcmp(engine, "mma") == 0)
        return mla_image_nvidia;
    return strcmp(engine, "hopper") == 0 ? mla_image_hopper : mla_image_hopper16;
}

static mla_status open_engine(mla_device *device, const char *engine, mla_launcher **launcher) {
    cuda *c = device->state;
    const unsigned char *image = image_of(engine);
    if (!image)
        return mla_error(MLA_EUNSUPPORTED, "built without NVIDIA device code for engine %s", engine);
    if (image != mla_image_nvidia && c->generation != HOPPER)
        return mla_error(MLA_EDEVICE, "engine %s is for compute capability 9; this device has %d", engine, c->generation);
    cuda_launcher *l = calloc(1, sizeof *l);
    if (!l)
        return mla_error(MLA_ENOMEM, "no memory for a launcher");
    l->cuda = c;
    l->launcher = (mla_launcher){
        .engine = mla_engine_find(engine), .device = device, .state = l, .launch = cuda_launch, .close = cuda_launcher_close};
    mla_status status = CALL(&c->api, cuModuleLoadData, &l->module, image);
    if (status.code == MLA_OK)
        *launcher = &l->launcher;
    else
        cuda_launcher_close(&l->launcher);
    return status;
}

mla_status mla_cuda_launcher_open(mla_device *device, const char *engine, mla_launcher **launcher) {
    static const char *const better[] = {"hopper", "hopper16"};
    const cuda *c = device->state;
    mla_status status = open_engine(device, engine ? engine : "mma", launcher);
    if (status.code != MLA_OK || engine || c->generation != HOPPER)
        return status;
    mla_launcher **next = &(*launcher)->better;
    for (size_t i = 0; i < sizeof better / sizeof *better && status.code == MLA_OK; i++)
        if (image_of(better[i])) {
            status = open_engine(device, better[i], next);
            next = status.code == MLA_OK ? &(*next)->better : next;
        }
    if (status.code != MLA_OK)
        cuda_launcher_close(*launcher);
    return status;
}
