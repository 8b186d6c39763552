/* Timings as text and as JSON. Nothing is measured or judged here. */
#ifndef MLA_REPORT_BENCH_H
#define MLA_REPORT_BENCH_H

#include <stdio.h>

#include "bench.h"
#include "speed_limits.h"

/* A device and what it reached. */
typedef struct mla_bench_device {
    const mla_device *device; /* NULL: not used */
    mla_yardstick yardstick;
} mla_bench_device;

/* All there is to report. */
typedef struct mla_bench_report {
    mla_bench_device devices[3]; /* by mla_space */
    const mla_bench_result *results;
    int num_results;
    mla_duel duels[32]; /* of mla_speed_limits, as the limits' ratios */
    int threads;        /* of the host */
} mla_bench_report;

void mla_bench_text_device(FILE *stream, const mla_bench_device *device);
/* `first` is the first result of its case, beside which its medians are put; with `headed`, the case and the columns' names stand above. */
void mla_bench_text_result(FILE *stream, const mla_bench_result *result, const mla_bench_result *first, bool headed);
/* Those that were measured. */
void mla_bench_text_limits(FILE *stream, const mla_bench_report *report);

/*
 * {"devices": [{"device", "bandwidth", "matrix_rate", "matrix"}],
 *  "cases": [{"case", "kernel", "device", "status", "reason", "bytes", "flops", "floor", "floor_by", "copies", "copied_bytes",
 *             "cold": {"launches", "median", "min", "p10", "p90", "floor_fraction"}, "warm": ..., "cold+plan": ...}],
 *  "limits": [{"kernel", "case", "base_kernel", "base_case", "of", "ratio", "ratio_low", "ratio_high", "rounds", "busy", "low", "high", "threads", "missed"}]}
 * Seconds, bytes, flop, and these a second. Allocated; free(). NULL: out of memory.
 */
char *mla_bench_json(const mla_bench_report *report);

/* One page that needs no other file: a table, and each device's roofline. Allocated; free(). NULL: out of memory. */
char *mla_bench_html(const mla_bench_report *report);

#endif
