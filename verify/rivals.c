#include "rivals.h"

#include <math.h>
#include <stdlib.h>

bool mla_allclose(const mla_rival_sheet *s, double rtol, double atol, double allowed) {
    int64_t mismatches = 0;
    for (int64_t i = 0; i < s->count; i++) {
        const double got = s->got[i], expected = s->expected[i];
        const bool same = got == expected || (isnan(got) && isnan(expected));
        mismatches += !same && !(isfinite(got) && fabs(got - expected) <= atol + rtol * fabs(expected));
    }
    return (double)mismatches <= allowed * (double)s->count;
}

static bool contest(const mla_rival_sheet *s) {
    return mla_allclose(s, 1e-1, 1e-1, 0.05);
}
static bool percent(const mla_rival_sheet *s) {
    return mla_allclose(s, 1e-2, 1e-2, 0.05);
}
static bool two_percent(const mla_rival_sheet *s) {
    return mla_allclose(s, 2e-2, 8e-3, 0);
}
static bool assert_close(const mla_rival_sheet *s) {
    return mla_allclose(s, 1.6e-2, 1e-5, 0);
}

/* 1 - 2 <x, y> / (|x|^2 + |y|^2): 0 for two zeros. */
static double cosine_difference(const mla_rival_sheet *s) {
    double product = 0, squares = 0;
    for (int64_t i = 0; i < s->count; i++) {
        product += s->got[i] * s->expected[i];
        squares += s->got[i] * s->got[i] + s->expected[i] * s->expected[i];
    }
    return squares == 0 ? 0 : 1 - 2 * product / squares;
}

/* An element is wrong when it exceeds both tolerances; the relative one divides by the expected value. */
static bool flash_mla(const mla_rival_sheet *s) {
    for (int64_t i = 0; i < s->count; i++) {
        const double error = fabs(s->got[i] - s->expected[i]);
        if (!(error <= 8e-4 || error <= 2.01 / 128 * fabs(s->expected[i])))
            return false;
    }
    return cosine_difference(s) < 5e-6;
}

static bool cosine(const mla_rival_sheet *s) {
    return cosine_difference(s) < 1e-5;
}

static bool nmse(const mla_rival_sheet *s) {
    double errors = 0, squares = 0;
    for (int64_t i = 0; i < s->count; i++) {
        errors += (s->got[i] - s->expected[i]) * (s->got[i] - s->expected[i]);
        squares += s->expected[i] * s->expected[i];
    }
    return errors == 0 || errors < 5e-4 * squares;
}

/* fmax would drop a NaN. */
static double largest_error(const mla_rival_sheet *s, const double *out) {
    double largest = 0;
    for (int64_t i = 0; i < s->count; i++) {
        const double error = fabs(out[i] - s->exact[i]);
        largest = error <= largest ? largest : error;
        if (isnan(error))
            return INFINITY;
    }
    return largest;
}

static bool twice_baseline(const mla_rival_sheet *s) {
    return largest_error(s, s->got) <= 2 * largest_error(s, s->baseline);
}

const mla_rival mla_rivals[] = {
    {"public contest", "rtol 1e-1, atol 1e-1, 5 % may mismatch", contest},
    {"1e-2, 5 %", "rtol 1e-2, atol 1e-2, 5 % may mismatch", percent},
    {"rtol 2e-2, atol 8e-3", "all elements", two_percent},
    {"FlashMLA", "abs 8e-4 or rel 2.01/128 for all elements; cosine difference < 5e-6", flash_mla},
    {"NMSE < 5e-4", "sum of squared errors over sum of squares", nmse},
    {"twice a bf16 baseline", "largest error at most twice that of plain bf16 attention", twice_baseline},
    {"rtol 1.6e-2, atol 1e-5", "all elements: torch.testing.assert_close for bf16", assert_close},
    {"cosine < 1e-5", "cosine difference of the whole output", cosine},
};
const int mla_num_rivals = sizeof mla_rivals / sizeof *mla_rivals;

/* ---- the bf16 baseline ---------------------------------------------------------------------------------------------------------------- */

static double bf16(double value) {
    return mla_decode(MLA_BF16, mla_encode(MLA_BF16, value, MLA_RNE));
}

static double score(const mla_problem *p, const double *q, const double *k) {
    double sum = 0;
    for (int d = 0; d < MLA_HEAD_DIM; d++)
        sum += q[d] * k[d];
    const double x = bf16(bf16(sum) * (double)p->sm_scale), cap = (double)p->softcap;
    return cap > 0 ? bf16(cap * bf16(tanh(bf16(x / cap)))) : x;
}

/* Scores become weights; the sink takes its share. */
static void soften(double *x, int64_t keys, double sink) {
    double top = sink, sum = 0;
    for (int64_t j = 0; j < keys; j++)
        top = x[j] > top ? x[j] : top;
    for (int64_t j = 0; j < keys; j++)
        sum += exp(x[j] - top);
    sum += exp(sink - top);
    for (int64_t j = 0; j < keys; j++)
        x[j] = bf16(exp(x[j] - top) / sum);
}

static void round_row(double *row) {
    for (int d = 0; d < MLA_HEAD_DIM; d++)
        row[d] = bf16(row[d]);
}

static void baseline_row(const mla_problem *p, int64_t token, int32_t head, const double *kv, int64_t keys, double *x, double *out) {
    double q[MLA_HEAD_DIM];
    mla_q_row_f64(p, token, head, q);
    round_row(q);
    for (int64_t j = 0; j < keys; j++)
        x[j] = score(p, q, kv + j * MLA_HEAD_DIM);
    soften(x, keys, p->sink ? (double)p->sink[head] : -INFINITY);
    for (int64_t c = 0; c < MLA_HEAD_DIM_V; c++)
        out[c] = 0;
    for (int64_t j = 0; j < keys; j++)
        for (int64_t c = 0; c < MLA_HEAD_DIM_V; c++)
            out[c] += x[j] * kv[j * MLA_HEAD_DIM + c];
    for (int64_t c = 0; c < MLA_HEAD_DIM_V; c++)
        out[c] = bf16(out[c]);
}

static mla_status baseline_token(const mla_problem *p, int64_t token, double *out) {
    const mla_range seen = mla_visible(p, mla_sequence_of(p, token), token);
    const size_t room = (size_t)(seen.end - seen.begin) + 1;
    int64_t *slots = malloc(room * sizeof *slots);
    double *kv = malloc(room * MLA_HEAD_DIM * sizeof *kv), *x = malloc(room * sizeof *x);
    if (slots && kv && x) {
        const int64_t keys = mla_visible_slots(p, token, slots);
        for (int64_t j = 0; j < keys; j++) {
            mla_kv_row_f64(p, slots[j], kv + j * MLA_HEAD_DIM);
            round_row(kv + j * MLA_HEAD_DIM);
        }
        for (int32_t h = 0; h < p->heads; h++)
            baseline_row(p, token, h, kv, keys, x, out + (token * p->heads + h) * MLA_HEAD_DIM_V);
    }
    const bool made = slots && kv && x;
    free(slots);
    free(kv);
    free(x);
    return made ? mla_ok() : mla_error(MLA_ENOMEM, "no memory for the bf16 baseline of %zu keys", room);
}

mla_status mla_bf16_baseline(const mla_problem *p, double *out) {
    mla_status status = mla_ok();
    for (int64_t token = 0; token < p->total_q && status.code == MLA_OK; token++)
        status = baseline_token(p, token, out);
    return status;
}
