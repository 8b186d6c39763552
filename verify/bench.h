/* One kernel on one case, timed. */
#ifndef MLA_BENCH_H
#define MLA_BENCH_H

#include "duel.h"
#include "run.h"
#include "yardstick.h"

typedef struct mla_bench_options {
    int repeat;     /* launches a mode; 0: as many as `seconds` allow, MLA_BENCH_LEAST at least */
    double seconds; /* a mode */
} mla_bench_options;

#define MLA_BENCH_LEAST 5
#define MLA_BENCH_MOST 4096

typedef enum mla_bench_mode {
    MLA_BENCH_COLD,    /* launches go round copies of the inputs, so that each reads them from memory */
    MLA_BENCH_WARM,    /* launches read the same inputs again and again */
    MLA_BENCH_PREPARE, /* as cold, each launch with its `prepare` (a kernel's plan); only of kernels that have one */
    MLA_BENCH_MODES
} mla_bench_mode;

/* "cold", "warm", "cold+plan" */
const char *mla_bench_mode_name(mla_bench_mode mode);

typedef struct mla_bench_result {
    const char *kernel;  /* the subject's spec */
    const char *device;  /* description of what it ran on; NULL: the subject could not be opened */
    char *case_line;     /* canonical */
    mla_verdict verdict; /* as `run` gives it; only what passed is timed. ERROR also when timing failed */
    mla_work work;
    mla_floor floor;
    int copies;          /* of the inputs, that the cold launches go round */
    size_t copied_bytes; /* of all of them together */
    bool cold_enough;    /* they are several times the last-level cache */
    mla_timing timing[MLA_BENCH_MODES];
} mla_bench_result;

/* Grades, then times. The yardstick is of the subject's device; unused, and may be NULL, when the subject could not be opened. */
void mla_bench_case(const mla_subject *subject, const mla_case *test, const mla_bench_options *options, const mla_yardstick *yardstick,
                    mla_progress *progress, mla_bench_result *result);
void mla_bench_result_free(mla_bench_result *result);

/* Cold launches of a kernel that is open, in host memory, one a call. Free by racer->close. */
mla_status mla_bench_racer(const mla_subject *subject, const mla_case *test, mla_racer *racer) MLA_CHECKED;

#endif
