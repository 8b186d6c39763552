/*
 * A library with libamdhip64's symbols whose device is this process: module launches run through host execution. It is strict where a driver is
 * lenient, so that the AMD loader, its choice of code object and its argument packing are tested without an AMD device.
 *
 * MLA_FAKE_HIP_ARCH is the device's architecture (gfx942 when unset); "none" is a machine without a device.
 */
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "../gpu/bmm_args.h"
#include "../gpu/engine.h"
#include "../gpu/host_exec.h"
#include "../gpu/splitk_args.h"

namespace {

enum {
    success = 0,
    invalid_value = 1,
    out_of_memory = 2,
    invalid_device_pointer = 17,
    no_device = 100,
    no_binary = 209,
    invalid_handle = 400,
    not_found = 500,
    launch_failure = 719
};

/* One stands for every code object of its processor: their kernels have different names. */
struct module {
    const mla_engine *engines[2];
    std::map<std::string, struct function *> functions;
};

struct function {
    const mla_engine *engine;
    mla_host_entry entry;
    size_t args_bytes;
};

struct event {
    bool recorded;
    std::chrono::steady_clock::time_point time;
};

/* hipDeviceProp_t of ROCm 6 and 7, as far as anybody here reads it. */
struct properties {
    char name[256];
    char until_compute_units[132];
    int compute_units;
    char until_arch[768];
    char arch[256];
    char rest[56];
};

/* The processor in e_flags of an AMD code object, and the engines there are for it (LLVM's AMDGPUUsage, "EF_AMDGPU_MACH"). */
const struct target {
    const char *arch;
    unsigned machine;
    const char *engine, *tall;
} targets[] = {{"gfx90a", 0x3F, "cdna3", "cdna3tall"}, {"gfx942", 0x4C, "cdna3", "cdna3tall"}, {"gfx950", 0x4F, "cdna4", "cdna4tall"}};

std::map<const char *, size_t> allocations;
std::set<void *> streams;
std::set<event *> events;
int failure; /* of a launch; reported when its stream is waited for */

std::string device_arch() {
    const char *arch = std::getenv("MLA_FAKE_HIP_ARCH");
    return arch ? arch : "gfx942";
}

bool is_device_memory(const void *pointer, size_t bytes) {
    const char *p = static_cast<const char *>(pointer);
    auto next = allocations.upper_bound(p);
    if (next == allocations.begin())
        return false;
    auto [start, size] = *std::prev(next);
    return p + bytes <= start + size;
}

unsigned machine_of(const void *image) {
    const unsigned char *bytes = static_cast<const unsigned char *>(image);
    if (std::memcmp(bytes, "\177ELF", 4) != 0)
        return 0;
    return bytes[48]; /* the low byte of e_flags */
}

/* The one argument of our kernels, from the packed form of a launch's `extra`. */
bool unpack(void **extra, size_t bytes, const void **args) {
    if (!extra || extra[0] != reinterpret_cast<void *>(1) || extra[2] != reinterpret_cast<void *>(2) ||
        extra[4] != reinterpret_cast<void *>(3))
        return false;
    *args = extra[1];
    return *static_cast<const size_t *>(extra[3]) == bytes;
}

} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int hipRuntimeGetVersion(int *version) {
    *version = 60342134; /* 6.3 */
    return success;
}

EXPORT const char *hipGetErrorString(int error) {
    switch (error) {
    case invalid_value:
        return "invalid argument";
    case out_of_memory:
        return "out of memory";
    case invalid_device_pointer:
        return "invalid device pointer";
    case no_device:
        return "no ROCm-capable device is detected";
    case no_binary:
        return "no kernel image is available for execution on the device";
    case not_found:
        return "named symbol not found";
    case launch_failure:
        return "unspecified launch failure";
    default:
        return "fake error";
    }
}

EXPORT int hipGetDeviceCount(int *count) {
    *count = device_arch() != "none";
    return *count ? success : no_device;
}

EXPORT int hipSetDevice(int device) {
    return device == 0 ? success : invalid_value;
}

EXPORT int hipGetDevicePropertiesR0600(properties *p, int device) {
    *p = {};
    std::snprintf(p->name, sizeof p->name, "Fake Instinct");
    std::snprintf(p->arch, sizeof p->arch, "%s:sramecc+:xnack-", device_arch().c_str());
    p->compute_units = 304;
    return device == 0 ? success : invalid_value;
}

