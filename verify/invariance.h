/* What may not change a kernel's bits: launched again, in another company, beside broken neighbours, in another order of execution. */
#ifndef MLA_INVARIANCE_H
#define MLA_INVARIANCE_H

#include "run.h"

typedef enum mla_axis {
    MLA_AXIS_REPEAT,    /* launched again */
    MLA_AXIS_PERMUTED,  /* sequences in reverse order; splits of a fixed size */
    MLA_AXIS_ALONE,     /* each sequence without the others; splits of a fixed size */
    MLA_AXIS_NEIGHBOUR, /* the KV of every other sequence is NaN */
    MLA_AXIS_ORDER,     /* host execution: fibers in another order */
    MLA_AXIS_THREADS,   /* in host memory: one OpenMP thread */
    MLA_AXIS_SPLITS,    /* another number of splits: reported, as sums may differ */
    MLA_AXES
} mla_axis;

typedef enum mla_axis_status {
    MLA_AXIS_INVARIANT,
    MLA_AXIS_VARIES,
    MLA_AXIS_REPORTED, /* varies, and may */
    MLA_AXIS_SKIPPED,
    MLA_AXIS_STATUSES
} mla_axis_status;

typedef struct mla_axis_result {
    mla_axis_status status;
    char detail[160]; /* one line */
} mla_axis_result;

const char *mla_axis_name(mla_axis axis);
const char *mla_axis_status_name(mla_axis_status status);

/* Fails when inputs cannot be made or the kernel fails. All axes are SKIPPED when it cannot do the case. */
mla_status mla_invariance_case(const mla_subject *subject, const mla_case *test, mla_axis_result results[MLA_AXES]) MLA_CHECKED;

#endif
