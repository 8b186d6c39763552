/*
 * A hypothesis is judged by the squares of what it leaves unexplained, in units of the errors' standard deviation. Tokens and ranges are searched for
 * on the worst row: without token j the output moves by -(v_j - O) p_j / (1 - p_j), with it twice by (v_j - O) p_j / (1 + p_j).
 */
#include "diagnose.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "diagnose_row.h"

/* ---- how well a hypothesis fits --------------------------------------------------------------------------------------------------------- */

typedef struct fit {
    double squares; /* unexplained, over all rows */
    int wrong, wrong_lse;
} fit;

static double square(double x) {
    return x * x;
}

/* In units of sigma, or of an eighth of the bound where that is more: sigma is an estimate. Equal is 0, NaN infinite. */
static double unexplained(double got, double predicted, double sigma, double bound) {
    if (got == predicted)
        return 0;
    const double squares = square((got - predicted) / fmax(sigma, bound / 8));
    return isnan(squares) ? INFINITY : squares;
}

/* A row that the bug empties has the convention's infinity. */
static double expected_lse(const mla_problem *p, double lse) {
    return isinf(lse) && p->lse_empty_positive ? INFINITY : lse;
}

/*
 * The bound is the right kernel's: a bug that moves weight moves rounding errors with it, so twice as much is allowed, and as much as rounding the
 * predicted value takes. An error that was outside the
 * bound must at least be halved.
 */
static bool is_explained(double got, double predicted, double truth, double bound) {
    const double left = fabs(got - predicted), error = fabs(got - truth);
    return got == predicted || (left <= 2 * bound && (error <= bound || left <= error / 2));
}

static void fit_row(const mla_scene *scene, const mla_suspect *row, const mla_hypothesis *h, fit *f) {
    double out[MLA_HEAD_DIM_V], lse;
    mla_predict(scene, row, h, out, &lse);
    lse = expected_lse(scene->problem, lse);
    for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
        const double rounding = mla_ulp(scene->problem->out_format, out[c]) / 2, bound = fmax(row->bound[c], rounding);
        f->squares += unexplained(row->got[c], out[c], fmax(row->sigma[c], rounding), bound);
        f->wrong += !is_explained(row->got[c], out[c], row->out[c], bound);
    }
    if (row->has_lse) {
        f->squares += unexplained(row->got_lse, lse, 0, row->lse_bound);
        f->wrong_lse += !is_explained(row->got_lse, lse, row->lse, row->lse_bound);
    }
}

/* Explains nineteen wrong values of twenty. */
static bool explains(const mla_scene *scene, const fit *f) {
    int wrong = 0, wrong_lse = 0;
    for (int i = 0; i < scene->num_rows; i++) {
        wrong += scene->rows[i].wrong;
        wrong_lse += scene->rows[i].wrong_lse;
    }
    return wrong + wrong_lse > 0 && 20 * f->wrong <= wrong && 20 * f->wrong_lse <= wrong_lse;
}

typedef struct choice {
    const mla_scene *scene;
    mla_hypothesis best; /* cause NONE: none yet */
    double squares;
} choice;

static void propose(choice *c, mla_hypothesis h) {
    fit f = {0};
    for (int i = 0; i < c->scene->num_rows && f.squares < INFINITY; i++)
        fit_row(c->scene, &c->scene->rows[i], &h, &f);
    if (!explains(c->scene, &f) || (c->best.cause != MLA_CAUSE_NONE && !(f.squares < c->squares)))
        return;
    c->best = h;
    c->squares = f.squares;
}

/* ---- tokens -------------------------------------------------------------------------------------------------------------------------------- */

enum { CANDIDATES = 3 };

/* The few with the least squares. */
typedef struct shortlist {
    double squares[CANDIDATES];
    mla_hypothesis list[CANDIDATES];
    int count;
} shortlist;