EXPORT int hipStreamCreateWithFlags(void **stream, unsigned) {
    *stream = std::malloc(1);
    streams.insert(*stream);
    return success;
}

EXPORT int hipStreamDestroy(void *stream) {
    if (!streams.erase(stream))
        return invalid_handle;
    std::free(stream);
    return success;
}

EXPORT int hipStreamSynchronize(void *stream) {
    return streams.count(stream) ? failure : invalid_handle;
}

EXPORT int hipMalloc(void **pointer, size_t bytes) {
    *pointer = bytes <= size_t{1} << 40 ? std::aligned_alloc(256, (bytes + 255) / 256 * 256) : nullptr;
    if (!*pointer)
        return out_of_memory;
    allocations[static_cast<char *>(*pointer)] = bytes;
    return success;
}

EXPORT int hipFree(void *pointer) {
    if (!allocations.erase(static_cast<char *>(pointer)))
        return invalid_device_pointer;
    std::free(pointer);
    return success;
}

/* Kinds: 1 host to device, 2 device to host, 3 device to device. */
EXPORT int hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
    bool known = kind >= 1 && kind <= 3;
    if (!known || is_device_memory(to, bytes) != (kind != 2) || is_device_memory(from, bytes) != (kind != 1) || !streams.count(stream))
        return invalid_value;
    std::memcpy(to, from, bytes);
    return success;
}

EXPORT int hipMemsetAsync(void *to, int byte, size_t bytes, void *stream) {
    if (!is_device_memory(to, bytes) || !streams.count(stream))
        return invalid_value;
    std::memset(to, byte, bytes);
    return success;
}

EXPORT int hipEventCreate(event **made) {
    *made = new event{};
    events.insert(*made);
    return success;
}

EXPORT int hipEventDestroy(event *e) {
    if (!events.erase(e))
        return invalid_handle;
    delete e;
    return success;
}

EXPORT int hipEventRecord(event *e, void *stream) {
    if (!events.count(e) || !streams.count(stream))
        return invalid_handle;
    e->recorded = true;
    e->time = std::chrono::steady_clock::now();
    return success;
}

EXPORT int hipEventSynchronize(event *e) {
    return events.count(e) && e->recorded ? success : invalid_handle;
}

EXPORT int hipEventElapsedTime(float *milliseconds, event *from, event *to) {
    if (!events.count(from) || !events.count(to) || !from->recorded || !to->recorded)
        return invalid_handle;
    *milliseconds = std::chrono::duration<float, std::milli>(to->time - from->time).count();
    return success;
}

EXPORT int hipModuleLoadData(module **loaded, const void *image) {
    for (const target &t : targets) {
        if (device_arch() != t.arch || machine_of(image) != t.machine)
            continue;
        *loaded = new module{{mla_engine_find(t.engine), mla_engine_find(t.tall)}, {}};
        return success;
    }
    return no_binary;
}

EXPORT int hipModuleUnload(module *m) {
    for (auto &[name, f] : m->functions)
        delete f;
    delete m;
    return success;
}

EXPORT int hipModuleGetFunction(function **found, module *m, const char *name) {
    const mla_engine *engine = m->engines[mla_host_kernel_find(m->engines[0]->name, name) ? 0 : 1];
    mla_host_entry entry = mla_host_kernel_find(engine->name, name);
    if (!entry)
        return not_found;
    function *&f = m->functions[name];
    if (!f)
        f = new function{engine, entry, std::strncmp(name, "mla_bmm", 7) ? sizeof(mla_splitk_args) : sizeof(mla_bmm_args)};
    *found = f;
    return success;
}

EXPORT int hipModuleLaunchKernel(function *f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                                 unsigned block_z, unsigned shared_bytes, void *stream, void **parameters, void **extra) {
    const void *args;
    bool flat = grid_x > 0 && grid_y == 1 && grid_z == 1 && block_x > 0 && block_x <= 1024 && block_y == 1 && block_z == 1;
    if (!flat || uint64_t{grid_x} * block_x > UINT32_MAX || shared_bytes || parameters || !streams.count(stream) ||
        !unpack(extra, f->args_bytes, &args))
        return invalid_value;
    const mla_host_launch launch = {
        f->entry, args, static_cast<int>(grid_x), static_cast<int>(block_x), f->engine->wave, f->engine->lds_bytes, 0};
    mla_status status = mla_host_execute(&launch);
    if (status.code != MLA_OK) {
        std::fprintf(stderr, "fake HIP: %s\n", status.message);
        failure = launch_failure;
    }
    return success;
}
