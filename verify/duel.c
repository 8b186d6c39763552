#include "duel.h"

#include <math.h>
#include <stdlib.h>

#include "../ref/try.h"
#include "roofline.h"

#define TURN 0.05       /* seconds, at least: a call that is shorter is repeated, so that both sides are exposed to the same world */
#define MOST_CALLS 1000 /* of a turn */
#define MOST_ROUNDS 200
#define LEAST_ROUNDS 6   /* of fewer, no interval holds the median with 95 % */
#define KNOWN_WELL 0.02  /* an interval this narrow, over the ratio, settles it, too */
#define UNDISTURBED 0.02 /* of a turn's processor time may have been waited */

/* ---- what rounds say ------------------------------------------------------------------------------------------------------------------ */

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The largest k so that fewer than k heads of `count` coins have a probability of 1/40 at most: then the k-th smallest and largest hold the median. */
static int coverage(int count) {
    double probability = pow(0.5, count), sum = probability;
    int k = 0;
    while (k < count && sum <= 0.025) {
        k++;
        probability *= (double)(count - k + 1) / k;
        sum += probability;
    }
    return k;
}

mla_duel mla_duel_of(double *ratios, int count) {
    if (count == 0)
        return (mla_duel){0};
    qsort(ratios, (size_t)count, sizeof *ratios, compare);
    const int k = coverage(count);
    return (mla_duel){.ratio = 0.5 * (ratios[(count - 1) / 2] + ratios[count / 2]),
                      .low = k > 0 ? ratios[k - 1] : 0,
                      .high = k > 0 ? ratios[count - k] : INFINITY,
                      .rounds = count};
}

static bool is_settled(const mla_duel *d, const mla_duel_rules *rules) {
    const bool inside = d->low >= rules->low && d->high <= rules->high, outside = d->high < rules->low || d->low > rules->high;
    return d->rounds >= LEAST_ROUNDS && (inside || outside || d->high - d->low <= KNOWN_WELL * d->ratio);
}

/* ---- rounds ------------------------------------------------------------------------------------------------------------------------------ */

/* Of one side, in seconds a flop. */
typedef struct turn {
    double time, used;
    bool waited; /* other programs had the processors; where the system does not say, they had not */
} turn;

/* The median call stands for the turn: threads that were late for one, or had lost their caches, say nothing of the others. */
static mla_status take_turn(mla_device *device, const mla_racer *racer, const mla_duel_rules *rules, turn *t) {
    const double waited = rules->waited();
    double seconds[MOST_CALLS], used[MOST_CALLS], sum = 0;
    int calls = 0;
    for (; sum < TURN && calls < MOST_CALLS; calls++) {
        const double before = rules->used();
        TRY(mla_time_burst(device, racer->call, 1, &seconds[calls]));
        used[calls] = rules->used() - before;
        sum += seconds[calls];
    }
    t->waited = rules->waited() - waited > UNDISTURBED * sum * rules->threads;
    t->time = mla_timing_of(seconds, calls).median / racer->flops;
    t->used = mla_timing_of(used, calls).median / racer->flops;
    return mla_ok();
}

/* Ratios. */
typedef struct rounds {
    double quiet[MOST_ROUNDS], used[MOST_ROUNDS];
    int num_quiet, count;
} rounds;

static mla_status take_round(mla_device *device, const mla_racer *first, const mla_racer *second, const mla_duel_rules *rules, rounds *r) {
    turn a, b;
    TRY(take_turn(device, first, rules, &a));
    TRY(take_turn(device, second, rules, &b));
    r->used[r->count++] = a.used / b.used;
    if (!a.waited && !b.waited)
        r->quiet[r->num_quiet++] = a.time / b.time;
    return mla_ok();
}

/* What the rounds say so far; processor time is asked when a third of the time brought too few quiet ones. */
static mla_duel outcome(rounds *r, double share) {
    mla_duel duel = mla_duel_of(r->quiet, r->num_quiet);
    if (r->num_quiet < LEAST_ROUNDS && 3 * share >= 1) {
        duel = mla_duel_of(r->used, r->count);
        duel.busy = true;
    }
    return duel;
}

mla_status mla_duel_run(mla_device *device, const mla_racer *first, const mla_racer *second, const mla_duel_rules *rules, mla_duel *duel) {
    rounds r = {.count = 0};
    const double began = mla_now();
    double warm_up, share;
    *duel = (mla_duel){0};
    TRY(mla_time_burst(device, first->call, 1, &warm_up));
    TRY(mla_time_burst(device, second->call, 1, &warm_up));
    do {
        TRY(take_round(device, first, second, rules, &r));
        share = (mla_now() - began) / rules->seconds;
        *duel = outcome(&r, share);
    } while (!is_settled(duel, rules) && r.count < MOST_ROUNDS && (share < 1 || r.count < LEAST_ROUNDS));
    *duel = outcome(&r, 1);
    return mla_ok();
}
