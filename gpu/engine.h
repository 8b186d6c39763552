/* What the host must know of an engine: the constants of one matrix unit's kernel. The device code asserts the same numbers. */
#ifndef MLA_ENGINE_H
#define MLA_ENGINE_H

#include "mla_gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which KV formats an engine has kernels for. */
typedef enum mla_engine_kv {
    MLA_ENGINE_ALL_KV,
    MLA_ENGINE_DIRECT_KV,   /* those that lie in memory as operands of the matrix unit */
    MLA_ENGINE_CONVERTED_KV /* the others */
} mla_engine_kv;

typedef struct mla_engine {
    const char *name;          /* "cdna3", "cdna4", "cdna3tall", "cdna4tall", "mma", "hopper", "hopper16" */
    const char *kernels;       /* what the names of its split-K kernels begin with */
    int threads;               /* of a block of the split-K kernel */
    int row_tile;              /* rows of a plan item */
    int kv_tile;               /* tokens staged at once */
    size_t lds_bytes;          /* of a block of the split-K kernel */
    int blocks_a_unit;         /* blocks of the split-K kernel that a compute unit runs at once */
    int wave;                  /* lanes that run in lockstep */
    mla_rounding acc_rounding; /* of the real matrix unit; host execution rounds to nearest */
    int mma_k;
    mla_engine_kv kv;
    double max_slack; /* the running maximum may lag by so much, in log2 units: weights are up to 2^max_slack */
    int min_rows;     /* a sequence has at least as many query rows, or another engine is faster */
} mla_engine;

#define MLA_COMBINE_THREADS 128 /* of a block of the combine kernel: four columns each */

/* NULL for an unknown name. */
const mla_engine *mla_engine_find(const char *name);
/* What a plan for this engine on this device is made with. */
mla_plan_options mla_engine_plan_options(const mla_engine *engine, const mla_device *device);

#ifdef __cplusplus
}
#endif

#endif
