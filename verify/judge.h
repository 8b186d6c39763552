/* From measures to a verdict. */
#ifndef MLA_JUDGE_H
#define MLA_JUDGE_H

#include "compare.h"

typedef enum mla_verdict_status {
    MLA_PASSED,
    MLA_FAILED,
    MLA_SKIPPED,
    MLA_ERROR,
    MLA_CRASHED, /* its process died */
    MLA_TIMEOUT, /* its process showed no sign of life */
    MLA_VERDICT_STATUSES
} mla_verdict_status;

#define MLA_BUFFER_NAME 24

/* What happened to memory around the kernel. */
typedef struct mla_integrity {
    char guard_touched[MLA_BUFFER_NAME]; /* name of the buffer; empty: none */
    int64_t guard_offset;                /* bytes from the buffer's start; negative: before it */
    int64_t guard_size;                  /* bytes of the buffer */
    char input_changed[MLA_BUFFER_NAME]; /* name of the buffer; empty: none */
    int64_t input_offset;
} mla_integrity;

typedef struct mla_verdict {
    mla_verdict_status status;
    char reason[320]; /* one line; empty when passed */
} mla_verdict;

/* A verdict with a reason, control characters blanked. */
mla_verdict mla_verdict_make(mla_verdict_status status, const char *reason);
const char *mla_verdict_name(mla_verdict_status status); /* "PASSED" ... */
/* Neither passed nor skipped. */
bool mla_verdict_is_bad(mla_verdict_status status);
/* MLA_VERDICT_STATUSES for an unknown name. */
mla_verdict_status mla_verdict_parse(const char *name);
/*
 * FAILED when any guard was touched, any input changed, any element unwritten, anomalous, outside its bound or inexact, any lse likewise, and when chi of
 * the case or of a row exceeds its limit while all elements are right: the reason names them all in that order. ERROR when nothing was compared.
 */
mla_verdict mla_judge(const mla_measure *measure, const mla_integrity *integrity);

#endif
