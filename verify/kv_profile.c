#include "kv_profile.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/bound.h"
#include "../ref/try.h"
#include "diagnose_row.h"

#define MOST_PARTS (MLA_KV_BLOCKS + MLA_KV_TOKENS)
#define LEAST_SCALE 0.0625 /* of 1 - sum of c s, which is 1 / (1 + sum of s x) */

typedef struct fit {
    const mla_scene *scene;
    const double *allowed; /* [keys] */
    mla_kv_part *parts;
    int count;
    int settled;     /* of the first parts: the median is theirs */
    double unit;     /* what errors are measured in: the rms of sigma over the row */
    double *columns; /* [count, 512] g / unit */
    double *normal;  /* [count, count], then its Cholesky factor below the diagonal */
    double *share, *c;
    double error[MLA_HEAD_DIM_V]; /* over unit */
    double freedom, left;         /* parts that the error decides, rather than the prior; squares left over */
} fit;

static double dot(const double *a, const double *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* ---- the equations --------------------------------------------------------------------------------------------------------------------- */

static void make_column(const fit *f, int part) {
    const mla_suspect *row = &f->scene->rows[0];
    double *column = f->columns + part * MLA_HEAD_DIM_V;
    memset(column, 0, MLA_HEAD_DIM_V * sizeof *column);
    f->share[part] = f->parts[part].allowed = 0;
    for (int64_t j = f->parts[part].begin - f->scene->begin; j < f->parts[part].end - f->scene->begin; j++) {
        const double p = row->w[j] / row->total, *v = f->scene->kv + j * MLA_HEAD_DIM;
        f->share[part] += p;
        f->parts[part].allowed += p * f->allowed[j];
        for (int c = 0; c < MLA_HEAD_DIM_V; c++)
            column[c] += p * (v[c] - row->out[c]) / f->unit;
    }
    f->parts[part].allowed /= fmax(f->share[part], DBL_MIN);
}

/* The prior adds 1 to the diagonal, and a little more where double would lose that. */
static void make_equations(fit *f) {
    for (int a = 0; a < f->count; a++)
        make_column(f, a);
    for (int a = 0; a < f->count; a++) {
        const double *column = f->columns + a * MLA_HEAD_DIM_V;
        for (int b = 0; b <= a; b++)
            f->normal[a * f->count + b] = dot(column, f->columns + b * MLA_HEAD_DIM_V, MLA_HEAD_DIM_V);
        f->normal[a * f->count + a] += 1 + 1e-10 * f->normal[a * f->count + a];
        f->c[a] = dot(column, f->error, MLA_HEAD_DIM_V);
    }
}

/* ---- their solution -------------------------------------------------------------------------------------------------------------------- */

static void factorize(fit *f) {
    for (int a = 0; a < f->count; a++) {
        double *row = f->normal + a * f->count;
        for (int b = 0; b < a; b++)
            row[b] = (row[b] - dot(row, f->normal + b * f->count, b)) / f->normal[b * f->count + b];
        row[a] = sqrt(row[a] - dot(row, row, a));
    }
}

/* L x = x */
static void solve_lower(const fit *f, double *x, int from) {
    for (int a = from; a < f->count; a++)
        x[a] = (x[a] - dot(f->normal + a * f->count + from, x + from, a - from)) / f->normal[a * f->count + a];
}

/* L' x = x */
static void solve_upper(const fit *f, double *x) {
    for (int a = f->count - 1; a >= 0; a--) {
        x[a] /= f->normal[a * f->count + a];
        for (int b = 0; b < a; b++)
            x[b] -= f->normal[a * f->count + b] * x[a];
    }
}

/* Of the inverse of L L', entry a of the diagonal is the square of L's inverse's column a. */
static double variance(const fit *f, int a) {
    double unit[MOST_PARTS] = {0};
    unit[a] = 1;
    solve_lower(f, unit, a);
    return dot(unit + a, unit + a, f->count - a);
}

/* Of c_a less the mean of all c by share: a common part of all of them is known to nobody. */
static void find_deviations(fit *f) {
    double mean[MOST_PARTS]; /* covariances of the mean with each c */
    double shares = 0;
    for (int a = 0; a < f->count; a++)
        shares += f->share[a];
    for (int a = 0; a < f->count; a++)
        mean[a] = f->share[a] / shares;
    solve_lower(f, mean, 0);
    solve_upper(f, mean);
    const double of_mean = dot(mean, f->share, f->count) / shares;
    for (int a = 0; a < f->count; a++) {
        const double alone = variance(f, a);
        f->parts[a].deviation = sqrt(fmax(alone - 2 * mean[a] + of_mean, 0));
        f->freedom += 1 - alone;
    }
}

static void find_rest(fit *f) {
    for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
        double rest = f->error[c];
        for (int a = 0; a < f->count; a++)
            rest -= f->c[a] * f->columns[a * MLA_HEAD_DIM_V + c];
        f->left += rest * rest;
    }
}

