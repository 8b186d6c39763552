#include "speed_limits.h"

#include <math.h>
#include <stddef.h>

#define H16 "batch=8 kv_len=8192"
#define H128 "heads=128 batch=8 kv_len=8192"
#define LONG "kv_len=131072"
#define SHORT "" /* kv_len=1024 is the default */

/* The cases are those of data/cpu.cases. */
const mla_speed_limit mla_speed_limits[] = {
    {"reference", H16, NULL, NULL, .low = 0.55, .high = INFINITY, .threads = 64},
    {"reference", H128, NULL, NULL, .low = 0.85, .high = INFINITY, .threads = 16},
    {"reference", LONG, "reference", H16, .of_time = true, .high = 1.2, .threads = 32},
    {"reference", SHORT, "reference", LONG, .of_time = true, .low = 0.9, .high = 1.1, .threads = 2},
    {"reference", "kv_len=8192", "reference", LONG, .of_time = true, .low = 0.9, .high = 1.1, .threads = 8},
    {"oracle", H16, "reference", H16, .of_time = true, .high = 12, .threads = 8},
    {"oracle", H128, "reference", H128, .of_time = true, .high = 12, .threads = 16},
};
const int mla_num_speed_limits = sizeof mla_speed_limits / sizeof *mla_speed_limits;

static bool is_within(const mla_speed_limit *l, double low, double high) {
    return low >= l->low && high <= l->high;
}

mla_limit_state mla_limit_state_of(const mla_speed_limit *l, const mla_duel *d, int threads) {
    if (d->rounds == 0 || threads > l->threads)
        return MLA_LIMIT_OFF;
    if (d->busy)
        return is_within(l, d->low, d->high) ? MLA_LIMIT_KEPT : MLA_LIMIT_UNKNOWN;
    return is_within(l, d->ratio, d->ratio) ? MLA_LIMIT_KEPT : MLA_LIMIT_MISSED;
}
