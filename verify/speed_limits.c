#include "speed_limits.h"

#include <math.h>
#include <string.h>

#define H16 "batch=8 kv_len=8192"
#define H128 "heads=128 batch=8 kv_len=8192"
#define LONG "kv_len=131072"
#define SHORT "" /* kv_len=1024 is the default */

/* The cases are those of data/cpu.cases. */
const mla_speed_limit mla_speed_limits[] = {
    {"reference", H16, NULL, NULL, .low = 0.55, .high = INFINITY, .threads = 64},
    {"reference", H128, NULL, NULL, .low = 0.85, .high = INFINITY, .threads = 16},
    {"reference", LONG, "reference", H16, .of_time = true, .high = 1.2, .threads = 32},
    {"reference", SHORT, "reference", LONG, .of_time = true, .low = 0.9, .high = 1.1, .threads = 4},
    {"reference", "kv_len=8192", "reference", LONG, .of_time = true, .low = 0.9, .high = 1.1, .threads = 8},
    {"oracle", H16, "reference", H16, .of_time = true, .high = 12, .threads = 8},
    {"oracle", H128, "reference", H128, .of_time = true, .high = 12, .threads = 16},
};
const int mla_num_speed_limits = sizeof mla_speed_limits / sizeof *mla_speed_limits;

static bool names(const char *kernel, const char *case_line, const char *other_kernel, const char *other_line) {
    return kernel && strcmp(kernel, other_kernel) == 0 && strcmp(case_line, other_line) == 0;
}

static double find(const mla_speed *speeds, int count, const char *kernel, const char *case_line) {
    for (int i = 0; i < count; i++)
        if (names(kernel, case_line, speeds[i].kernel, speeds[i].case_line))
            return speeds[i].flops_per_second;
    return 0;
}

double mla_speed_ratio(const mla_speed_limit *l, const mla_speed *speeds, int count, double sgemm) {
    const double speed = find(speeds, count, l->kernel, l->case_line);
    const double base = l->base_kernel ? find(speeds, count, l->base_kernel, l->base_case_line) : sgemm;
    if (speed == 0 || base == 0)
        return 0;
    return l->of_time ? base / speed : speed / base;
}

bool mla_speed_within(const mla_speed_limit *limit, double ratio) {
    return ratio >= limit->low && ratio <= limit->high;
}

bool mla_speed_missed(const mla_speed_limit *limit, double ratio, int threads) {
    return ratio != 0 && threads <= limit->threads && !mla_speed_within(limit, ratio);
}

bool mla_speed_limited(const char *kernel, const char *case_line) {
    for (const mla_speed_limit *l = mla_speed_limits; l < mla_speed_limits + mla_num_speed_limits; l++)
        if (names(l->kernel, l->case_line, kernel, case_line) || names(l->base_kernel, l->base_case_line, kernel, case_line))
            return true;
    return false;
}
