#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../gpu/engine.h"
#include "../ref/model.h"
#include "../verify/drift_model.h"

static mla_fingerprint take(const char *spec, const char *line, mla_kernel_handle *handle, mla_case *c) {
    mla_fingerprint f;
    cr_assert_eq(mla_kernel_open(spec, handle).code, MLA_OK);
    cr_assert_eq(mla_case_parse(line, c).code, MLA_OK);
    const mla_status status = mla_fingerprint_take(handle->kernel, NULL, c, 0, &f);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    return f;
}

/* The splits of the group that holds the row that is probed: the first head of the last query token of sequence 0. */
static void expect_splits(const mla_fingerprint *f, const mla_engine *engine, const mla_kernel_handle *handle, const mla_case *c) {
    mla_inputs inputs;
    mla_plan plan;
    cr_assert_eq(mla_inputs_make(c, &inputs).code, MLA_OK);
    const mla_problem *p = &inputs.problem;
    const mla_plan_options options = {engine->row_tile, engine->kv_tile, handle->device->compute_units};
    cr_assert_eq(mla_plan_make(p, &options, &plan).code, MLA_OK);
    const int64_t row = (int64_t)(p->qo_indptr[1] - 1) * p->heads;
    int found = 0;
    for (int32_t i = 0; i < plan.num_items; i++) {
        const mla_plan_item *item = &plan.items[i];
        if (row < item->first_row || row >= item->first_row + item->rows)
            continue;
        cr_assert_lt(found, f->num_splits);
        const int64_t begin = item->kv_begin > f->keys.begin ? item->kv_begin : f->keys.begin;
        cr_expect_eq(f->splits[found].begin, begin);
        cr_expect_eq(f->splits[found].end, item->kv_end);
        cr_expect_eq(f->splits[found].tokens, item->kv_end - begin);
        found++;
    }
    cr_expect_eq(found, f->num_splits);
    mla_plan_free(&plan);
    mla_inputs_free(&inputs);
}

static void expect_combine_in_sequence(const mla_fingerprint *f) {
    int group[MLA_TREE_LEAVES], groups;
    bool apart;
    cr_expect_not(f->combine.inexact);
    cr_assert(mla_tree_is_chain(&f->combine, group, &groups, &apart));
    for (int i = 0; i < f->combined; i++)
        cr_expect_eq(group[i], i == 0 ? 0 : i - 1, "split %d joins at step %d", i, group[i]);
}

static void recovers(const char *name, const char *line) {
    char spec[64];
    mla_kernel_handle handle;
    mla_case c;
    const mla_engine *engine = mla_engine_find(name);
    snprintf(spec, sizeof spec, "splitk@host:%s", name);
    mla_fingerprint f = take(spec, line, &handle, &c);
    expect_splits(&f, engine, &handle, &c);
    expect_combine_in_sequence(&f);
    cr_expect_eq(f.tile, engine->kv_tile, "%s %s: tile %lld", spec, line, (long long)f.tile);
    mla_fingerprint_free(&f);
    mla_case_free(&c);
    mla_kernel_close(&handle);
}

static void recovers_all(const char *name) {
    recovers(name, "heads=1 kv_len=200 plan=fixed:1");
    recovers(name, "heads=2 kv_len=130 plan=fixed:3");
    recovers(name, "heads=1 kv_len=65 plan=size:64");
    recovers(name, "heads=1 kv_len=20 plan=size:1");
    recovers(name, "heads=1 batch=3 kv_len=300,129,70 plan=balanced");
    recovers(name, "heads=2 kv_len=100 plan=adaptive");
    recovers(name, "heads=2 q_len=3 kv_len=200 causal=1 window=150 plan=fixed:2 page=16");
}

/* ---- the sum ------------------------------------------------------------------------------------------------------------------------ */

