/* Attention with materialised scores on any launcher: two batched matrix products and a softmax between them, the plain baseline. */
#ifndef MLA_BMM_H
#define MLA_BMM_H

#include "launcher.h"

/*
 * A kernel over `launcher`, which it owns from then on, also after failure. `own`: its products are our own kernel's also where the device's vendor has
 * a library; otherwise only where it has none. `name` is copied. Free with mla_bmm_close.
 */
mla_status mla_bmm_open(mla_launcher *launcher, const char *name, bool own, mla_kernel **kernel) MLA_CHECKED;
void mla_bmm_close(mla_kernel *kernel);

#endif
