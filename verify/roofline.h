/* How fast a case could be at best, and how fast a kernel was: counting and arithmetic, nothing is measured here. */
#ifndef MLA_ROOFLINE_H
#define MLA_ROOFLINE_H

#include "../ref/mla.h"

/* What any kernel must move and compute. */
typedef struct mla_work {
    int64_t bytes; /* every key that a sequence's query tokens see, once and as it is stored; q; out. Neither lse nor partials */
    int64_t flops; /* 2 * (576 + 512) for each key that a query token sees, and each head */
} mla_work;

/* Reads the host's arrays. */
mla_status mla_work_count(const mla_problem *problem, mla_work *work) MLA_CHECKED;

/* What a device was seen to reach. */
typedef struct mla_ceiling {
    double bandwidth;   /* bytes a second, read and written */
    double matrix_rate; /* flop a second; 0: not measured */
} mla_ceiling;

/* T >= max(bytes / bandwidth, flops / matrix_rate) (the roofline: Williams, Waterman, Patterson, CACM 2009). */
typedef struct mla_floor {
    double seconds;
    bool by_flops; /* which of the two decides */
} mla_floor;

mla_floor mla_floor_of(const mla_work *work, const mla_ceiling *ceiling);

/* Times of launches, in seconds. */
typedef struct mla_timing {
    int launches; /* 0: not timed */
    double min, p10, median, p90;
} mla_timing;

/* Sorts `seconds`. Quantiles are interpolated between neighbours: the median of an even number of launches is the mean of the middle two. */
mla_timing mla_timing_of(double *seconds, int launches);

#endif
