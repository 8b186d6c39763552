#include "processor_time.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

double mla_processor_used(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/*
 * Linux's Documentation/scheduler/sched-stats: a thread's nanoseconds on a processor, and waiting for one. NaN where the system does not say; 0 for a
 * thread that has ended meanwhile.
 */
static double wait_of(const char *thread) {
    char path[320], line[128] = "", *rest = line;
    snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", thread);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    const char *read = fgets(line, sizeof line, file);
    fclose(file);
    (void)strtoull(line, &rest, 10);
    return read && *rest == ' ' ? 1e-9 * (double)strtoull(rest, NULL, 10) : NAN;
}

double mla_processor_waited(void) {
    DIR *threads = opendir("/proc/self/task");
    double seconds = 0;
    int seen = 0;
    if (!threads)
        return NAN;
    for (const struct dirent *t; (t = readdir(threads));)
        if (t->d_name[0] != '.') {
            seconds += wait_of(t->d_name);
            seen++;
        }
    closedir(threads);
    return seen > 0 && seconds > 0 ? seconds : NAN;
}
