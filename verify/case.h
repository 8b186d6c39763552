/*
 * A case is one line of text: key=value pairs in any order. Unknown or repeated keys are errors; a printed case parses back to itself.
 *
 *   heads         1..1024                                                             16
 *   batch         1..4194304; left out when a length list has more than one element   1
 *   q_len         N, rand(A..B), each with *REPEAT, in comma-separated lists          1
 *   kv_len        as q_len; one element serves the whole batch                        1024
 *   q_pad         rows at the end of q and out that belong to no sequence             0
 *   q             bf16 fp16 fp8 fp8fnuz                                               bf16
 *   kv            bf16 fp16 fp8 fp8fnuz fp8b656 mxfp4                                 bf16
 *   scale_stride  bytes between mxfp4 scale rows, at least 18                         18
 *   page          none, N tokens a page, list (token list), topk:N (sparse)           none
 *   spread        off, N: the cache has N token slots, and memory only near used ones off
 *   causal        0 1                                                                 0
 *   scale         float > 0, or a fraction A/B: in double, then rounded to float      1/24
 *   softcap       off, float > 0                                                      off
 *   sink          off, float, rand                                                    off
 *   window        off, tokens                                                         off
 *   lse           e 2, then ,-inf or ,+inf for the empty row                          e,-inf
 *   out           bf16 fp16 fp32                                                      bf16
 *   input         a family below                                                      normal
 *   plan          adaptive, fixed:N, balanced, size:N                                 adaptive
 *   seed          64 bits                                                             0
 */
#ifndef MLA_CASE_H
#define MLA_CASE_H

#include <stdio.h>

#include "../ref/mla.h"

typedef enum mla_family {
    MLA_INPUT_NORMAL,
    MLA_INPUT_UNIFORM,
    MLA_INPUT_RISING,
    MLA_INPUT_FALLING,
    MLA_INPUT_NEGATIVE,
    MLA_INPUT_NEEDLE,
    MLA_INPUT_PEAKED,
    MLA_INPUT_FLAT,
    MLA_INPUT_SUBNORMAL,
    MLA_INPUT_LARGE,
    MLA_INPUT_CANCEL,
    MLA_INPUT_EXACT,
    MLA_INPUT_COUNT
} mla_family;

#define MLA_MAX_BATCH 4194304

/* One element of a length list: `repeat` times a fixed length (low == high) or one drawn from [low, high] by the seed. */
typedef struct mla_length {
    int32_t low, high, repeat;
    bool random; /* written as rand(low..high) */
} mla_length;

typedef struct mla_length_list {
    mla_length *elements;
    int count;
} mla_length_list;

typedef struct mla_case {
    int32_t heads;
    int32_t batch; /* sequences, after the lists are taken into account */
    mla_length_list q_len_list, kv_len_list;
    int32_t *q_len, *kv_len; /* [batch], expanded: rand() drawn from the seed */
    int32_t q_pad;
    mla_format q;
    mla_kv_format kv;
    int64_t scale_stride; /* 18 or more for mxfp4, otherwise 0 */
    mla_paging paging;
    int32_t page_size, topk;
    int32_t spread; /* slots of the cache; 0: off */
    bool causal;
    char scale_text[32]; /* as written: "1/24" */
    float scale;
    float softcap; /* 0: off */
    bool has_sink, sink_random;
    float sink;
    int32_t window; /* 0: off */
    mla_lse_base lse_base;
    bool lse_empty_positive;
    mla_format out;
    mla_family input;
    mla_split_policy split_policy;
    int32_t split_arg;
    uint64_t seed;
} mla_case;

/*
 * Parses one line (no comment, no newline). MLA_EINVAL names key and value: also for combinations no problem can have, and for totals of query
 * or KV tokens beyond int32. Free with mla_case_free, also after failure.
 */
mla_status mla_case_parse(const char *line, mla_case *c) MLA_CHECKED;
/* The canonical line: all keys that differ from the defaults, in the table's order. Allocated; free(). NULL: out of memory. */
char *mla_case_print(const mla_case *c);
void mla_case_free(mla_case *c);

typedef struct mla_case_list {
    mla_case *cases;
    int count, capacity;
} mla_case_list;

/* Appends to the list, which starts zeroed. Errors of a file name file and line. Lines: cases, blank, or # comments. */
mla_status mla_case_list_add(mla_case_list *list, const char *line) MLA_CHECKED;
mla_status mla_case_list_read(mla_case_list *list, const char *path) MLA_CHECKED;
/* Appends `count` cases, the i-th a function of (seed, i) alone, drawn over the whole grammar within limits of size (at most 64 Ki KV tokens and 512 rows a case). */
mla_status mla_case_list_random(mla_case_list *list, int count, uint64_t seed) MLA_CHECKED;
void mla_case_list_free(mla_case_list *list);

/* Names of families: "normal" ...; NULL past the end. */
const char *mla_family_name(mla_family family);

#endif
