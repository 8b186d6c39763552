#include "drift_choices.h"

#include <stdio.h>

#define WHOLE (1 << 30) /* a tile that holds any split: the maximum is known before the first weight */

#define FP32_UNIT(...)                                                                                                                     \
    (mla_unit) {                                                                                                                           \
        .sum = MLA_FP32, __VA_ARGS__                                                                                                       \
    }
#define TRUNCATING FP32_UNIT(.rounding = MLA_RZ, .k = 16, .bits = 25)
#define NEAREST FP32_UNIT(.rounding = MLA_RNE, .k = 1)
#define NARROW FP32_UNIT(.rounding = MLA_RZ, .k = 32, .bits = 13) /* Hopper's unit for fp8 keeps 14 bits (DeepSeek-V3, arXiv:2412.19437) */
#define IN_BF16 ((mla_unit){.sum = MLA_BF16, .rounding = MLA_RNE, .k = 16})

const mla_choice mla_choices[] = {
    {MLA_STAGE_TILE, {.tile = 16}},
    {MLA_STAGE_TILE, {.tile = 32}},
    {MLA_STAGE_TILE, {.tile = 64}},
    {MLA_STAGE_TILE, {.tile = 128}},
    {MLA_STAGE_TILE, {.tile = WHOLE}},
    {MLA_STAGE_OPERANDS, {.q_scaled = MLA_NONE, .kv_operands = MLA_NONE}},
    {MLA_STAGE_OPERANDS, {.q_scaled = MLA_BF16, .kv_operands = MLA_NONE}},
    {MLA_STAGE_OPERANDS, {.q_scaled = MLA_FP16, .kv_operands = MLA_NONE}},
    {MLA_STAGE_OPERANDS, {.q_scaled = MLA_NONE, .kv_operands = MLA_BF16}},
    {MLA_STAGE_OPERANDS, {.q_scaled = MLA_NONE, .kv_operands = MLA_FP16}},
    {MLA_STAGE_QK, {.qk = NEAREST, .dim_parts = 1, .dim_chains = 1}},
    {MLA_STAGE_QK, {.qk = TRUNCATING, .dim_parts = 1, .dim_chains = 1}},
    {MLA_STAGE_QK, {.qk = NARROW, .dim_parts = 1, .dim_chains = 1}},
    {MLA_STAGE_SCORES, {.scores = MLA_NONE}},
    {MLA_STAGE_SCORES, {.scores = MLA_BF16, .score_point = MLA_SCORE_SUM}},
    {MLA_STAGE_SCORES, {.scores = MLA_BF16, .score_point = MLA_SCORE_SCALED}},
    {MLA_STAGE_SCORES, {.scores = MLA_BF16, .score_point = MLA_SCORE_LOG2}},
    {MLA_STAGE_SCORES, {.scores = MLA_FP16, .score_point = MLA_SCORE_SUM}},
    {MLA_STAGE_SCORES, {.scores = MLA_FP16, .score_point = MLA_SCORE_SCALED}},
    {MLA_STAGE_SCORES, {.scores = MLA_FP16, .score_point = MLA_SCORE_LOG2}},
    {MLA_STAGE_P, {.p = MLA_FP32, .p_scale = 1}},
    {MLA_STAGE_P, {.p = MLA_BF16, .p_scale = 1}},
    {MLA_STAGE_P, {.p = MLA_BF16, .p_rounding = MLA_RZ, .p_scale = 1}},
    {MLA_STAGE_P, {.p = MLA_FP16, .p_scale = 1}},
    {MLA_STAGE_P, {.p = MLA_FP16, .p_rounding = MLA_RZ, .p_scale = 1}},
    {MLA_STAGE_P, {.p = MLA_FP8, .p_scale = 1}},
    {MLA_STAGE_P, {.p = MLA_FP8, .p_scale = 256}},
    {MLA_STAGE_ROWSUM, {.rowsum_of_rounded_p = false}},
    {MLA_STAGE_ROWSUM, {.rowsum_of_rounded_p = true}},
    {MLA_STAGE_PV, {.pv = NEAREST}},
    {MLA_STAGE_PV, {.pv = TRUNCATING}},
    {MLA_STAGE_PV, {.pv = NARROW}},
    {MLA_STAGE_PV, {.pv = IN_BF16}},
    {MLA_STAGE_PARTIAL, {.partial = MLA_FP32}},
    {MLA_STAGE_PARTIAL, {.partial = MLA_BF16}},
    {MLA_STAGE_PARTIAL, {.partial = MLA_FP16}},
    {MLA_STAGE_PARTIAL, {.partial = MLA_FP32, .combine_lse = true}},
    {MLA_STAGE_PARTIAL, {.partial = MLA_BF16, .combine_lse = true}},
    {MLA_STAGE_PARTIAL, {.partial = MLA_FP16, .combine_lse = true}},
    {MLA_STAGE_OUT, {.out_rounding = MLA_RNE}},
    {MLA_STAGE_OUT, {.out_rounding = MLA_RZ}},
};
const int mla_num_choices = sizeof mla_choices / sizeof *mla_choices;

static void copy_softmax(const mla_model *from, mla_model *to) {
    to->softmax = from->softmax;
    to->exp2 = from->exp2;
    to->exp2_ulp = from->exp2_ulp;
    to->ftz = from->ftz;
    to->row_lanes = from->row_lanes;
    to->lane_run = from->lane_run;
    to->row_groups = from->row_groups;
    to->fma = from->fma;
}

static void copy_qk(const mla_model *from, mla_model *to) {
    to->qk = from->qk;
    to->dim_parts = from->dim_parts;
    to->dim_chains = from->dim_chains;
    to->dim_order = from->dim_order;
}

