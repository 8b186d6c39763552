/* A case is one line of text: key=value pairs in any order. Unknown keys are errors; a printed case parses back to itself. */
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
    mla_format q;
    mla_kv_format kv;
    int64_t scale_stride;
    mla_paging paging;
    int32_t page_size, topk;
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

/* Parses one line (no comment, no newline). MLA_EINVAL names key and value. Free with mla_case_free, also after failure. */
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
/* `count` cases drawn over the whole grammar within limits of size (at most 64 Ki KV tokens and 512 rows a case). */
mla_status mla_case_list_random(mla_case_list *list, int count, uint64_t seed) MLA_CHECKED;
void mla_case_list_free(mla_case_list *list);

/* Names of families: "normal" ...; NULL past the end. */
const char *mla_family_name(mla_family family);

#endif
