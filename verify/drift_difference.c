#include "drift_difference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One element of both outputs. */
typedef struct pair {
    mla_place place;
    uint32_t code[2];
    double got[2], exact;
} pair;

mla_status mla_difference_init(mla_difference *d, const mla_problem *problem) {
    *d = (mla_difference){0};
    d->sequences = calloc((size_t)problem->batch + 1, sizeof *d->sequences);
    d->heads = calloc((size_t)problem->heads, sizeof *d->heads);
    return d->sequences && d->heads ? mla_ok() : mla_error(MLA_ENOMEM, "no memory to compare %d sequences", problem->batch);
}

void mla_difference_free(mla_difference *difference) {
    free(difference->sequences);
    free(difference->heads);
    *difference = (mla_difference){0};
}

static void count(mla_apart *apart, bool different) {
    apart->total++;
    apart->different += different;
}

static int step_of(uint32_t ulp) {
    int step = 0;
    while (step < MLA_ULP_STEPS - 1 && ulp > 1u << step)
        step++;
    return step;
}

static void place_difference(const pair *p, uint32_t ulp, mla_difference *d) {
    if (!d->found) {
        d->first = p->place;
        d->first_exact = p->exact;
        memcpy(d->first_code, p->code, sizeof p->code);
    }
    if (!d->found || (ulp != UINT32_MAX && ulp > d->most_ulp)) {
        d->worst = p->place;
        d->worst_exact = p->exact;
        memcpy(d->worst_code, p->code, sizeof p->code);
    }
    d->found = true;
}

static void add_errors(const pair *p, mla_difference *d) {
    const double error[2] = {fabs(p->got[0] - p->exact), fabs(p->got[1] - p->exact)};
    if (!isfinite(error[0]) || !isfinite(error[1]))
        return;
    for (int i = 0; i < 2; i++) {
        d->square[i] += error[i] * error[i];
        d->farther[i] += error[i] > error[1 - i];
    }
}

static void add_element(const mla_problem *problem, const pair *p, mla_difference *d) {
    const bool different = p->code[0] != p->code[1];
    count(&d->out, different);
    count(&d->sequences[p->place.sequence < 0 ? problem->batch : p->place.sequence], different);
    count(&d->heads[p->place.head], different);
    add_errors(p, d);
    if (!different)
        return;
    const uint32_t ulp = mla_ulp_distance(problem->out_format, p->code[0], p->got[1]);
    d->steps[step_of(ulp)]++;
    place_difference(p, ulp, d);
    if (ulp != UINT32_MAX && ulp > d->most_ulp)
        d->most_ulp = ulp;
}

static void add_lse(const mla_problem *problem, float a, float b, mla_difference *d) {
    const double unit = problem->lse_base == MLA_LSE_2 ? 0.69314718055994530942 : 1, apart = fabs((double)a - (double)b) * unit;
    uint32_t code[2];
    memcpy(&code[0], &a, sizeof a);
    memcpy(&code[1], &b, sizeof b);
    count(&d->lse, code[0] != code[1]);
    if (isfinite(apart) && apart > d->most_lse)
        d->most_lse = apart;
}

static mla_place place_of(const mla_problem *problem, int64_t row) {
    const int64_t token = row / problem->heads;
    const int32_t sequence = mla_sequence_of(problem, token), first = problem->qo_indptr[sequence < 0 ? problem->batch : sequence];
    return (mla_place){.sequence = sequence, .q = (int32_t)(token - first), .head = (int32_t)(row % problem->heads)};
}

static uint32_t code_at(mla_format format, const void *codes, int64_t i) {
    uint32_t code = 0;
    const size_t bytes = mla_format_bytes(format);
    memcpy(&code, (const char *)codes + (size_t)i * bytes, bytes);
    return code;
}

static void add_row(const mla_problem *problem, const mla_truth *truth, int64_t r, const mla_output *outputs, mla_difference *d) {
    const int64_t row = truth->first_token * problem->heads + r;
    pair p = {.place = place_of(problem, row)};
    for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
        p.place.column = c;
        p.exact = truth->out[r * MLA_HEAD_DIM_V + c];
        for (int i = 0; i < 2; i++) {
            p.code[i] = code_at(problem->out_format, outputs[i].out, row * MLA_HEAD_DIM_V + c);
            p.got[i] = mla_decode(problem->out_format, p.code[i]);
        }
        add_element(problem, &p, d);
    }
    if (outputs[0].lse && outputs[1].lse)
        add_lse(problem, outputs[0].lse[row], outputs[1].lse[row], d);
}

void mla_difference_add(const mla_problem *problem, const mla_truth *truth, const mla_output *a, const mla_output *b, mla_difference *d) {
    const mla_output outputs[2] = {*a, *b};
    for (int64_t r = 0; r < truth->rows; r++)
        add_row(problem, truth, r, outputs, d);
}
