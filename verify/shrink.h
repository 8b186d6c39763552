/* From a case that fails to the smallest one like it that still does. */
#ifndef MLA_SHRINK_H
#define MLA_SHRINK_H

#include "case.h"

typedef bool (*mla_still_fails)(void *context, const mla_case *test);

typedef struct mla_shrink_limits {
    int trials;
    double seconds;
} mla_shrink_limits;

/*
 * Leaves out sequences (delta debugging: Zeller and Hildebrandt 2002), then lowers heads, kv_len and q_len, each by bisection, until nothing can be
 * lowered alone, or a limit is reached. `test` itself fails. Returns the case's line, allocated; free(). NULL: out of memory.
 */
char *mla_shrink(const mla_case *test, mla_shrink_limits limits, mla_still_fails fails, void *context);

#endif