/* ---- from c to excess ------------------------------------------------------------------------------------------------------------------ */

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of the parts that the error decides. */
static double median(const fit *f) {
    double known[MOST_PARTS];
    size_t count = 0;
    for (int a = 0; a < f->settled; a++)
        if (f->parts[a].deviation < MLA_KV_VAGUE)
            known[count++] = f->c[a];
    qsort(known, count, sizeof *known, compare_doubles);
    return count > 0 ? known[count / 2] : 0;
}

/* What the parts leave of the error, where it is more than sigma explains, makes the fit that much less certain. */
static void find_excess(fit *f) {
    const double middle = median(f), spread = fmax(1, sqrt(f->left / (MLA_HEAD_DIM_V - f->freedom)));
    double scale = 1;
    for (int a = 0; a < f->count; a++)
        scale -= f->share[a] * (f->c[a] - middle);
    scale = fmax(scale, LEAST_SCALE);
    for (int a = 0; a < f->count; a++) {
        f->parts[a].excess = (f->c[a] - middle) / scale;
        f->parts[a].deviation *= spread / scale;
    }
}

static mla_status run_fit(fit *f) {
    const size_t n = (size_t)f->count;
    f->columns = malloc(n * (MLA_HEAD_DIM_V + n + 2) * sizeof *f->columns + 1);
    if (!f->columns)
        return mla_error(MLA_ENOMEM, "no memory for the error along the KV");
    f->normal = f->columns + n * MLA_HEAD_DIM_V;
    f->share = f->normal + n * n;
    f->c = f->share + n;
    make_equations(f);
    factorize(f);
    solve_lower(f, f->c, 0);
    solve_upper(f, f->c);
    find_deviations(f);
    find_rest(f);
    find_excess(f);
    free(f->columns);
    return mla_ok();
}

/* ---- the profile ----------------------------------------------------------------------------------------------------------------------- */

static int cut(int64_t begin, int64_t end, int64_t size, mla_kv_part *parts) {
    int count = 0;
    for (int64_t at = begin; at < end; count++) {
        const int64_t next = (at / size + 1) * size;
        parts[count] = (mla_kv_part){.begin = at, .end = next < end ? next : end};
        at = next;
    }
    return count;
}

static void tell_quality(const fit *f, mla_kv_profile *profile) {
    profile->explained = 1 - f->left / dot(f->error, f->error, MLA_HEAD_DIM_V);
    profile->expected = f->freedom / MLA_HEAD_DIM_V;
}

static mla_status profile_blocks(fit *f, mla_kv_profile *profile) {
    const mla_scene *scene = f->scene;
    int64_t size = 1;
    while (size * (MLA_KV_BLOCKS - 1) < scene->keys)
        size *= 2;
    profile->blocks = cut(scene->begin, scene->begin + scene->keys, size, profile->block);
    f->parts = profile->block;
    f->count = f->settled = profile->blocks;
    TRY(run_fit(f));
    tell_quality(f, profile);
    return mla_ok();
}

/* The other blocks stay what they are. */
static mla_status profile_tokens(fit *f, mla_kv_profile *profile) {
    mla_kv_part parts[MOST_PARTS];
    int most = 0, count = 0;
    for (int b = 1; b < profile->blocks; b++)
        if (fabs(profile->block[b].excess) / profile->block[b].deviation >
            fabs(profile->block[most].excess) / profile->block[most].deviation)
            most = b;
    for (int b = 0; b < profile->blocks; b++)
        if (b != most)
            parts[count++] = profile->block[b];
    profile->tokens = cut(profile->block[most].begin, profile->block[most].end, 1, parts + count);
    fit finer = {
        .scene = f->scene, .allowed = f->allowed, .unit = f->unit, .parts = parts, .count = count + profile->tokens, .settled = count};
    memcpy(finer.error, f->error, sizeof finer.error);
    TRY(run_fit(&finer));
    tell_quality(&finer, profile);
    memcpy(profile->token, parts + count, (size_t)profile->tokens * sizeof *parts);
    return mla_ok();
}

