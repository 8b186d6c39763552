/* One row at a time: the online softmax over each split, then the combine, with a rounding after every operation that has one. */
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "try.h"

#define MAX_LANES 64
#define LOG2_E 1.44269504088896340736
#define LN_2 0.69314718055994530942

/* What a split leaves: the maximum in log2 units, the sum of weights, and the sum of p v, normalised under combine_lse. */
typedef struct part {
    double m, l, sum[MLA_HEAD_DIM_V];
} part;

/* One thread's. */
typedef struct row_work {
    const mla_model *model;
    const mla_problem *problem;
    mla_problem codes;        /* the same with per-tensor scales of 1: they are part of `scale` and of the end */
    double scale, cap;        /* from <q, k> in codes to log2 units, or cap * tanh(scale <q, k>) */
    bool convert;             /* KV need rounding to become operands */
    const int64_t *positions; /* the splits' */
    mla_range seen;
    int32_t sequence;
    int64_t token;
    int head;
    double q[MLA_HEAD_DIM];
    double *scores; /* of a tile; then its weights */
    int64_t *slots; /* -1: not seen */
    double *p;      /* [pv.k], of a step */
    double *values; /* [pv.k, 512] */
    part now;
    part *partials; /* [most splits of a row] */
} row_work;

/* ---- scalar arithmetic -------------------------------------------------------------------------------------------------------------- */

static bool rounds(const mla_model *model) {
    return model->softmax == MLA_FP32;
}

/* By a call: gcc 12, vectorising two of these side by side, leaves out (double)(float). */
static double keep(const mla_model *model, double value) {
    return mla_round(model->softmax, MLA_RNE, value);
}

static double fused(const mla_model *model, double a, double b, double c) {
    if (!rounds(model))
        return a * b + c;
    return model->fma ? fmaf((float)a, (float)b, (float)c) : keep(model, keep(model, a * b) + c);
}

/* -1 .. 1, by the argument's bits (the finaliser of SplitMix64). */
static double noise(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint64_t z = (bits ^ (uint64_t)bits << 32) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-52 - 1;
}

static double exp2_of(const mla_model *model, double x) {
    if (!rounds(model))
        return exp2(x);
    if (model->exp2 == MLA_EXP2_LIBM)
        return exp2f((float)x);
    const double exact = exp2(x), moved = exact + model->exp2_ulp * noise((float)x) * mla_ulp(MLA_FP32, exact);
    return model->ftz && moved < 0x1p-126 ? 0 : (double)(float)(isfinite(exact) ? moved : exact);
}

static double log2_of(const mla_model *model, double x) {
    return !rounds(model) ? log2(x) : model->exp2 == MLA_EXP2_LIBM ? log2f((float)x) : (float)log2(x);
}

static double tanh_of(const mla_model *model, double x) {
    return !rounds(model) ? tanh(x) : model->exp2 == MLA_EXP2_LIBM ? tanhf((float)x) : (float)tanh(x);
}

/* ---- scores ------------------------------------------------------------------------------------------------------------------------- */

static void load_key(const row_work *w, int64_t slot, double *row) {
    if (w->model->kv_operands == MLA_NONE) {
        mla_kv_row_f64(&w->codes, slot, row);
        return;
    }
    float values[MLA_HEAD_DIM];
    mla_kv_row_f32(&w->codes, slot, values);
    for (int d = 0; d < MLA_HEAD_DIM; d++)
        row[d] = w->convert ? mla_round(w->model->kv_operands, MLA_RNE, values[d]) : values[d];
}

/* In the order of the sum. */
static void put_in_order(const mla_model *model, const double *row, double *ordered) {
    for (int i = 0; i < MLA_HEAD_DIM; i++)
        ordered[i] = row[model->dim_order ? model->dim_order[i] : i];
}

static double add_sums(const mla_unit *unit, double a, double b) {
    return mla_round(unit->sum, MLA_RNE, a + b);
}

static double dot_part(const mla_model *model, const double *q, const double *k, int count) {
    const mla_unit *unit = &model->qk;
    double sum = 0;
    for (int chain = 0; chain < model->dim_chains; chain++) {
        double c = 0;
        for (int i = chain * unit->k; i < count; i += model->dim_chains * unit->k)
            c = mla_unit_accumulate(unit, c, q + i, k + i, 1, count - i < unit->k ? count - i : unit->k);
        sum = chain == 0 ? c : add_sums(unit, sum, c);
    }
    return sum;
}

