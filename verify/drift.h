/* The commands under `mla-verify drift`, one file each, and what they share. */
#ifndef MLA_DRIFT_H
#define MLA_DRIFT_H

#include "selection.h"

struct cJSON;

/* argv[0] is the command's name with its "drift ". */
mla_exit mla_drift_order(int argc, char **argv);
mla_exit mla_drift_diff(int argc, char **argv);
mla_exit mla_drift_sweep(int argc, char **argv);
mla_exit mla_drift_stages(int argc, char **argv);

/* What a command's --help says before and after the selection's options. */
typedef struct mla_drift_help {
    const char *usage, *own, *exits;
} mla_drift_help;

/*
 * Reads argv into the selection and opens its kernels. False: there is nothing left to do (bad usage, or help), and *code says how it went. The
 * selection is to be freed either way.
 */
bool mla_drift_begin(mla_selection *selection, int argc, char **argv, const mla_own_options *own, const mla_drift_help *help,
                     mla_exit *code);
/* The subject's device, as a trial wants it: NULL for host memory. */
mla_device *mla_drift_device(const mla_subject *subject);
/*
 * How one case ended. MLA_EUNSUPPORTED or MLA_EDEVICE of a kernel that cannot run here is a skip, any other failure a mismatch; both are said in one
 * line. Afterwards *ran, *failed count.
 */
void mla_drift_count(FILE *text, const mla_subject *subject, const mla_case *c, const mla_status *status, int *ran, int *failed);
mla_exit mla_drift_exit(int ran, int failed);
/* Writes and frees `json`; no path: only frees. NULL json: out of memory. */
mla_status mla_drift_write_json(const char *path, struct cJSON *json) MLA_CHECKED;

#endif
