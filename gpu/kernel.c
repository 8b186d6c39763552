/* Kernels by name: reference, oracle, splitk@MACHINE, bmm@MACHINE, or the path of a plug-in. */
#include "bmm.h"
#include "oracle_kernel.h"
#include "plugin.h"
#include "splitk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How the kernel behind a handle is given back. */
typedef struct opened {
    void *library;            /* plug-in */
    mla_kernel *splitk, *bmm; /* ours */
} opened;

static int reference_run(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t reason_size) {
    (void)kernel;
    mla_status status = mla_reference_run(launch->problem, launch->output);
    snprintf(reason, reason_size, "%s", status.message);
    return status.code != MLA_OK;
}

static mla_status open_reference(mla_kernel_handle *handle) {
    static mla_kernel reference = {.abi_version = MLA_KERNEL_ABI, .name = "reference", .space = MLA_SPACE_HOST, .run = reference_run};
    reference.contract = mla_reference_contract();
    handle->kernel = &reference;
    return mla_device_open(MLA_SPACE_HOST, &handle->device);
}

static mla_status open_plugin(const char *path, opened *state, mla_kernel_handle *handle) {
    mla_status status = mla_plugin_open(path, &state->library, &handle->kernel);
    return status.code == MLA_OK ? mla_device_open(handle->kernel->space, &handle->device) : status;
}

static mla_status open_host_launcher(mla_device *device, const char *engine, mla_launcher **launcher) {
#ifdef MLA_HAVE_HOST_EXEC
    return mla_host_launcher_open(device, engine, launcher);
#else
    (void)device, (void)launcher;
    return mla_error(MLA_EUNSUPPORTED, "built without host execution of %s (it needs g++ and Boost.Context)", engine);
#endif
}

/* Is `machine` `name`, or `name:ENGINE` with one of these engines? Then *engine is that engine, or NULL. */
static bool is_machine(const char *machine, const char *name, const char *const *engines, const char **engine) {
    const size_t length = strlen(name);
    if (strncmp(machine, name, length) != 0 || (machine[length] && machine[length] != ':'))
        return false;
    *engine = machine[length] ? machine + length + 1 : NULL;
    while (*engine && *engines && strcmp(*engine, *engines) != 0)
        engines++;
    return !*engine || *engines;
}

static mla_status open_launcher(const char *machine, mla_device **device, mla_launcher **launcher) {
    static const char *const on_host[] = {"cdna3", "cdna4", "cdna3tall", "cdna4tall", "mma", NULL},
                             *const on_nvidia[] = {"mma", "hopper", "hopper16", NULL}, *const one[] = {NULL};
    const char *engine = NULL;
    const bool nvidia = is_machine(machine, "nvidia", on_nvidia, &engine);
    const bool amd = !nvidia && is_machine(machine, "amd", one, &engine);
    if (!nvidia && !amd && !is_machine(machine, "host", on_host, &engine))
        return mla_error(
            MLA_EINVAL,
            "no machine '%s': splitk runs @host[:cdna3|:cdna4|:cdna3tall|:cdna4tall|:mma], @nvidia[:mma|:hopper|:hopper16] or @amd",
            machine);
    mla_status status = mla_device_open(nvidia ? MLA_SPACE_CUDA : amd ? MLA_SPACE_HIP : MLA_SPACE_HOST, device);
    if (status.code != MLA_OK)
        return status;
    return nvidia ? mla_cuda_launcher_open(*device, engine, launcher)
           : amd  ? mla_hip_launcher_open(*device, launcher)
                  : open_host_launcher(*device, engine ? engine : "cdna3", launcher);
}

static mla_status open_splitk(const char *spec, opened *state, mla_kernel_handle *handle) {
    mla_launcher *launcher = NULL;
    const char *machine = strchr(spec, '@') + 1;
    mla_status status = open_launcher(machine, &handle->device, &launcher);
    if (status.code == MLA_OK)
        status = mla_splitk_open(launcher, strcmp(machine, "host") ? spec : "splitk@host:cdna3", &state->splitk);
    handle->kernel = state->splitk;
    return status;
}

