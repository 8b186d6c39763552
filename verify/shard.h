/* One process's part of a run that several share, with nothing between them but a number. */
#ifndef MLA_SHARD_H
#define MLA_SHARD_H

#include "case.h"

#define MLA_MAX_SHARDS 1048576

typedef struct mla_shard {
    int32_t index, count; /* 0 <= index < count */
    const char *origin;   /* the variable that a launcher set; NULL: none did */
} mla_shard;

/* "I/N". MLA_EINVAL: it is nothing of the kind. */
mla_status mla_shard_parse(const char *text, mla_shard *shard) MLA_CHECKED;
/*
 * What a launcher says, the first of: OMPI_COMM_WORLD_RANK and _SIZE (Open MPI), PMI_RANK and PMI_SIZE (MPICH), SLURM_PROCID and SLURM_STEP_NUM_TASKS (srun; a
 * batch script has a SLURM_PROCID too, and is no part of anything), JOB_COMPLETION_INDEX (an indexed job) and MLA_SHARDS. Otherwise 0 of 1. MLA_EINVAL:
 * values that make no sense.
 */
mla_status mla_shard_from_environment(mla_shard *shard) MLA_CHECKED;

/* What a case costs, in units of about a flop: its keys times its rows, and its bytes. */
double mla_case_cost(const mla_case *c);
/* owner[i] becomes the shard of case i: the costliest case first, each to the shard with the least so far (Graham 1969). A function of its arguments. */
mla_status mla_shard_deal(const mla_case_list *cases, int32_t shards, int32_t *owner) MLA_CHECKED;

/* A file's name with every %r replaced by the shard's index. Allocated; free(). NULL: out of memory. */
char *mla_shard_path(const mla_shard *shard, const char *pattern);

#endif
