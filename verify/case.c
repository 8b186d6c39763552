#include "case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "random.h"

static const char *const family_names[MLA_INPUT_COUNT] = {
    [MLA_INPUT_NORMAL] = "normal",       [MLA_INPUT_UNIFORM] = "uniform", [MLA_INPUT_RISING] = "rising", [MLA_INPUT_FALLING] = "falling",
    [MLA_INPUT_NEGATIVE] = "negative",   [MLA_INPUT_NEEDLE] = "needle",   [MLA_INPUT_PEAKED] = "peaked", [MLA_INPUT_FLAT] = "flat",
    [MLA_INPUT_SUBNORMAL] = "subnormal", [MLA_INPUT_LARGE] = "large",     [MLA_INPUT_CANCEL] = "cancel", [MLA_INPUT_EXACT] = "exact",
};

const char *mla_family_name(mla_family family) {
    return (unsigned)family < MLA_INPUT_COUNT ? family_names[family] : NULL;
}

/* ---- numbers: strict, with nothing before or after ---- */

/* Takes digits from *at. */
static mla_status take_integer(const char **at, uint64_t low, uint64_t high, uint64_t *number) {
    const char *start = *at;
    uint64_t n = 0;
    bool overflow = false;
    for (; **at >= '0' && **at <= '9'; ++*at)
        overflow |= __builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, (uint64_t)(**at - '0'), &n);
    if (*at == start)
        return mla_error(MLA_EINVAL, "expected an integer in %llu .. %llu", (unsigned long long)low, (unsigned long long)high);
    if (overflow || n < low || n > high)
        return mla_error(MLA_EINVAL, "%.*s is not in %llu .. %llu", (int)(*at - start > 40 ? 40 : *at - start), start,
                         (unsigned long long)low, (unsigned long long)high);
    *number = n;
    return mla_ok();
}

static mla_status whole_integer(const char *value, uint64_t low, uint64_t high, uint64_t *number) {
    TRY(take_integer(&value, low, high, number));
    if (*value != '\0')
        return mla_error(MLA_EINVAL, "'%.40s' follows the integer", value);
    return mla_ok();
}

static mla_status whole_int32(const char *value, int32_t low, int32_t *number) {
    uint64_t n = 0;
    TRY(whole_integer(value, (uint64_t)low, INT32_MAX, &n));
    *number = (int32_t)n;
    return mla_ok();
}

/* Decimal only: no blanks, hexadecimal, infinity or NaN. `end` is where the number must end. */
static mla_status decimal(const char *text, const char *end, double *number) {
    char *stop;
    const size_t span = strspn(text, "+-.0123456789eE");
    *number = strtod(text, &stop);
    if (stop == text || stop != end || text + span < end)
        return mla_error(MLA_EINVAL, "expected a decimal number");
    if (!isfinite(*number) || !isfinite((float)*number))
        return mla_error(MLA_EINVAL, "beyond the range of float");
    return mla_ok();
}

static mla_status parse_float(const char *value, float *number) {
    double exact = 0;
    TRY(decimal(value, value + strlen(value), &exact));
    *number = (float)exact;
    return mla_ok();
}

/* As many digits as it takes to parse back to the same float. */
static void print_float(FILE *out, float value) {
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if ((float)strtod(text, NULL) == value)
            break;
    }
    fputs(text, out);
}

/* ---- length lists ---- */

static mla_status take_length(const char **at, mla_length *length) {
    uint64_t low = 0, high = 0, repeat = 1;
    length->random = strncmp(*at, "rand(", 5) == 0;
    if (length->random) {
        *at += 5;
        TRY(take_integer(at, 0, INT32_MAX, &low));
        if (strncmp(*at, "..", 2) != 0)
            return mla_error(MLA_EINVAL, "expected rand(A..B)");
        *at += 2;
        TRY(take_integer(at, low, INT32_MAX, &high));
        if (*(*at)++ != ')')
            return mla_error(MLA_EINVAL, "expected rand(A..B)");
    } else {
        TRY(take_integer(at, 0, INT32_MAX, &low));
        high = low;
    }
    if (**at == '*') {
        ++*at;
        TRY(take_integer(at, 1, MLA_MAX_BATCH, &repeat));
    }
    length->low = (int32_t)low;
    length->high = (int32_t)high;
    length->repeat = (int32_t)repeat;
    return mla_ok();
}

