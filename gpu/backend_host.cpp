/* Kernels compiled for the CPU, launched through fibers. Launches are done when they return. MLA_FIBER_SEED reorders the fibers. */
#include "host_exec.h"
#include "launcher.h"

#include <cerrno>
#include <cstdlib>
#include <new>

namespace {

/* Read for every launch, so that a kernel can be run in several orders. 0 when the variable is unset. */
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

mla_status host_launch(mla_launcher *launcher, const char *function, mla_grid grid, const void *args, size_t, void *) {
    uint64_t seed;
    if (grid.blocks == 0)
        return mla_ok();
    mla_host_entry entry = mla_host_kernel_find(launcher->engine->name, function);
    if (!entry)
        return mla_error(MLA_EUNSUPPORTED, "no host kernel %s for engine %s", function, launcher->engine->name);
    mla_status status = read_fiber_seed(&seed);
    if (status.code != MLA_OK)
        return status;
    const mla_host_launch launch = {entry, args, grid.blocks, grid.threads, launcher->engine->wave, grid.lds_bytes, seed};
    return mla_host_execute(&launch);
}

void host_close(mla_launcher *launcher) {
    delete launcher;
}

} // namespace

mla_status mla_host_launcher_open(mla_device *device, const char *engine, mla_launcher **launcher) {
    uint64_t seed;
    mla_status status = read_fiber_seed(&seed); /* a malformed one is refused before anything runs */
    if (status.code != MLA_OK)
        return status;
    const mla_engine *found = mla_engine_find(engine);
    if (!found)
        return mla_error(MLA_EINVAL, "no engine '%s'", engine);
    *launcher = new (std::nothrow) mla_launcher{found, device, nullptr, nullptr, host_launch, host_close};
    return *launcher ? mla_ok() : mla_error(MLA_ENOMEM, "no memory for a launcher");
}
