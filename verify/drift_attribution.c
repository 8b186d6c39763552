#include "drift_attribution.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "drift_choices.h"

#define WORTHWHILE 0.8   /* a change must leave less than this of what was left */
#define NOTICEABLE 0.005 /* and explain at least this share of the error */
#define GROUPS 32        /* of elements, for the jackknife */
#define STAGES MLA_STAGE_COUNT
#define TERMS (STAGES + 1) /* of the products: the stages' vectors, and the error */

typedef struct work {
    const mla_observation *seen;
    size_t elements;
    double *exact, *error, *trial, *lse;
    double *moved[STAGES]; /* by each stage, added to those before it */
    double energy;         /* |error|^2 */
} work;

static mla_status run_model(const work *w, const mla_model *model, double *out) {
    const mla_observation *o = w->seen;
    return mla_model_run(o->problem, model, o->splits, o->first_row, o->rows, out, w->lse);
}

/* |out - model|^2 over |error|^2 */
static mla_status left_by(work *w, const mla_model *model, double *left) {
    double sum = 0;
    TRY(run_model(w, model, w->trial));
    for (size_t i = 0; i < w->elements; i++) {
        const double rest = w->seen->out[i] - w->trial[i];
        sum += rest * rest;
    }
    *left = sum / w->energy;
    return mla_ok();
}

/* ---- the search ------------------------------------------------------------------------------------------------------------------------ */

static bool is_changed(const mla_attribution *a, mla_stage stage) {
    for (int i = 0; i < a->num_changes; i++)
        if (a->changes[i].stage == stage)
            return true;
    return false;
}

/* What each choice would leave: choices run side by side, for rows may be few. INFINITY: its stage has been changed. */
static mla_status try_choices(const work *w, const mla_attribution *a, double *left) {
    mla_status status = mla_ok();
#pragma omp parallel
    {
        work own = *w;
        own.trial = malloc((w->elements + (size_t)w->seen->rows) * sizeof *own.trial + 1);
        own.lse = own.trial ? own.trial + w->elements : NULL;
#pragma omp for schedule(dynamic)
        for (int i = 0; i < mla_num_choices; i++) {
            mla_model model = a->model;
            left[i] = INFINITY;
            if (is_changed(a, mla_choices[i].stage))
                continue;
            mla_stage_copy(mla_choices[i].stage, &mla_choices[i].model, &model);
            const mla_status tried = own.trial ? left_by(&own, &model, &left[i]) : mla_error(MLA_ENOMEM, "no memory for a trial");
            if (tried.code != MLA_OK) {
#pragma omp critical(mla_try_choices)
                status = tried;
            }
        }
        free(own.trial);
    }
    return status;
}

/* The first of equals. */
static mla_status best_change(const work *w, const mla_attribution *a, int *best, double *left) {
    double *lefts = malloc((size_t)mla_num_choices * sizeof *lefts + 1);
    *best = -1;
    *left = INFINITY;
    if (!lefts)
        return mla_error(MLA_ENOMEM, "no memory for %d choices", mla_num_choices);
    const mla_status status = try_choices(w, a, lefts);
    for (int i = 0; i < mla_num_choices && status.code == MLA_OK; i++) {
        if (lefts[i] < *left) {
            *left = lefts[i];
            *best = i;
        }
    }
    free(lefts);
    return status;
}

static mla_status search(work *w, mla_attribution *a) {
    double left, next;
    TRY(left_by(w, &a->model, &left));
    a->left_declared = left;
    while (left > NOTICEABLE) {
        int best;
        TRY(best_change(w, a, &best, &next));
        if (best < 0 || !(next < WORTHWHILE * left && left - next > NOTICEABLE))
            break;
        mla_stage_copy(mla_choices[best].stage, &mla_choices[best].model, &a->model);
        a->changes[a->num_changes++] = (mla_change){mla_choices[best].stage, next};
        left = next;
    }
    return mla_ok();
}

/* ---- row sums -------------------------------------------------------------------------------------------------------------------------- */

/* The factor that brings a row of the model, before its output is rounded, nearest to the output. */
static double factor_of(const double *out, const double *model) {
    double product = 0, square = 0;
    for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
        product += out[c] * model[c];
        square += model[c] * model[c];
    }
    return square > 0 ? product / square : 1;
}