static bool same_length(const mla_length *a, const mla_length *b) {
    return a->low == b->low && a->high == b->high && a->random == b->random;
}

/* Neighbours that are alike become one element, so that a list has one printed form. */
static void append_length(mla_length_list *list, mla_length length) {
    mla_length *last = list->count > 0 ? &list->elements[list->count - 1] : NULL;
    if (last && same_length(last, &length))
        last->repeat += length.repeat;
    else
        list->elements[list->count++] = length;
}

static mla_status parse_lengths(const char *value, mla_length_list *list) {
    size_t commas = 0;
    for (const char *c = value; *c; c++)
        commas += *c == ',';
    list->elements = calloc(commas + 1, sizeof *list->elements);
    if (list->elements == NULL)
        return mla_error(MLA_ENOMEM, "cannot allocate %zu bytes", (commas + 1) * sizeof *list->elements);
    int64_t total = 0;
    for (const char *at = value;; at++) {
        mla_length length = {0};
        TRY(take_length(&at, &length));
        total += length.repeat;
        if (total > MLA_MAX_BATCH)
            return mla_error(MLA_EINVAL, "more than %d lengths", MLA_MAX_BATCH);
        append_length(list, length);
        if (*at == '\0')
            return mla_ok();
        if (*at != ',')
            return mla_error(MLA_EINVAL, "'%.40s' where a comma or the end was expected", at);
    }
}

static void print_lengths(FILE *out, const mla_length_list *list) {
    for (int i = 0; i < list->count; i++) {
        const mla_length *e = &list->elements[i];
        fprintf(out, e->random ? "%srand(%d..%d)" : "%s%d", i > 0 ? "," : "", e->low, e->high);
        if (e->repeat > 1)
            fprintf(out, "*%d", e->repeat);
    }
}

static int32_t list_length(const mla_length_list *list) {
    int32_t total = 0;
    for (int i = 0; i < list->count; i++)
        total += list->elements[i].repeat;
    return total;
}

static bool is_fixed(const mla_length_list *list, int32_t length) {
    return list->count == 1 && list->elements[0].repeat == 1 && !list->elements[0].random && list->elements[0].low == length;
}

/* ---- one parser and one printer a key; a printer prints nothing for the default ---- */

static mla_status parse_heads(const char *value, mla_case *c) {
    uint64_t heads = 0;
    TRY(whole_integer(value, 1, MLA_MAX_HEADS, &heads));
    c->heads = (int32_t)heads;
    return mla_ok();
}
static void print_heads(const mla_case *c, FILE *out) {
    if (c->heads != 16)
        fprintf(out, "%d", c->heads);
}

static mla_status parse_batch(const char *value, mla_case *c) {
    uint64_t batch = 0;
    TRY(whole_integer(value, 1, MLA_MAX_BATCH, &batch));
    c->batch = (int32_t)batch;
    return mla_ok();
}
static void print_batch(const mla_case *c, FILE *out) {
    if (c->batch != 1 && list_length(&c->q_len_list) == 1 && list_length(&c->kv_len_list) == 1)
        fprintf(out, "%d", c->batch);
}

static mla_status parse_q_len(const char *value, mla_case *c) {
    return parse_lengths(value, &c->q_len_list);
}
static void print_q_len(const mla_case *c, FILE *out) {
    if (!is_fixed(&c->q_len_list, 1))
        print_lengths(out, &c->q_len_list);
}

