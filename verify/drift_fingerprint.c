/*
 * Splits and tile show in how weights are rounded. One token j scores higher than all others, by so much that their weight is w = 0.5 (1 + 2^-12). A token
 * that meets j's maximum before its weight is rounded has P = 0.5, in bf16, fp16 and e4m3, to nearest and toward zero; one whose P was made earlier, or in
 * another split, has P = 1 and is multiplied by w in fp32 later. With V = 1 at token i and -0.5 at j, the output is exactly 0 only in the first case:
 * i lies in j's split, and not in an earlier tile.
 */
#include "drift_fingerprint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"

#define PIECES 3 /* bf16 numbers that make up the score of j */
#define SUM_TOKENS 64
#define TILE_KEYS 2048 /* of the case in which a tile is looked for that the case at hand does not show */

typedef struct search {
    mla_probe *probe;
    int64_t tokens;
    bool *same; /* [tokens] of the latest j */
} search;

/* ---- which tokens meet j's maximum in time ----------------------------------------------------------------------------------------------- */

static void plant_score(const search *s, int64_t j, bool there) {
    const double log2_e = 1.44269504088896340736;
    double rest = there ? (1 - log2(1 + 0x1p-12)) / ((double)s->probe->inputs.problem.sm_scale * log2_e) : 0;
    for (int i = 0; i < PIECES; i++) {
        const double piece = mla_decode(MLA_BF16, mla_encode(MLA_BF16, rest, MLA_RNE));
        mla_probe_plant(s->probe, s->probe->keys.begin + j, MLA_HEAD_DIM_V + i, piece);
        rest -= piece;
    }
}

static void plant_pairs(const search *s, int64_t j, int64_t first, int count, double one, double half) {
    for (int c = 0; c < count; c++) {
        mla_probe_plant(s->probe, s->probe->keys.begin + first + c, c, one);
        mla_probe_plant(s->probe, s->probe->keys.begin + j, c, half);
    }
}

/* Sets same[i] of tokens [first, first + count), at most 512. */
static mla_status look(search *s, int64_t j, int64_t first, int count) {
    double out[MLA_HEAD_DIM_V];
    plant_pairs(s, j, first, count, 1, -0.5);
    const mla_status status = mla_probe_run(s->probe, out);
    plant_pairs(s, j, first, count, 0, 0);
    for (int c = 0; c < count && status.code == MLA_OK; c++)
        s->same[first + c] = first + c == j || out[c] == 0;
    return status;
}

static mla_status find_same(search *s, int64_t j) {
    mla_status status = mla_ok();
    for (int i = 0; i < PIECES; i++)
        mla_probe_plant_q(s->probe, MLA_HEAD_DIM_V + i, 1);
    plant_score(s, j, true);
    for (int64_t first = 0; first < s->tokens && status.code == MLA_OK; first += MLA_HEAD_DIM_V) {
        const int64_t left = s->tokens - first;
        status = look(s, j, first, left < MLA_HEAD_DIM_V ? (int)left : MLA_HEAD_DIM_V);
    }
    plant_score(s, j, false);
    for (int i = 0; i < PIECES; i++)
        mla_probe_plant_q(s->probe, MLA_HEAD_DIM_V + i, 0);
    return status;
}

/* ---- splits ------------------------------------------------------------------------------------------------------------------------------ */

/* All tokens of `same`, and all of the splits they were in, become one split, named by its first token. */
static void merge(const search *s, int64_t *split) {
    int64_t name = s->tokens;
    for (int64_t i = 0; i < s->tokens; i++)
        if (s->same[i]) {
            const int64_t known = split[i] < 0 ? i : split[i];
            name = known < name ? known : name;
        }
    for (int64_t i = 0; i < s->tokens; i++)
        if (s->same[i] && split[i] >= 0 && split[i] != name)
            for (int64_t k = 0, old = split[i]; k < s->tokens; k++)
                if (split[k] == old)
                    split[k] = name;
    for (int64_t i = 0; i < s->tokens; i++)
        if (s->same[i])
            split[i] = name;
}

