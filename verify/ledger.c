#include "ledger.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "text_hash.h"

/* ---- descriptions ---------------------------------------------------------------------------------------------------------------------- */

/* Adds every case's line, when wanted, and the digest of them and of the kernels. */
static bool add_lines(cJSON *run, const mla_case_list *cases, const mla_subject *subjects, int num_subjects, bool wanted) {
    uint64_t hash = MLA_TEXT_HASH;
    char digest[17];
    cJSON *lines = wanted ? cJSON_AddArrayToObject(run, "lines") : NULL;
    bool good = lines || !wanted;
    for (int i = 0; i < cases->count && good; i++) {
        char *line = mla_case_print(&cases->cases[i]);
        good = line && (!wanted || cJSON_AddItemToArray(lines, cJSON_CreateString(line)));
        hash = mla_text_hash(mla_text_hash(hash, line ? line : ""), "\n");
        free(line);
    }
    for (int k = 0; k < num_subjects; k++)
        hash = mla_text_hash(mla_text_hash(mla_text_hash(hash, subjects[k].spec), "\n"), subjects[k].contract ? subjects[k].contract : "");
    snprintf(digest, sizeof digest, "%016" PRIx64, hash);
    return good && cJSON_AddStringToObject(run, "digest", digest);
}

static bool describe(cJSON *run, const mla_case_list *cases, const mla_subject *subjects, int num_subjects, const mla_shard *shard) {
    bool good = cJSON_AddNumberToObject(run, "cases", cases->count) && cJSON_AddNumberToObject(run, "shard", shard->index) &&
                cJSON_AddNumberToObject(run, "shards", shard->count);
    cJSON *kernels = good ? cJSON_AddArrayToObject(run, "kernels") : NULL;
    for (int k = 0; k < num_subjects && kernels; k++)
        good = good && cJSON_AddItemToArray(kernels, cJSON_CreateString(subjects[k].spec));
    return good && kernels && add_lines(run, cases, subjects, num_subjects, shard->count > 1);
}

struct cJSON *mla_run_describe(const mla_case_list *cases, const mla_subject *subjects, int num_subjects, const mla_shard *shard) {
    cJSON *run = cJSON_CreateObject();
    if (run && describe(run, cases, subjects, num_subjects, shard))
        return run;
    cJSON_Delete(run);
    return NULL;
}

/* A whole number from 0; -1: there is none of that name. */
static int32_t read_count(const cJSON *object, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble <= INT32_MAX ? (int32_t)item->valuedouble : -1;
}

static const char *read_text(const cJSON *object, const char *name) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

mla_shard mla_ledger_shard(const struct cJSON *run) {
    const mla_shard shard = {.index = read_count(run, "shard"), .count = read_count(run, "shards")};
    return shard.index >= 0 && shard.index < shard.count ? shard : (mla_shard){.count = 0};
}

bool mla_ledger_same_run(const mla_ledger *ledger, const struct cJSON *other) {
    const char *mine = read_text(ledger->run, "digest"), *theirs = read_text(other, "digest");
    return mine && theirs && strcmp(mine, theirs) == 0 && mla_ledger_shard(ledger->run).count == mla_ledger_shard(other).count;
}

const char *mla_ledger_kernel(const mla_ledger *ledger, int32_t kernel) {
    return cJSON_GetStringValue(cJSON_GetArrayItem(cJSON_GetObjectItem(ledger->run, "kernels"), kernel));
}

const char *mla_ledger_line(const mla_ledger *ledger, int32_t test) {
    return cJSON_GetStringValue(cJSON_GetArrayItem(cJSON_GetObjectItem(ledger->run, "lines"), test));
}

/* ---- results --------------------------------------------------------------------------------------------------------------------------- */

mla_status mla_ledger_make(struct cJSON *run, mla_ledger *ledger) {
    const cJSON *kernels = cJSON_GetObjectItemCaseSensitive(run, "kernels"), *name;
    *ledger = (mla_ledger){.run = run, .cases = read_count(run, "cases"), .kernels = cJSON_GetArraySize(kernels)};
    bool good = ledger->cases > 0 && ledger->kernels > 0 && read_text(run, "digest") && mla_ledger_shard(run).count > 0;
    cJSON_ArrayForEach(name, kernels) good = good && cJSON_IsString(name);
    if (!good)
        return mla_error(MLA_EINVAL, "no description of a run");
    ledger->results = calloc((size_t)ledger->cases * (size_t)ledger->kernels, sizeof(cJSON *));
    return ledger->results ? mla_ok() : mla_error(MLA_ENOMEM, "no memory for the results of %d cases", ledger->cases);
}

void mla_ledger_free(mla_ledger *ledger) {
    for (int64_t i = 0; ledger->results && i < (int64_t)ledger->cases * ledger->kernels; i++)
        cJSON_Delete(ledger->results[i]);
    free(ledger->results);
    cJSON_Delete(ledger->run);
    *ledger = (mla_ledger){.run = NULL};
}

/* NULL: there is none, and *status says why. */
static cJSON **find_place(const mla_ledger *ledger, const cJSON *result, mla_status *status) {
    const int32_t test = read_count(result, "index");
    const char *kernel = read_text(result, "kernel");
    bool known = false;
    *status = mla_error(MLA_EINVAL, "no result of a case");
    if (test < 0 || !kernel || !read_text(result, "case") || !read_text(result, "status"))
        return NULL;
    for (int32_t k = 0; test < ledger->cases && k < ledger->kernels; k++) {
        cJSON **place = &ledger->results[(int64_t)test * ledger->kernels + k];
        const bool same = strcmp(mla_ledger_kernel(ledger, k), kernel) == 0;
        if (same && !*place)
            return place;
        known |= same;
    }
    *status = mla_error(MLA_EINVAL, known ? "case %d is there twice for kernel %.100s" : "case %d of kernel %.100s is none of this run's",
                        test, kernel);
    return NULL;
}

mla_status mla_ledger_put(mla_ledger *ledger, struct cJSON *result) {
    mla_status status;
    cJSON **place = find_place(ledger, result, &status);
    if (!place) {
        cJSON_Delete(result);
        return status;
    }
    *place = result;
    ledger->count++;
    return mla_ok();
}

struct cJSON *mla_ledger_take(mla_ledger *ledger, int32_t test, int32_t kernel) {
    cJSON **place = &ledger->results[(int64_t)test * ledger->kernels + kernel], *result = *place;
    *place = NULL;
    return result;
}