static mla_status parse_kv_len(const char *value, mla_case *c) {
    return parse_lengths(value, &c->kv_len_list);
}
static void print_kv_len(const mla_case *c, FILE *out) {
    if (!is_fixed(&c->kv_len_list, 1024))
        print_lengths(out, &c->kv_len_list);
}

static mla_status parse_q_pad(const char *value, mla_case *c) {
    return whole_int32(value, 0, &c->q_pad);
}
static void print_q_pad(const mla_case *c, FILE *out) {
    if (c->q_pad != 0)
        fprintf(out, "%d", c->q_pad);
}

static mla_status parse_q(const char *value, mla_case *c) {
    const mla_status status = mla_format_parse(value, &c->q);
    if (status.code != MLA_OK || (c->q != MLA_BF16 && c->q != MLA_FP16 && c->q != MLA_FP8 && c->q != MLA_FP8FNUZ))
        return mla_error(MLA_EINVAL, "expected bf16, fp16, fp8 or fp8fnuz");
    return status;
}
static void print_q(const mla_case *c, FILE *out) {
    if (c->q != MLA_BF16)
        fputs(mla_format_get(c->q)->name, out);
}

static mla_status parse_kv(const char *value, mla_case *c) {
    if (mla_kv_format_parse(value, &c->kv).code != MLA_OK)
        return mla_error(MLA_EINVAL, "expected bf16, fp16, fp8, fp8fnuz, fp8b656 or mxfp4");
    return mla_ok();
}
static void print_kv(const mla_case *c, FILE *out) {
    if (c->kv != MLA_KV_BF16)
        fputs(mla_kv_format_get(c->kv)->name, out);
}

static mla_status parse_scale_stride(const char *value, mla_case *c) {
    int32_t stride = 0;
    TRY(whole_int32(value, (int32_t)mla_kv_format_get(MLA_KV_MXFP4)->scale_bytes, &stride));
    c->scale_stride = stride;
    return mla_ok();
}
static void print_scale_stride(const mla_case *c, FILE *out) {
    if (c->scale_stride != (int64_t)mla_kv_format_get(c->kv)->scale_bytes)
        fprintf(out, "%lld", (long long)c->scale_stride);
}

static mla_status parse_page(const char *value, mla_case *c) {
    c->page_size = c->topk = 0;
    if (strcmp(value, "none") == 0) {
        c->paging = MLA_CONTIGUOUS;
    } else if (strcmp(value, "list") == 0) {
        c->paging = MLA_TOKEN_LIST;
    } else if (strncmp(value, "topk:", 5) == 0) {
        c->paging = MLA_SPARSE;
        return whole_int32(value + 5, 1, &c->topk);
    } else if (*value >= '0' && *value <= '9') {
        c->paging = MLA_PAGED;
        return whole_int32(value, 1, &c->page_size);
    } else {
        return mla_error(MLA_EINVAL, "expected none, tokens a page, list or topk:N");
    }
    return mla_ok();
}
static void print_page(const mla_case *c, FILE *out) {
    if (c->paging == MLA_PAGED)
        fprintf(out, "%d", c->page_size);
    else if (c->paging == MLA_TOKEN_LIST)
        fputs("list", out);
    else if (c->paging == MLA_SPARSE)
        fprintf(out, "topk:%d", c->topk);
}

static mla_status parse_spread(const char *value, mla_case *c) {
    c->spread = 0;
    return strcmp(value, "off") == 0 ? mla_ok() : whole_int32(value, 1, &c->spread);
}
static void print_spread(const mla_case *c, FILE *out) {
    if (c->spread > 0)
        fprintf(out, "%d", c->spread);
}

static mla_status parse_causal(const char *value, mla_case *c) {
    if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
        return mla_error(MLA_EINVAL, "expected 0 or 1");
    c->causal = *value == '1';
    return mla_ok();
}
static void print_causal(const mla_case *c, FILE *out) {
    if (c->causal)
        fputs("1", out);
}

