#include "contract_line.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "contract_preset.h"

typedef enum kind { FORMAT, CHOICE, COUNT, NUMBER } kind;

/* `no` and `yes` are the words of a CHOICE: of false and true, or of the enumerators 0 and 1. `bytes` is the member's size. */
typedef struct field {
    const char *name;
    kind kind;
    size_t offset, bytes;
    const char *no, *yes;
} field;

#define MEMBER(member) offsetof(mla_contract, member), sizeof(((mla_contract *)0)->member)

static const field fields[] = {
    {"acc_rounding", CHOICE, MEMBER(acc_rounding), "rne", "rz"},
    {"acc_bits", COUNT, MEMBER(acc_bits), NULL, NULL},
    {"mma_k", COUNT, MEMBER(mma_k), NULL, NULL},
    {"scores", FORMAT, MEMBER(scores), NULL, NULL},
    {"n_scores", COUNT, MEMBER(n_scores), NULL, NULL},
    {"q_scaled", FORMAT, MEMBER(q_scaled), NULL, NULL},
    {"kv_dequant", FORMAT, MEMBER(kv_dequant), NULL, NULL},
    {"p", FORMAT, MEMBER(p), NULL, NULL},
    {"p_rounding", CHOICE, MEMBER(p_rounding), "rne", "rz"},
    {"p_scale", NUMBER, MEMBER(p_scale), NULL, NULL},
    {"rowsum", CHOICE, MEMBER(rowsum_of_rounded_p), "fp32", "p"},
    {"partial", FORMAT, MEMBER(partial), NULL, NULL},
    {"combine", CHOICE, MEMBER(combine_lse), "ml", "lse"},
    {"exp_error", NUMBER, MEMBER(exp_error), NULL, NULL},
    {"tanh_error", NUMBER, MEMBER(tanh_error), NULL, NULL},
    {"log_error", NUMBER, MEMBER(log_error), NULL, NULL},
    {"max", CHOICE, MEMBER(lazy_max), "exact", "lazy"},
    {"ftz", CHOICE, MEMBER(ftz), "0", "1"},
    {"out_rounding", CHOICE, MEMBER(out_rounding), "rne", "rz"},
    {"tile", COUNT, MEMBER(tile), NULL, NULL},
    {"max_splits", COUNT, MEMBER(max_splits), NULL, NULL},
};
#define FIELDS ((int)(sizeof fields / sizeof *fields))

/* ---- parsing ------------------------------------------------------------------------------------------------------------------------ */

static mla_status parse_format(const char *value, void *member) {
    mla_format format = MLA_NONE;
    if (strcmp(value, "none") != 0)
        TRY(mla_format_parse(value, &format));
    memcpy(member, &format, sizeof format);
    return mla_ok();
}

/* A bool, or an enumeration whose first two enumerators are the words. */
static mla_status parse_choice(const field *f, const char *value, void *member) {
    const bool yes = strcmp(value, f->yes) == 0;
    const unsigned enumerator = yes;
    if (!yes && strcmp(value, f->no) != 0)
        return mla_error(MLA_EINVAL, "expected %s or %s", f->no, f->yes);
    if (f->bytes == sizeof yes)
        memcpy(member, &yes, sizeof yes);
    else
        memcpy(member, &enumerator, sizeof enumerator);
    return mla_ok();
}

static mla_status parse_count(const char *value, void *member) {
    char *end;
    const long count = strspn(value, "0123456789") == strlen(value) ? strtol(value, &end, 10) : LONG_MAX;
    if (*value == '\0' || count > INT_MAX)
        return mla_error(MLA_EINVAL, "expected an integer in 0 .. %d", INT_MAX);
    const int narrow = (int)count;
    memcpy(member, &narrow, sizeof narrow);
    return mla_ok();
}

static mla_status parse_number(const char *value, void *member) {
    char *end;
    const double number = strtod(value, &end);
    if (end == value || *end || strspn(value, "+-.0123456789eE") != strlen(value) || !isfinite(number))
        return mla_error(MLA_EINVAL, "expected a decimal number");
    memcpy(member, &number, sizeof number);
    return mla_ok();
}

