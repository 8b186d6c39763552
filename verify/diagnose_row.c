#include "diagnose_row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"

/* ---- scores and weights --------------------------------------------------------------------------------------------------------------- */

static double product(const double *a, const double *b, int from, int to) {
    double sum = 0;
    for (int d = from; d < to; d++)
        sum += a[d] * b[d];
    return sum;
}

static double soft_capped(const mla_problem *p, double z) {
    const double cap = (double)p->softcap;
    return cap > 0 ? cap * tanh(z / cap) : z;
}

static double sink_of(const mla_problem *p, int32_t head) {
    return p->sink ? (double)p->sink[head] : -INFINITY;
}

/* Weights of n scores, relative to `top`; the sink's in `total` alone. */
typedef struct softmax {
    double top, sum, total;
} softmax;

static softmax soften(const mla_problem *p, int32_t head, const double *x, int64_t n, double *w) {
    softmax s = {.top = sink_of(p, head)};
    for (int64_t j = 0; j < n; j++)
        s.top = x[j] > s.top ? x[j] : s.top;
    for (int64_t j = 0; j < n; j++)
        s.sum += w[j] = exp(x[j] - s.top);
    s.total = s.sum + exp(sink_of(p, head) - s.top);
    return s;
}

/* ---- the scene ------------------------------------------------------------------------------------------------------------------------ */

static void read_row(const mla_scene *scene, mla_suspect *row) {
    const mla_problem *p = scene->problem;
    const int64_t r = scene->token * p->heads + row->head;
    const size_t bytes = mla_format_bytes(p->out_format);
    mla_decode_f64(p->out_format, (const uint8_t *)scene->output->out + (size_t)r * MLA_HEAD_DIM_V * bytes, MLA_HEAD_DIM_V, row->got);
    row->has_lse = scene->output->lse != NULL;
    row->got_lse = row->has_lse ? (double)scene->output->lse[r] * (p->lse_base == MLA_LSE_2 ? 0x1.62e42fefa39efp-1 : 1) : 0;
    row->out = scene->truth.out + (int64_t)row->head * MLA_HEAD_DIM_V;
    row->bound = scene->truth.bound + (int64_t)row->head * MLA_HEAD_DIM_V;
    row->sigma = scene->truth.sigma + (int64_t)row->head * MLA_HEAD_DIM_V;
    row->lse = scene->truth.lse[row->head];
    row->lse_bound = scene->truth.lse_bound[row->head];
}

/* An empty row's infinity has the sign that the problem says. */
static bool lse_is_right(const mla_problem *p, const mla_suspect *row) {
    if (isinf(row->lse))
        return row->got_lse == (p->lse_empty_positive ? INFINITY : -INFINITY);
    return fabs(row->got_lse - row->lse) <= row->lse_bound;
}

static void count_wrong(const mla_scene *scene, mla_suspect *row) {
    row->wrong = 0;
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        row->wrong += !(fabs(row->got[c] - row->out[c]) <= row->bound[c]);
    row->wrong_lse = row->has_lse && !lse_is_right(scene->problem, row);
}

static mla_status score_row(const mla_scene *scene, mla_suspect *row) {
    const size_t room = (size_t)scene->keys + 1;
    row->x = malloc(4 * room * sizeof *row->x);
    if (!row->x)
        return mla_error(MLA_ENOMEM, "no memory to diagnose %lld keys", (long long)scene->keys);
    row->z = row->x + room;
    row->rope = row->z + room;
    row->w = row->rope + room;
    mla_q_row_f64(scene->problem, scene->token, row->head, row->q);
    const double scale = (double)scene->problem->sm_scale;
    for (int64_t j = 0; j < scene->keys; j++) {
        const double *k = scene->kv + j * MLA_HEAD_DIM;
        row->rope[j] = scale * product(row->q, k, MLA_HEAD_DIM_V, MLA_HEAD_DIM);
        row->z[j] = scale * product(row->q, k, 0, MLA_HEAD_DIM_V) + row->rope[j];
        row->x[j] = soft_capped(scene->problem, row->z[j]);
    }
    const softmax s = soften(scene->problem, row->head, row->x, scene->keys, row->w);
    row->top = s.top;
    row->sum = s.sum;
    row->total = s.total;
    return mla_ok();
}

