/*
 * +M at one leaf, -M at another, 1 at all others: ones that meet M before M meets -M are lost, so what survives lies outside the smallest subtree that
 * holds both leaves, and the loss is that subtree's size. Every column of V is such a sum of its own: 512 pairs a launch.
 */
#include "drift_tree.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"

#define LARGE 0x1p80 /* absorbs ones in fp32, and in double too */

typedef struct finder {
    mla_probe *probe;
    const int64_t *positions;
    mla_tree *tree;
} finder;

/* One column: M at leaf `plus`, -M at leaf `minus`, ones at `ones`. */
static void plant_column(const finder *f, int column, int plus, int minus, const int *ones, int num_ones, double one) {
    for (int i = 0; i < num_ones; i++)
        if (ones[i] != plus && ones[i] != minus)
            mla_probe_plant(f->probe, f->positions[ones[i]], column, one);
    mla_probe_plant(f->probe, f->positions[plus], column, one == 0 ? 0 : LARGE);
    mla_probe_plant(f->probe, f->positions[minus], column, one == 0 ? 0 : -LARGE);
}

/* Ones that survived; false when that is no count. */
static bool count_of(const finder *f, double out, int most, int *count) {
    const double scaled = out * (double)(f->probe->keys.end - f->probe->keys.begin);
    *count = isfinite(scaled) && fabs(scaled) <= most + 0.5 ? (int)lrint(scaled) : -1;
    return *count >= 0 && fabs(scaled - *count) <= 0.3;
}

/* sizes[i]: leaves of `set` below the node where set[0] and set[i] meet, i from 1. */
static mla_status meet_sizes(finder *f, const int *set, int count, int *sizes) {
    double out[MLA_HEAD_DIM_V];
    for (int i = 1; i < count; i++)
        plant_column(f, i, set[0], set[i], set, count, 1);
    const mla_status status = mla_probe_run(f->probe, out);
    for (int i = 1; i < count; i++) {
        int survived = 0;
        plant_column(f, i, set[0], set[i], set, count, 0);
        if (status.code == MLA_OK && !count_of(f, out[i], count, &survived))
            f->tree->inexact = true;
        sizes[i] = count - survived;
    }
    return status;
}

static int add_node(mla_tree *tree, mla_tree_node node) {
    tree->nodes[tree->count] = node;
    return tree->count++;
}

static int any_leaf(const mla_tree *tree, int node) {
    while (tree->nodes[node].leaf < 0)
        node = tree->nodes[node].first_child;
    return tree->nodes[node].leaf;
}

/* Do the children of `node` meet at the very addition where `with` joins them? Then a one at `with` is lost between M and -M below two of them. */
static mla_status meets_at_once(finder *f, int node, int with, bool *at_once) {
    const mla_tree *t = f->tree;
    const int a = any_leaf(t, t->nodes[node].first_child), b = any_leaf(t, t->nodes[t->nodes[node].first_child].sibling);
    const int one = any_leaf(t, with);
    double out[MLA_HEAD_DIM_V];
    int survived = 0;
    plant_column(f, 0, a, b, &one, 1, 1);
    const mla_status status = mla_probe_run(f->probe, out);
    plant_column(f, 0, a, b, &one, 1, 0);
    if (status.code == MLA_OK && !count_of(f, out[0], 1, &survived))
        f->tree->inexact = true;
    *at_once = survived == 0;
    return status;
}

/* A node over `low` and `high`, or over `low` and the children of `high`. */
static mla_status join(finder *f, int low, int high, int *joined) {
    mla_tree *t = f->tree;
    bool at_once = false;
    if (t->nodes[high].leaf < 0)
        TRY(meets_at_once(f, high, low, &at_once));
    const int leaves = t->nodes[low].leaves + t->nodes[high].leaves;
    t->nodes[low].sibling = at_once ? t->nodes[high].first_child : high;
    if (at_once) {
        *joined = high;
        t->nodes[high] = (mla_tree_node){.leaf = -1, .first_child = low, .sibling = -1, .leaves = leaves};
    } else {
        *joined = add_node(t, (mla_tree_node){.leaf = -1, .first_child = low, .sibling = -1, .leaves = leaves});
    }
    return mla_ok();
}

