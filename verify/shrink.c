#include "shrink.h"

#include <stdlib.h>
#include <string.h>

#include "progress.h"

typedef struct shrinking {
    const mla_case *origin;
    mla_shrink_limits limits;
    double begin; /* seconds */
    int tried;
    bool lowered; /* anything, in this pass */
    mla_still_fails fails;
    void *context;
    int32_t heads, batch;      /* the smallest so far */
    int32_t *q_len, *kv_len;   /* [batch] */
    mla_length *q_list, *list; /* [batch], to print them */
} shrinking;

static bool is_spent(const shrinking *s) {
    return s->tried >= s->limits.trials || mla_seconds() - s->begin > s->limits.seconds;
}

static mla_length_list list_of(const int32_t *lengths, int32_t batch, mla_length *elements) {
    for (int32_t b = 0; b < batch; b++)
        elements[b] = (mla_length){.low = lengths[b], .high = lengths[b], .repeat = 1};
    return (mla_length_list){elements, batch};
}

static char *print(const shrinking *s) {
    mla_case c = *s->origin, canonical;
    c.heads = s->heads;
    c.batch = s->batch;
    c.q_len_list = list_of(s->q_len, s->batch, s->q_list);
    c.kv_len_list = list_of(s->kv_len, s->batch, s->list);
    char *written = mla_case_print(&c), *line = NULL;
    if (written && mla_case_parse(written, &canonical).code == MLA_OK)
        line = mla_case_print(&canonical);
    if (written)
        mla_case_free(&canonical);
    free(written);
    return line;
}

/* Does the case as it is now fail? One that is no case does not. */
static bool still_fails(shrinking *s) {
    mla_case candidate;
    char *line = print(s);
    if (!line)
        return false;
    bool fails = mla_case_parse(line, &candidate).code == MLA_OK;
    if (fails) {
        s->tried++;
        fails = s->fails(s->context, &candidate);
    }
    s->lowered |= fails;
    mla_case_free(&candidate);
    free(line);
    return fails;
}

/* To the lowest value from `low` up that fails, as far as bisection finds it. */
static void lower(shrinking *s, int32_t *value, int32_t low) {
    int32_t right = low - 1, wrong = *value; /* the next candidate is `low` itself */
    while (wrong - right > 1 && !is_spent(s)) {
        const int32_t middle = right < low ? low : right + (wrong - right) / 2;
        *value = middle;
        if (still_fails(s))
            wrong = middle;
        else
            right = middle;
    }
    *value = wrong;
}

static void cut(int32_t *lengths, int32_t begin, int32_t end, int32_t batch) {
    memmove(lengths + begin, lengths + end, (size_t)(batch - end) * sizeof *lengths);
}

/* Leaves out `count` sequences from `begin` on, where the case still fails without them. */
static bool leave_out(shrinking *s, int32_t begin, int32_t count) {
    const size_t bytes = (size_t)s->batch * sizeof(int32_t);
    int32_t *kept = malloc(2 * bytes);
    if (!kept)
        return false;
    memcpy(kept, s->q_len, bytes);
    memcpy(kept + s->batch, s->kv_len, bytes);
    cut(s->q_len, begin, begin + count, s->batch);
    cut(s->kv_len, begin, begin + count, s->batch);
    s->batch -= count;
    const bool fails = still_fails(s);
    if (!fails) {
        s->batch += count;
        memcpy(s->q_len, kept, bytes);
        memcpy(s->kv_len, kept + s->batch, bytes);
    }
    free(kept);
    return fails;
}

static void leave_out_sequences(shrinking *s) {
    for (int32_t count = s->batch / 2; count > 0; count /= 2)
        for (int32_t begin = 0; begin + count <= s->batch && count < s->batch && !is_spent(s);)
            if (!leave_out(s, begin, count))
                begin += count;
}

static void lower_all(shrinking *s) {
    leave_out_sequences(s);
    lower(s, &s->heads, 1);
    for (int32_t b = 0; b < s->batch; b++)
        lower(s, &s->kv_len[b], 0);
    for (int32_t b = 0; b < s->batch; b++)
        lower(s, &s->q_len[b], 1);
}

static bool begin(shrinking *s) {
    const size_t batch = (size_t)s->batch;
    s->q_len = malloc(batch * sizeof *s->q_len);
    s->kv_len = malloc(batch * sizeof *s->kv_len);
    s->q_list = malloc(batch * sizeof *s->q_list);
    s->list = malloc(batch * sizeof *s->list);
    if (!s->q_len || !s->kv_len || !s->q_list || !s->list)
        return false;
    memcpy(s->q_len, s->origin->q_len, batch * sizeof *s->q_len);
    memcpy(s->kv_len, s->origin->kv_len, batch * sizeof *s->kv_len);
    return true;
}

char *mla_shrink(const mla_case *test, mla_shrink_limits limits, mla_still_fails fails, void *context) {
    shrinking s = {.origin = test,
                   .limits = limits,
                   .begin = mla_seconds(),
                   .lowered = true,
                   .fails = fails,
                   .context = context,
                   .heads = test->heads,
                   .batch = test->batch};
    const bool good = begin(&s);
    while (good && s.lowered && !is_spent(&s)) {
        s.lowered = false;
        lower_all(&s);
    }
    char *line = good ? print(&s) : NULL;
    free(s.q_len);
    free(s.kv_len);
    free(s.q_list);
    free(s.list);
    return line;
}
