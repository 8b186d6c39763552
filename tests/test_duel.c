/* Medians and their intervals by hand; rounds of racers whose time is scripted. */
#include "../verify/duel.h"
#include "../verify/processor_time.h"

#include <criterion/criterion.h>
#include <math.h>
#include <time.h>

static bool is_near(double a, double b) {
    return fabs(a - b) <= 1e-12 * fabs(b);
}

/* ---- what rounds say ---- */

Test(duel, the_median_and_its_interval) {
    double odd[] = {5, 1, 4, 2, 3, 9, 8, 7, 6}; /* fewer than 2 of 9 coins: 10/512 <= 1/40; fewer than 3: 46/512 */
    const mla_duel nine = mla_duel_of(odd, 9);
    cr_expect_eq(nine.ratio, 5);
    cr_expect_eq(nine.low, 2);
    cr_expect_eq(nine.high, 8);
    cr_expect_eq(nine.rounds, 9);
    double even[] = {6, 1, 5, 2, 4, 3}; /* none of 6 coins: 1/64 */
    const mla_duel six = mla_duel_of(even, 6);
    cr_expect_eq(six.ratio, 3.5);
    cr_expect_eq(six.low, 1);
    cr_expect_eq(six.high, 6);
}

Test(duel, few_rounds_say_little) {
    double five[] = {1, 2, 3, 4, 5}; /* none of 5 coins: 1/32 > 1/40 */
    const mla_duel d = mla_duel_of(five, 5);
    cr_expect_eq(d.ratio, 3);
    cr_expect(d.low == 0 && isinf(d.high));
    cr_expect_eq(mla_duel_of(NULL, 0).rounds, 0);
}

/* ---- rounds ---- */

typedef struct scripted {
    double seconds[4]; /* of calls, over and over */
    int calls;
    double idle; /* share of them that the two threads wait */
} scripted;

static double now, used, waited;

static mla_status run(void *context) {
    scripted *s = context;
    used += 2 * (1 - s->idle) * s->seconds[s->calls % 4];
    now += s->seconds[s->calls++ % 4];
    return mla_ok();
}

static mla_status mark(mla_device *device, int at) {
    ((double *)device->state)[at] = now;
    return mla_ok();
}

static mla_status elapsed(mla_device *device, int from, int to, double *seconds) {
    const double *marks = device->state;
    *seconds = marks[to] - marks[from];
    return mla_ok();
}

static mla_status synchronize(mla_device *device) {
    (void)device;
    return mla_ok();
}

static double uses(void) {
    return used;
}

static double no_wait(void) {
    return NAN;
}

/* Every look finds a thread to have waited for another second. */
static double always_waits(void) {
    return waited += 1;
}

/* Ten seconds of waiting come between every fourth look and the next: in one of the turns of every other round. */
static double sometimes_waits(void) {
    static int looks;
    waited += looks++ % 8 == 1 ? 10 : 0;
    return waited;
}

static mla_duel duel(scripted *first, double flops, scripted *second, double (*wait)(void)) {
    double marks[MLA_DEVICE_MARKS] = {0};
    mla_device device = {.state = marks, .mark = mark, .elapsed = elapsed, .synchronize = synchronize};
    const mla_racer racers[] = {{.call = {run, first}, .flops = flops}, {.call = {run, second}, .flops = 1}};
    const mla_duel_rules rules = {.low = 1, .high = 5, .seconds = 0.01, .threads = 2, .used = uses, .waited = wait};
    mla_duel result = {0};
    cr_assert_eq(mla_duel_run(&device, &racers[0], &racers[1], &rules, &result).code, MLA_OK);
    return result;
}

