/* What this project promises about the speed of its own CPU code: ratios of two measurements of one run, and their limits. */
#ifndef MLA_SPEED_LIMITS_H
#define MLA_SPEED_LIMITS_H

#include <stdbool.h>

typedef struct mla_speed_limit {
    const char *kernel, *case_line;           /* what is measured */
    const char *base_kernel, *base_case_line; /* what it is compared with; NULL: the machine's own large sgemm */
    bool of_time;                             /* the ratio of the times a flop takes; otherwise of the rates */
    double low, high;                         /* the ratio must lie within */
    int threads;                              /* on machines of up to so many: its cases have too few pieces of work for more */
} mla_speed_limit;

extern const mla_speed_limit mla_speed_limits[];
extern const int mla_num_speed_limits;

/* One measurement. Case lines are canonical, here and in the limits. */
typedef struct mla_speed {
    const char *kernel, *case_line;
    double flops_per_second;
} mla_speed;

/* The limit's ratio, from the measurements there are; 0 when one of the two is missing. `sgemm` is in flop a second, 0: not measured. */
double mla_speed_ratio(const mla_speed_limit *limit, const mla_speed *speeds, int count, double sgemm);
/* The limit is meant for this many threads, and missed. A ratio of 0 is not measured and misses nothing; NaN does. */
bool mla_speed_missed(const mla_speed_limit *limit, double ratio, int threads);
/* NaN is not within. */
bool mla_speed_within(const mla_speed_limit *limit, double ratio);
/* Is this pair named by any limit, on either side? */
bool mla_speed_limited(const char *kernel, const char *case_line);

#endif
