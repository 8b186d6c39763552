/*
 * A run's results as JSON, each in its place: what a journal has kept, or the reports of several shards. The run is described by
 * {"digest", "cases", "kernels": [...], "shard", "shards"}, and by "lines": [...], every case's, where several shards share it.
 */
#ifndef MLA_LEDGER_H
#define MLA_LEDGER_H

#include "run.h"
#include "shard.h"

struct cJSON;

/* Of a list of cases and kernels, as `shard` sees it. cJSON_Delete; NULL: out of memory. */
struct cJSON *mla_run_describe(const mla_case_list *cases, const mla_subject *subjects, int num_subjects, const mla_shard *shard);

typedef struct mla_ledger {
    struct cJSON *run; /* the description; the ledger's own */
    int32_t cases, kernels;
    int32_t count;          /* results put */
    struct cJSON **results; /* [cases, kernels]; NULL: none yet */
} mla_ledger;

/* Takes a description, also when it fails. MLA_EINVAL: it is none. Free with mla_ledger_free, also after failure. */
mla_status mla_ledger_make(struct cJSON *run, mla_ledger *ledger) MLA_CHECKED;
/* Takes a result, also when it fails. MLA_EINVAL: it is none, is of no case or kernel of the run, or there is one already. */
mla_status mla_ledger_put(mla_ledger *ledger, struct cJSON *result) MLA_CHECKED;
/* Gives a result away; NULL: there is none. */
struct cJSON *mla_ledger_take(mla_ledger *ledger, int32_t test, int32_t kernel);
void mla_ledger_free(mla_ledger *ledger);

/* Is `other` the description of the same run, whatever the shard? */
bool mla_ledger_same_run(const mla_ledger *ledger, const struct cJSON *other);
const char *mla_ledger_kernel(const mla_ledger *ledger, int32_t kernel);
/* NULL: the description does not say. */
const char *mla_ledger_line(const mla_ledger *ledger, int32_t test);
/* Of the description; both 0 when it is none. */
mla_shard mla_ledger_shard(const struct cJSON *run);

#endif
