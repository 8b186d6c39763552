#include "shard.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"

/* ---- which one ----------------------------------------------------------------------------------------------------------------------- */

/* Digits only, up to `high`; returns the rest of the text, or NULL. */
static const char *read_number(const char *text, int32_t high, int32_t *value) {
    char *end;
    if (*text < '0' || *text > '9')
        return NULL;
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    *value = (int32_t)number;
    return errno || number > (unsigned long long)high ? NULL : end;
}

static bool is_sound(const mla_shard *shard) {
    return shard->count >= 1 && shard->index < shard->count;
}

mla_status mla_shard_parse(const char *text, mla_shard *shard) {
    *shard = (mla_shard){.count = 0};
    const char *rest = read_number(text, MLA_MAX_SHARDS, &shard->index);
    rest = rest && *rest == '/' ? read_number(rest + 1, MLA_MAX_SHARDS, &shard->count) : NULL;
    if (rest && *rest == '\0' && is_sound(shard))
        return mla_ok();
    return mla_error(MLA_EINVAL, "--shard %.100s: expected I/N with 0 <= I < N <= %d", text, MLA_MAX_SHARDS);
}

static const struct launcher {
    const char *rank, *size;
} launchers[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                 {"PMI_RANK", "PMI_SIZE"},
                 {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
                 {"JOB_COMPLETION_INDEX", "MLA_SHARDS"}};

mla_status mla_shard_from_environment(mla_shard *shard) {
    *shard = (mla_shard){.count = 1};
    for (const struct launcher *l = launchers; l < launchers + sizeof launchers / sizeof *launchers; l++) {
        const char *rank = getenv(l->rank), *size = getenv(l->size);
        if (!rank || !size)
            continue;
        const char *rank_end = read_number(rank, MLA_MAX_SHARDS, &shard->index),
                   *size_end = read_number(size, MLA_MAX_SHARDS, &shard->count);
        shard->origin = l->rank;
        if (rank_end && size_end && !*rank_end && !*size_end && is_sound(shard))
            return mla_ok();
        return mla_error(MLA_EINVAL, "%s=%.50s %s=%.50s: no part of a run", l->rank, rank, l->size, size);
    }
    return mla_ok();
}

char *mla_shard_path(const mla_shard *shard, const char *pattern) {
    char index[16], *path = malloc(strlen(pattern) * sizeof index + 1), *to = path;
    snprintf(index, sizeof index, "%" PRId32, shard->index);
    while (path && *pattern) {
        const bool rank = pattern[0] == '%' && pattern[1] == 'r';
        if (rank)
            to = stpcpy(to, index);
        else
            *to++ = *pattern;
        pattern += rank ? 2 : 1;
    }
    if (path)
        *to = '\0';
    return path;
}

/* ---- dealing ------------------------------------------------------------------------------------------------------------------------- */

#define BYTE_COST 16 /* flops in the time that a byte takes to be made, moved and compared */
#define CASE_COST 1e7

double mla_case_cost(const mla_case *c) {
    const double row_flops = 2.0 * (MLA_HEAD_DIM + MLA_HEAD_DIM_V), row_bytes = 2.0 * (MLA_HEAD_DIM + 8 * MLA_HEAD_DIM_V);
    const double token_bytes = (double)mla_kv_format_get(c->kv)->token_bytes;
    double flops = 0, bytes = 0;
    for (int32_t b = 0; b < c->batch; b++) {
        const int32_t keys = c->paging == MLA_SPARSE && c->topk < c->kv_len[b] ? c->topk : c->kv_len[b];
        flops += (double)c->q_len[b] * c->heads * keys * row_flops;
        bytes += (double)c->kv_len[b] * token_bytes + (double)c->q_len[b] * c->heads * row_bytes;
    }
    return flops + BYTE_COST * bytes + CASE_COST;
}

typedef struct weighed {
    double cost;
    int32_t index;
} weighed;

static int costlier(const void *left, const void *right) {
    const weighed *a = left, *b = right;
    if (a->cost != b->cost)
        return a->cost > b->cost ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

static bool is_lighter(const weighed *a, const weighed *b) {
    return a->cost < b->cost || (a->cost == b->cost && a->index < b->index);
}

/* The root of a heap of loads, the lightest first, has become heavier. */
static void sift(weighed *heap, int32_t count) {
    for (int32_t parent = 0;;) {
        int32_t child = 2 * parent + 1;
        if (child + 1 < count && is_lighter(&heap[child + 1], &heap[child]))
            child++;
        if (child >= count || is_lighter(&heap[parent], &heap[child]))
            return;
        const weighed moved = heap[parent];
        heap[parent] = heap[child];
        heap[child] = moved;
        parent = child;
    }
}

mla_status mla_shard_deal(const mla_case_list *cases, int32_t shards, int32_t *owner) {
    weighed *order = malloc(((size_t)cases->count + 1) * sizeof *order), *loads = calloc((size_t)shards, sizeof *loads);
    const bool good = order && loads;
    for (int32_t i = 0; good && i < cases->count; i++)
        order[i] = (weighed){mla_case_cost(&cases->cases[i]), i};
    for (int32_t s = 0; good && s < shards; s++)
        loads[s] = (weighed){0, s};
    if (good)
        qsort(order, (size_t)cases->count, sizeof *order, costlier);
    for (int32_t i = 0; good && i < cases->count; i++) {
        owner[order[i].index] = loads[0].index;
        loads[0].cost += order[i].cost;
        sift(loads, shards);
    }
    free(order);
    free(loads);
    return good ? mla_ok() : mla_error(MLA_ENOMEM, "no memory to deal %d cases to %d shards", cases->count, shards);
}