static mla_status parse_field(const field *f, const char *value, mla_contract *contract) {
    void *member = (uint8_t *)contract + f->offset;
    switch (f->kind) {
    case FORMAT:
        return parse_format(value, member);
    case CHOICE:
        return parse_choice(f, value, member);
    case COUNT:
        return parse_count(value, member);
    default:
        return parse_number(value, member);
    }
}

static int find_field(const char *name) {
    for (int i = 0; i < FIELDS; i++)
        if (strcmp(name, fields[i].name) == 0)
            return i;
    return -1;
}

/* One "key=value"; `seen` has a bit a field. */
static mla_status parse_pair(char *pair, unsigned *seen, mla_contract *contract) {
    char *equals = strchr(pair, '=');
    if (!equals)
        return mla_error(MLA_EINVAL, "contract: %.60s: expected key=value", pair);
    *equals = '\0';
    const int i = find_field(pair);
    if (i < 0)
        return mla_error(MLA_EINVAL, "contract: there is no key '%.60s'", pair);
    if (*seen & 1u << i)
        return mla_error(MLA_EINVAL, "contract: %s is given twice", pair);
    *seen |= 1u << i;
    const mla_status status = parse_field(&fields[i], equals + 1, contract);
    return status.code == MLA_OK ? status : mla_error(status.code, "contract: %s=%.60s: %s", pair, equals + 1, status.message);
}

static mla_status parse_pairs(char *line, mla_contract *contract) {
    unsigned seen = 0;
    char *rest = NULL;
    for (char *pair = strtok_r(line, " \t", &rest); pair; pair = strtok_r(NULL, " \t", &rest))
        TRY(parse_pair(pair, &seen, contract));
    return mla_contract_check(contract);
}

static mla_status no_preset(const char *name, int length) {
    char names[120] = "";
    for (const mla_contract_preset *preset = mla_contract_presets; preset->name; preset++) {
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", preset->name);
    }
    return mla_error(MLA_EINVAL, "contract: '%.*s' is neither key=value nor a preset (%s)", length < 60 ? length : 60, name, names);
}

/* A leading word without '=' is a preset: the contract starts as it says. *line moves behind it. */
static mla_status parse_preset(const char **line, mla_contract *contract) {
    const char *word = *line + strspn(*line, " \t");
    const int length = (int)strcspn(word, " \t");
    if (length == 0 || memchr(word, '=', (size_t)length))
        return mla_ok();
    const char *preset = mla_contract_preset_line(word, length);
    *line = word + length;
    return preset ? mla_contract_parse(preset, contract) : no_preset(word, length);
}

mla_status mla_contract_parse(const char *line, mla_contract *contract) {
    *contract = mla_contract_default();
    TRY(parse_preset(&line, contract));
    char *copy = strdup(line);
    if (!copy)
        return mla_error(MLA_ENOMEM, "no memory for a contract");
    const mla_status status = parse_pairs(copy, contract);
    free(copy);
    return status;
}

/* ---- printing ----------------------------------------------------------------------------------------------------------------------- */

static void print_field(FILE *out, const field *f, const mla_contract *contract) {
    const void *member = (const uint8_t *)contract + f->offset;
    mla_format format;
    unsigned word = 0;
    int count;
    double number;
    switch (f->kind) {
    case FORMAT:
        memcpy(&format, member, sizeof format);
        fprintf(out, "%s=%s", f->name, format == MLA_NONE ? "none" : mla_format_get(format)->name);
        break;
    case CHOICE: /* little-endian: the first byte tells 0 from 1 */
        memcpy(&word, member, 1);
        fprintf(out, "%s=%s", f->name, word ? f->yes : f->no);
        break;
    case COUNT:
        memcpy(&count, member, sizeof count);
        fprintf(out, "%s=%d", f->name, count);
        break;
    default:
        memcpy(&number, member, sizeof number);
        fprintf(out, "%s=%.17g", f->name, number);
        break;
    }
}

char *mla_contract_print(const mla_contract *contract) {
    char *line = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&line, &size);
    if (!out)
        return NULL;
    for (int i = 0; i < FIELDS; i++) {
        fputs(i > 0 ? " " : "", out);
        print_field(out, &fields[i], contract);
    }
    if (fclose(out) == 0)
        return line;
    free(line);
    return NULL;
}