static mla_status load_keys(mla_scene *scene) {
    const mla_problem *p = scene->problem;
    const mla_range seen = mla_visible(p, scene->sequence, scene->token);
    const size_t room = (size_t)(seen.end - seen.begin) + 1;
    scene->slots = malloc(room * sizeof *scene->slots);
    if (!scene->slots)
        return mla_error(MLA_ENOMEM, "no memory to diagnose %zu keys", room);
    scene->begin = seen.begin;
    scene->keys = mla_visible_slots(p, scene->token, scene->slots);
    scene->kv = scene->keys <= MLA_DIAGNOSED_KEYS ? malloc(room * MLA_HEAD_DIM * sizeof *scene->kv) : NULL;
    if (!scene->kv)
        return scene->keys > MLA_DIAGNOSED_KEYS ? mla_ok() : mla_error(MLA_ENOMEM, "no memory to diagnose %zu keys", room);
    for (int64_t j = 0; j < scene->keys; j++)
        mla_kv_row_f64(p, scene->slots[j], scene->kv + j * MLA_HEAD_DIM);
    return mla_ok();
}

/* The head itself, whatever it holds; another one when it is wrong. */
static mla_status add_row(mla_scene *scene, int32_t head, bool always) {
    mla_suspect *row = &scene->rows[scene->num_rows];
    row->head = head;
    read_row(scene, row);
    count_wrong(scene, row);
    if (!always && row->wrong == 0 && !row->wrong_lse)
        return mla_ok();
    scene->num_rows++;
    return scene->kv ? score_row(scene, row) : mla_ok();
}

mla_status mla_scene_make(const mla_problem *problem, const mla_contract *contract, const mla_output *output, int64_t token, int32_t head,
                          mla_scene *scene) {
    *scene = (mla_scene){.problem = problem, .output = output, .token = token, .sequence = mla_sequence_of(problem, token)};
    TRY(mla_oracle_run(problem, contract, token, 1, &scene->truth));
    if (scene->sequence >= 0)
        TRY(load_keys(scene));
    TRY(add_row(scene, head, true));
    for (int32_t h = 0; h < problem->heads && scene->num_rows < MLA_DIAGNOSED_ROWS; h++)
        if (h != head)
            TRY(add_row(scene, h, false));
    return mla_ok();
}

void mla_scene_free(mla_scene *scene) {
    for (int i = 0; i < MLA_DIAGNOSED_ROWS; i++)
        free(scene->rows[i].x);
    free(scene->slots);
    free(scene->kv);
    mla_truth_free(&scene->truth);
    *scene = (mla_scene){0};
}

/* ---- predictions: sums changed by some tokens ----------------------------------------------------------------------------------------- */

/* The row's sums, unnormalised. */
typedef struct sums {
    double out[MLA_HEAD_DIM_V], sum, total;
    int64_t keys;
} sums;

static void begin(const mla_scene *scene, const mla_suspect *row, sums *s) {
    s->sum = row->sum;
    s->total = row->total;
    s->keys = scene->keys;
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        s->out[c] = row->out[c] * row->total;
}

static void add(sums *s, double weight, const double *v) {
    s->sum += weight;
    s->total += weight;
    s->keys += weight < 0 ? -1 : 1;
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        s->out[c] += weight * v[c];
}

static void add_slot(const mla_scene *scene, const mla_suspect *row, int64_t slot, sums *s) {
    double kv[MLA_HEAD_DIM];
    mla_kv_row_f64(scene->problem, slot, kv);
    const double z = (double)scene->problem->sm_scale * product(row->q, kv, 0, MLA_HEAD_DIM);
    add(s, exp(soft_capped(scene->problem, z) - row->top), kv);
}

static void remove_tokens(const mla_scene *scene, const mla_suspect *row, int64_t first, int64_t last, sums *s) {
    for (int64_t j = first; j < last; j++)
        add(s, -row->w[j], scene->kv + j * MLA_HEAD_DIM);
}

