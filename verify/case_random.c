/*
 * Cases drawn over the whole grammar. Each is written as a line and parsed, so it is a case anybody could have typed. No expression draws twice:
 * the order of the draws must not be the compiler's.
 */
#include <stdarg.h>
#include <string.h>

#include "case.h"
#include "random.h"

#define KV_TOKENS 65536 /* most a case */
#define ROWS 512        /* most a case */

/* The line so far, and the draws of one case. */
typedef struct mla_draft {
    uint64_t seed, next;
    char line[1024];
    size_t length;
} mla_draft;

static int32_t below(mla_draft *d, int32_t n) {
    return (int32_t)mla_random_below(d->seed, MLA_STREAM_CASES, d->next++, (uint32_t)n);
}
static int32_t between(mla_draft *d, int32_t low, int32_t high) {
    return low + below(d, high - low + 1);
}
static bool one_in(mla_draft *d, int32_t n) {
    return below(d, n) == 0;
}

static void put(mla_draft *d, const char *format, ...) MLA_PRINTF(2, 3);
static void put(mla_draft *d, const char *format, ...) {
    va_list args;
    va_start(args, format);
    d->length += (size_t)vsnprintf(d->line + d->length, sizeof d->line - d->length, format, args);
    va_end(args);
}

#define PICK(d, ...) pick((d), (const char *const[]){__VA_ARGS__}, (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)))
static const char *pick(mla_draft *d, const char *const *choices, int count) {
    return choices[below(d, count)];
}

/* As many small numbers as large ones, and often next to a tile's edge. 0 .. high. */
static int32_t draw_length(mla_draft *d, int32_t high) {
    int bits = 0;
    while (bits < 31 && (high >> bits) > 0)
        bits++;
    const int32_t scale = INT32_C(1) << below(d, bits + 1);
    const int32_t length = one_in(d, 2) ? scale + between(d, -1, 1) : below(d, scale);
    return length < 0 ? 0 : length > high ? high : length;
}

/* Elements of a list for `batch` sequences, in low .. high; one in the middle is at least `some`. */
static void write_lengths(mla_draft *d, const char *key, int32_t batch, int32_t low, int32_t some, int32_t high) {
    put(d, " %s=", key);
    if (batch > 1 && one_in(d, 4)) {
        put(d, "rand(%d..%d)*%d", low, high, batch);
        return;
    }
    for (int32_t b = 0; b < batch; b++) {
        const int32_t length = draw_length(d, high), least = b == batch / 2 ? some : low;
        put(d, "%s%d", b > 0 ? "," : "", length < least ? least : length);
    }
}

static void write_shape(mla_draft *d) {
    static const int32_t heads_of[] = {1, 2, 3, 8, 16, 16, 16, 17, 32, 64, 100, 128, 512};
    const int32_t heads = heads_of[below(d, (int32_t)(sizeof heads_of / sizeof *heads_of))];
    const int32_t q_tokens = ROWS / heads;
    const int32_t batch = between(d, 1, q_tokens < 8 ? q_tokens : 8);
    const int32_t q_high = q_tokens / batch < 8 ? q_tokens / batch : 8;
    const int32_t kv_high = KV_TOKENS / batch;
    const int32_t spare = q_tokens - batch * q_high;
    put(d, "heads=%d", heads);
    if (one_in(d, 3)) {
        put(d, " batch=%d q_len=%d", batch, between(d, 1, q_high));
        put(d, " kv_len=%d", draw_length(d, kv_high));
    } else {
        write_lengths(d, "q_len", batch, one_in(d, 4) ? 0 : 1, 1, q_high);
        write_lengths(d, "kv_len", batch, 0, 0, one_in(d, 2) ? kv_high : draw_length(d, kv_high));
    }
    if (spare > 0 && one_in(d, 5))
        put(d, " q_pad=%d", between(d, 1, spare < 4 ? spare : 4));
}

static void write_formats(mla_draft *d) {
    const char *kv = PICK(d, "bf16", "bf16", "fp16", "fp8", "fp8fnuz", "fp8b656", "mxfp4");
    put(d, " kv=%s q=%s", kv, PICK(d, "bf16", "bf16", "fp16", "fp8", "fp8fnuz"));
    put(d, " out=%s", PICK(d, "bf16", "bf16", "fp16", "fp32"));
    if (strcmp(kv, "mxfp4") == 0 && one_in(d, 2))
        put(d, " scale_stride=%d", between(d, 18, 40));
}

/* True when the layout is sparse. */
static bool write_layout(mla_draft *d) {
    switch (below(d, 6)) {
    case 0:
    case 1:
        put(d, " page=%s", PICK(d, "1", "4", "16", "64", "33", "256"));
        return false;
    case 2:
        put(d, " page=list");
        return false;
    case 3:
        put(d, " page=topk:%d", 1 + draw_length(d, 2047));
        return true;
    default:
        return false;
    }
}

/* More slots than any case takes up: KV_TOKENS, and the rest of a last page of 256 for each of 8 sequences. */
static void write_spread(mla_draft *d) {
    if (one_in(d, 12))
        put(d, " spread=%d", between(d, KV_TOKENS + 8 * 256, 3 * KV_TOKENS));
}

static void write_scores(mla_draft *d, bool sparse, bool exact) {
    if (!sparse && one_in(d, 2))
        put(d, " causal=1");
    if (!sparse && one_in(d, 5))
        put(d, " window=%d", 1 + draw_length(d, 4095));
    if (one_in(d, 3))
        put(d, " scale=%s", PICK(d, "0.07216878364870322", "0.1352", "1/32", "0.02"));
    if (!exact && one_in(d, 6))
        put(d, " softcap=%s", PICK(d, "50", "30", "8.5"));
    if (!exact && one_in(d, 5))
        put(d, " sink=%s", PICK(d, "rand", "0", "-3.25", "5"));
}

static void write_plan(mla_draft *d) {
    switch (below(d, 6)) {
    case 0:
        put(d, " plan=fixed:%d", 1 + draw_length(d, 63));
        break;
    case 1:
        put(d, " plan=size:%d", 1 + draw_length(d, 1023));
        break;
    case 2:
        put(d, " plan=balanced");
        break;
    default:
        break;
    }
}

mla_status mla_case_list_random(mla_case_list *list, int count, uint64_t seed) {
    for (int i = 0; i < count; i++) {
        mla_draft d = {.seed = seed, .next = (uint64_t)i << 16};
        const mla_family family = one_in(&d, 3) ? MLA_INPUT_NORMAL : (mla_family)below(&d, MLA_INPUT_COUNT);
        write_shape(&d);
        write_formats(&d);
        const bool sparse = write_layout(&d);
        write_spread(&d);
        write_scores(&d, sparse, family == MLA_INPUT_EXACT);
        put(&d, " lse=%s input=%s", PICK(&d, "e", "2", "e,+inf", "2,+inf"), mla_family_name(family));
        write_plan(&d);
        put(&d, " seed=%d", below(&d, 1000000));
        const mla_status status = mla_case_list_add(list, d.line);
        if (status.code != MLA_OK)
            return status;
    }
    return mla_ok();
}