static void enlist(shortlist *s, double squares, mla_hypothesis h) {
    int at = s->count < CANDIDATES ? s->count++ : CANDIDATES - 1;
    if (at == CANDIDATES - 1 && s->list[at].cause != MLA_CAUSE_NONE && !(squares < s->squares[at]))
        return;
    for (; at > 0 && squares < s->squares[at - 1]; at--) {
        s->squares[at] = s->squares[at - 1];
        s->list[at] = s->list[at - 1];
    }
    s->squares[at] = squares;
    s->list[at] = h;
}

static void propose_all(choice *c, const shortlist *s) {
    for (int i = 0; i < s->count; i++)
        propose(c, s->list[i]);
}

static void propose_tokens(choice *c) {
    const mla_scene *scene = c->scene;
    const mla_suspect *row = &scene->rows[0];
    shortlist missing = {0}, twice = {0};
    for (int64_t j = 0; j < scene->keys; j++) {
        const double *v = scene->kv + j * MLA_HEAD_DIM, p = row->w[j] / row->total;
        double along = 0, length = 0;
        for (int d = 0; d < MLA_HEAD_DIM_V; d++) {
            along += (row->got[d] - row->out[d]) * (v[d] - row->out[d]);
            length += square(v[d] - row->out[d]);
        }
        const double out = p < 1 ? p / (1 - p) : INFINITY, in = p / (1 + p);
        const double squares = scene->keys > 1 ? 2 * out * along + out * out * length : 0;
        enlist(&missing, squares, (mla_hypothesis){.cause = MLA_CAUSE_TOKEN_MISSING, .first = j, .last = j + 1});
        enlist(&twice, in * in * length - 2 * in * along, (mla_hypothesis){.cause = MLA_CAUSE_TOKEN_TWICE, .first = j, .last = j + 1});
    }
    propose_all(c, &missing);
    propose_all(c, &twice);
}

/* ---- ranges of tokens ------------------------------------------------------------------------------------------------------------------------ */

/* Sums of w and of w v over the tokens before each, on the worst row. */
typedef struct prefix {
    const mla_scene *scene;
    double *w, *wv; /* [keys + 1], [keys + 1, 512] */
    shortlist list;
} prefix;

static void try_range(prefix *p, int64_t first, int64_t last, const char *note, int64_t a, int64_t b) {
    const mla_suspect *row = &p->scene->rows[0];
    last = last < p->scene->keys ? last : p->scene->keys;
    if (last - first < 2 || last - first >= p->scene->keys)
        return;
    const double total = row->total - (p->w[last] - p->w[first]);
    double squares = 0;
    for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
        const double sum = row->out[c] * row->total - (p->wv[last * MLA_HEAD_DIM_V + c] - p->wv[first * MLA_HEAD_DIM_V + c]);
        squares += square(row->got[c] - sum / total);
    }
    mla_hypothesis h = {.cause = MLA_CAUSE_RANGE_MISSING, .first = first, .last = last};
    snprintf(h.note, sizeof h.note, note, a, b);
    enlist(&p->list, squares, h);
}

static void try_ranges(prefix *p) {
    const int64_t n = p->scene->keys;
    for (int64_t tile = 16; tile <= 128; tile *= 2)
        for (int64_t i = 0; i * tile < n; i++) {
            try_range(p, i * tile, (i + 1) * tile, ": tile %" PRId64 ", of %" PRId64 " tokens", i, tile);
            try_range(p, i * tile, n, ": all from tile %" PRId64 " on, of %" PRId64 " tokens", i, tile);
            try_range(p, 0, i * tile, ": all before tile %" PRId64 ", of %" PRId64 " tokens", i, tile);
        }
    for (int64_t splits = 2; splits <= 32 && splits <= n; splits++) {
        const int64_t each = (n + splits - 1) / splits;
        for (int64_t i = 0; i * each < n; i++)
            try_range(p, i * each, (i + 1) * each, ": split %" PRId64 " of %" PRId64, i + 1, splits);
    }
}

