/*
 * Two computations timed in turns, for the ratio of their speeds. Whatever else a machine does slows one turn more than the next: rounds in which this
 * process had to wait for a processor are set aside, and the median of many rounds is taken, with an interval that says how well it is known. On a
 * machine that is always busy, processor time takes the place of time: it leaves out threads that wait for each other, and is told apart.
 */
#ifndef MLA_DUEL_H
#define MLA_DUEL_H

#include "launch_timer.h"

typedef struct mla_racer {
    mla_timed_call call;
    double flops;                 /* of a call */
    void (*close)(void *context); /* frees the call's context */
} mla_racer;

typedef struct mla_duel {
    double ratio; /* median over rounds: the time that the first takes for a flop over that of the second */
    double low,
        high; /* hold the median of all rounds there could be, with a probability of 95 % at least; 0 and infinity of fewer than six rounds */
    int rounds; /* that these are of; 0: not measured */
    bool busy;  /* too few rounds had the processors to themselves: they are all of the rounds there were */
} mla_duel;

typedef struct mla_duel_rules {
    double low, high; /* the question is whether the ratio lies within: when that is settled, no further round is needed */
    double seconds;   /* when these are over, neither, but for the six that an interval takes */
    int threads;      /* that a call keeps busy */
    double (*used)(void), (*waited)(void); /* mla_processor_used, mla_processor_waited */
} mla_duel_rules;

/* Of medians of `count` ratios, which are sorted: the sign test's confidence interval. */
mla_duel mla_duel_of(double *ratios, int count);
mla_status mla_duel_run(mla_device *device, const mla_racer *first, const mla_racer *second, const mla_duel_rules *rules,
                        mla_duel *duel) MLA_CHECKED;

#endif
