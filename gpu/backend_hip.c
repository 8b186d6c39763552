/*
 * AMD through HIP's module API, opened at run time: no ROCm header or library is needed to build or to start. The few declarations below are
 * those of hip_runtime_api.h (ROCm 5 to 7). MLA_HIP_LIBRARY names another library than libamdhip64.so.
 */
#include "launcher.h"
#include "library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int hipError_t;

enum {
    hipErrorOutOfMemory = 2,
    hipErrorNoDevice = 100,
    hipMemcpyHostToDevice = 1,
    hipMemcpyDeviceToHost = 2,
    hipMemcpyDeviceToDevice = 3,
    hipStreamNonBlocking = 1
};

#define HIP_LAUNCH_PARAM_BUFFER_POINTER ((void *)1)
#define HIP_LAUNCH_PARAM_BUFFER_SIZE ((void *)2)
#define HIP_LAUNCH_PARAM_END ((void *)3)

#define MAX_FUNCTIONS 32

#define FUNCTIONS(X)                                                                                                                       \
    X(hipError_t, hipRuntimeGetVersion, (int *version))                                                                                    \
    X(const char *, hipGetErrorString, (hipError_t error))                                                                                 \
    X(hipError_t, hipGetDeviceCount, (int *count))                                                                                         \
    X(hipError_t, hipSetDevice, (int device))                                                                                              \
    X(hipError_t, hipStreamCreateWithFlags, (void **stream, unsigned flags))                                                               \
    X(hipError_t, hipStreamDestroy, (void *stream))                                                                                        \
    X(hipError_t, hipStreamSynchronize, (void *stream))                                                                                    \
    X(hipError_t, hipMalloc, (void **pointer, size_t bytes))                                                                               \
    X(hipError_t, hipFree, (void *pointer))                                                                                                \
    X(hipError_t, hipMemcpyAsync, (void *to, const void *from, size_t bytes, int kind, void *stream))                                      \
    X(hipError_t, hipMemsetAsync, (void *to, int byte, size_t bytes, void *stream))                                                        \
    X(hipError_t, hipEventCreate, (void **event))                                                                                          \
    X(hipError_t, hipEventDestroy, (void *event))                                                                                          \
    X(hipError_t, hipEventRecord, (void *event, void *stream))                                                                             \
    X(hipError_t, hipEventSynchronize, (void *event))                                                                                      \
    X(hipError_t, hipEventElapsedTime, (float *milliseconds, void *from, void *to))                                                        \
    X(hipError_t, hipModuleLoadData, (void **module, const void *image))                                                                   \
    X(hipError_t, hipModuleUnload, (void *module))                                                                                         \
    X(hipError_t, hipModuleGetFunction, (void **function, void *module, const char *name))                                                 \
    X(hipError_t, hipModuleLaunchKernel,                                                                                                   \
      (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,            \
       unsigned shared_bytes, void *stream, void **parameters, void **extra))

typedef struct api {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declarator takes none */
#define FIELD(result, name, parameters) result(*name) parameters;
    FUNCTIONS(FIELD)
#undef FIELD
} api;

static const mla_symbol symbols[] = {
#define SYMBOL(result, name, parameters) {#name, offsetof(api, name)},
    FUNCTIONS(SYMBOL)
#undef SYMBOL
};

/* hipDeviceProp_t changed in ROCm 6, and with it the name of its function. Byte offsets of the fields read here; `name` comes first in both. */
static const struct properties {
    const char *function;
    size_t multiProcessorCount, gcnArchName;
} properties[] = {{"hipGetDevicePropertiesR0600", 388, 1160}, {"hipGetDeviceProperties", 336, 396}};

#define PROPERTIES_BYTES 8192 /* more than any version's structure */

/* MI300's Infinity Cache, which HIP does not report; more than what its forerunners have. */
#define CACHE_BYTES ((size_t)256 << 20)

typedef struct hip {
    mla_device device;
    api api;
    void *library;
    char arch[32];                  /* "gfx942", without ":sramecc+:xnack-" */
    void *events[MLA_DEVICE_MARKS]; /* made when first marked */
} hip;