static double dot(const row_work *w, int64_t slot) {
    const mla_model *model = w->model;
    const int count = MLA_HEAD_DIM / model->dim_parts;
    double row[MLA_HEAD_DIM], k[MLA_HEAD_DIM], sum = 0;
    load_key(w, slot, row);
    put_in_order(model, row, k);
    for (int i = 0; i < model->dim_parts; i++) {
        const double c = dot_part(model, w->q + i * count, k + i * count, count);
        sum = i == 0 ? c : add_sums(&model->qk, sum, c);
    }
    return sum;
}

static double rounded_score(const mla_model *model, mla_score_point point, double value) {
    return model->score_point == point ? mla_round(model->scores, MLA_RNE, value) : value;
}

/* In log2 units. Scores rounded on the way are rounded in natural units, so the factor is applied in two steps. */
static double score_of(const row_work *w, double sum) {
    const mla_model *model = w->model;
    const bool in_steps = model->scores != MLA_NONE && model->score_point == MLA_SCORE_SCALED;
    double x = rounded_score(model, MLA_SCORE_SUM, sum);
    if (in_steps) {
        const double natural = model->q_scaled == MLA_NONE ? w->scale / LOG2_E : 1 / LOG2_E;
        x = keep(model, rounded_score(model, MLA_SCORE_SCALED, keep(model, x * keep(model, natural))) * keep(model, LOG2_E));
    } else if (model->q_scaled == MLA_NONE) {
        x = keep(model, x * w->scale);
    }
    if (w->cap > 0)
        x = keep(model, tanh_of(model, x) * w->cap);
    return rounded_score(model, MLA_SCORE_LOG2, x);
}

/* ---- one split ---------------------------------------------------------------------------------------------------------------------- */

static void score_tile(row_work *w, int64_t first, int count) {
    for (int t = 0; t < count; t++) {
        const int64_t position = w->positions ? w->positions[first + t] : first + t;
        const bool seen = position >= w->seen.begin && position < w->seen.end;
        w->slots[t] = seen ? mla_kv_slot(w->problem, w->sequence, w->token, position) : -1;
        w->scores[t] = w->slots[t] < 0 ? -INFINITY : score_of(w, dot(w, w->slots[t]));
    }
}

static void scale_sums(const row_work *w, part *p, double factor) {
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        p->sum[c] *= factor;
    mla_round_all(w->model->pv.sum, MLA_RNE, p->sum, MLA_HEAD_DIM_V);
}

/* That sums the weight of a tile's token t. */
static int lane_of(const mla_model *model, int t) {
    const int lanes = model->row_lanes / model->row_groups, group = (int)((int64_t)t * model->row_groups / model->tile);
    return group * lanes + t / model->lane_run % lanes;
}

/* Turns a tile's scores into P, and brings the sums to the new maximum. */
static void weigh_tile(row_work *w, double *lanes, int count) {
    const mla_model *model = w->model;
    double top = w->now.m;
    for (int t = 0; t < count; t++)
        top = fmax(top, w->scores[t]);
    const double m = top > w->now.m + model->max_slack ? top : w->now.m, base = isinf(m) ? 0 : m;
    const double shrink = exp2_of(model, keep(model, w->now.m - base));
    w->now.m = m;
    for (int i = 0; i < model->row_lanes; i++)
        lanes[i] = keep(model, lanes[i] * shrink);
    scale_sums(w, &w->now, shrink);
    for (int t = 0; t < count; t++) {
        const double weight = w->slots[t] < 0 ? 0 : exp2_of(model, keep(model, w->scores[t] - base));
        const double p = mla_round(model->p, model->p_rounding, weight * model->p_scale);
        double *lane = &lanes[lane_of(model, t)];
        *lane = keep(model, *lane + (model->rowsum_of_rounded_p ? p / model->p_scale : weight));
        w->scores[t] = p;
    }
}

/* One step of the matrix unit: `count` tokens from position `first` of the tile's order. What is not seen adds nothing. */
static void accumulate_step(row_work *w, int first, int count, int tile_count) {
    int n = 0;
    for (int i = first; i < first + count; i++) {
        const int t = w->model->tile_token_order ? w->model->tile_token_order[i] : i;
        if (t >= tile_count || w->slots[t] < 0)
            continue;
        double row[MLA_HEAD_DIM];
        load_key(w, w->slots[t], row);
        memcpy(w->values + (size_t)n * MLA_HEAD_DIM_V, row, MLA_HEAD_DIM_V * sizeof *row);
        w->p[n++] = w->scores[t];
    }
    if (n > 0)
        mla_unit_step(&w->model->pv, w->now.sum, w->p, w->values, n);
}

