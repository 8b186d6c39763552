/* Plug-ins: a library is opened, asked for its kernel, and the kernel's promises that can be checked without running it are checked. */
#include "plugin.h"

#include <ctype.h>
#include <dlfcn.h>
#include <string.h>

#define ENTRY "mla_plugin_kernel"

static mla_status check_name(const char *path, const char *name) {
    if (!name || !*name)
        return mla_error(MLA_EINVAL, "%s: the kernel has no name", path);
    for (const char *c = name; *c; c++)
        if (!isgraph((unsigned char)*c))
            return mla_error(MLA_EINVAL, "%s: the kernel's name has a space or an unprintable character at %d", path, (int)(c - name));
    return mla_ok();
}

/* abi_version comes first: under another version nothing else can be read. */
static mla_status check_kernel(const char *path, const mla_kernel *kernel) {
    if (!kernel)
        return mla_error(MLA_EINVAL, "%s: " ENTRY "() returned NULL", path);
    if (kernel->abi_version != MLA_KERNEL_ABI)
        return mla_error(MLA_EINVAL, "%s: built for kernel ABI %u, this program speaks %d", path, kernel->abi_version, MLA_KERNEL_ABI);
    mla_status status = check_name(path, kernel->name);
    if (status.code != MLA_OK)
        return status;
    if (kernel->space != MLA_SPACE_HOST && kernel->space != MLA_SPACE_CUDA && kernel->space != MLA_SPACE_HIP)
        return mla_error(MLA_EINVAL, "%s: memory space %d does not exist", path, (int)kernel->space);
    if (!kernel->run)
        return mla_error(MLA_EINVAL, "%s: kernel %s has no run function", path, kernel->name);
    status = mla_contract_check(&kernel->contract);
    return status.code == MLA_OK ? status : mla_error(status.code, "%s: %s", path, status.message);
}

static mla_status read_kernel(const char *path, void *library, const mla_kernel **kernel) {
    void *symbol = dlsym(library, ENTRY);
    if (!symbol)
        return mla_error(MLA_EINVAL, "%s is no plug-in: it does not export " ENTRY, path);
    mla_plugin_entry entry;
    memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast from an object's pointer to a function's */
    *kernel = entry();
    return check_kernel(path, *kernel);
}

mla_status mla_plugin_open(const char *path, void **library, const mla_kernel **kernel) {
    *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*library)
        return mla_error(MLA_EINVAL, "%s is no plug-in: %s", path, dlerror());
    mla_status status = read_kernel(path, *library, kernel);
    if (status.code != MLA_OK) {
        mla_plugin_close(*library);
        *library = NULL;
    }
    return status;
}

void mla_plugin_close(void *library) {
    if (library)
        dlclose(library);
}