static mla_status parse_scale(const char *value, mla_case *c) {
    const size_t length = strlen(value);
    if (length >= sizeof c->scale_text)
        return mla_error(MLA_EINVAL, "longer than %zu characters", sizeof c->scale_text - 1);
    const char *slash = strchr(value, '/');
    double numerator = 0, denominator = 1;
    TRY(decimal(value, slash ? slash : value + length, &numerator));
    if (slash)
        TRY(decimal(slash + 1, value + length, &denominator));
    c->scale = (float)(numerator / denominator);
    if (!isfinite(c->scale) || !(c->scale > 0))
        return mla_error(MLA_EINVAL, "must be finite and > 0 as a float");
    memcpy(c->scale_text, value, length + 1);
    return mla_ok();
}
static void print_scale(const mla_case *c, FILE *out) {
    if (strcmp(c->scale_text, "1/24") != 0)
        fputs(c->scale_text, out);
}

static mla_status parse_softcap(const char *value, mla_case *c) {
    c->softcap = 0;
    if (strcmp(value, "off") == 0)
        return mla_ok();
    TRY(parse_float(value, &c->softcap));
    if (!(c->softcap > 0))
        return mla_error(MLA_EINVAL, "must be > 0, or off");
    return mla_ok();
}
static void print_softcap(const mla_case *c, FILE *out) {
    if (c->softcap > 0)
        print_float(out, c->softcap);
}

static mla_status parse_sink(const char *value, mla_case *c) {
    c->has_sink = strcmp(value, "off") != 0;
    c->sink_random = strcmp(value, "rand") == 0;
    return c->has_sink && !c->sink_random ? parse_float(value, &c->sink) : mla_ok();
}
static void print_sink(const mla_case *c, FILE *out) {
    if (c->sink_random)
        fputs("rand", out);
    else if (c->has_sink)
        print_float(out, c->sink);
}

static mla_status parse_window(const char *value, mla_case *c) {
    c->window = 0;
    return strcmp(value, "off") == 0 ? mla_ok() : whole_int32(value, 1, &c->window);
}
static void print_window(const mla_case *c, FILE *out) {
    if (c->window > 0)
        fprintf(out, "%d", c->window);
}

static mla_status parse_lse(const char *value, mla_case *c) {
    const char *empty = value + 1;
    if ((*value != 'e' && *value != '2') || (*empty != '\0' && strcmp(empty, ",-inf") != 0 && strcmp(empty, ",+inf") != 0))
        return mla_error(MLA_EINVAL, "expected e or 2, then nothing, ',-inf' or ',+inf'");
    c->lse_base = *value == 'e' ? MLA_LSE_E : MLA_LSE_2;
    c->lse_empty_positive = strcmp(empty, ",+inf") == 0;
    return mla_ok();
}
static void print_lse(const mla_case *c, FILE *out) {
    if (c->lse_base != MLA_LSE_E || c->lse_empty_positive)
        fprintf(out, "%c%s", c->lse_base == MLA_LSE_E ? 'e' : '2', c->lse_empty_positive ? ",+inf" : "");
}

static mla_status parse_out(const char *value, mla_case *c) {
    const mla_status status = mla_format_parse(value, &c->out);
    if (status.code != MLA_OK || (c->out != MLA_BF16 && c->out != MLA_FP16 && c->out != MLA_FP32))
        return mla_error(MLA_EINVAL, "expected bf16, fp16 or fp32");
    return status;
}
static void print_out(const mla_case *c, FILE *out) {
    if (c->out != MLA_BF16)
        fputs(mla_format_get(c->out)->name, out);
}

