/* Somebody's kernel from a shared library. */
#ifndef MLA_PLUGIN_H
#define MLA_PLUGIN_H

#include "mla_gpu.h"

/* Opens the library at `path` and checks what it exports. MLA_EINVAL: it is no plug-in, or speaks another ABI. The kernel is valid until
   mla_plugin_close(library). */
mla_status mla_plugin_open(const char *path, void **library, const mla_kernel **kernel) MLA_CHECKED;
/* NULL is allowed. */
void mla_plugin_close(void *library);

#endif
