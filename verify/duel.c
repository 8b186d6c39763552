#include "duel.h"

#include <math.h>
#include <stdlib.h>

#include "../ref/try.h"

#define TURN 0.05 /* seconds, at least: a call that is shorter is repeated, so that both sides are exposed to the same world */
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

/* Seconds a flop; *waited is set where the machine was not there for it. Where the system does not say, it was. */
static mla_status take_turn(mla_device *device, const mla_racer *racer, const mla_duel_rules *rules, double *seconds, bool *waited) {
    const double before = rules->waited();
    double sum = 0, one = 0;
    int calls = 0;
    for (; sum < TURN; calls++) {
        TRY(mla_time_burst(device, racer->call, 1, &one));
        sum += one;
    }
    if (rules->waited() - before > UNDISTURBED * sum * rules->threads)
        *waited = true;
    *seconds = sum / (calls * racer->flops);
    return mla_ok();
}

/* `all` holds the rounds' ratios, `quiet` those of undisturbed ones. */
static mla_status take_round(mla_device *device, const mla_racer *first, const mla_racer *second, const mla_duel_rules *rules, double *all,
                             int *num_all, double *quiet, int *num_quiet) {
    double seconds[2];
    bool waited = false;
    TRY(take_turn(device, first, rules, &seconds[0], &waited));
    TRY(take_turn(device, second, rules, &seconds[1], &waited));
    all[(*num_all)++] = seconds[0] / seconds[1];
    if (!waited)
        quiet[(*num_quiet)++] = seconds[0] / seconds[1];
    return mla_ok();
}

mla_status mla_duel_run(mla_device *device, const mla_racer *first, const mla_racer *second, const mla_duel_rules *rules, mla_duel *duel) {
    double all[MOST_ROUNDS], quiet[MOST_ROUNDS], warm_up;
    int num_all = 0, num_quiet = 0;
    const double began = mla_now();
    TRY(mla_time_burst(device, first->call, 1, &warm_up));
    TRY(mla_time_burst(device, second->call, 1, &warm_up));
    *duel = (mla_duel){0};
    do {
        TRY(take_round(device, first, second, rules, all, &num_all, quiet, &num_quiet));
        *duel = mla_duel_of(quiet, num_quiet);
    } while (!is_settled(duel, rules) && num_all < MOST_ROUNDS && mla_now() - began < rules->seconds);
    if (num_quiet < LEAST_ROUNDS && num_all > num_quiet) {
        *duel = mla_duel_of(all, num_all);
        duel->busy = true;
    }
    return mla_ok();
}