static void finish(const mla_suspect *row, const sums *s, double *out, double *lse) {
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        out[c] = s->keys > 0 ? s->out[c] / s->total : 0;
    *lse = s->keys > 0 ? row->top + log(s->sum) : -INFINITY;
}

/* ---- predictions: other weights or keys ------------------------------------------------------------------------------------------------- */

/* Attention with these scores over `keys` rows of kv. `scratch` [keys]. */
static void attend(const mla_scene *scene, int32_t head, const double *x, const double *kv, int64_t keys, double *scratch, double *out,
                   double *lse) {
    const softmax s = soften(scene->problem, head, x, keys, scratch);
    memset(out, 0, MLA_HEAD_DIM_V * sizeof *out);
    for (int64_t j = 0; j < keys; j++)
        for (int c = 0; c < MLA_HEAD_DIM_V; c++)
            out[c] += scratch[j] * kv[j * MLA_HEAD_DIM + c];
    for (int c = 0; c < MLA_HEAD_DIM_V && keys > 0; c++)
        out[c] /= s.total;
    *lse = keys > 0 ? s.top + log(s.sum) : -INFINITY;
}

/* Scores factor * z, less the rope part where asked. */
static void rescore(const mla_scene *scene, const mla_suspect *row, double factor, bool rope, double *out, double *lse) {
    double *x = malloc(2 * ((size_t)scene->keys + 1) * sizeof *x);
    *lse = NAN;
    for (int64_t j = 0; j < scene->keys && x; j++)
        x[j] = soft_capped(scene->problem, factor * (row->z[j] - (rope ? 0 : row->rope[j])));
    if (x)
        attend(scene, row->head, x, scene->kv, scene->keys, x + scene->keys, out, lse);
    free(x);
}

double mla_scaled_lse(const mla_scene *scene, const mla_suspect *row, double factor, double *slope) {
    double top = -INFINITY, sum = 0, weighted = 0;
    for (int64_t j = 0; j < scene->keys; j++)
        top = fmax(top, soft_capped(scene->problem, factor * row->z[j]));
    for (int64_t j = 0; j < scene->keys; j++) {
        const double x = soft_capped(scene->problem, factor * row->z[j]), cap = (double)scene->problem->softcap;
        const double slope_of_x = cap > 0 ? row->z[j] * (1 - x * x / (cap * cap)) : row->z[j];
        sum += exp(x - top);
        weighted += exp(x - top) * slope_of_x;
    }
    *slope = weighted / sum;
    return top + log(sum);
}

/* The keys that the other sequence's first query token would see if it were this long. */
static void attend_sequence(const mla_scene *scene, const mla_suspect *row, int32_t other, double *out, double *lse) {
    const mla_problem *p = scene->problem;
    const int64_t keys = mla_kv_len(p, other) < scene->keys ? mla_kv_len(p, other) : scene->keys;
    double *kv = malloc(((size_t)keys + 1) * (MLA_HEAD_DIM + 2) * sizeof *kv), *x = kv ? kv + keys * MLA_HEAD_DIM : NULL;
    *lse = NAN;
    for (int64_t j = 0; j < keys && kv; j++) {
        mla_kv_row_f64(p, mla_kv_slot(p, other, scene->token, j), kv + j * MLA_HEAD_DIM);
        x[j] = soft_capped(p, (double)p->sm_scale * product(row->q, kv + j * MLA_HEAD_DIM, 0, MLA_HEAD_DIM));
    }
    if (kv)
        attend(scene, row->head, x, kv, keys, x + keys, out, lse);
    free(kv);
}

static void mean_of_v(const mla_scene *scene, double *out) {
    memset(out, 0, MLA_HEAD_DIM_V * sizeof *out);
    for (int64_t j = 0; j < scene->keys; j++)
        for (int c = 0; c < MLA_HEAD_DIM_V; c++)
            out[c] += scene->kv[j * MLA_HEAD_DIM + c] / (double)scene->keys;
}

/* ---- predictions: results in the wrong place ------------------------------------------------------------------------------------------------ */