typedef struct hip_launcher {
    mla_launcher launcher;
    hip *hip;
    void *module;
    struct {
        char name[64];
        void *function;
    } functions[MAX_FUNCTIONS];
    int count;
} hip_launcher;

#define IMAGE(name) extern const unsigned char mla_image_##name[] __attribute__((weak, visibility("hidden")))
IMAGE(gfx90a);
IMAGE(gfx90a_tall);
IMAGE(gfx942);
IMAGE(gfx942_tall);
IMAGE(gfx950);
IMAGE(gfx950_tall);

static mla_status check(const api *a, const char *what, hipError_t result) {
    if (result == 0)
        return mla_ok();
    const char *text = a->hipGetErrorString(result);
    return mla_error(result == hipErrorOutOfMemory ? MLA_ENOMEM : MLA_EDEVICE, "%s: %s (HIP error %d)", what, text ? text : "unknown error",
                     result);
}

#define CALL(a, function, ...) check(a, #function, (a)->function(__VA_ARGS__))

/* ---- the device --------------------------------------------------------------------------------------------------------------- */

static mla_status hip_synchronize(mla_device *device) {
    hip *h = device->state;
    return CALL(&h->api, hipStreamSynchronize, device->stream);
}

static mla_status hip_allocate(mla_device *device, size_t bytes, void **pointer) {
    hip *h = device->state;
    *pointer = NULL;
    return CALL(&h->api, hipMalloc, pointer, bytes ? bytes : 1);
}

static void hip_release(mla_device *device, void *pointer) {
    hip *h = device->state;
    if (pointer)
        h->api.hipFree(pointer);
}

static mla_status transfer(mla_device *device, void *to, const void *from, size_t bytes, int kind) {
    hip *h = device->state;
    if (!bytes)
        return mla_ok();
    mla_status status = CALL(&h->api, hipMemcpyAsync, to, from, bytes, kind, device->stream);
    return status.code == MLA_OK ? hip_synchronize(device) : status;
}

static mla_status hip_upload(mla_device *device, void *to, const void *from, size_t bytes) {
    return transfer(device, to, from, bytes, hipMemcpyHostToDevice);
}

static mla_status hip_download(mla_device *device, void *to, const void *from, size_t bytes) {
    return transfer(device, to, from, bytes, hipMemcpyDeviceToHost);
}

static mla_status hip_fill(mla_device *device, void *to, uint8_t byte, size_t bytes) {
    hip *h = device->state;
    return bytes ? CALL(&h->api, hipMemsetAsync, to, byte, bytes, device->stream) : mla_ok();
}

static mla_status hip_copy(mla_device *device, void *to, const void *from, size_t bytes) {
    hip *h = device->state;
    return bytes ? CALL(&h->api, hipMemcpyAsync, to, from, bytes, hipMemcpyDeviceToDevice, device->stream) : mla_ok();
}

static mla_status hip_mark(mla_device *device, int mark) {
    hip *h = device->state;
    if (!h->events[mark]) {
        mla_status status = CALL(&h->api, hipEventCreate, &h->events[mark]);
        if (status.code != MLA_OK)
            return status;
    }
    return CALL(&h->api, hipEventRecord, h->events[mark], device->stream);
}

static mla_status hip_elapsed(mla_device *device, int from, int to, double *seconds) {
    hip *h = device->state;
    float milliseconds = 0;
    mla_status status = CALL(&h->api, hipEventSynchronize, h->events[to]);
    if (status.code == MLA_OK)
        status = CALL(&h->api, hipEventElapsedTime, &milliseconds, h->events[from], h->events[to]);
    *seconds = (double)milliseconds * 1e-3;
    return status;
}

static void hip_close(mla_device *device) {
    hip *h = device->state;
    for (int i = 0; i < MLA_DEVICE_MARKS; i++)
        if (h->events[i])
            h->api.hipEventDestroy(h->events[i]);
    if (device->stream)
        h->api.hipStreamDestroy(device->stream);
    mla_library_close(h->library);
    free(h);
}