static mla_status propose_ranges(choice *c) {
    const mla_scene *scene = c->scene;
    const size_t n = (size_t)scene->keys;
    prefix p = {.scene = scene, .w = malloc((n + 1) * (MLA_HEAD_DIM_V + 1) * sizeof(double))};
    if (!p.w)
        return mla_error(MLA_ENOMEM, "no memory to diagnose %zu keys", n);
    p.wv = p.w + n + 1;
    memset(p.w, 0, (n + 1) * (MLA_HEAD_DIM_V + 1) * sizeof(double));
    for (size_t j = 0; j < n; j++) {
        const double w = scene->rows[0].w[j], *v = scene->kv + j * MLA_HEAD_DIM;
        p.w[j + 1] = p.w[j] + w;
        for (size_t d = 0; d < MLA_HEAD_DIM_V; d++)
            p.wv[(j + 1) * MLA_HEAD_DIM_V + d] = p.wv[j * MLA_HEAD_DIM_V + d] + w * v[d];
    }
    try_ranges(&p);
    free(p.w);
    propose_all(c, &p.list);
    return mla_ok();
}

/* ---- other keys --------------------------------------------------------------------------------------------------------------------------------- */

enum { MOST_SEQUENCES = 32 };

static void propose_leak(choice *c, int64_t slot, const char *note) {
    mla_hypothesis h = {.cause = MLA_CAUSE_TOKEN_LEAKED, .slot = slot};
    snprintf(h.note, sizeof h.note, "%s", note);
    if (slot >= 0 && slot < c->scene->problem->total_kv)
        propose(c, h);
}

/* Where tokens lie one after another: the slots on either side, in addition or in exchange. */
static void propose_neighbours(choice *c) {
    const mla_scene *scene = c->scene;
    const int64_t before = scene->slots[0] - 1, after = scene->slots[scene->keys - 1] + 1, n = scene->keys;
    propose_leak(c, before, ": the one before the first key");
    propose_leak(c, after, ": the one after the last key");
    if (after < scene->problem->total_kv)
        propose(c, (mla_hypothesis){.cause = MLA_CAUSE_SHIFT, .first = 0, .last = 1, .slot = after, .note = "late"});
    if (before >= 0)
        propose(c, (mla_hypothesis){.cause = MLA_CAUSE_SHIFT, .first = n - 1, .last = n, .slot = before, .note = "early"});
}

static void propose_sequences(choice *c) {
    const mla_problem *p = c->scene->problem;
    for (int32_t b = 0; b < p->batch && b < MOST_SEQUENCES && p->paging != MLA_SPARSE; b++) {
        const int32_t length = mla_kv_len(p, b);
        if (b == c->scene->sequence || length == 0)
            continue;
        propose(c, (mla_hypothesis){.cause = MLA_CAUSE_SEQUENCE, .other = b});
        propose_leak(c, mla_kv_slot(p, b, c->scene->token, 0), ": the first of another sequence");
        propose_leak(c, mla_kv_slot(p, b, c->scene->token, length - 1), ": the last of another sequence");
    }
}

/* ---- other weights ------------------------------------------------------------------------------------------------------------------------------- */

/* The factor on the scores that gives the worst row's lse; NaN when none is found. */
static double factor_by_lse(const mla_scene *scene) {
    const mla_suspect *row = &scene->rows[0];
    double factor = 1;
    for (int i = 0; i < 30; i++) {
        double slope;
        const double miss = row->got_lse - mla_scaled_lse(scene, row, factor, &slope), step = miss / slope;
        if (!(fabs(step) < 100))
            return NAN;
        factor += step;
        if (fabs(step) < 1e-9)
            return factor;
    }
    return NAN;
}

/* dO/df = sum p_j z_j (v_j - O) at f = 1: the factor that moves the output by the error, to first order. */
static double factor_by_out(const mla_scene *scene) {
    const mla_suspect *row = &scene->rows[0];
    double slope[MLA_HEAD_DIM_V] = {0}, along = 0, length = 0;
    for (int64_t j = 0; j < scene->keys; j++)
        for (int c = 0; c < MLA_HEAD_DIM_V; c++)
            slope[c] += row->w[j] / row->total * row->z[j] * (scene->kv[j * MLA_HEAD_DIM + c] - row->out[c]);
    for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
        along += slope[c] * (row->got[c] - row->out[c]);
        length += square(slope[c]);
    }
    return 1 + along / length;
}