static double sum_of_lanes(const mla_model *model, double *lanes) {
    for (int apart = 1; apart < model->row_lanes; apart *= 2)
        for (int i = 0; i + apart < model->row_lanes; i += 2 * apart)
            lanes[i] = keep(model, lanes[i] + lanes[i + apart]);
    return lanes[0];
}

static void walk_split(row_work *w, mla_range split) {
    const mla_model *model = w->model;
    double lanes[MAX_LANES] = {0};
    w->now = (part){.m = -INFINITY};
    for (int64_t first = split.begin; first < split.end; first += model->tile) {
        const int count = (int)(split.end - first < model->tile ? split.end - first : model->tile);
        const int places = model->tile_token_order ? model->tile : count;
        score_tile(w, first, count);
        weigh_tile(w, lanes, count);
        for (int i = 0; i < places; i += model->pv.k)
            accumulate_step(w, i, places - i < model->pv.k ? places - i : model->pv.k, count);
    }
    w->now.l = sum_of_lanes(model, lanes);
}

/* ---- the end of a row --------------------------------------------------------------------------------------------------------------- */

/* As it is stored between the passes: normalised, with its lse as maximum and a sum of 1, where the combine works so. */
static part stored(const mla_model *model, part p) {
    if (model->combine_lse && p.l > 0) {
        for (int c = 0; c < MLA_HEAD_DIM_V; c++)
            p.sum[c] = keep(model, p.sum[c] / p.l);
        p.m = keep(model, p.m + log2_of(model, p.l));
        p.l = 1;
    }
    mla_round_all(model->partial, model->partial_rounding, p.sum, MLA_HEAD_DIM_V);
    return p;
}

static part combine(const mla_model *model, const part *partials, int64_t count) {
    part all = {.m = -INFINITY};
    for (int64_t s = 0; s < count; s++)
        all.m = fmax(all.m, partials[s].m);
    for (int64_t s = 0; s < count; s++) {
        const double weight = exp2_of(model, keep(model, partials[s].m - (isinf(all.m) ? 0 : all.m)));
        all.l = fused(model, weight, partials[s].l, all.l);
        for (int c = 0; c < MLA_HEAD_DIM_V; c++)
            all.sum[c] = fused(model, weight, partials[s].sum[c], all.sum[c]);
    }
    return all;
}

static double normaliser(const row_work *w, const part *p) {
    const mla_model *model = w->model;
    double weight = 1, total = p->l;
    if (w->problem->sink) {
        const double sink = keep(model, w->problem->sink[w->head] * keep(model, LOG2_E)), top = fmax(p->m, sink);
        weight = exp2_of(model, keep(model, p->m - top));
        total = fused(model, p->l, weight, exp2_of(model, keep(model, sink - top)));
    }
    return keep(model, keep(model, weight / total) * w->problem->kv_scale) / model->p_scale;
}

static void finish_row(row_work *w, part *p, double *out, double *lse) {
    const mla_model *model = w->model;
    const mla_problem *problem = w->problem;
    if (p->l == 0) {
        memset(out, 0, MLA_HEAD_DIM_V * sizeof *out);
        *lse = problem->lse_empty_positive ? INFINITY : -INFINITY;
        return;
    }
    scale_sums(w, p, normaliser(w, p));
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        out[c] = mla_round(model->out, model->out_rounding, p->sum[c]);
    const double log2_lse = keep(model, p->m + log2_of(model, p->l));
    *lse = problem->lse_base == MLA_LSE_2 ? log2_lse : keep(model, log2_lse * keep(model, LN_2));
}

static void load_row(row_work *w, int64_t row) {
    const mla_problem *problem = w->problem;
    double q[MLA_HEAD_DIM];
    w->token = row / problem->heads;
    w->head = (int)(row % problem->heads);
    w->sequence = mla_sequence_of(problem, w->token);
    w->seen = w->sequence < 0 ? (mla_range){0, 0} : mla_visible(problem, w->sequence, w->token);
    mla_q_row_f64(&w->codes, w->token, w->head, q);
    if (w->model->q_scaled != MLA_NONE)
        for (int d = 0; d < MLA_HEAD_DIM; d++)
            q[d] = mla_round(w->model->q_scaled, MLA_RNE, keep(w->model, q[d] * w->scale));
    put_in_order(w->model, q, w->q);
}

