/*
 * A kernel in a process of its own: what it does to that process, or never finishes, costs one case. The worker is this program again, started anew
 * rather than forked, so that no driver, thread or lock comes along; the verifier itself opens no kernel and no device.
 */
#ifndef MLA_WORKER_H
#define MLA_WORKER_H

#include "run.h"

typedef struct mla_worker_options {
    const char *program; /* an mla-verify; NULL: the running program is one */
    double timeout;      /* seconds without a sign of life; the kernel's run gives none, the oracle one a slab. 0: no limit */
} mla_worker_options;

typedef struct mla_worker mla_worker;

/*
 * Starts a worker that opens the kernel `spec`; both must outlive it. Fails as mla_kernel_open does, and with MLA_EINVAL where opening crashes or takes
 * too long. *worker is NULL after failure; otherwise close with mla_worker_close.
 */
mla_status mla_worker_open(const char *spec, const mla_worker_options *options, mla_worker **worker) MLA_CHECKED;
/*
 * Grades result->test, whose line is result->case_line, as mla_run_case does in the process itself, and keeps outputs as `subject` says. CRASHED when the worker died, TIMEOUT when it was
 * silent for too long. A worker that is dead, or whose process or device a case may have spoilt, is replaced before the next.
 */
void mla_worker_run(mla_worker *worker, const mla_subject *subject, mla_progress *progress, mla_result *result);
void mla_worker_close(mla_worker *worker); /* NULL is allowed */

/* The worker's own side: its socket, and where its command line has what. */
enum { MLA_WORKER_SOCKET = 3 };
enum { MLA_WORKER_SPEC = 1, MLA_WORKER_ARGUMENTS };

#endif