static void expect_order(const char *spec, const uint8_t *order, int count) {
    int group[MLA_TREE_LEAVES], groups;
    bool apart;
    mla_kernel_handle handle;
    mla_case c;
    mla_fingerprint f = take(spec, "heads=1 kv_len=64 plan=fixed:1", &handle, &c);
    cr_assert(mla_tree_is_chain(&f.sum, group, &groups, &apart));
    cr_expect_not(apart);
    cr_expect_geq(f.summed, count);
    for (int i = 0; i < count; i++)
        cr_expect_eq(group[order[i]], i == 0 ? 0 : i - 1, "%s: token %d joins at step %d", spec, order[i], group[order[i]]);
    mla_fingerprint_free(&f);
    mla_case_free(&c);
    mla_kernel_close(&handle);
}

Test(drift_order, sees_the_order_within_a_step) {
    const uint8_t in_order[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19};
    const uint8_t cdna4[] = {0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23, 8, 9, 10, 11};
    expect_order("splitk@host:cdna3", in_order, 20);
    expect_order("splitk@host:mma", in_order, 20);
    expect_order("splitk@host:cdna4", cdna4, 20);
}

/* ---- a kernel of other habits: the model itself ------------------------------------------------------------------------------------------ */

/* Splits of 48, 16 and the rest, merged last to first; tiles of 24; eight products at once. */
static const mla_range odd_ranges[] = {{64, 100}, {48, 64}, {0, 48}};
static int64_t dealt[100]; /* tiles of 24 dealt to two splits: 0-23 48-71 96-99, 24-47 72-95 */
static const mla_range dealt_ranges[] = {{0, 52}, {52, 100}};
static mla_model odd_model;
static bool odd_deals;

static mla_model_splits odd_splits(int32_t keys) {
    static const int64_t three[] = {0, 3}, two[] = {0, 2}, one[] = {0, 1};
    static mla_range whole;
    whole = (mla_range){0, keys};
    if (keys != 100)
        return (mla_model_splits){.ranges = &whole, .first = one};
    if (!odd_deals)
        return (mla_model_splits){.ranges = odd_ranges, .first = three};
    for (int i = 0, even = 0, uneven = 52; i < 100; i++)
        dealt[i / 24 % 2 == 0 ? even++ : uneven++] = i;
    return (mla_model_splits){.ranges = dealt_ranges, .first = two, .positions = dealt};
}

static int run_odd(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t reason_size) {
    (void)kernel, (void)reason, (void)reason_size;
    double out[MLA_HEAD_DIM_V], lse;
    const mla_model_splits splits = odd_splits(launch->host->kv_indptr[1]);
    if (mla_model_run(launch->host, &odd_model, &splits, 0, 1, out, &lse).code != MLA_OK)
        return 1;
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        ((uint16_t *)launch->output->out)[c] = (uint16_t)mla_encode(MLA_BF16, out[c], MLA_RNE);
    launch->output->lse[0] = (float)lse;
    return 0;
}

static mla_fingerprint take_odd(mla_contract contract) {
    static mla_kernel kernel = {.abi_version = MLA_KERNEL_ABI, .name = "odd", .space = MLA_SPACE_HOST, .run = run_odd};
    const mla_problem problem = {.out_format = MLA_BF16};
    mla_case c;
    mla_fingerprint f;
    kernel.contract = contract;
    odd_model = mla_model_of_contract(&contract, &problem);
    odd_model.pv = (mla_unit){.sum = MLA_FP32, .rounding = MLA_RZ, .k = 8, .bits = 25};
    cr_assert_eq(mla_case_parse("heads=1 kv_len=100", &c).code, MLA_OK);
    const mla_status status = mla_fingerprint_take(&kernel, NULL, &c, 0, &f);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    mla_case_free(&c);
    return f;
}

static void expect_odd_splits(const mla_fingerprint *f) {
    cr_assert_eq(f->num_splits, 3);
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(f->splits[i].begin, odd_ranges[2 - i].begin);
        cr_expect_eq(f->splits[i].end, odd_ranges[2 - i].end);
    }
    cr_expect_eq(f->tile, 24);
}

