/* mla-verify drift order: prints a kernel's fingerprint. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "drift.h"
#include "drift_model.h"

static const mla_drift_help help = {
    .usage = "Finds a kernel's splits, its tile and the order of its sums from outside: nothing but launches and outputs.\n"
             "\n"
             "usage: mla-verify drift order --kernel KERNEL [--case LINE] [OPTION...]\n"
             "\n",
    .own = "  --sequence N     the sequence that is probed, at its last query token and first head (default 0)\n",
    .exits = "\n"
             "One kernel and one case (default: heads=16 kv_len=1024) in bf16; the case's values do not matter, its shapes and plan do.\n"
             "Splits and tile show when P is rounded. Sums show up to 128 terms: +M at one, -M at another, ones elsewhere; what meets\n"
             "M before M meets -M is lost. Of our own kernels the plan is known, and what was found is compared with it.\n"
             "\n"
             "exit: 0 found   1 the kernel failed, or does not what it planned   2 bad usage or input   3 it cannot run here, or cannot do "
             "the case\n"};

#define MOST_RANGES 24 /* of tokens in a line */

typedef struct order_run {
    mla_selection selection;
    int32_t sequence;
} order_run;

/* A sum as a running one that groups of terms join. */
typedef struct chain {
    int group[MLA_TREE_LEAVES], groups, leaves;
    bool is_chain, apart;
    int size;      /* terms of every group but the last, which may have fewer, and of a first pair; 0: they differ */
    bool in_order; /* terms join in the order of their index */
    int order[MLA_TREE_LEAVES];
} chain;

/* ---- chains ---------------------------------------------------------------------------------------------------------------------------- */

static int size_of_group(const chain *c, int group) {
    int size = 0;
    for (int i = 0; i < c->leaves; i++)
        size += c->group[i] == group;
    return size;
}

/* Two terms have no first: a sum that begins with a pair and goes on with single terms goes one by one. */
static int common_size(const chain *c) {
    const int first = size_of_group(c, 0), second = c->groups > 1 ? size_of_group(c, 1) : 0;
    const int size = first == 2 && second <= 1 ? 1 : first;
    for (int g = 1; g < c->groups; g++) {
        const int here = size_of_group(c, g);
        if (here != size && !(g == c->groups - 1 && here < size))
            return 0;
    }
    return size;
}

static chain chain_of(const mla_tree *tree, int leaves) {
    chain c = {.leaves = leaves};
    c.is_chain = !tree->inexact && mla_tree_is_chain(tree, c.group, &c.groups, &c.apart);
    if (!c.is_chain)
        return c;
    int n = 0;
    for (int g = 0; g < c.groups; g++)
        for (int i = 0; i < leaves; i++)
            if (c.group[i] == g)
                c.order[n++] = i;
    c.in_order = true;
    for (int i = 0; i < leaves; i++)
        c.in_order &= c.order[i] == i;
    c.size = common_size(&c);
    return c;
}

/* ---- our own kernels -------------------------------------------------------------------------------------------------------------------- */

typedef enum planned { PLAN_UNKNOWN, AS_PLANNED, NOT_AS_PLANNED } planned;

static bool has_splits(const mla_fingerprint *f, const mla_range *ranges, int64_t count) {
    bool same = count == f->num_splits;
    for (int i = 0; i < f->num_splits && same; i++) {
        const int64_t begin = ranges[i].begin > f->keys.begin ? ranges[i].begin : f->keys.begin;
        same = f->splits[i].begin == begin && f->splits[i].end == ranges[i].end && f->splits[i].tokens == ranges[i].end - begin;
    }
    return same;
}