static mla_status parse_input(const char *value, mla_case *c) {
    for (int i = 0; i < MLA_INPUT_COUNT; i++)
        if (strcmp(value, family_names[i]) == 0) {
            c->input = (mla_family)i;
            return mla_ok();
        }
    char names[200] = "";
    for (int i = 0, at = 0; i < MLA_INPUT_COUNT; i++)
        at += snprintf(names + at, sizeof names - (size_t)at, " %s", family_names[i]);
    return mla_error(MLA_EINVAL, "expected one of%s", names);
}
static void print_input(const mla_case *c, FILE *out) {
    if (c->input != MLA_INPUT_NORMAL)
        fputs(family_names[c->input], out);
}

static mla_status parse_plan(const char *value, mla_case *c) {
    c->split_arg = 0;
    if (strcmp(value, "adaptive") == 0)
        c->split_policy = MLA_SPLIT_ADAPTIVE;
    else if (strcmp(value, "balanced") == 0)
        c->split_policy = MLA_SPLIT_BALANCED;
    else if (strncmp(value, "fixed:", 6) == 0 || strncmp(value, "size:", 5) == 0) {
        c->split_policy = *value == 'f' ? MLA_SPLIT_FIXED : MLA_SPLIT_SIZE;
        return whole_int32(strchr(value, ':') + 1, 1, &c->split_arg);
    } else
        return mla_error(MLA_EINVAL, "expected adaptive, fixed:N, balanced or size:N");
    return mla_ok();
}
static void print_plan(const mla_case *c, FILE *out) {
    if (c->split_policy == MLA_SPLIT_BALANCED)
        fputs("balanced", out);
    else if (c->split_policy != MLA_SPLIT_ADAPTIVE)
        fprintf(out, "%s:%d", c->split_policy == MLA_SPLIT_FIXED ? "fixed" : "size", c->split_arg);
}

static mla_status parse_seed(const char *value, mla_case *c) {
    return whole_integer(value, 0, UINT64_MAX, &c->seed);
}
static void print_seed(const mla_case *c, FILE *out) {
    if (c->seed != 0)
        fprintf(out, "%llu", (unsigned long long)c->seed);
}

static const struct {
    const char *name;
    mla_status (*parse)(const char *value, mla_case *c);
    void (*print)(const mla_case *c, FILE *out);
} keys[] = {
    {"heads", parse_heads, print_heads},
    {"batch", parse_batch, print_batch},
    {"q_len", parse_q_len, print_q_len},
    {"kv_len", parse_kv_len, print_kv_len},
    {"q_pad", parse_q_pad, print_q_pad},
    {"q", parse_q, print_q},
    {"kv", parse_kv, print_kv},
    {"scale_stride", parse_scale_stride, print_scale_stride},
    {"page", parse_page, print_page},
    {"spread", parse_spread, print_spread},
    {"causal", parse_causal, print_causal},
    {"scale", parse_scale, print_scale},
    {"softcap", parse_softcap, print_softcap},
    {"sink", parse_sink, print_sink},
    {"window", parse_window, print_window},
    {"lse", parse_lse, print_lse},
    {"out", parse_out, print_out},
    {"input", parse_input, print_input},
    {"plan", parse_plan, print_plan},
    {"seed", parse_seed, print_seed},
};
#define KEY_COUNT ((int)(sizeof keys / sizeof *keys))

/* ---- the whole line ---- */

static int find_key(const char *name) {
    for (int i = 0; i < KEY_COUNT; i++)
        if (strcmp(name, keys[i].name) == 0)
            return i;
    return -1;
}

/* One "key=value"; `seen` has a bit a key. */
static mla_status parse_pair(char *pair, unsigned *seen, mla_case *c) {
    char *equals = strchr(pair, '=');
    if (equals == NULL)
        return mla_error(MLA_EINVAL, "%.60s: expected key=value", pair);
    *equals = '\0';
    const char *value = equals + 1;
    const int key = find_key(pair);
    if (key < 0)
        return mla_error(MLA_EINVAL, "%.60s=%.60s: there is no key '%.60s'", pair, value, pair);
    if (*seen & 1u << key)
        return mla_error(MLA_EINVAL, "%s=%.60s: %s is given twice", pair, value, pair);
    *seen |= 1u << key;
    const mla_status status = keys[key].parse(value, c);
    if (status.code != MLA_OK)
        return mla_error(status.code, "%s=%.60s: %s", pair, value, status.message);
    return status;
}

