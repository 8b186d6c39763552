/* What a device reaches at best, measured: the yardstick of every timing. */
#ifndef MLA_YARDSTICK_H
#define MLA_YARDSTICK_H

#include "../gpu/mla_gpu.h"
#include "duel.h"
#include "roofline.h"

typedef struct mla_yardstick {
    mla_ceiling ceiling; /* medians */
    char matrix[200];    /* what was multiplied, or why nothing was */
} mla_yardstick;

/*
 * Copies within the device's memory, read and written bytes counted. Products: on the host fp32 by BLAS on all threads, on a GPU bf16 by the vendor's
 * library where there is one. Takes a second or so.
 */
mla_status mla_yardstick_measure(mla_device *device, mla_yardstick *yardstick) MLA_CHECKED;
/* The host's product, one a call. Free by racer->close. */
mla_status mla_yardstick_racer(mla_device *host, mla_racer *racer) MLA_CHECKED;

#endif