/* Token i's split is named split[i] <= i. */
static mla_status list_splits(const search *s, const int64_t *split, mla_fingerprint *f) {
    int64_t *index = calloc((size_t)s->tokens, sizeof *index);
    f->splits = calloc((size_t)s->tokens, sizeof *f->splits);
    f->tokens = calloc((size_t)s->tokens, sizeof *f->tokens);
    if (!index || !f->splits || !f->tokens) {
        free(index);
        return mla_error(MLA_ENOMEM, "no memory for splits of %lld tokens", (long long)s->tokens);
    }
    for (int64_t i = 0; i < s->tokens; i++) {
        if (split[i] == i) {
            index[i] = f->num_splits;
            f->splits[f->num_splits++] = (mla_drift_split){.begin = f->keys.begin + i};
        }
        mla_drift_split *own = &f->splits[index[split[i]]];
        own->end = f->keys.begin + i + 1;
        own->tokens++;
    }
    int64_t listed = 0;
    for (int k = 0; k < f->num_splits; k++)
        for (int64_t i = 0; i < s->tokens; i++)
            if (index[split[i]] == k)
                f->tokens[listed++] = f->keys.begin + i;
    free(index);
    return mla_ok();
}

static mla_status find_splits(search *s, mla_fingerprint *f) {
    int64_t *split = malloc((size_t)s->tokens * sizeof *split);
    if (!split)
        return mla_error(MLA_ENOMEM, "no memory for splits of %lld tokens", (long long)s->tokens);
    memset(split, 0xFF, (size_t)s->tokens * sizeof *split); /* -1: in no split yet */
    mla_status status = mla_ok();
    for (int64_t j = 0; j < s->tokens && status.code == MLA_OK; j++) {
        if (split[j] >= 0)
            continue;
        status = find_same(s, j);
        if (status.code == MLA_OK)
            merge(s, split);
    }
    if (status.code == MLA_OK)
        status = list_splits(s, split, f);
    free(split);
    return status;
}

/* Positions of a split's tokens. */
typedef struct member_list {
    const int64_t *positions;
    int64_t count;
} member_list;

static member_list longest_split(const mla_fingerprint *f) {
    member_list longest = {f->tokens, 0}, here = longest;
    for (int i = 0; i < f->num_splits; i++, here.positions += here.count) {
        here.count = f->splits[i].tokens;
        longest = here.count > longest.count ? here : longest;
    }
    return longest;
}

/* ---- tile -------------------------------------------------------------------------------------------------------------------------------- */

static bool is_same(const search *s, int64_t position) {
    return s->same[position - s->probe->keys.begin];
}

/* Of the members, the first that is the same as member `of`. */
static mla_status first_same(search *s, const member_list *split, int64_t of, int64_t *first) {
    TRY(find_same(s, split->positions[of] - s->probe->keys.begin));
    for (*first = 0; *first < of && !is_same(s, split->positions[*first]);)
        ++*first;
    return mla_ok();
}

/* From the last token of a split back to where its tile begins, and from the token before that to where the tile before it begins. */
static mla_status tile_before(search *s, const member_list *split, int64_t *tile) {
    int64_t begin = 0, before;
    *tile = 0;
    if (split->count > 1)
        TRY(first_same(s, split, split->count - 1, &begin));
    if (begin == 0)
        return mla_ok();
    TRY(first_same(s, split, begin - 1, &before));
    if (is_same(s, split->positions[split->count - 1]))
        *tile = begin - before;
    return mla_ok();
}

static bool search_make(mla_probe *probe, search *s) {
    *s = (search){.probe = probe, .tokens = probe->keys.end - probe->keys.begin};
    s->same = calloc((size_t)s->tokens, sizeof *s->same);
    return s->same != NULL;
}

static mla_status tile_of_all(search *s, int64_t *tile) {
    int64_t *all = malloc((size_t)s->tokens * sizeof *all);
    if (!all)
        return mla_error(MLA_ENOMEM, "no memory for %lld tokens", (long long)s->tokens);
    for (int64_t i = 0; i < s->tokens; i++)
        all[i] = s->probe->keys.begin + i;
    const mla_status status = tile_before(s, &(member_list){all, s->tokens}, tile);
    free(all);
    return status;
}

