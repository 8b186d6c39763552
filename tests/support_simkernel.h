/* A simulated kernel: flash decode on the CPU whose every rounding is a choice. What it is told to do, its contract declares; bugs it keeps to itself. */
#ifndef SUPPORT_SIMKERNEL_H
#define SUPPORT_SIMKERNEL_H

#include "../ref/mla.h"

/* Zeros are sensible, but for the formats' own: start from sim_kernel_default. */
typedef struct sim_kernel {
    mla_contract contract; /* what it does and declares; kv_dequant, lazy_max and ftz included */
    int splits;            /* at most contract.max_splits */
    bool natural;          /* scores in base e until exp2; else in base 2 from the start */
    uint64_t seed;         /* of the errors of exp2 */

    /* Bugs: zeros are right. */
    double scale_error;       /* relative error of sm_scale */
    mla_format hidden_scores; /* rounds scores to this; 0, bf16, is off unless hides_scores */
    bool hides_scores;
    bool truncates_p;     /* P toward zero */
    int accumulator_bits; /* of P V; 0: the contract's */
    bool skips_last_key;
} sim_kernel;

/* fp32 everywhere but P in bf16, one split. */
sim_kernel sim_kernel_default(void);
/* A kernel drawn from the contracts that make sense. */
sim_kernel sim_kernel_random(uint64_t seed);

/* Fills output as a kernel would. MLA_ENOMEM. Rows run in parallel. */
mla_status sim_kernel_run(const sim_kernel *sim, const mla_problem *problem, const mla_output *output) MLA_CHECKED;

#endif
