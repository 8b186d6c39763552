/* The oracle as a kernel under test. */
#ifndef MLA_ORACLE_KERNEL_H
#define MLA_ORACLE_KERNEL_H

#include "mla_gpu.h"

/* Truth and bound in fp64, the truth rounded once. Graded, it shows what the rounding to out's format costs by itself. */
const mla_kernel *mla_oracle_kernel(void);

#endif