/* ---- what is no fault ------------------------------------------------------------------------------------------------------------------- */

/* s * sum of |q_d k_d|: what rounded operands move a score by, in units of their roundoff. */
static double magnitude(const mla_scene *scene, int64_t j) {
    const double *q = scene->rows[0].q, *k = scene->kv + j * MLA_HEAD_DIM;
    double sum = 0;
    for (int d = 0; d < MLA_HEAD_DIM; d++)
        sum += fabs(q[d] * k[d]);
    return (double)scene->problem->sm_scale * sum;
}

/* Relative errors of the weights, as in the bound: of P, its subnormals included, and of declared roundings of scores and operands. */
static double *allowed_errors(const mla_scene *scene, const mla_contract *c) {
    const mla_suspect *row = &scene->rows[0];
    const double p_error = mla_bound_extra_roundoff(c->p, c->p_rounding), score_error = mla_bound_extra_roundoff(c->scores, MLA_RNE);
    const double q_error = mla_bound_extra_roundoff(c->q_scaled, MLA_RNE), kv_error = mla_bound_extra_roundoff(c->kv_dequant, MLA_RNE);
    const double floor = p_error > 0 ? mla_ulp(c->p, 0) * (c->p_rounding == MLA_RNE ? 0.5 : 1) / c->p_scale : 0;
    double *allowed = malloc((size_t)scene->keys * sizeof *allowed + 1), heaviest = 0;
    for (int64_t j = 0; j < scene->keys && allowed; j++)
        heaviest = fmax(heaviest, row->w[j]);
    for (int64_t j = 0; j < scene->keys && allowed; j++) {
        const double theta =
            c->n_scores * score_error * fabs(row->x[j]) + (q_error + kv_error > 0 ? (q_error + kv_error) * magnitude(scene, j) : 0);
        allowed[j] = expm1(fmin(theta, 1)) + fmax(p_error, fmin(1, floor * heaviest / fmax(row->w[j], DBL_MIN))) + kv_error;
    }
    return allowed;
}

/* ---- the row ------------------------------------------------------------------------------------------------------------------------------ */

static mla_status profile_row(const mla_scene *scene, const mla_contract *contract, mla_kv_profile *profile) {
    const mla_suspect *row = &scene->rows[0];
    fit f = {.scene = scene, .unit = sqrt(dot(row->sigma, row->sigma, MLA_HEAD_DIM_V) / MLA_HEAD_DIM_V)};
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        f.error[c] = (row->got[c] - row->out[c]) / f.unit;
    const double squares = dot(f.error, f.error, MLA_HEAD_DIM_V);
    if (!(squares > 0 && squares < INFINITY))
        return mla_ok();
    double *allowed = allowed_errors(scene, contract);
    if (!allowed)
        return mla_error(MLA_ENOMEM, "no memory for the error along the KV");
    f.allowed = allowed;
    mla_status status = profile_blocks(&f, profile);
    if (status.code == MLA_OK && profile->blocks < scene->keys)
        status = profile_tokens(&f, profile);
    free(allowed);
    return status;
}

mla_status mla_kv_profile_make(const mla_problem *problem, const mla_contract *contract, const mla_output *output, mla_measure *measure) {
    mla_kv_profile *profile = &measure->pictures->profile;
    const mla_place *worst = &measure->worst.place;
    mla_scene scene = {0};
    *profile = (mla_kv_profile){.place = *worst};
    profile->place.column = -1;
    if (!measure->worst.present || worst->sequence < 0)
        return mla_ok();
    mla_status status =
        mla_scene_make(problem, contract, output, problem->qo_indptr[worst->sequence] + (int64_t)worst->q, worst->head, &scene);
    if (status.code == MLA_OK && scene.kv && scene.keys > 1)
        status = profile_row(&scene, contract, profile);
    mla_scene_free(&scene);
    return status;
}
