/* The split-K kernel on any launcher. */
#ifndef MLA_SPLITK_H
#define MLA_SPLITK_H

#include "launcher.h"

#define MLA_SPLITK_MAX_SPLITS 1024 /* of one row group: more than any policy but a very fine SIZE or FIXED asks for */

/* A kernel over `launcher`, which it owns from then on, also after failure. `name` is copied. Free with mla_splitk_close. */
mla_status mla_splitk_open(mla_launcher *launcher, const char *name, mla_kernel **kernel) MLA_CHECKED;
void mla_splitk_close(mla_kernel *kernel);
/* The engine that runs this problem. */
const mla_engine *mla_splitk_engine(const mla_kernel *kernel, const mla_problem *host);

#endif