static void propose_scales(choice *c) {
    const double factors[] = {factor_by_lse(c->scene), factor_by_out(c->scene), 0, 0x1.62e42fefa39efp-1, 0x1.71547652b82fep0, 0.5, 2};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        if (!isfinite(factors[i]))
            continue;
        propose(c, (mla_hypothesis){.cause = MLA_CAUSE_SCALE, .factor = factors[i]});
        propose(c, (mla_hypothesis){.cause = MLA_CAUSE_KV_SCALE, .factor = factors[i]});
    }
    propose(c, (mla_hypothesis){.cause = MLA_CAUSE_ROPE});
}

/* ---- results in the wrong place, or of the wrong kind ------------------------------------------------------------------------------------------------ */

/* The least factor, in squares, between what was written and the truth. */
static double factor_of_out(const mla_suspect *row) {
    double along = 0, length = 0;
    for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
        along += row->got[c] * row->out[c];
        length += square(row->out[c]);
    }
    return along / length;
}

/* Two wrong columns, or all of them. */
static void propose_columns(choice *c) {
    const mla_suspect *row = &c->scene->rows[0];
    int64_t wrong[2] = {0, 0};
    int count = 0;
    for (int d = 0; d < MLA_HEAD_DIM_V; d++)
        if (!(fabs(row->got[d] - row->out[d]) <= row->bound[d]) && count++ < 2)
            wrong[count - 1] = d;
    if (count == 2)
        propose(c, (mla_hypothesis){.cause = MLA_CAUSE_COLUMNS, .first = wrong[0], .last = wrong[1]});
    propose(c, (mla_hypothesis){.cause = MLA_CAUSE_COLUMNS, .other = 1});
    propose(c, (mla_hypothesis){.cause = MLA_CAUSE_COLUMNS, .other = -1});
}

static void propose_results(choice *c) {
    static const mla_cause plain[] = {MLA_CAUSE_ZERO, MLA_CAUSE_HEAD, MLA_CAUSE_LSE_BASE, MLA_CAUSE_SCALED_Q};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        propose(c, (mla_hypothesis){.cause = plain[i]});
    propose_columns(c);
    propose(c, (mla_hypothesis){.cause = MLA_CAUSE_OUT_SCALE, .factor = factor_of_out(&c->scene->rows[0])});
}

static mla_status propose_everything(choice *c) {
    const mla_scene *scene = c->scene;
    propose_results(c);
    if (!scene->kv || scene->keys == 0)
        return mla_ok();
    propose(c, (mla_hypothesis){.cause = MLA_CAUSE_MEAN});
    propose(c, (mla_hypothesis){.cause = MLA_CAUSE_LSE_MAX});
    propose_scales(c);
    propose_tokens(c);
    if (scene->problem->paging == MLA_CONTIGUOUS)
        propose_neighbours(c);
    propose_sequences(c);
    return propose_ranges(c);
}

/* ---- in words ----------------------------------------------------------------------------------------------------------------------------------------- */

static void say(char *text, size_t size, const char *format, ...) MLA_PRINTF(3, 4);
static void say(char *text, size_t size, const char *format, ...) {
    const size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
}
#define SAY(text, ...) say(text, sizeof(text), __VA_ARGS__)

static double share(const mla_scene *scene, int64_t first, int64_t last) {
    double sum = 0;
    for (int64_t j = first; j < last; j++)
        sum += scene->rows[0].w[j];
    return sum / scene->rows[0].total;
}

