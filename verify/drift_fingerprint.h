/* The plan of a kernel nobody has the source of: its splits, its tile, and the order of its sums. */
#ifndef MLA_DRIFT_FINGERPRINT_H
#define MLA_DRIFT_FINGERPRINT_H

#include "drift_tree.h"

typedef struct mla_drift_split {
    int64_t begin, end, tokens; /* tokens < end - begin: other splits lie between */
} mla_drift_split;

typedef struct mla_fingerprint {
    mla_range keys;       /* positions that the probed row sees */
    bool weights_rounded; /* P is rounded, so splits and tile show */
    mla_drift_split *splits;
    int num_splits;
    int64_t *tokens;  /* positions, split by split: split i has the next splits[i].tokens */
    int64_t tile;     /* tokens between two looks at the maximum; 0: does not show */
    mla_tree combine; /* of the first splits, at most MLA_TREE_LEAVES: leaf i is split i */
    int combined;     /* 0: not looked at */
    mla_tree sum;     /* of the first tokens of the longest split: leaf i is token sum_first + i */
    int64_t sum_first;
    int summed;
    int64_t launches;
} mla_fingerprint;

/* Of one sequence of a case. Errors as of mla_probe_make, or the kernel's own. Free with mla_fingerprint_free, also after failure. */
mla_status mla_fingerprint_take(const mla_kernel *kernel, mla_device *device, const mla_case *c, int32_t sequence,
                                mla_fingerprint *fingerprint) MLA_CHECKED;
void mla_fingerprint_free(mla_fingerprint *fingerprint);

#endif
