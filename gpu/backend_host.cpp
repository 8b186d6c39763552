/* Kernels compiled for the CPU, launched through fibers. Launches are done when they return. MLA_FIBER_SEED reorders the fibers. */
#include "host_exec.h"
#include "launcher.h"

#include <cerrno>
#include <cstdlib>
#include <new>

namespace {

struct host_launcher {
    mla_launcher launcher;
    uint64_t fiber_seed;
};

mla_status host_launch(mla_launcher *launcher, const char *function, mla_grid grid, const void *args, size_t, void *) {
    const host_launcher *l = static_cast<host_launcher *>(launcher->state);
    if (grid.blocks == 0)
        return mla_ok();
    mla_host_entry entry = mla_host_kernel_find(launcher->engine->name, function);
    if (!entry)
        return mla_error(MLA_EUNSUPPORTED, "no host kernel %s for engine %s", function, launcher->engine->name);
    const mla_host_launch launch = {entry, args, grid.blocks, grid.threads, launcher->engine->wave, grid.lds_bytes, l->fiber_seed};
    return mla_host_execute(&launch);
}

void host_close(mla_launcher *launcher) {
    delete static_cast<host_launcher *>(launcher->state);
}

/* 0 when the variable is unset. */
mla_status read_fiber_seed(uint64_t *seed) {
    const char *text = std::getenv("MLA_FIBER_SEED");
    *seed = 0;
    if (!text || !*text)
        return mla_ok();
    char *end;
    errno = 0;
    *seed = std::strtoull(text, &end, 0);
    return errno == 0 && *end == '\0' ? mla_ok() : mla_error(MLA_EINVAL, "MLA_FIBER_SEED=%s is no 64-bit number", text);
}

} // namespace

mla_status mla_host_launcher_open(mla_device *device, const char *engine, mla_launcher **launcher) {
    uint64_t seed;
    mla_status status = read_fiber_seed(&seed);
    if (status.code != MLA_OK)
        return status;
    const mla_engine *found = mla_engine_find(engine);
    if (!found)
        return mla_error(MLA_EINVAL, "no engine '%s'", engine);
    auto *l = new (std::nothrow) host_launcher{};
    if (!l)
        return mla_error(MLA_ENOMEM, "no memory for a launcher");
    l->fiber_seed = seed;
    l->launcher = {found, device, l, nullptr, host_launch, host_close};
    *launcher = &l->launcher;
    return mla_ok();
}