static void tell_token(const mla_scene *scene, const mla_hypothesis *h, int tile, const char *what, mla_diagnosis *d) {
    const int64_t j = scene->begin + h->first;
    SAY(d->text, "token %" PRId64 " %s (its share of p is %.3g)", j, what, share(scene, h->first, h->first + 1));
    const char *place = h->first == scene->keys - 1 ? ": the last token" : h->first == 0 ? ": the first token" : "";
    SAY(d->text, "%s", place);
    if (h->first > 0 && j % tile == 0)
        SAY(d->text, "%s first of its tile", *place ? "," : ":");
    else if ((j + 1) % tile == 0 && h->first < scene->keys - 1)
        SAY(d->text, "%s last of its tile", *place ? "," : ":");
}

static void tell_scale(const mla_hypothesis *h, mla_diagnosis *d) {
    if (h->factor == 0)
        SAY(d->text, "all weights are equal: scores are 0");
    else
        SAY(d->text, fabs(h->factor - 1) < 1e-3 ? "scores are multiplied by %.6f" : "scores are multiplied by %.4g", h->factor);
    if (fabs(h->factor - 0.6931) < 1e-3)
        SAY(d->text, ": exp2 for exp");
    if (fabs(h->factor - 1.4427) < 1e-3)
        SAY(d->text, ": exp for exp2");
}

static void tell_columns(const mla_hypothesis *h, mla_diagnosis *d) {
    if (h->other == 0)
        SAY(d->text, "columns %" PRId64 " and %" PRId64 " are swapped", h->first, h->last);
    else
        SAY(d->text, "columns are shifted: c holds c %c 1", h->other > 0 ? '+' : '-');
}

static void tell_keys(const mla_scene *scene, const mla_hypothesis *h, int tile, mla_diagnosis *d) {
    if (h->cause == MLA_CAUSE_TOKEN_MISSING)
        tell_token(scene, h, tile, "is missing", d);
    else if (h->cause == MLA_CAUSE_TOKEN_TWICE)
        tell_token(scene, h, tile, "counts twice", d);
    else if (h->cause == MLA_CAUSE_RANGE_MISSING)
        SAY(d->text, "tokens %" PRId64 " .. %" PRId64 " are missing (their share of p is %.3g)%s", scene->begin + h->first,
            scene->begin + h->last - 1, share(scene, h->first, h->last), h->note);
    else if (h->cause == MLA_CAUSE_TOKEN_LEAKED)
        SAY(d->text, "slot %" PRId64 " is seen too%s", h->slot, h->note);
    else if (h->cause == MLA_CAUSE_SHIFT)
        SAY(d->text, "keys are read one slot %s", h->note);
    else
        SAY(d->text, "the KV of sequence %d is read", h->other);
}

static void tell(const mla_scene *scene, const mla_hypothesis *h, int tile, mla_diagnosis *d) {
    static const char *const plain[MLA_CAUSES] = {
        [MLA_CAUSE_ROPE] = "scores leave out the last 64 entries",
        [MLA_CAUSE_HEAD] = "it is the result of another head",
        [MLA_CAUSE_MEAN] = "the output is the plain mean of V",
        [MLA_CAUSE_SCALED_Q] = "the output is sm_scale q: no KV was read",
        [MLA_CAUSE_ZERO] = "the output is zero",
        [MLA_CAUSE_LSE_MAX] = "the lse lacks the maximum",
    };
    d->cause = h->cause;
    if (h->cause == MLA_CAUSE_NONE)
        return;
    if (plain[h->cause])
        SAY(d->text, "%s", plain[h->cause]);
    else if (h->cause == MLA_CAUSE_LSE_BASE)
        SAY(d->text, "the lse is in base %s", scene->problem->lse_base == MLA_LSE_2 ? "e, not 2" : "2, not e");
    else if (h->cause == MLA_CAUSE_SCALE)
        tell_scale(h, d);
    else if (h->cause == MLA_CAUSE_KV_SCALE && h->factor == 0)
        SAY(d->text, "keys and values are zero");
    else if (h->cause == MLA_CAUSE_KV_SCALE)
        SAY(d->text, "keys and values are multiplied by %.4g", h->factor);
    else if (h->cause == MLA_CAUSE_OUT_SCALE)
        SAY(d->text, "the output is multiplied by %.4g", h->factor);
    else if (h->cause == MLA_CAUSE_COLUMNS)
        tell_columns(h, d);
    else
        tell_keys(scene, h, tile, d);
}

