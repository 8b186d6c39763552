/* Makes a plug-in of the split-K kernel as it was compiled beside this file: MUTANT_NAME on the engine MUTANT_ENGINE, on the host. */
#include "launcher.h"
#include "splitk.h"

static mla_device *device;
static mla_kernel *kernel;

__attribute__((visibility("default"))) const mla_kernel *mla_plugin_kernel(void);

/* NULL, which no plug-in may return, when it cannot be opened. */
const mla_kernel *mla_plugin_kernel(void) {
    mla_launcher *launcher = NULL;
    if (kernel)
        return kernel;
    if (mla_host_device_open(&device).code != MLA_OK || mla_host_launcher_open(device, MUTANT_ENGINE, &launcher).code != MLA_OK)
        return NULL;
    return mla_splitk_open(launcher, MUTANT_NAME, &kernel).code == MLA_OK ? kernel : NULL;
}

static void __attribute__((destructor)) unload(void) {
    if (kernel)
        mla_splitk_close(kernel);
    if (device)
        device->close(device);
}
