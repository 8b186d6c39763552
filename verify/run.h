/* One case, one kernel: from the case's text to a result. */
#ifndef MLA_RUN_H
#define MLA_RUN_H

#include "../gpu/mla_gpu.h"
#include "case.h"
#include "diagnose.h"
#include "judge.h"
#include "progress.h"

/* A kernel as it was named, opened or not. */
typedef struct mla_subject {
    const char *spec;     /* as given; what repeats the run */
    const char *contract; /* a line that it is graded by; NULL: what it declares itself */
    mla_status opened;
    mla_kernel_handle handle;  /* only when opened in this process */
    struct mla_worker *worker; /* the process that has it open; NULL: this one */
    const char *outputs;       /* folder that its outputs are written to, for `check`; NULL: none */
    bool only_failing;         /* only those of cases that FAILED */
    bool pictures;             /* its measures have them */
} mla_subject;

typedef struct mla_result {
    const mla_case *test; /* the caller's */
    const char *kernel;   /* the subject's spec; of `check` the file of outputs */
    const char *contract; /* the line it was graded by; NULL: the kernel's own, or the golden file's */
    const char *golden;   /* of `check` the golden file, otherwise NULL */
    bool given;           /* outputs handed to the library: no command repeats it */
    char *case_line;      /* canonical */
    int32_t index;        /* of the case in a run's list */
    double seconds;       /* it took in all, inputs and oracle included */
    mla_verdict verdict;
    mla_integrity integrity;
    mla_measure measure;
    bool measured;           /* the kernel ran, and its outputs were compared */
    mla_diagnosis diagnosis; /* of a FAILED one */
    char *smallest;          /* line of the smallest case like it that fails too; NULL: none was looked for */
    char *kept;              /* a command that grades the outputs that were kept; NULL: none were */
} mla_result;

/*
 * Grades one launch. Every failure on the way ends up in the verdict: SKIPPED when the kernel cannot run here, cannot do this case, or the case has
 * no query rows; ERROR when something other than the answer went wrong. The kernel works on copies, so that nothing it does reaches the oracle's
 * inputs; the oracle runs over slabs of query tokens, so that memory is bounded by the case's inputs and outputs. `progress` may be NULL. Free with
 * mla_result_free.
 */
void mla_run_case(const mla_subject *subject, const mla_case *test, mla_progress *progress, mla_result *result);
void mla_result_free(mla_result *result);

#endif
