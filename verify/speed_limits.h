/* What this project promises about the speed of its own CPU code: ratios of two measurements of one run, and their limits. */
#ifndef MLA_SPEED_LIMITS_H
#define MLA_SPEED_LIMITS_H

#include "duel.h"

typedef struct mla_speed_limit {
    const char *kernel, *case_line;           /* what is measured */
    const char *base_kernel, *base_case_line; /* what it is compared with; NULL: the machine's own large sgemm */
    bool of_time;                             /* the ratio of the times a flop takes; otherwise of the rates */
    double low, high;                         /* the ratio must lie within */
    int threads;                              /* on machines of up to so many: its cases have too few pieces of work for more */
} mla_speed_limit;

extern const mla_speed_limit mla_speed_limits[];
extern const int mla_num_speed_limits;

typedef enum mla_limit_state {
    MLA_LIMIT_OFF, /* not measured, or not meant for so many threads */
    MLA_LIMIT_KEPT,
    MLA_LIMIT_MISSED,
    MLA_LIMIT_UNKNOWN /* on a busy machine, where the interval of processor time is not within */
} mla_limit_state;

/* A ratio of NaN is a miss. */
mla_limit_state mla_limit_state_of(const mla_speed_limit *limit, const mla_duel *duel, int threads);

#endif