/* One sequence, long, in one split: if the kernel cannot do that, its tile stays unknown. */
static mla_status tile_of_long_case(const mla_kernel *kernel, mla_device *device, const mla_case *like, mla_fingerprint *f) {
    char line[160];
    mla_case c = {0};
    mla_probe probe = {0};
    search s = {0};
    snprintf(line, sizeof line, "heads=%d kv_len=%d scale=%s out=%s plan=fixed:1", like->heads, TILE_KEYS, like->scale_text,
             mla_format_get(like->out)->name);
    mla_status status = mla_case_parse(line, &c);
    if (status.code == MLA_OK)
        status = mla_probe_make(kernel, device, &c, 0, &probe);
    if (status.code == MLA_OK && !search_make(&probe, &s))
        status = mla_error(MLA_ENOMEM, "no memory for %lld tokens", (long long)s.tokens);
    if (status.code == MLA_OK)
        status = tile_of_all(&s, &f->tile);
    f->launches += probe.launches;
    free(s.same);
    mla_probe_free(&probe);
    mla_case_free(&c);
    return status.code == MLA_EUNSUPPORTED ? mla_ok() : status;
}

/* ---- all of it --------------------------------------------------------------------------------------------------------------------------- */

static mla_status find_combine(mla_probe *probe, mla_fingerprint *f) {
    int64_t positions[MLA_TREE_LEAVES];
    f->combined = f->num_splits < MLA_TREE_LEAVES ? f->num_splits : MLA_TREE_LEAVES;
    for (int i = 0; i < f->combined; i++)
        positions[i] = f->splits[i].begin;
    return mla_tree_find(probe, positions, f->combined, &f->combine);
}

static mla_status find_sum(mla_probe *probe, mla_fingerprint *f) {
    int64_t positions[MLA_TREE_LEAVES], tokens = f->keys.end - f->keys.begin;
    const int64_t wanted = f->tile > 0 && 2 * f->tile <= MLA_TREE_LEAVES ? 2 * f->tile : SUM_TOKENS;
    f->sum_first = f->keys.begin;
    if (f->weights_rounded) {
        const member_list longest = longest_split(f);
        f->sum_first = longest.positions[0];
        for (tokens = 1; tokens < longest.count && longest.positions[tokens] == f->sum_first + tokens;)
            tokens++;
    }
    f->summed = (int)(tokens < wanted ? tokens : wanted);
    for (int i = 0; i < f->summed; i++)
        positions[i] = f->sum_first + i;
    return mla_tree_find(probe, positions, f->summed, &f->sum);
}

static mla_status take(mla_probe *probe, const mla_case *c, search *s, mla_fingerprint *f) {
    f->keys = probe->keys;
    f->weights_rounded = mla_kernel_contract(probe->kernel, &probe->inputs.problem).p != MLA_FP32;
    if (!search_make(probe, s))
        return mla_error(MLA_ENOMEM, "no memory for %lld tokens", (long long)s->tokens);
    if (f->weights_rounded) {
        TRY(find_splits(s, f));
        const member_list longest = longest_split(f);
        TRY(tile_before(s, &longest, &f->tile));
        if (f->tile == 0)
            TRY(tile_of_long_case(probe->kernel, probe->device, c, f));
        TRY(find_combine(probe, f));
    }
    return find_sum(probe, f);
}

mla_status mla_fingerprint_take(const mla_kernel *kernel, mla_device *device, const mla_case *c, int32_t sequence, mla_fingerprint *f) {
    mla_probe probe;
    search s = {0};
    *f = (mla_fingerprint){0};
    mla_status status = mla_probe_make(kernel, device, c, sequence, &probe);
    if (status.code == MLA_OK)
        status = take(&probe, c, &s, f);
    f->launches += probe.launches;
    free(s.same);
    mla_probe_free(&probe);
    return status;
}

void mla_fingerprint_free(mla_fingerprint *fingerprint) {
    free(fingerprint->splits);
    free(fingerprint->tokens);
    *fingerprint = (mla_fingerprint){0};
}