/* ---- where ---------------------------------------------------------------------------------------------------------------------------------------------- */

/* Which indices, of `size`, are marked: "512 of 512 columns", "3 of 16 heads, the first 5, the last 9". */
static void tell_marks(const bool *marks, int size, const char *noun, mla_diagnosis *d) {
    int count = 0, first = -1, last = -1;
    for (int i = 0; i < size; i++)
        if (marks[i]) {
            first = first < 0 ? i : first;
            last = i;
            count++;
        }
    SAY(d->where, "%d of %d %s", count, size, noun);
    if (count == 1)
        SAY(d->where, " (%d)", first);
    else if (count > 1 && count < size)
        SAY(d->where, last - first + 1 == count ? " (%d .. %d)" : " (in %d .. %d)", first, last);
}

static void tell_place(const mla_problem *p, const mla_output *output, const mla_truth *truth, const mla_place *worst, mla_diagnosis *d) {
    const size_t bytes = mla_format_bytes(p->out_format), row_bytes = MLA_HEAD_DIM_V * bytes;
    bool heads[MLA_MAX_HEADS] = {false}, columns[MLA_HEAD_DIM_V] = {false}, any = false;
    double got[MLA_HEAD_DIM_V];
    for (int32_t h = 0; h < p->heads; h++) {
        const int64_t row = truth->first_token * p->heads + h;
        mla_decode_f64(p->out_format, (const uint8_t *)output->out + (size_t)row * row_bytes, MLA_HEAD_DIM_V, got);
        for (int c = 0; c < MLA_HEAD_DIM_V; c++)
            if (!(fabs(got[c] - truth->out[h * MLA_HEAD_DIM_V + c]) <= truth->bound[h * MLA_HEAD_DIM_V + c]))
                heads[h] = columns[c] = any = true;
    }
    if (!any)
        return;
    SAY(d->where, "at seq %d q %d: ", worst->sequence, worst->q);
    tell_marks(heads, p->heads, "heads", d);
    SAY(d->where, ", ");
    tell_marks(columns, MLA_HEAD_DIM_V, "columns", d);
}

static mla_status diagnose(const mla_problem *problem, const mla_contract *contract, const mla_output *output, const mla_place *worst,
                           bool unwritten, mla_scene *scene, mla_diagnosis *diagnosis) {
    const int64_t token = problem->qo_indptr[worst->sequence < 0 ? problem->batch : worst->sequence] + (int64_t)worst->q;
    TRY(mla_scene_make(problem, contract, output, token, worst->head, scene));
    tell_place(problem, output, &scene->truth, worst, diagnosis);
    if (unwritten) {
        diagnosis->cause = MLA_CAUSE_UNWRITTEN;
        SAY(diagnosis->text, "never written");
        return mla_ok();
    }
    choice c = {.scene = scene};
    TRY(propose_everything(&c));
    tell(scene, &c.best, contract->tile, diagnosis);
    return mla_ok();
}

mla_diagnosis mla_diagnose(const mla_problem *problem, const mla_contract *contract, const mla_output *output, const mla_measure *measure) {
    const mla_sample *worst = measure->worst.fault != MLA_FAULT_NONE ? &measure->worst : &measure->worst_lse;
    mla_diagnosis diagnosis = {.cause = MLA_CAUSE_NONE};
    mla_scene scene = {0};
    if (!worst->present || worst->fault == MLA_FAULT_NONE)
        return diagnosis;
    const mla_status status = diagnose(problem, contract, output, &worst->place, worst->fault == MLA_FAULT_UNWRITTEN, &scene, &diagnosis);
    mla_scene_free(&scene);
    if (status.code != MLA_OK)
        diagnosis = (mla_diagnosis){.cause = MLA_CAUSE_NONE};
    if (status.code != MLA_OK)
        SAY(diagnosis.text, "not looked for: %.120s", status.message);
    return diagnosis;
}