/* What sums of so many weights in fp32 can be off by, whatever their order; exp2 included. */
static double innocent_factor(const mla_problem *p) {
    int64_t longest = 0;
    for (int32_t b = 0; b < p->batch; b++)
        longest = mla_kv_len(p, b) > longest ? mla_kv_len(p, b) : longest;
    return ((double)longest + 16) * 0x1p-24;
}

static mla_status find_row_factors(work *w, mla_attribution *a) {
    mla_model model = a->model;
    double left = 0, squares = 0, before;
    TRY(left_by(w, &model, &before));
    model.out = MLA_NONE;
    TRY(run_model(w, &model, w->trial));
    for (size_t i = 0; i < w->elements; i += MLA_HEAD_DIM_V) {
        const double factor = factor_of(w->seen->out + i, w->trial + i);
        squares += (factor - 1) * (factor - 1);
        for (size_t c = i; c < i + MLA_HEAD_DIM_V; c++) {
            const double rest = w->seen->out[c] - mla_round(a->model.out, a->model.out_rounding, factor * w->trial[c]);
            left += rest * rest;
        }
    }
    left /= w->energy;
    const double factor = sqrt(squares / (double)w->seen->rows);
    if (left < WORTHWHILE * before && before - left > NOTICEABLE && factor > innocent_factor(w->seen->problem)) {
        a->row_factor = factor;
        a->left_by_factors = left;
    }
    return mla_ok();
}

static mla_status compare_with_model(work *w, mla_attribution *a) {
    double left;
    TRY(left_by(w, &a->model, &left));
    a->elements = (int64_t)w->elements;
    a->apart = sqrt(left * w->energy / (double)w->elements);
    for (size_t i = 0; i < w->elements; i++)
        a->same += w->seen->out[i] == w->trial[i];
    return mla_ok();
}

/* ---- shares ---------------------------------------------------------------------------------------------------------------------------- */

static mla_status find_vectors(work *w, const mla_model *found) {
    mla_model model = mla_model_exact();
    for (size_t i = 0; i < w->elements; i++)
        w->trial[i] = w->exact[i];
    mla_stage_copy(MLA_STAGE_TILE, found, &model);
    for (int s = 0; s < STAGES; s++) {
        mla_stage_copy((mla_stage)s, found, &model);
        if (s == MLA_STAGE_OUT)
            model.out = found->out;
        TRY(run_model(w, &model, w->moved[s]));
        for (size_t i = 0; i < w->elements; i++) {
            const double now = w->moved[s][i];
            w->moved[s][i] = now - w->trial[i];
            w->trial[i] = now;
        }
    }
    return mla_ok();
}

typedef struct products {
    double of[TERMS][TERMS]; /* the last term is the error */
} products;

static double term(const work *w, int t, size_t i) {
    return t < STAGES ? w->moved[t][i] : w->error[i];
}

static void add_products(const work *w, size_t i, products *p) {
    for (int a = 0; a < TERMS; a++)
        for (int b = a; b < TERMS; b++)
            p->of[a][b] += term(w, a, i) * term(w, b, i);
}

/* A rounding is shared by the columns of a row, so a group is a quarter of a row, and of every eighth row after it. */
static void group_products(const work *w, products *groups) {
    memset(groups, 0, GROUPS * sizeof *groups);
    for (size_t i = 0; i < w->elements; i++)
        add_products(w, i, &groups[i / (MLA_HEAD_DIM_V / 4) % GROUPS]);
}

typedef struct shares {
    double of[STAGES], unexplained;
} shares;