static void run_row(row_work *w, int64_t row, const mla_range *splits, int64_t count, double *out, double *lse) {
    part end = {.m = -INFINITY};
    load_row(w, row);
    for (int64_t s = 0; s < count; s++) {
        walk_split(w, splits[s]);
        end = w->now;
        if (count > 1)
            w->partials[s] = stored(w->model, w->now);
    }
    if (count > 1)
        end = combine(w->model, w->partials, count);
    finish_row(w, &end, out, lse);
}

/* ---- all rows ----------------------------------------------------------------------------------------------------------------------- */

static int64_t longest_tile(const mla_problem *problem, const mla_model *model) {
    int64_t longest = 1;
    for (int32_t b = 0; b < problem->batch; b++)
        longest = mla_kv_len(problem, b) > longest ? mla_kv_len(problem, b) : longest;
    return model->tile < longest ? model->tile : longest;
}

static int64_t most_splits(const mla_model_splits *splits, int64_t rows) {
    int64_t most = 1;
    for (int64_t r = 0; splits && r < rows; r++)
        most = splits->first[r + 1] - splits->first[r] > most ? splits->first[r + 1] - splits->first[r] : most;
    return most;
}

static bool row_work_make(row_work *w, const mla_problem *problem, const mla_model *model, int64_t splits) {
    const size_t tile = (size_t)longest_tile(problem, model), step = (size_t)model->pv.k;
    const double scale = (double)problem->sm_scale * problem->q_scale * problem->kv_scale, cap = problem->softcap;
    *w = (row_work){.model = model, .problem = problem, .codes = *problem};
    w->codes.q_scale = 1;
    w->codes.kv_scale = 1;
    w->scale = keep(model, cap > 0 ? scale / cap : scale * LOG2_E);
    w->cap = keep(model, cap * LOG2_E);
    w->convert = problem->kv_format == MLA_KV_FP8B656;
    w->scores = malloc(tile * sizeof *w->scores);
    w->slots = malloc(tile * sizeof *w->slots);
    w->p = malloc(step * sizeof *w->p);
    w->values = malloc(step * MLA_HEAD_DIM_V * sizeof *w->values);
    w->partials = malloc((size_t)splits * sizeof *w->partials);
    return w->scores && w->slots && w->p && w->values && w->partials;
}

static void row_work_free(row_work *w) {
    free(w->scores);
    free(w->slots);
    free(w->p);
    free(w->values);
    free(w->partials);
}

static mla_status check_unit(const char *name, const mla_unit *unit) {
    if (unit->k < 1 || unit->k > 1024)
        return mla_error(MLA_EINVAL, "model: %s.k = %d is not 1 .. 1024", name, unit->k);
    if (unit->bits < 0 || unit->bits > 40)
        return mla_error(MLA_EINVAL, "model: %s.bits = %d is not 0 .. 40", name, unit->bits);
    return mla_ok();
}

static mla_status check_model(const mla_model *model) {
    TRY(check_unit("qk", &model->qk));
    TRY(check_unit("pv", &model->pv));
    if (model->dim_parts < 1 || MLA_HEAD_DIM % model->dim_parts != 0)
        return mla_error(MLA_EINVAL, "model: dim_parts = %d does not divide %d", model->dim_parts, MLA_HEAD_DIM);
    if (model->dim_chains < 1)
        return mla_error(MLA_EINVAL, "model: dim_chains = %d is less than 1", model->dim_chains);
    if (model->tile < 1)
        return mla_error(MLA_EINVAL, "model: tile = %d is less than 1", model->tile);
    if (model->row_lanes < 1 || model->row_lanes > MAX_LANES || (model->row_lanes & (model->row_lanes - 1)) != 0)
        return mla_error(MLA_EINVAL, "model: row_lanes = %d is no power of two up to %d", model->row_lanes, MAX_LANES);
    if (model->row_groups < 1 || model->row_groups > model->row_lanes || (model->row_groups & (model->row_groups - 1)) != 0)
        return mla_error(MLA_EINVAL, "model: row_groups = %d is no power of two up to row_lanes = %d", model->row_groups, model->row_lanes);
    if (model->lane_run < 1)
        return mla_error(MLA_EINVAL, "model: lane_run = %d is less than 1", model->lane_run);
    if (!(model->p_scale >= 1 && model->p_scale < INFINITY))
        return mla_error(MLA_EINVAL, "model: p_scale = %g is not finite and >= 1", model->p_scale);
    return mla_ok();
}