/* Are splits and tile of the probed row those of the plan, and are partials merged one by one, in order? */
static mla_status compare_with_plan(const mla_subject *subject, const mla_case *c, int32_t sequence, const mla_fingerprint *f,
                                    planned *found) {
    const mla_kernel *kernel = subject->handle.kernel;
    mla_inputs inputs = {0};
    mla_drift_splits splits = {0};
    *found = PLAN_UNKNOWN;
    if (!mla_drift_knows(kernel) || !f->weights_rounded)
        return mla_ok();
    mla_status status = mla_inputs_make(c, &inputs);
    if (status.code == MLA_OK)
        status = mla_drift_splits_make(kernel, subject->handle.device, &inputs.problem, &splits);
    if (status.code == MLA_OK) {
        const int64_t row = ((int64_t)inputs.problem.qo_indptr[sequence + 1] - 1) * inputs.problem.heads, first = splits.first[row];
        const chain combine = chain_of(&f->combine, f->combined);
        const bool in_order = f->combined < 2 || (combine.is_chain && combine.in_order && combine.size == 1);
        const bool same = has_splits(f, splits.ranges + first, splits.first[row + 1] - first);
        *found = same && in_order && f->tile == mla_drift_model(kernel, &inputs.problem).tile ? AS_PLANNED : NOT_AS_PLANNED;
    }
    mla_drift_splits_free(&splits);
    mla_inputs_free(&inputs);
    return status;
}

/* ---- text ------------------------------------------------------------------------------------------------------------------------------ */

static void print_ranges(FILE *text, const int *order, int count, int64_t first) {
    int printed = 0;
    for (int i = 0; i < count; printed++) {
        int end = i + 1;
        while (end < count && order[end] == order[end - 1] + 1)
            end++;
        if (printed == MOST_RANGES) {
            fprintf(text, " ...");
            return;
        }
        fprintf(text, " %" PRId64, first + order[i]);
        if (end > i + 1)
            fprintf(text, "-%" PRId64, first + order[end - 1]);
        i = end;
    }
}

static void print_tree(FILE *text, const mla_tree *tree, int node, int64_t first) {
    if (tree->nodes[node].leaf >= 0) {
        fprintf(text, "%" PRId64, first + tree->nodes[node].leaf);
        return;
    }
    fputc('(', text);
    for (int c = tree->nodes[node].first_child; c >= 0; c = tree->nodes[c].sibling) {
        print_tree(text, tree, c, first);
        if (tree->nodes[c].sibling >= 0)
            fputc(' ', text);
    }
    fputc(')', text);
}

static void print_sum(FILE *text, const mla_tree *tree, int leaves, int64_t first) {
    const chain c = chain_of(tree, leaves);
    if (tree->inexact) {
        fprintf(text, "does not show: partial sums are scaled before they meet");
    } else if (!c.is_chain) {
        print_tree(text, tree, tree->root, first);
    } else if (c.size == 0) {
        fprintf(text, "%d groups, the first of %d:", c.groups, size_of_group(&c, 0));
        print_ranges(text, c.order, leaves, first);
    } else {
        if (c.size == 1)
            fprintf(text, "one by one");
        else
            fprintf(text, "%d at once%s", c.size, c.apart ? ", to each other before the sum" : "");
        fprintf(text, c.in_order ? ", in order" : ":");
        if (!c.in_order)
            print_ranges(text, c.order, leaves, first);
    }
}

static bool splits_are_alike(const mla_fingerprint *f) {
    for (int i = 0; i < f->num_splits; i++) {
        const mla_drift_split *s = &f->splits[i];
        if (s->tokens != s->end - s->begin ||
            (s->tokens != f->splits[0].tokens && (i + 1 < f->num_splits || s->tokens > f->splits[0].tokens)))
            return false;
    }
    return true;
}

static void print_splits(FILE *text, const mla_fingerprint *f) {
    fprintf(text, "%d", f->num_splits);
    if (splits_are_alike(f)) {
        fprintf(text, " of %" PRId64 " tokens", f->splits[0].tokens);
        if (f->splits[f->num_splits - 1].tokens != f->splits[0].tokens)
            fprintf(text, ", the last of %" PRId64, f->splits[f->num_splits - 1].tokens);
        return;
    }
    fputc(':', text);
    for (int i = 0; i < f->num_splits && i < MOST_RANGES; i++) {
        const mla_drift_split *s = &f->splits[i];
        fprintf(text, " %" PRId64 "-%" PRId64, s->begin, s->end - 1);
        if (s->tokens != s->end - s->begin)
            fprintf(text, " (%" PRId64 " of them)", s->tokens);
    }
    fprintf(text, f->num_splits > MOST_RANGES ? " ..." : "");
}