/* The other head whose truth is nearest. */
static void nearest_head(const mla_scene *scene, const mla_suspect *row, double *out, double *lse) {
    double least = INFINITY;
    *lse = NAN;
    for (int32_t h = 0; h < scene->problem->heads; h++) {
        const double *truth = scene->truth.out + (int64_t)h * MLA_HEAD_DIM_V;
        double squares = 0;
        for (int c = 0; c < MLA_HEAD_DIM_V; c++)
            squares += (row->got[c] - truth[c]) * (row->got[c] - truth[c]);
        if (h == row->head || !(squares < least))
            continue;
        least = squares;
        memcpy(out, truth, MLA_HEAD_DIM_V * sizeof *out);
        *lse = scene->truth.lse[h];
    }
}

static void move_columns(const mla_suspect *row, const mla_hypothesis *h, double *out) {
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        out[c] = row->out[(c + h->other + MLA_HEAD_DIM_V) % MLA_HEAD_DIM_V];
    if (h->other == 0) {
        out[h->first] = row->out[h->last];
        out[h->last] = row->out[h->first];
    }
}

/* Results made of the right ones, element by element. */
static void alter(const mla_scene *scene, const mla_suspect *row, const mla_hypothesis *h, double *out, double *lse) {
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        out[c] = h->cause == MLA_CAUSE_OUT_SCALE  ? h->factor * row->out[c]
                 : h->cause == MLA_CAUSE_SCALED_Q ? (double)scene->problem->sm_scale * row->q[c]
                 : h->cause == MLA_CAUSE_ZERO     ? (row->got[c] == 0 ? 0 : row->out[c])
                                                  : row->out[c];
    *lse = row->lse;
    if (h->cause == MLA_CAUSE_LSE_BASE)
        *lse *= scene->problem->lse_base == MLA_LSE_2 ? 0x1.62e42fefa39efp-1 : 0x1.71547652b82fep0;
    if (h->cause == MLA_CAUSE_LSE_MAX)
        for (int64_t j = 0, first = 1; j < scene->keys; first = 0, j++)
            *lse = first || row->lse - row->x[j] < *lse ? row->lse - row->x[j] : *lse;
}

/* ---- every hypothesis ------------------------------------------------------------------------------------------------------------------------ */

static void change_tokens(const mla_scene *scene, const mla_suspect *row, const mla_hypothesis *h, double *out, double *lse) {
    sums s;
    begin(scene, row, &s);
    if (h->cause == MLA_CAUSE_TOKEN_TWICE)
        add(&s, row->w[h->first], scene->kv + h->first * MLA_HEAD_DIM);
    else
        remove_tokens(scene, row, h->first, h->last, &s);
    if (h->cause == MLA_CAUSE_TOKEN_LEAKED || h->cause == MLA_CAUSE_SHIFT)
        add_slot(scene, row, h->slot, &s);
    finish(row, &s, out, lse);
}

void mla_predict(const mla_scene *scene, const mla_suspect *row, const mla_hypothesis *h, double *out, double *lse) {
    *lse = row->lse;
    switch (h->cause) {
    case MLA_CAUSE_TOKEN_MISSING:
    case MLA_CAUSE_RANGE_MISSING:
    case MLA_CAUSE_TOKEN_TWICE:
    case MLA_CAUSE_TOKEN_LEAKED:
    case MLA_CAUSE_SHIFT:
        change_tokens(scene, row, h, out, lse);
        break;
    case MLA_CAUSE_SEQUENCE:
        attend_sequence(scene, row, h->other, out, lse);
        break;
    case MLA_CAUSE_SCALE:
    case MLA_CAUSE_KV_SCALE:
        rescore(scene, row, h->factor, true, out, lse);
        for (int c = 0; c < MLA_HEAD_DIM_V && h->cause == MLA_CAUSE_KV_SCALE; c++)
            out[c] *= h->factor;
        break;
    case MLA_CAUSE_ROPE:
        rescore(scene, row, 1, false, out, lse);
        break;
    case MLA_CAUSE_HEAD:
        nearest_head(scene, row, out, lse);
        break;
    case MLA_CAUSE_COLUMNS:
        move_columns(row, h, out);
        break;
    case MLA_CAUSE_MEAN:
        mean_of_v(scene, out);
        break;
    default:
        alter(scene, row, h, out, lse);
        break;
    }
}