/* bmm's kernels are compiled once for the host, beside cdna3's; on NVIDIA with mma's. */
static mla_status open_bmm(const char *spec, opened *state, mla_kernel_handle *handle) {
    static const char *const own[] = {"own", NULL}, *const none[] = {NULL};
    const char *machine = strchr(spec, '@') + 1, *products = NULL;
    const bool nvidia = is_machine(machine, "nvidia", own, &products), amd = !nvidia && is_machine(machine, "amd", own, &products);
    mla_launcher *launcher = NULL;
    if (!nvidia && !amd && !is_machine(machine, "host", none, &products))
        return mla_error(MLA_EINVAL, "no machine '%s': bmm runs @host, @nvidia[:own] or @amd[:own]", machine);
    mla_status status = open_launcher(nvidia ? "nvidia:mma" : amd ? "amd" : "host:cdna3", &handle->device, &launcher);
    if (status.code == MLA_OK)
        status = mla_bmm_open(launcher, spec, products != NULL, &state->bmm);
    handle->kernel = state->bmm;
    return status;
}

static mla_status open_spec(const char *spec, opened *state, mla_kernel_handle *handle) {
    if (strchr(spec, '/'))
        return open_plugin(spec, state, handle);
    if (!strcmp(spec, "reference"))
        return open_reference(handle);
    if (!strcmp(spec, "oracle")) {
        handle->kernel = mla_oracle_kernel();
        return mla_device_open(MLA_SPACE_HOST, &handle->device);
    }
    if (!strncmp(spec, "splitk@", 7))
        return open_splitk(spec, state, handle);
    if (!strncmp(spec, "bmm@", 4))
        return open_bmm(spec, state, handle);
    return mla_error(MLA_EINVAL,
                     "no kernel '%s': reference, oracle, splitk@host[:cdna3|:cdna4|:cdna3tall|:cdna4tall|:mma], "
                     "splitk@nvidia[:mma|:hopper|:hopper16], splitk@amd, bmm@host, "
                     "bmm@nvidia[:own], bmm@amd[:own], or a plug-in's path (it contains a '/')",
                     spec);
}

mla_status mla_kernel_open(const char *spec, mla_kernel_handle *handle) {
    opened *state = calloc(1, sizeof *state);
    *handle = (mla_kernel_handle){.state = state};
    if (!state)
        return mla_error(MLA_ENOMEM, "no memory for kernel %s", spec);
    mla_status status = open_spec(spec, state, handle);
    if (status.code != MLA_OK)
        mla_kernel_close(handle);
    return status;
}

void mla_kernel_close(mla_kernel_handle *handle) {
    opened *state = handle->state;
    if (state && state->splitk)
        mla_splitk_close(state->splitk);
    if (state && state->bmm)
        mla_bmm_close(state->bmm);
    if (handle->device)
        handle->device->close(handle->device);
    if (state)
        mla_plugin_close(state->library);
    free(state);
    *handle = (mla_kernel_handle){0};
}

mla_contract mla_kernel_contract(const mla_kernel *kernel, const mla_problem *host) {
    return kernel->contract_for ? kernel->contract_for(kernel, host) : kernel->contract;
}

typedef int kernel_call(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t reason_size);

static mla_status call(const mla_kernel *kernel, const char *what, kernel_call *function, const mla_launch *launch) {
    char reason[200] = "no reason given";
    return function(kernel, launch, reason, sizeof reason) == 0 ? mla_ok() : mla_error(MLA_EDEVICE, "%s failed: %s", what, reason);
}

mla_status mla_kernel_prepare(const mla_kernel *kernel, const mla_launch *launch) {
    return kernel->prepare ? call(kernel, "prepare", kernel->prepare, launch) : mla_ok();
}

mla_status mla_kernel_run(const mla_kernel *kernel, const mla_launch *launch) {
    return call(kernel, "run", kernel->run, launch);
}
