/* The one argument of bmm's kernels, shared by the C launcher and the device code. All pointers lie in the kernel's space. */
#ifndef MLA_BMM_ARGS_H
#define MLA_BMM_ARGS_H

#include "mla_gpu.h"

#define MLA_BMM_THREADS 256
#define MLA_BMM_TILE_ROWS 16 /* of the product kernel's tile of a result */
#define MLA_BMM_TILE_COLUMNS 64
#define MLA_BMM_LDS_BYTES ((MLA_BMM_TILE_ROWS + MLA_BMM_TILE_COLUMNS) * 32 * 4) /* of a block of any of the kernels */
#define MLA_BMM_GATHER_KEYS (MLA_BMM_THREADS / 8)                               /* that a block of the gather copies */

/* Rows that are multiplied with the same keys: those of a sequence, or under sparse attention of a query token. */
typedef struct mla_bmm_group {
    int64_t first_row;        /* query token * heads + head */
    int64_t first_key;        /* in args.kv */
    int64_t first_score;      /* in args.scores and args.weights */
    int64_t first_score_tile; /* of the tiles of all groups' scores: a block of the product kernel is one */
    int64_t first_value_tile;
    int32_t rows;
    int32_t sequence; /* -1: padding rows */
    int32_t begin;    /* position of its first key */
    int32_t keys;     /* 0: nothing is multiplied, its rows are empty */
    int32_t pitch;    /* of a row of scores: keys, rounded up to whole chunks of operands */
} mla_bmm_group;

typedef struct mla_bmm_args {
    mla_problem problem;
    mla_output output;
    const mla_bmm_group *groups; /* [num_groups], covering every row once, in order */
    int64_t num_keys;            /* that are gathered */
    int32_t num_groups;
    bool fp16;      /* operands are fp16, otherwise bf16 */
    const void *q;  /* operands [rows, 576]: the problem's, or new_q */
    const void *kv; /* operands [keys, 576]: the problem's, or new_kv */
    void *new_q;
    void *new_kv;
    float *scores;  /* as the products leave them */
    void *weights;  /* P, not normalised; operands, zeros up to the pitch */
    float *values;  /* [rows, 512] sums of p v; not written where a group has no keys */
    float *scaling; /* [rows] what turns them into the output; 0: an empty row */
} mla_bmm_args;

#endif
