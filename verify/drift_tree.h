/* The order of a sum, found from outside (Xie, Gao and Xue, "FPRev: Revealing the Order of Floating-Point Summation", 2024). */
#ifndef MLA_DRIFT_TREE_H
#define MLA_DRIFT_TREE_H

#include "drift_probe.h"

#define MLA_TREE_LEAVES 128 /* so many ones can be counted in a bf16 output */

/* A node is a leaf, or an addition of all its children at once: two, or as many as a matrix unit fuses. */
typedef struct mla_tree_node {
    int leaf;                 /* index among the leaves, or -1 */
    int first_child, sibling; /* node, or -1 */
    int leaves;               /* below it */
} mla_tree_node;

typedef struct mla_tree {
    mla_tree_node nodes[2 * MLA_TREE_LEAVES];
    int count, root;
    bool inexact; /* large values did not cancel: partial sums are scaled before they meet, and the tree is not known */
} mla_tree;

/*
 * How does the kernel add up the values at these key positions? All weights are 1. Leaf i is positions[i], 1 <= count <= MLA_TREE_LEAVES. The probe
 * must have q == 0 and nothing planted; so it is left.
 */
mla_status mla_tree_find(mla_probe *probe, const int64_t *positions, int count, mla_tree *tree) MLA_CHECKED;

/*
 * A running sum to which groups are added: group[i] is the step at which leaf i joins, from 0, and *groups their number. False: the tree is no such
 * chain, i.e. two sums of several terms each meet, other than a group whose terms are added to each other before (`apart`).
 */
bool mla_tree_is_chain(const mla_tree *tree, int *group, int *groups, bool *apart);

#endif
