#include "progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BAR_WIDTH 40

double mla_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void mla_progress_begin(mla_progress *progress, int64_t steps, bool quiet) {
    *progress = (mla_progress){.shown = !quiet && isatty(STDERR_FILENO), .steps = steps > 0 ? steps : 1};
}

void mla_progress_update(mla_progress *progress, double fraction) {
    if (progress && progress->notify)
        progress->notify(progress->context, fraction);
    if (!progress || !progress->shown)
        return;
    double now = mla_seconds();
    if (now - progress->drawn_at < 0.1)
        return;
    progress->drawn_at = now;
    char bar[BAR_WIDTH + 1] = "";
    double share = ((double)progress->done + fraction) / (double)progress->steps;
    memset(bar, '#', (size_t)(share < 1 ? share * BAR_WIDTH : BAR_WIDTH));
    fprintf(stderr, "\r[%-*s] %" PRId64 "/%" PRId64, BAR_WIDTH, bar, progress->done, progress->steps);
    fflush(stderr);
}

void mla_progress_step(mla_progress *progress) {
    progress->done++;
    mla_progress_update(progress, 0);
}

void mla_progress_clear(mla_progress *progress) {
    if (progress->drawn_at == 0)
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    progress->drawn_at = 0;
}