Test(drift_order, sees_a_plan_it_has_never_seen) {
    int group[MLA_TREE_LEAVES], groups;
    bool apart;
    mla_contract contract = mla_contract_default();
    contract.tile = 24;
    mla_fingerprint f = take_odd(contract);
    expect_odd_splits(&f);
    cr_assert(mla_tree_is_chain(&f.combine, group, &groups, &apart));
    cr_expect(group[2] == 0 && group[1] == 0 && group[0] == 1, "the last two splits are merged first");
    cr_assert(mla_tree_is_chain(&f.sum, group, &groups, &apart));
    for (int i = 0; i < f.summed; i++)
        cr_expect_eq(group[i], i / 8, "token %d joins at step %d", i, group[i]);
    mla_fingerprint_free(&f);
}

Test(drift_order, sees_tiles_dealt_to_splits_in_turn) {
    mla_contract contract = mla_contract_default();
    contract.tile = 24;
    odd_deals = true;
    mla_fingerprint f = take_odd(contract);
    cr_assert_eq(f.num_splits, 2);
    cr_expect(f.splits[0].begin == 0 && f.splits[0].end == 100 && f.splits[0].tokens == 52);
    cr_expect(f.splits[1].begin == 24 && f.splits[1].end == 96 && f.splits[1].tokens == 48);
    for (int i = 0; i < 100; i++)
        cr_expect_eq(f.tokens[i], dealt[i]);
    cr_expect_eq(f.tile, 24);
    cr_expect_eq(f.summed, 24, "as far as the first split goes in one piece");
    mla_fingerprint_free(&f);
}

/* Sequences of 100, which deals, and of 130 keys, one split; two rows each. */
Test(drift_order, splits_dealt_in_turn_are_listed) {
    const int32_t qo_indptr[] = {0, 1, 2}, kv_indptr[] = {0, 100, 230};
    const mla_problem p = {.batch = 2, .heads = 2, .total_q = 2, .qo_indptr = qo_indptr, .kv_indptr = kv_indptr, .total_kv = 230};
    const mla_kernel kernel = {.name = "odd"};
    mla_contract contract = mla_contract_default();
    mla_drift_splits splits;
    contract.tile = 24;
    odd_deals = true;
    mla_fingerprint f = take_odd(contract);
    cr_assert_eq(mla_drift_splits_make(&kernel, NULL, &p, &splits).code, MLA_OK);
    cr_assert_eq(mla_drift_splits_set(&p, 0, &f, &splits).code, MLA_OK);
    cr_assert_eq(splits.first[2], 4);
    cr_assert_eq(splits.first[4], 6);
    for (int r = 0; r < 2; r++) {
        cr_expect_eq(splits.ranges[2 * r].begin, 130);
        cr_expect_eq(splits.ranges[2 * r + 1].begin, 182);
        cr_expect_eq(splits.ranges[2 * r + 1].end, 230);
        cr_expect(splits.ranges[4 + r].begin == 0 && splits.ranges[4 + r].end == 130, "as it was");
    }
    for (int i = 0; i < 230; i++)
        cr_expect_eq(splits.view.positions[i], i < 130 ? i : dealt[i - 130]);
    mla_drift_splits_free(&splits);
    mla_fingerprint_free(&f);
}

Test(drift_order, says_when_normalised_partials_hide_the_combine) {
    mla_contract contract = mla_contract_default();
    contract.tile = 24;
    contract.combine_lse = true;
    contract.p = MLA_FP16;
    contract.p_rounding = MLA_RZ;
    mla_fingerprint f = take_odd(contract);
    expect_odd_splits(&f);
    cr_expect(f.combine.inexact);
    mla_fingerprint_free(&f);
}

Test(drift_order, does_not_guess_when_weights_are_not_rounded) {
    mla_contract contract = mla_contract_default();
    contract.p = MLA_FP32;
    mla_fingerprint f = take_odd(contract);
    cr_expect_not(f.weights_rounded);
    cr_expect_eq(f.num_splits, 0);
    cr_expect_eq(f.tile, 0);
    mla_fingerprint_free(&f);
}

/* ---- host execution ----------------------------------------------------------------------------------------------------------------------- */

Test(drift_order, recovers_the_plan_of_cdna3) {
    recovers_all("cdna3");
}

Test(drift_order, recovers_the_plan_of_cdna4) {
    recovers_all("cdna4");
}

Test(drift_order, recovers_the_plan_of_mma) {
    recovers_all("mma");
}
