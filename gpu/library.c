#include "library.h"

#include <dlfcn.h>
#include <string.h>

mla_status mla_library_open(const char *what, const char *const *names, const mla_symbol *symbols, size_t count, void *table,
                            void **library) {
    *library = NULL;
    for (const char *const *name = names; *name && !*library; name++)
        *library = dlopen(*name, RTLD_NOW | RTLD_LOCAL);
    if (!*library)
        return mla_error(MLA_EDEVICE, "no %s driver: %s not found", what, names[0]);
    for (size_t i = 0; i < count; i++) {
        void *function = dlsym(*library, symbols[i].name);
        if (!function) {
            mla_library_close(*library);
            *library = NULL;
            return mla_error(MLA_EDEVICE, "the %s driver lacks %s", what, symbols[i].name);
        }
        memcpy((char *)table + symbols[i].offset, &function, sizeof function);
    }
    return mla_ok();
}

void *mla_library_find(void *library, const char *name) {
    return dlsym(library, name);
}

void mla_library_close(void *library) {
    if (library)
        dlclose(library);
}