static mla_status parse_pairs(char *line, mla_case *c) {
    unsigned seen = 0;
    char *rest = NULL;
    for (char *pair = strtok_r(line, " \t", &rest); pair; pair = strtok_r(NULL, " \t", &rest))
        TRY(parse_pair(pair, &seen, c));
    return mla_ok();
}

/* A list of one repeated length says no more than the length and the batch. */
static void shorten(mla_length_list *list) {
    if (list->count == 1)
        list->elements[0].repeat = 1;
}

/* A list of one length goes with any batch. */
static mla_status find_batch(mla_case *c) {
    const int32_t given = c->batch, q_lengths = list_length(&c->q_len_list), kv_lengths = list_length(&c->kv_len_list);
    if (given > 0 && q_lengths != 1 && q_lengths != given)
        return mla_error(MLA_EINVAL, "q_len has %d lengths, but batch is %d", q_lengths, given);
    if (given > 0 && kv_lengths != 1 && kv_lengths != given)
        return mla_error(MLA_EINVAL, "kv_len has %d lengths, but batch is %d", kv_lengths, given);
    if (q_lengths != 1 && kv_lengths != 1 && q_lengths != kv_lengths)
        return mla_error(MLA_EINVAL, "q_len has %d lengths, but kv_len has %d", q_lengths, kv_lengths);
    c->batch = given > 0 ? given : 1;
    c->batch = q_lengths > c->batch ? q_lengths : c->batch;
    c->batch = kv_lengths > c->batch ? kv_lengths : c->batch;
    shorten(&c->q_len_list);
    shorten(&c->kv_len_list);
    return mla_ok();
}

static mla_status expand(const mla_case *c, const mla_length_list *list, mla_stream stream, int32_t **lengths) {
    int32_t *out = calloc((size_t)c->batch, sizeof *out);
    if (out == NULL)
        return mla_error(MLA_ENOMEM, "cannot allocate %zu bytes for the lengths", (size_t)c->batch * sizeof *out);
    int32_t b = 0;
    while (b < c->batch)
        for (int i = 0; i < list->count; i++)
            for (int32_t r = 0; r < list->elements[i].repeat; r++, b++) {
                const mla_length *e = &list->elements[i];
                const uint32_t span = (uint32_t)(e->high - e->low) + 1;
                out[b] = e->low + (int32_t)(e->random ? mla_random_below(c->seed, stream, (uint64_t)b, span) : 0);
            }
    *lengths = out;
    return mla_ok();
}

static mla_status check_total(const char *name, const int32_t *lengths, int32_t batch, int64_t extra) {
    int64_t total = extra;
    for (int32_t b = 0; b < batch; b++)
        total += lengths[b];
    if (total > INT32_MAX)
        return mla_error(MLA_EINVAL, "%s: %lld tokens in all do not fit the int32 of an indptr", name, (long long)total);
    return mla_ok();
}

static mla_status check_exact(const mla_case *c) {
    if (c->softcap > 0)
        return mla_error(MLA_EINVAL, "input=exact needs softcap=off: it would bend the gap between scores");
    if (c->has_sink)
        return mla_error(MLA_EINVAL, "input=exact needs sink=off: its weight is not 0 or 1");
    if (c->paging != MLA_SPARSE && c->window == 0)
        return mla_ok();
    for (int32_t b = 0; b < c->batch; b++)
        if (c->q_len[b] > 64)
            return mla_error(MLA_EINVAL, "input=exact with topk or window needs q_len <= 64, but q_len[%d] is %d", b, c->q_len[b]);
    return mla_ok();
}

