#include "launch_timer.h"

#include <time.h>

#include "../ref/try.h"

mla_status mla_time_burst(mla_device *device, mla_timed_call call, int launches, double *seconds) {
    TRY(device->mark(device, 0));
    for (int i = 0; i < launches; i++) {
        TRY(call.launch(call.context));
        TRY(device->mark(device, i + 1));
    }
    TRY(device->synchronize(device));
    for (int i = 0; i < launches; i++)
        TRY(device->elapsed(device, i, i + 1, &seconds[i]));
    return mla_ok();
}

double mla_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