static void print_fingerprint(FILE *text, const mla_fingerprint *f, planned plan, const char *kernel, const char *line) {
    const char *hidden = "does not show: P is not rounded";
    fprintf(text, "%s  %s\n", kernel, *line ? line : "(all defaults)");
    fprintf(text, "    keys     %" PRId64 "-%" PRId64 ", found in %" PRId64 " launches\n    splits   ", f->keys.begin, f->keys.end - 1,
            f->launches);
    if (f->weights_rounded)
        print_splits(text, f);
    else
        fprintf(text, "%s", hidden);
    if (f->tile > 0)
        fprintf(text, "\n    tile     %" PRId64 " tokens\n", f->tile);
    else
        fprintf(text, "\n    tile     %s\n", f->weights_rounded ? "does not show: no split holds two" : hidden);
    if (f->combined > 1) {
        fprintf(text, "    combine  ");
        print_sum(text, &f->combine, f->combined, 0);
        fprintf(text, f->combined < f->num_splits ? " (the first %d splits)\n" : "\n", f->combined);
    }
    fprintf(text, "    sum      ");
    print_sum(text, &f->sum, f->summed, f->sum_first);
    fprintf(text, " (tokens %" PRId64 "-%" PRId64 ")\n", f->sum_first, f->sum_first + f->summed - 1);
    if (plan != PLAN_UNKNOWN)
        fprintf(text, "    plan     %s\n", plan == AS_PLANNED ? "the same splits, tile and combine" : "OTHER splits, tile or combine");
}

/* ---- JSON: each NULL when out of memory ------------------------------------------------------------------------------------------------ */

static cJSON *json_of_groups(const chain *c, int64_t first) {
    cJSON *groups = cJSON_CreateArray();
    for (int g = 0; g < c->groups; g++) {
        cJSON *group = cJSON_CreateArray();
        for (int i = 0; i < c->leaves; i++)
            if (c->group[i] == g)
                cJSON_AddItemToArray(group, cJSON_CreateNumber((double)(first + i)));
        cJSON_AddItemToArray(groups, group);
    }
    return groups;
}

static cJSON *json_of_tree(const mla_tree *tree, int node, int64_t first) {
    if (tree->nodes[node].leaf >= 0)
        return cJSON_CreateNumber((double)(first + tree->nodes[node].leaf));
    cJSON *children = cJSON_CreateArray();
    for (int c = tree->nodes[node].first_child; c >= 0; c = tree->nodes[c].sibling)
        cJSON_AddItemToArray(children, json_of_tree(tree, c, first));
    return children;
}

/* "sequence"; the groups in the order in which they join a running sum; {"tree": nested lists}; null where it does not show. */
static cJSON *json_of_sum(const mla_tree *tree, int leaves, int64_t first) {
    if (tree->inexact || leaves == 0)
        return cJSON_CreateNull();
    const chain c = chain_of(tree, leaves);
    if (c.is_chain)
        return c.size == 1 && c.in_order ? cJSON_CreateString("sequence") : json_of_groups(&c, first);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddItemToObject(object, "tree", json_of_tree(tree, tree->root, first));
    return object;
}

static cJSON *json_of_splits(const mla_fingerprint *f) {
    if (!f->weights_rounded)
        return cJSON_CreateNull();
    cJSON *splits = cJSON_CreateArray();
    for (int i = 0; i < f->num_splits; i++) {
        cJSON *split = cJSON_CreateObject();
        cJSON_AddNumberToObject(split, "begin", (double)f->splits[i].begin);
        cJSON_AddNumberToObject(split, "end", (double)f->splits[i].end);
        if (f->splits[i].tokens != f->splits[i].end - f->splits[i].begin)
            cJSON_AddNumberToObject(split, "tokens", (double)f->splits[i].tokens);
        cJSON_AddItemToArray(splits, split);
    }
    return splits;
}