/* Counting initialises the runtime; without a device hipInit itself fails, differently from version to version. */
static mla_status open_stream(hip *h) {
    const api *a = &h->api;
    int devices = 0;
    hipError_t result = a->hipGetDeviceCount(&devices);
    if (result == hipErrorNoDevice || (result == 0 && devices == 0))
        return mla_error(MLA_EDEVICE, "no AMD device");
    mla_status status = check(a, "hipGetDeviceCount", result);
    if (status.code == MLA_OK)
        status = CALL(a, hipSetDevice, 0);
    if (status.code == MLA_OK)
        status = CALL(a, hipStreamCreateWithFlags, &h->device.stream, hipStreamNonBlocking);
    return status;
}

/* The first of the functions that the library has, with the layout it fills. */
static mla_status read_properties(hip *h, char *bytes, const struct properties **layout) {
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++) {
        hipError_t (*get)(void *bytes, int device);
        void *function = mla_library_find(h->library, properties[i].function);
        if (!function)
            continue;
        memcpy(&get, &function, sizeof get);
        *layout = &properties[i];
        return check(&h->api, properties[i].function, get(bytes, 0));
    }
    return mla_error(MLA_EDEVICE, "the AMD driver lacks hipGetDeviceProperties");
}

static mla_status describe(hip *h) {
    char bytes[PROPERTIES_BYTES] = "";
    const struct properties *layout = properties;
    int version = 0;
    mla_status status = read_properties(h, bytes, &layout);
    if (status.code == MLA_OK)
        status = CALL(&h->api, hipRuntimeGetVersion, &version);
    if (status.code != MLA_OK)
        return status;
    const char *arch = bytes + layout->gcnArchName;
    if (strncmp(arch, "gfx", 3) != 0)
        return mla_error(MLA_EDEVICE, "the AMD driver's device properties are not as %s of ROCm 5 to 7 fills them", layout->function);
    snprintf(h->arch, sizeof h->arch, "%.*s", (int)strcspn(arch, ":"), arch);
    memcpy(&h->device.compute_units, bytes + layout->multiProcessorCount, sizeof h->device.compute_units);
    snprintf(h->device.description, sizeof h->device.description, "%.64s (%s), %d CUs, HIP %d.%d", bytes, h->arch, h->device.compute_units,
             version / 10000000, version / 100000 % 100);
    return mla_ok();
}

static mla_status open_library(hip *h) {
    const char *chosen = getenv("MLA_HIP_LIBRARY");
    const char *names[] = {
        "libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "/opt/rocm/lib/libamdhip64.so", NULL};
    if (chosen && *chosen) {
        names[0] = chosen;
        names[1] = NULL;
    }
    return mla_library_open("AMD", names, symbols, sizeof symbols / sizeof *symbols, &h->api, &h->library);
}

mla_status mla_hip_device_open(mla_device **device) {
    hip *h = calloc(1, sizeof *h);
    if (!h)
        return mla_error(MLA_ENOMEM, "no memory for a device");
    h->device = (mla_device){
        .space = MLA_SPACE_HIP,
        .cache_bytes = CACHE_BYTES,
        .state = h,
        .allocate = hip_allocate,
        .release = hip_release,
        .upload = hip_upload,
        .download = hip_download,
        .fill = hip_fill,
        .copy = hip_copy,
        .synchronize = hip_synchronize,
        .mark = hip_mark,
        .elapsed = hip_elapsed,
        .close = hip_close,
    };
    mla_status status = open_library(h);
    if (status.code == MLA_OK)
        status = open_stream(h);
    if (status.code == MLA_OK)
        status = describe(h);
    if (status.code == MLA_OK)
        *device = &h->device;
    else
        hip_close(&h->device);
    return status;
}

/* ---- the launcher ---------------------------------------------------------------------------------------------------------------- */

/* Looked up once a name: a launch should cost the host little. */
static mla_status find_function(hip_launcher *l, const char *name, void **function) {
    const api *a = &l->hip->api;
    int i = 0;
    while (i < l->count && strcmp(l->functions[i].name, name) != 0)
        i++;
    if (i == MAX_FUNCTIONS || strlen(name) >= sizeof l->functions[i].name)
        return mla_error(MLA_EUNSUPPORTED, "kernel function %s: too many, or too long a name", name);
    if (i == l->count) {
        mla_status status = check(a, name, a->hipModuleGetFunction(&l->functions[i].function, l->module, name));
        if (status.code != MLA_OK)
            return status;
        snprintf(l->functions[i].name, sizeof l->functions[i].name, "%s", name);
        l->count++;
    }
    *function = l->functions[i].function;
    return mla_ok();
}

/* Of the grid, LDS is static in AMD code objects, which carry its size, and every launch waits for the one before. */
static mla_status hip_launch(mla_launcher *launcher, const char *name, mla_grid grid, const void *args, size_t args_bytes, void *stream) {
    hip_launcher *l = launcher->state;
    const api *a = &l->hip->api;
    void *function = NULL;
    if (grid.blocks == 0)
        return mla_ok();
    mla_status status = find_function(l, name, &function);
    if (status.code != MLA_OK)
        return status;
    void *extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, (void *)(uintptr_t)args, HIP_LAUNCH_PARAM_BUFFER_SIZE, &args_bytes,
                     HIP_LAUNCH_PARAM_END};
    return check(a, name,
                 a->hipModuleLaunchKernel(function, (unsigned)grid.blocks, 1, 1, (unsigned)grid.threads, 1, 1, 0, stream, NULL, extra));
}

