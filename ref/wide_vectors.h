/*
 * WIDE_VECTORS before a function: it is compiled for several vector widths, and the program takes the widest this processor has. For loops whose
 * elements do not depend on one another: then the bits are the same in every width.
 */
#ifndef MLA_WIDE_VECTORS_H
#define MLA_WIDE_VECTORS_H

/* clang 14 gives the choosing function a name that callers in other files do not find. */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__)
#define WIDE_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE_VECTORS
#endif

#endif
