/* A progress bar on stderr, drawn on a terminal only: in a pipe every call does nothing. */
#ifndef MLA_PROGRESS_H
#define MLA_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mla_progress {
    bool shown;                                     /* stderr is a terminal, and nobody asked for quiet */
    int64_t steps;                                  /* in all, >= 1 */
    int64_t done;                                   /* steps finished */
    double drawn_at;                                /* seconds; 0: the line is clear */
    void (*notify)(void *context, double fraction); /* NULL: none; otherwise told of every update */
    void *context;
} mla_progress;

/* Since some moment or other; never set back. */
double mla_seconds(void);

void mla_progress_begin(mla_progress *progress, int64_t steps, bool quiet);
/* Step `done` has run to `fraction` of itself. Redraws ten times a second at most. NULL is allowed. */
void mla_progress_update(mla_progress *progress, double fraction);
void mla_progress_step(mla_progress *progress);
/* Wipes the bar, so that a result can be printed. */
void mla_progress_clear(mla_progress *progress);

#endif