/* From set[0] upwards: leaves that meet it at the same node form the rest of that node. */
static mla_status build(finder *f, const int *set, int count, int *root) {
    int sizes[MLA_TREE_LEAVES], rest[MLA_TREE_LEAVES];
    *root = add_node(f->tree, (mla_tree_node){.leaf = set[0], .first_child = -1, .sibling = -1, .leaves = 1});
    if (count == 1)
        return mla_ok();
    TRY(meet_sizes(f, set, count, sizes));
    for (int size = 2; size <= count && !f->tree->inexact; size++) {
        int n = 0, sub;
        for (int i = 1; i < count; i++)
            if (sizes[i] == size)
                rest[n++] = set[i];
        if (n == 0)
            continue;
        TRY(build(f, rest, n, &sub));
        TRY(join(f, *root, sub, root));
    }
    f->tree->inexact |= f->tree->nodes[*root].leaves != count;
    return mla_ok();
}

mla_status mla_tree_find(mla_probe *probe, const int64_t *positions, int count, mla_tree *tree) {
    int set[MLA_TREE_LEAVES];
    *tree = (mla_tree){0};
    if (count < 1 || count > MLA_TREE_LEAVES)
        return mla_error(MLA_EINVAL, "a tree of %d leaves: 1 .. %d can be found", count, MLA_TREE_LEAVES);
    for (int i = 0; i < count; i++)
        set[i] = i;
    finder f = {probe, positions, tree};
    return build(&f, set, count, &tree->root);
}

/* ---- chains --------------------------------------------------------------------------------------------------------------------------- */

static bool is_flat(const mla_tree *tree, int node) {
    for (int c = tree->nodes[node].first_child; c >= 0; c = tree->nodes[c].sibling)
        if (tree->nodes[c].leaf < 0)
            return false;
    return true;
}

static void mark(const mla_tree *tree, int node, int step, int *group) {
    if (tree->nodes[node].leaf >= 0)
        group[tree->nodes[node].leaf] = step;
    for (int c = tree->nodes[node].first_child; c >= 0; c = tree->nodes[c].sibling)
        mark(tree, c, step, group);
}

/* The running sum is the one child that is an addition; of two, the one that is not flat, or else the larger. */
static int running_child(const mla_tree *tree, int node) {
    int running = -1;
    for (int c = tree->nodes[node].first_child; c >= 0; c = tree->nodes[c].sibling) {
        if (tree->nodes[c].leaf >= 0)
            continue;
        if (running < 0 || (is_flat(tree, running) && (!is_flat(tree, c) || tree->nodes[c].leaves > tree->nodes[running].leaves)))
            running = c;
    }
    return running;
}

bool mla_tree_is_chain(const mla_tree *tree, int *group, int *groups, bool *apart) {
    int path[2 * MLA_TREE_LEAVES], length = 0;
    *apart = false;
    for (int node = tree->root; node >= 0; node = running_child(tree, node))
        path[length++] = node;
    *groups = length;
    for (int i = length - 1, step = 0; i >= 0; i--, step++)
        for (int c = tree->nodes[path[i]].first_child; c >= 0; c = tree->nodes[c].sibling) {
            if (i + 1 < length && c == path[i + 1])
                continue;
            if (!is_flat(tree, c) && tree->nodes[c].leaf < 0)
                return false;
            *apart |= tree->nodes[c].leaf < 0;
            mark(tree, c, step, group);
        }
    if (tree->nodes[tree->root].leaf >= 0)
        group[tree->nodes[tree->root].leaf] = 0;
    return true;
}
