/* The one argument of the split-K and combine kernels, shared by the C launcher and the device code. All pointers lie in the kernel's space. */
#ifndef MLA_SPLITK_ARGS_H
#define MLA_SPLITK_ARGS_H

#include "mla_gpu.h"

typedef struct mla_splitk_args {
    mla_problem problem;
    mla_output output;
    const mla_plan_item *items;
    const mla_plan_group *groups;
    const int32_t *worker_indptr;
    float *partial_out; /* [num_slots, row_tile, 512], unnormalised sum of p v */
    float *partial_ml;  /* [num_slots, row_tile, 2]: running maximum in log2 units, sum of weights */
    int32_t num_groups;
    int32_t row_tile;
} mla_splitk_args;

#endif