static cJSON *json_of(const mla_fingerprint *f, planned plan, const char *kernel, const char *line) {
    cJSON *o = cJSON_CreateObject(), *sum = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "kernel", kernel);
    cJSON_AddStringToObject(o, "case", line);
    cJSON_AddItemToObject(o, "tile", f->tile > 0 ? cJSON_CreateNumber((double)f->tile) : cJSON_CreateNull());
    cJSON_AddItemToObject(o, "splits", json_of_splits(f));
    cJSON_AddItemToObject(o, "combine", f->num_splits == 1 ? cJSON_CreateString("none") : json_of_sum(&f->combine, f->combined, 0));
    cJSON_AddNumberToObject(sum, "begin", (double)f->sum_first);
    cJSON_AddNumberToObject(sum, "end", (double)(f->sum_first + f->summed));
    cJSON_AddItemToObject(sum, "order", json_of_sum(&f->sum, f->summed, f->sum_first));
    cJSON_AddItemToObject(o, "sum", sum);
    cJSON_AddItemToObject(o, "as_planned", plan == PLAN_UNKNOWN ? cJSON_CreateNull() : cJSON_CreateBool(plan == AS_PLANNED));
    return o;
}

/* ---- the command ----------------------------------------------------------------------------------------------------------------------- */

static mla_status find_and_report(const order_run *o, const mla_subject *subject, const mla_case *c, planned *plan) {
    mla_fingerprint f = {0};
    char *line = mla_case_print(c);
    if (!line)
        return mla_error(MLA_ENOMEM, "no memory to print the case");
    mla_status status = subject->opened;
    if (status.code == MLA_OK)
        status = mla_fingerprint_take(subject->handle.kernel, mla_drift_device(subject), c, o->sequence, &f);
    if (status.code == MLA_OK)
        status = compare_with_plan(subject, c, o->sequence, &f, plan);
    if (status.code == MLA_OK) {
        print_fingerprint(mla_selection_text(&o->selection), &f, *plan, subject->spec, line);
        status = mla_drift_write_json(o->selection.json, json_of(&f, *plan, subject->spec, line));
    }
    mla_fingerprint_free(&f);
    free(line);
    return status;
}

static mla_exit run(const order_run *o) {
    const mla_selection *s = &o->selection;
    int ran = 0, failed = 0;
    planned plan = PLAN_UNKNOWN;
    if (s->num_subjects != 1 || s->cases.count != 1)
        return mla_usage_error("drift order takes one kernel and one case");
    if (o->sequence >= s->cases.cases[0].batch)
        return mla_usage_error("--sequence %d: the case has %d sequences", o->sequence, s->cases.cases[0].batch);
    const mla_status status = find_and_report(o, &s->subjects[0], &s->cases.cases[0], &plan);
    if (status.code == MLA_EIO || status.code == MLA_ENOMEM)
        return mla_usage_error("%s", status.message);
    mla_drift_count(mla_selection_text(s), &s->subjects[0], &s->cases.cases[0], &status, &ran, &failed);
    return mla_drift_exit(ran, failed + (plan == NOT_AS_PLANNED));
}

static mla_status set_sequence(void *context, int option, const char *value) {
    (void)option;
    order_run *o = context;
    uint64_t sequence = 0;
    TRY(mla_option_unsigned("--sequence", value, 0, MLA_MAX_BATCH - 1, &sequence));
    o->sequence = (int32_t)sequence;
    return mla_ok();
}

mla_exit mla_drift_order(int argc, char **argv) {
    static const struct option options[] = {{"sequence", required_argument, NULL, 'S'}};
    order_run o = {.selection.default_case = "heads=16 kv_len=1024"};
    const mla_own_options own = {.list = options, .count = 1, .set = set_sequence, .context = &o};
    mla_exit code;
    if (mla_drift_begin(&o.selection, argc, argv, &own, &help, &code))
        code = run(&o);
    mla_selection_free(&o.selection);
    return code;
}