/* Normal equations by elimination; a vector that is zero, or lies in the span of those before it, gets no share. */
static shares solve(const products *p) {
    double m[STAGES][STAGES + 1], diagonal[STAGES];
    bool used[STAGES];
    for (int a = 0; a < STAGES; a++) {
        for (int b = 0; b < STAGES; b++)
            m[a][b] = p->of[a < b ? a : b][a < b ? b : a];
        m[a][STAGES] = p->of[a][STAGES];
        diagonal[a] = m[a][a];
    }
    for (int k = 0; k < STAGES; k++) {
        used[k] = m[k][k] > 1e-9 * diagonal[k] && diagonal[k] > 1e-12 * p->of[STAGES][STAGES];
        for (int a = 0; a < STAGES && used[k]; a++) {
            const double factor = a == k ? 0 : m[a][k] / m[k][k];
            for (int b = 0; b <= STAGES && factor != 0; b++)
                m[a][b] -= factor * m[k][b];
        }
    }
    shares s = {.unexplained = 1};
    for (int k = 0; k < STAGES; k++) {
        s.of[k] = used[k] ? m[k][STAGES] / m[k][k] * p->of[k][STAGES] / p->of[STAGES][STAGES] : 0;
        s.unexplained -= s.of[k];
    }
    return s;
}

static void add_all(products *sum, const products *part, double factor) {
    for (int a = 0; a < TERMS; a++)
        for (int b = 0; b < TERMS; b++)
            sum->of[a][b] += factor * part->of[a][b];
}

static void jackknife(const products *groups, const products *all, const shares *whole, mla_attribution *a) {
    const double factor = (GROUPS - 1.0) / GROUPS;
    double square[TERMS] = {0};
    for (int g = 0; g < GROUPS; g++) {
        products without = *all;
        add_all(&without, &groups[g], -1);
        const shares s = without.of[STAGES][STAGES] > 0 ? solve(&without) : *whole;
        for (int k = 0; k < STAGES; k++)
            square[k] += (s.of[k] - whole->of[k]) * (s.of[k] - whole->of[k]);
        square[STAGES] += (s.unexplained - whole->unexplained) * (s.unexplained - whole->unexplained);
    }
    for (int k = 0; k < STAGES; k++) {
        a->share[k] = whole->of[k];
        a->share_error[k] = sqrt(factor * square[k]);
    }
    a->unexplained = whole->unexplained;
    a->unexplained_error = sqrt(factor * square[STAGES]);
}

static mla_status find_shares(work *w, mla_attribution *a) {
    products groups[GROUPS], all = {0};
    TRY(find_vectors(w, &a->model));
    group_products(w, groups);
    for (int g = 0; g < GROUPS; g++)
        add_all(&all, &groups[g], 1);
    const shares whole = solve(&all);
    jackknife(groups, &all, &whole, a);
    return mla_ok();
}

/* ---- all of it ------------------------------------------------------------------------------------------------------------------------- */

static mla_status find_error(work *w) {
    const mla_model exact = mla_model_exact();
    TRY(run_model(w, &exact, w->exact));
    for (size_t i = 0; i < w->elements; i++) {
        w->error[i] = w->seen->out[i] - w->exact[i];
        w->energy += w->error[i] * w->error[i];
    }
    return isfinite(w->energy) ? mla_ok() : mla_error(MLA_EUNSUPPORTED, "the output is not finite: there is no error to explain");
}

static bool work_make(const mla_observation *seen, work *w) {
    *w = (work){.seen = seen, .elements = (size_t)seen->rows * MLA_HEAD_DIM_V};
    double *all = malloc((3 + STAGES) * w->elements * sizeof *all + (size_t)seen->rows * sizeof *all + 1);
    if (!all)
        return false;
    w->exact = all;
    w->error = all + w->elements;
    w->trial = all + 2 * w->elements;
    for (size_t s = 0; s < STAGES; s++)
        w->moved[s] = all + (3 + s) * w->elements;
    w->lse = all + (3 + STAGES) * w->elements;
    return true;
}

mla_status mla_attribute(const mla_observation *seen, const mla_model *declared, mla_attribution *result) {
    work w;
    *result = (mla_attribution){.model = *declared};
    if (!work_make(seen, &w))
        return mla_error(MLA_ENOMEM, "no memory for the errors of %lld rows", (long long)seen->rows);
    mla_status status = find_error(&w);
    if (status.code == MLA_OK && w.energy > 0) {
        result->rms = sqrt(w.energy / (double)w.elements);
        status = search(&w, result);
        if (status.code == MLA_OK)
            status = find_row_factors(&w, result);
        if (status.code == MLA_OK)
            status = compare_with_model(&w, result);
        if (status.code == MLA_OK)
            status = find_shares(&w, result);
    }
    free(w.exact);
    return status;
}