static void copy_last(mla_stage stage, const mla_model *from, mla_model *to) {
    if (stage == MLA_STAGE_P) {
        to->p = from->p;
        to->p_rounding = from->p_rounding;
        to->p_scale = from->p_scale;
    } else if (stage == MLA_STAGE_ROWSUM) {
        to->rowsum_of_rounded_p = from->rowsum_of_rounded_p;
    } else if (stage == MLA_STAGE_PV) {
        to->pv = from->pv;
    } else if (stage == MLA_STAGE_PARTIAL) {
        to->partial = from->partial;
        to->partial_rounding = from->partial_rounding;
        to->combine_lse = from->combine_lse;
    } else {
        to->out_rounding = from->out_rounding;
    }
}

void mla_stage_copy(mla_stage stage, const mla_model *from, mla_model *to) {
    switch (stage) {
    case MLA_STAGE_TILE:
        to->tile = from->tile;
        to->tile_token_order = from->tile_token_order;
        to->max_slack = from->max_slack;
        return;
    case MLA_STAGE_OPERANDS:
        to->q_scaled = from->q_scaled;
        to->kv_operands = from->kv_operands;
        return;
    case MLA_STAGE_QK:
        copy_qk(from, to);
        return;
    case MLA_STAGE_SCORES:
        to->scores = from->scores;
        to->score_point = from->score_point;
        return;
    case MLA_STAGE_SOFTMAX:
        copy_softmax(from, to);
        return;
    default:
        copy_last(stage, from, to);
    }
}

/* ---- words ----------------------------------------------------------------------------------------------------------------------------- */

const char *mla_stage_name(mla_stage stage) {
    static const char *const names[MLA_STAGE_COUNT] = {
        [MLA_STAGE_TILE] = "tile",      [MLA_STAGE_OPERANDS] = "operands",  [MLA_STAGE_QK] = "QK accumulation",
        [MLA_STAGE_SCORES] = "scores",  [MLA_STAGE_SOFTMAX] = "softmax",    [MLA_STAGE_P] = "P",
        [MLA_STAGE_ROWSUM] = "row sum", [MLA_STAGE_PV] = "PV accumulation", [MLA_STAGE_PARTIAL] = "partials",
        [MLA_STAGE_OUT] = "output"};
    return names[stage];
}

static const char *name_of(mla_format format) {
    return format == MLA_NONE ? "exact" : mla_format_get(format)->name;
}

static const char *rounding_of(mla_rounding rounding) {
    return rounding == MLA_RNE ? "rne" : "rz";
}

static void say_unit(const mla_unit *unit, char *text, size_t size) {
    if (unit->bits > 0)
        snprintf(text, size, "%s %s, %d at once, cut at %d bits", name_of(unit->sum), rounding_of(unit->rounding), unit->k, unit->bits);
    else
        snprintf(text, size, "%s %s, %d at once", name_of(unit->sum), rounding_of(unit->rounding), unit->k);
}

static void say_scores(const mla_model *m, char *text, size_t size) {
    static const char *const points[] = {
        [MLA_SCORE_SUM] = "before the scale", [MLA_SCORE_SCALED] = "after the scale", [MLA_SCORE_LOG2] = "times log2(e)"};
    if (m->scores == MLA_NONE)
        snprintf(text, size, "not rounded again");
    else
        snprintf(text, size, "%s %s", name_of(m->scores), points[m->score_point]);
}

static void say_p(const mla_model *m, char *text, size_t size) {
    if (m->p == MLA_FP32 || m->p == MLA_NONE)
        snprintf(text, size, "not rounded");
    else if (m->p_scale == 1)
        snprintf(text, size, "%s %s", name_of(m->p), rounding_of(m->p_rounding));
    else
        snprintf(text, size, "%s %s of %g P", name_of(m->p), rounding_of(m->p_rounding), m->p_scale);
}

static void say_operands(const mla_model *m, char *text, size_t size) {
    if (m->q_scaled != MLA_NONE)
        snprintf(text, size, "q * scale in %s, KV %s", name_of(m->q_scaled), name_of(m->kv_operands));
    else
        snprintf(text, size, "q as it is, KV %s", name_of(m->kv_operands));
}

const char *mla_stage_choice(mla_stage stage, const mla_model *m, char *text, size_t size) {
    switch (stage) {
    case MLA_STAGE_TILE:
        if (m->tile >= WHOLE)
            snprintf(text, size, "the whole split");
        else
            snprintf(text, size, "%d tokens", m->tile);
        break;
    case MLA_STAGE_OPERANDS:
        say_operands(m, text, size);
        break;
    case MLA_STAGE_QK:
        say_unit(&m->qk, text, size);
        break;
    case MLA_STAGE_SCORES:
        say_scores(m, text, size);
        break;
    case MLA_STAGE_SOFTMAX:
        snprintf(text, size, "%s", name_of(m->softmax));
        break;
    case MLA_STAGE_P:
        say_p(m, text, size);
        break;
    case MLA_STAGE_ROWSUM:
        snprintf(text, size, m->rowsum_of_rounded_p ? "of rounded P" : "of unrounded P");
        break;
    case MLA_STAGE_PV:
        say_unit(&m->pv, text, size);
        break;
    case MLA_STAGE_PARTIAL:
        snprintf(text, size, "%s, %s", name_of(m->partial), m->combine_lse ? "normalised" : "unnormalised");
        break;
    default:
        snprintf(text, size, "%s %s", name_of(m->out), rounding_of(m->out_rounding));
    }
    return text;
}
