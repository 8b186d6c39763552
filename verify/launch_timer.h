/* Times of launches by the clock of the stream they run on. */
#ifndef MLA_LAUNCH_TIMER_H
#define MLA_LAUNCH_TIMER_H

#include "../gpu/mla_gpu.h"

#define MLA_MAX_BURST (MLA_DEVICE_MARKS - 1)

typedef struct mla_timed_call {
    mla_status (*launch)(void *context); /* enqueues */
    void *context;
} mla_timed_call;

/* Enqueues the call `launches` times (at most MLA_MAX_BURST) with a mark between any two, then waits: seconds[i] is from mark to mark. */
mla_status mla_time_burst(mla_device *device, mla_timed_call call, int launches, double *seconds) MLA_CHECKED;

/* Seconds of a clock that only moves forward. */
double mla_now(void);

#endif