/* Slots that the sequences take up: whole pages. */
static int64_t owned_slots(const mla_case *c) {
    const int64_t page = c->paging == MLA_PAGED ? c->page_size : 1;
    int64_t slots = 0;
    for (int32_t b = 0; b < c->batch; b++)
        slots += (c->kv_len[b] + page - 1) / page * page;
    return slots;
}

static mla_status check_spread(const mla_case *c) {
    const int64_t owned = owned_slots(c);
    if (c->spread > 0 && c->spread < owned)
        return mla_error(MLA_EINVAL, "spread=%d: the sequences take up %lld slots", c->spread, (long long)owned);
    return mla_ok();
}

static mla_status check_combination(mla_case *c) {
    if (c->paging == MLA_SPARSE && c->causal)
        return mla_error(MLA_EINVAL, "causal=1 with page=topk:%d: the index lists already say what is visible", c->topk);
    if (c->paging == MLA_SPARSE && c->window > 0)
        return mla_error(MLA_EINVAL, "window=%d with page=topk:%d: the index lists already say what is visible", c->window, c->topk);
    if (c->scale_stride > 0 && c->kv != MLA_KV_MXFP4)
        return mla_error(MLA_EINVAL, "scale_stride=%lld: only kv=mxfp4 has scale rows", (long long)c->scale_stride);
    if (c->kv == MLA_KV_MXFP4 && c->scale_stride == 0)
        c->scale_stride = (int64_t)mla_kv_format_get(c->kv)->scale_bytes;
    TRY(check_total("q_len", c->q_len, c->batch, c->q_pad));
    TRY(check_total("kv_len", c->kv_len, c->batch, 0));
    TRY(check_spread(c));
    return c->input == MLA_INPUT_EXACT ? check_exact(c) : mla_ok();
}

static mla_status finish(mla_case *c) {
    if (c->q_len_list.count == 0)
        TRY(parse_lengths("1", &c->q_len_list));
    if (c->kv_len_list.count == 0)
        TRY(parse_lengths("1024", &c->kv_len_list));
    TRY(find_batch(c));
    TRY(expand(c, &c->q_len_list, MLA_STREAM_Q_LEN, &c->q_len));
    TRY(expand(c, &c->kv_len_list, MLA_STREAM_KV_LEN, &c->kv_len));
    return check_combination(c);
}

mla_status mla_case_parse(const char *line, mla_case *c) {
    *c = (mla_case){.heads = 16, .scale_text = "1/24", .scale = (float)(1.0 / 24.0)};
    char *copy = strdup(line);
    if (copy == NULL)
        return mla_error(MLA_ENOMEM, "cannot allocate %zu bytes", strlen(line) + 1);
    const mla_status status = parse_pairs(copy, c);
    free(copy);
    return status.code == MLA_OK ? finish(c) : status;
}

/* False: out of memory. */
static bool print_pair(const mla_case *c, int key, FILE *out) {
    char *value = NULL;
    size_t size = 0;
    FILE *field = open_memstream(&value, &size);
    if (field == NULL)
        return false;
    keys[key].print(c, field);
    const bool written = fclose(field) == 0;
    if (written && size > 0)
        fprintf(out, "%s%s=%s", ftell(out) > 0 ? " " : "", keys[key].name, value);
    free(value);
    return written;
}

char *mla_case_print(const mla_case *c) {
    char *line = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&line, &size);
    if (out == NULL)
        return NULL;
    bool written = true;
    for (int key = 0; key < KEY_COUNT && written; key++)
        written = print_pair(c, key, out);
    if (fclose(out) == 0 && written)
        return line;
    free(line);
    return NULL;
}

void mla_case_free(mla_case *c) {
    free(c->q_len_list.elements);
    free(c->kv_len_list.elements);
    free(c->q_len);
    free(c->kv_len);
    *c = (mla_case){0};
}