typedef struct model_run {
    const mla_problem *problem;
    const mla_model_splits *splits;
    int64_t first_row;
    double *out, *lse;
} model_run;

static void run_one(row_work *w, const model_run *run, int64_t r) {
    const int64_t token = (run->first_row + r) / run->problem->heads;
    const int32_t sequence = mla_sequence_of(run->problem, token);
    const mla_range seen = sequence < 0 ? (mla_range){0, 0} : mla_visible(run->problem, sequence, token);
    const mla_range *ranges = &seen;
    int64_t count = seen.begin < seen.end;
    w->positions = NULL;
    if (run->splits) {
        w->positions = run->splits->positions;
        ranges = run->splits->ranges + run->splits->first[r];
        count = run->splits->first[r + 1] - run->splits->first[r];
    }
    run_row(w, run->first_row + r, ranges, count, run->out + r * MLA_HEAD_DIM_V, run->lse + r);
}

mla_status mla_model_run(const mla_problem *problem, const mla_model *model, const mla_model_splits *splits, int64_t first_row,
                         int64_t rows, double *out, double *lse) {
    TRY(check_model(model));
    const model_run run = {problem, splits, first_row, out, lse};
    bool good = true;
#pragma omp parallel reduction(&& : good)
    {
        row_work w;
        const bool ready = row_work_make(&w, problem, model, most_splits(splits, rows));
#pragma omp for schedule(dynamic)
        for (int64_t r = 0; r < rows; r++)
            if (ready)
                run_one(&w, &run, r);
        row_work_free(&w);
        good = good && ready;
    }
    return good ? mla_ok() : mla_error(MLA_ENOMEM, "model: no memory for a row's tile");
}

/* ---- presets ------------------------------------------------------------------------------------------------------------------------ */

mla_model mla_model_exact(void) {
    const mla_unit exact = {.sum = MLA_NONE, .k = 16};
    return (mla_model){
        .q_scaled = MLA_NONE,
        .kv_operands = MLA_NONE,
        .qk = exact,
        .dim_parts = 1,
        .dim_chains = 1,
        .scores = MLA_NONE,
        .score_point = MLA_SCORE_SCALED,
        .softmax = MLA_NONE,
        .exp2 = MLA_EXP2_NEAREST,
        .tile = 64,
        .row_lanes = 1,
        .lane_run = 1,
        .row_groups = 1,
        .p = MLA_NONE,
        .p_scale = 1,
        .pv = exact,
        .partial = MLA_NONE,
        .out = MLA_NONE,
    };
}

/* Under truncation the unit is taken to align its addends, with two bits to spare as NVIDIA's units have; fewer significant bits are taken as fewer aligned ones. */
static mla_unit unit_of_contract(const mla_contract *c) {
    const bool aligned = c->acc_rounding == MLA_RZ || c->acc_bits < 24;
    return (mla_unit){.sum = MLA_FP32,
                      .rounding = c->acc_rounding,
                      .k = c->mma_k,
                      .bits = !aligned           ? 0
                              : c->acc_bits < 24 ? c->acc_bits - 1
                                                 : 25};
}

mla_model mla_model_of_contract(const mla_contract *c, const mla_problem *problem) {
    mla_model model = mla_model_exact();
    model.q_scaled = c->q_scaled;
    model.kv_operands = c->kv_dequant;
    model.qk = model.pv = unit_of_contract(c);
    model.scores = c->scores == MLA_FP32 ? MLA_NONE : c->scores;
    model.softmax = MLA_FP32;
    model.ftz = c->ftz;
    model.tile = c->tile;
    model.p = c->p;
    model.p_rounding = c->p_rounding;
    model.p_scale = c->p_scale;
    model.rowsum_of_rounded_p = c->rowsum_of_rounded_p;
    model.partial = c->partial;
    model.combine_lse = c->combine_lse;
    model.out = problem->out_format;
    model.out_rounding = c->out_rounding;
    return model;
}