static void hip_launcher_close(mla_launcher *launcher) {
    hip_launcher *l = launcher->state;
    if (launcher->better)
        launcher->better->close(launcher->better);
    if (l->module)
        l->hip->api.hipModuleUnload(l->module);
    free(l);
}

/* The engines of an architecture and the code objects compiled for them. */
typedef struct architecture {
    const char *arch, *engine, *tall;
    const unsigned char *image, *tall_image;
} architecture;

static mla_status choose_images(const char *arch, architecture *chosen) {
    const architecture all[] = {
        {"gfx90a", "cdna3", "cdna3tall", mla_image_gfx90a, mla_image_gfx90a_tall},
        {"gfx942", "cdna3", "cdna3tall", mla_image_gfx942, mla_image_gfx942_tall},
        {"gfx950", "cdna4", "cdna4tall", mla_image_gfx950, mla_image_gfx950_tall},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(arch, all[i].arch) != 0)
            continue;
        *chosen = all[i];
        return chosen->image ? mla_ok() : mla_error(MLA_EUNSUPPORTED, "built without AMD device code for %s", arch);
    }
    return mla_error(MLA_EUNSUPPORTED, "no kernels for %s: they exist for gfx90a, gfx942 and gfx950", arch);
}

static mla_status open_engine(mla_device *device, const char *engine, const unsigned char *image, mla_launcher **launcher) {
    hip *h = device->state;
    hip_launcher *l = calloc(1, sizeof *l);
    if (!l)
        return mla_error(MLA_ENOMEM, "no memory for a launcher");
    l->hip = h;
    l->launcher =
        (mla_launcher){.engine = mla_engine_find(engine), .device = device, .state = l, .launch = hip_launch, .close = hip_launcher_close};
    mla_status status = CALL(&h->api, hipModuleLoadData, &l->module, image);
    if (status.code == MLA_OK)
        *launcher = &l->launcher;
    else
        hip_launcher_close(&l->launcher);
    return status;
}

mla_status mla_hip_launcher_open(mla_device *device, mla_launcher **launcher) {
    const hip *h = device->state;
    architecture chosen = {0};
    mla_status status = choose_images(h->arch, &chosen);
    if (status.code == MLA_OK)
        status = open_engine(device, chosen.engine, chosen.image, launcher);
    if (status.code == MLA_OK && chosen.tall_image) {
        status = open_engine(device, chosen.tall, chosen.tall_image, &(*launcher)->better);
        if (status.code != MLA_OK)
            hip_launcher_close(*launcher);
    }
    return status;
}