/* 0.3 s for 3 flop over 0.05 s for 1: 2, settled after the six rounds that an interval takes, and a warm-up. */
Test(duel, times_a_flop_are_compared) {
    scripted first = {{0.3, 0.3, 0.3, 0.3}, 0, 0}, second = {{0.05, 0.05, 0.05, 0.05}, 0, 0};
    const mla_duel d = duel(&first, 3, &second, no_wait);
    cr_expect(is_near(d.ratio, 2), "%g", d.ratio);
    cr_expect_eq(d.rounds, 6);
    cr_expect_eq(first.calls, 7);
    cr_expect_not(d.busy);
}

/* Calls of 0.02 s are repeated until they fill 0.05 s: three a round. */
Test(duel, short_calls_are_repeated) {
    scripted first = {{0.1, 0.1, 0.1, 0.1}, 0, 0}, second = {{0.02, 0.02, 0.02, 0.02}, 0, 0};
    const mla_duel d = duel(&first, 1, &second, no_wait);
    cr_expect(is_near(d.ratio, 5), "%g", d.ratio);
    cr_expect_eq(second.calls, 1 + 6 * 3);
}

/* One call of five is late: a turn is the median of its calls. */
Test(duel, late_calls_are_left_out) {
    scripted first = {{0.1, 0.1, 0.1, 0.1}, 0, 0}, second = {{0.01, 0.01, 0.01, 0.025}, 0, 0};
    const mla_duel d = duel(&first, 1, &second, no_wait);
    cr_expect(is_near(d.ratio, 10), "%g", d.ratio);
}

/* The first racer takes 4 and 8 times as long by turns, the longer ones while others run: they are set aside. */
Test(duel, rounds_that_waited_are_set_aside) {
    scripted first = {{0.8, 0.4, 0.8, 0.4}, 0, 0}, second = {{0.1, 0.1, 0.1, 0.1}, 0, 0};
    const mla_duel d = duel(&first, 1, &second, sometimes_waits);
    cr_expect(is_near(d.low, 8) && is_near(d.high, 8), "%g .. %g", d.low, d.high);
    cr_expect_not(d.busy);
}

/* Where no round is quiet, others' share of the processors is left out: 0.4 s half idle beside 0.1 s. */
Test(duel, a_busy_machine_is_owned_up_to) {
    scripted first = {{0.4, 0.4, 0.4, 0.4}, 0, 0.5}, second = {{0.1, 0.1, 0.1, 0.1}, 0, 0};
    const mla_duel d = duel(&first, 1, &second, always_waits);
    cr_expect(d.busy);
    cr_expect(is_near(d.ratio, 2), "%g", d.ratio);
}

/* In quiet rounds, threads that wait for one another count. */
Test(duel, a_quiet_machine_has_no_excuse) {
    scripted first = {{0.4, 0.4, 0.4, 0.4}, 0, 0.5}, second = {{0.1, 0.1, 0.1, 0.1}, 0, 0};
    cr_expect(is_near(duel(&first, 1, &second, no_wait).ratio, 4));
}

static mla_status fail(void *context) {
    (void)context;
    return mla_error(MLA_EDEVICE, "it broke");
}

Test(duel, a_failure_ends_it) {
    scripted second = {{1, 1, 1, 1}, 0, 0};
    double marks[MLA_DEVICE_MARKS] = {0};
    mla_device device = {.state = marks, .mark = mark, .elapsed = elapsed, .synchronize = synchronize};
    const mla_racer racers[] = {{.call = {fail, NULL}, .flops = 1}, {.call = {run, &second}, .flops = 1}};
    mla_duel d;
    cr_expect_str_eq(mla_duel_run(&device, &racers[0], &racers[1], &(mla_duel_rules){.used = uses, .waited = no_wait}, &d).message,
                     "it broke");
}

/* ---- waiting ---- */

/* A number that only grows, or NaN where the system does not say. */
Test(duel, waiting_is_counted) {
    const double before = mla_processor_waited();
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    const double after = mla_processor_waited();
    cr_expect(isnan(before) || (before >= 0 && after >= before), "%g, then %g", before, after);
}
