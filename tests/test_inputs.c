#include <criterion/criterion.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "../verify/inputs.h"

/* A case and its bytes; `line` must parse. */
typedef struct made {
    mla_case c;
    mla_inputs in;
    const mla_problem *p;
} made;

static void make(const char *line, made *m) {
    mla_status status = mla_case_parse(line, &m->c);
    cr_assert_eq(status.code, MLA_OK, "'%s': %s", line, status.message);
    status = mla_inputs_make(&m->c, &m->in);
    cr_assert_eq(status.code, MLA_OK, "'%s': %s", line, status.message);
    m->p = &m->in.problem;
}

static void drop(made *m) {
    mla_inputs_free(&m->in);
    mla_case_free(&m->c);
}

static void kv_row(const made *m, int32_t b, int64_t j, double row[MLA_HEAD_DIM]) {
    mla_kv_row_f64(m->p, mla_kv_slot(m->p, b, 0, j), row);
}

/* ---- softmax in double, of one row of queries ---- */

typedef struct weights {
    int64_t count;  /* list entries or keys of the sequence */
    double *score;  /* -inf: not visible */
    double *weight; /* sum to 1 */
} weights;

static weights weigh(const made *m, int32_t b, int32_t t, int32_t head) {
    const mla_problem *p = m->p;
    const int64_t q_token = p->qo_indptr[b] + t;
    weights w = {.count = mla_kv_len(p, b)};
    w.score = malloc(sizeof(double) * (size_t)(w.count + 1));
    w.weight = calloc((size_t)w.count + 1, sizeof(double));
    double q[MLA_HEAD_DIM], k[MLA_HEAD_DIM], most = -INFINITY, total = 0;
    mla_q_row_f64(p, q_token, head, q);
    const mla_range visible = mla_visible(p, b, q_token);
    for (int64_t j = 0; j < w.count; j++) {
        w.score[j] = -INFINITY;
        const int64_t slot = j >= visible.begin && j < visible.end ? mla_kv_slot(p, b, q_token, j) : -1;
        if (slot < 0)
            continue;
        double dot = 0;
        mla_kv_row_f64(p, slot, k);
        for (int d = 0; d < MLA_HEAD_DIM; d++)
            dot += q[d] * k[d];
        w.score[j] = (double)p->sm_scale * dot;
        most = fmax(most, w.score[j]);
    }
    for (int64_t j = 0; j < w.count; j++)
        total += w.weight[j] = isinf(w.score[j]) ? 0 : exp(w.score[j] - most);
    for (int64_t j = 0; j < w.count && total > 0; j++)
        w.weight[j] /= total;
    return w;
}

static void weights_free(weights *w) {
    free(w->score);
    free(w->weight);
}

/* ---- the same bytes, always ---- */

/* FNV-1a. */
static uint64_t add_bytes(uint64_t hash, const mla_buffer *buffer) {
    for (size_t i = 0; i < buffer->bytes; i++)
        hash = (hash ^ buffer->data[i]) * UINT64_C(0x100000001B3);
    return hash;
}

static uint64_t checksum(const char *line) {
    made m;
    make(line, &m);
    const mla_buffer *buffers[] = {&m.in.q,         &m.in.qo_indptr,   &m.in.kv,         &m.in.kv_block_scales,
                                   &m.in.kv_indptr, &m.in.block_table, &m.in.kv_indices, &m.in.topk_indices,
                                   &m.in.sink};
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        hash = add_bytes(hash, buffers[i]);
    drop(&m);
    return hash;
}

static const struct {
    const char *line;
    uint64_t sum;
} frozen[] = {
    {"kv_len=300,7 seed=1", UINT64_C(0xFD688A21A6C45292)},
    {"q_len=2,3 kv_len=100,70 input=needle kv=fp8 q=fp8 page=16 causal=1 sink=rand seed=2", UINT64_C(0xD8C9F6764943964C)},
    {"q_len=4 kv_len=150 input=exact kv=mxfp4 scale_stride=20 page=topk:70 q=fp16 seed=3", UINT64_C(0x57A5FB9653FF3A0E)},
    {"batch=5 kv_len=rand(0..90) input=uniform kv=fp8b656 page=list q_pad=2 seed=4", UINT64_C(0x79F193D737794506)},
    {"kv_len=130 input=cancel kv=fp8fnuz q=fp8fnuz scale=0.07216878364870322 seed=5", UINT64_C(0x5FAD5D01B834D5D3)},
    {"heads=3 kv_len=130 input=large kv=fp16 seed=6", UINT64_C(0x1BA2B3AA3D87E33F)},
    {"heads=3 kv_len=20,3 page=16 spread=4000 kv=mxfp4 seed=7", UINT64_C(0xF9CBDAF10FAC9452)},
};

Test(inputs, bytes_do_not_depend_on_the_number_of_threads) {
    for (size_t i = 0; i < sizeof frozen / sizeof *frozen; i++) {
        omp_set_num_threads(1);
        const uint64_t one = checksum(frozen[i].line);
        omp_set_num_threads(2);
        cr_assert_eq(checksum(frozen[i].line), one, "%s", frozen[i].line);
        omp_set_num_threads(7);
        cr_assert_eq(checksum(frozen[i].line), one, "%s", frozen[i].line);
    }
}

/* A golden file names its case only: whoever changes these sums changes every golden file. */
Test(inputs, bytes_are_those_of_the_first_release) {
    for (size_t i = 0; i < sizeof frozen / sizeof *frozen; i++) {
        const uint64_t sum = checksum(frozen[i].line);
        cr_expect_eq(sum, frozen[i].sum, "%s: 0x%016llX", frozen[i].line, (unsigned long long)sum);
    }
}

Test(inputs, seeds_differ) {
    cr_assert_neq(checksum("kv_len=20 seed=1"), checksum("kv_len=20 seed=2"));
}

/* Element i of a tensor depends on its index alone: a longer sequence begins with the shorter one's bytes. */
Test(inputs, elements_depend_on_their_index_alone) {
    made a, b;
    make("kv_len=20 heads=4 seed=3", &a);
    make("kv_len=50 heads=4 q_len=3 seed=3", &b);
    cr_assert_eq(memcmp(a.in.kv.data, b.in.kv.data, 20 * 1152), 0);
    cr_assert_eq(memcmp(a.in.q.data, b.in.q.data, a.in.q.bytes), 0);
    drop(&a);
    drop(&b);
}

/* ---- distributions ---- */

static void moments(const char *line, double *mean, double *variance) {
    made m;
    double row[MLA_HEAD_DIM], sum = 0, square = 0;
    make(line, &m);
    const int64_t n = m.c.kv_len[0];
    for (int64_t j = 0; j < n; j++) {
        kv_row(&m, 0, j, row);
        for (int d = 0; d < MLA_HEAD_DIM; d++) {
            sum += row[d];
            square += row[d] * row[d];
        }
    }
    *mean = sum / (double)(n * MLA_HEAD_DIM);
    *variance = square / (double)(n * MLA_HEAD_DIM) - *mean * *mean;
    drop(&m);
}

/* 576,000 elements: standard error of the mean 0.0013, of the variance 0.0018. */
Test(inputs, normal_is_normal_in_every_format) {
    const char *const lines[] = {"kv_len=1000", "kv_len=1000 kv=fp16", "kv_len=1000 kv=fp8", "kv_len=1000 kv=fp8fnuz",
                                 "kv_len=1000 kv=fp8b656"};
    double mean, variance;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        moments(lines[i], &mean, &variance);
        cr_assert_lt(fabs(mean), 0.006, "%s: mean %g", lines[i], mean);
        cr_assert_lt(fabs(variance - 1), 0.01, "%s: variance %g", lines[i], variance);
    }
    moments("kv_len=300 kv=mxfp4", &mean, &variance);
    cr_assert(fabs(mean) < 0.02 && fabs(variance - 1) < 0.1, "mxfp4: mean %g variance %g", mean, variance);
    moments("kv_len=1000 input=uniform", &mean, &variance);
    cr_assert(fabs(mean - 0.5) < 0.002 && fabs(variance - 1.0 / 12) < 0.001, "uniform: mean %g variance %g", mean, variance);
}

Test(inputs, scores_of_normal_have_variance_1) {
    made m;
    make("kv_len=2000 heads=4 seed=9", &m);
    for (int32_t h = 0; h < 4; h++) {
        weights w = weigh(&m, 0, 0, h);
        double square = 0;
        for (int64_t j = 0; j < w.count; j++)
            square += w.score[j] * w.score[j];
        cr_assert(square / 2000 > 0.75 && square / 2000 < 1.3, "%g", square / 2000);
        weights_free(&w);
    }
    drop(&m);
}

/* ---- families ---- */

/* Weight of token `j` in a row; every list entry counts. */
static double share_of(const made *m, const weights *w, int32_t b, int32_t t, int64_t slot) {
    double share = 0;
    for (int64_t i = 0; i < w->count; i++)
        if (w->weight[i] > 0 && mla_kv_slot(m->p, b, m->p->qo_indptr[b] + t, i) == slot)
            share += w->weight[i];
    return share;
}

static void check_needles(const char *line) {
    made m;
    make(line, &m);
    const int64_t planted[] = {0, m.c.kv_len[0] - 1, 63, 64, 127, 128, m.c.kv_len[0] / 2 - 1, m.c.kv_len[0] / 2};
    for (int32_t h = 0; h < m.c.heads; h++) {
        weights w = weigh(&m, 0, 0, h);
        for (size_t i = 0; i < 8; i++) {
            const double share = share_of(&m, &w, 0, 0, mla_kv_slot(m.p, 0, 0, planted[i]));
            cr_assert(share > 0.02 && share < 0.4, "%s: token %lld of head %d holds %g", line, (long long)planted[i], h, share);
        }
        weights_free(&w);
    }
    drop(&m);
}

Test(inputs, each_needle_holds_a_visible_share) {
    check_needles("kv_len=300 input=needle seed=1");
    check_needles("kv_len=4000 heads=2 input=needle seed=2");
    check_needles("kv_len=300 input=needle scale=0.07216878364870322 seed=3");
    check_needles("kv_len=300 input=needle scale=3 seed=4");
    check_needles("kv_len=300 heads=4 input=needle scale=1e-3 q=fp16 kv=fp16 seed=5");
    check_needles("kv_len=300 input=needle kv=fp8 q=fp8 seed=6");
    check_needles("kv_len=300 input=needle kv=fp8fnuz q=fp8fnuz page=16 seed=7");
    check_needles("kv_len=300 input=needle kv=fp8b656 page=list seed=8");
    check_needles("kv_len=300 input=needle kv=mxfp4 seed=9");
}

/* A short sparse list still begins and ends with needles. */
Test(inputs, needles_stand_at_the_edges_of_sparse_lists) {
    made m;
    make("heads=2 q_len=8 kv_len=2000 page=topk:100 input=needle seed=4", &m);
    int rows = 0;
    for (int32_t t = 0; t < 8; t++) {
        weights w = weigh(&m, 0, t, 0);
        int64_t last = -1, first = -1;
        for (int64_t i = 0; i < w.count; i++)
            if (w.weight[i] > 0) {
                first = first < 0 ? i : first;
                last = i;
            }
        if (first >= 0) {
            cr_assert_gt(w.weight[first], 0.02, "t %d", t);
            cr_assert_gt(w.weight[last], 0.02, "t %d", t);
            rows++;
        }
        weights_free(&w);
    }
    cr_assert_eq(rows, 7, "one list in eight is empty");
    drop(&m);
}

static double score_slope(const char *line) {
    made m;
    make(line, &m);
    weights w = weigh(&m, 0, 0, 1);
    double low = 0, high = 0, rough = 0;
    for (int64_t j = 0; j < 100; j++) {
        low += w.score[j] / 100;
        high += w.score[w.count - 1 - j] / 100;
        rough += fabs(w.score[j + 1] - w.score[j]) / 100;
    }
    cr_assert(rough > 4.0 / 512, "the ramp is too smooth: %g", rough);
    weights_free(&w);
    drop(&m);
    return high - low;
}

Test(inputs, rising_rises_and_falling_falls) {
    cr_assert(fabs(score_slope("kv_len=1000 input=rising") - 8.64) < 1.5);
    cr_assert(fabs(score_slope("kv_len=1000 input=falling scale=0.1") + 8.64) < 1.5);
}

Test(inputs, negative_scores_are_all_negative) {
    made m;
    make("heads=4 kv_len=500 input=negative seed=8", &m);
    for (int32_t h = 0; h < 4; h++) {
        weights w = weigh(&m, 0, 0, h);
        for (int64_t j = 0; j < w.count; j++)
            cr_assert(w.score[j] < -5 && w.score[j] > -20, "%g", w.score[j]);
        weights_free(&w);
    }
    drop(&m);
}

Test(inputs, peaked_is_dominated_by_few) {
    made m;
    double most = 0;
    make("heads=8 kv_len=500 input=peaked seed=8", &m);
    for (int32_t h = 0; h < 8; h++) {
        weights w = weigh(&m, 0, 0, h);
        double head_most = 0;
        for (int64_t j = 0; j < w.count; j++)
            head_most = fmax(head_most, w.weight[j]);
        most += head_most / 8;
        weights_free(&w);
    }
    cr_assert(most > 0.15, "%g", most);
    drop(&m);
}

Test(inputs, flat_has_q_0_and_any_k) {
    made m;
    make("kv_len=30 input=flat", &m);
    for (size_t i = 0; i < m.in.q.bytes / 2; i++)
        cr_assert_eq(((uint16_t *)m.in.q.data)[i] & 0x7FFF, 0);
    weights w = weigh(&m, 0, 0, 0);
    cr_assert_eq(w.weight[7], 1.0 / 30);
    weights_free(&w);
    drop(&m);
}

/* Every nonzero code has no exponent bits. */
Test(inputs, subnormal_codes_are_subnormal) {
    made m;
    int nonzero = 0;
    make("kv_len=30 input=subnormal", &m);
    for (int i = 0; i < 30 * 576; i++) {
        cr_assert_eq(((uint16_t *)m.in.kv.data)[i] & 0x7F80, 0);
        nonzero += (((uint16_t *)m.in.kv.data)[i] & 0x7F) != 0;
    }
    cr_assert_gt(nonzero, 15000);
    drop(&m);
    make("kv_len=30 input=subnormal kv=fp16", &m);
    for (int i = 0; i < 30 * 576; i++)
        cr_assert_eq(((uint16_t *)m.in.kv.data)[i] & 0x7C00, 0);
    drop(&m);
    make("kv_len=30 input=subnormal kv=fp8", &m);
    for (int i = 0; i < 30 * 576; i++)
        cr_assert_eq(m.in.kv.data[i] & 0x78, 0);
    drop(&m);
    make("kv_len=30 input=subnormal kv=fp8b656", &m);
    for (int i = 0; i < 30 * 656; i += i % 656 == 511 ? 145 : 1)
        cr_assert_eq(m.in.kv.data[i] & 0x78, 0);
    drop(&m);
    make("kv_len=30 input=subnormal kv=mxfp4", &m);
    for (int i = 0; i < 30 * 288; i++)
        cr_assert_eq(m.in.kv.data[i] & 0x66, 0, "only 0 and 0.5");
    drop(&m);
}

Test(inputs, large_scores_overflow_a_bare_exp) {
    made m;
    make("heads=8 kv_len=200 input=large seed=2", &m);
    double most = 0;
    for (int32_t h = 0; h < 8; h++) {
        weights w = weigh(&m, 0, 0, h);
        double head_most = 0;
        for (int64_t j = 0; j < w.count; j++)
            head_most = fmax(head_most, fabs(w.score[j]));
        cr_assert_gt(head_most, 150);
        most = fmax(most, head_most);
        weights_free(&w);
    }
    cr_assert_gt(most, 1500);
    drop(&m);
}

Test(inputs, cancel_pairs_equal_scores_and_opposite_values) {
    made m;
    double a[MLA_HEAD_DIM], b[MLA_HEAD_DIM];
    make("kv_len=101 input=cancel seed=2", &m);
    weights w = weigh(&m, 0, 0, 3);
    double spread = 0;
    for (int64_t j = 0; j < 50; j++) {
        kv_row(&m, 0, j, a);
        kv_row(&m, 0, 100 - j, b);
        for (int c = 0; c < MLA_HEAD_DIM_V; c++)
            cr_assert_eq(a[c], -b[c]);
        cr_assert_eq(w.score[j], w.score[100 - j]);
        spread = fmax(spread, fabs(w.score[j]));
    }
    cr_assert_gt(spread, 1);
    weights_free(&w);
    drop(&m);
}

/* One pair in the middle of an even number of keys does not cancel, so that zeros are wrong. */
Test(inputs, cancel_leaves_a_remainder) {
    made m;
    double mean = 0, magnitude = 0, sum[MLA_HEAD_DIM_V] = {0}, row[MLA_HEAD_DIM];
    make("kv_len=100 input=cancel seed=2", &m);
    for (int64_t j = 0; j < 100; j++) {
        kv_row(&m, 0, j, row);
        for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
            sum[c] += row[c];
            magnitude += fabs(row[c]);
        }
    }
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        mean += fabs(sum[c]);
    cr_assert(mean > 0.005 * magnitude && mean < 0.05 * magnitude, "%g", mean / magnitude);
    drop(&m);
}

/* ---- exact ---- */

/* The properties from which bitwise equality follows: returns the live keys of the row. */
static int check_exact_row(const made *m, const char *line, int32_t b, int32_t t, int32_t head, double out[MLA_HEAD_DIM_V]) {
    weights w = weigh(m, b, t, head);
    double most = -INFINITY, row[MLA_HEAD_DIM];
    int live = 0;
    memset(out, 0, MLA_HEAD_DIM_V * sizeof *out);
    for (int64_t j = 0; j < w.count; j++)
        most = fmax(most, w.score[j]);
    for (int64_t j = 0; j < w.count; j++) {
        if (isinf(w.score[j]))
            continue;
        cr_assert(w.score[j] == most || w.score[j] < most - 200, "%s: b %d t %d key %lld: %g below %g", line, b, t, (long long)j,
                  w.score[j], most);
        if (w.score[j] < most)
            continue;
        live++;
        mla_kv_row_f64(m->p, mla_kv_slot(m->p, b, m->p->qo_indptr[b] + t, j), row);
        for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
            cr_assert(row[c] == floor(row[c]) && fabs(row[c]) <= 3, "%s: value %g", line, row[c]);
            out[c] += row[c];
        }
    }
    cr_assert_eq(live & (live - 1), 0, "%s: %d live keys", line, live);
    for (int c = 0; c < MLA_HEAD_DIM_V && live > 0; c++) {
        out[c] /= live;
        const double rounded = mla_decode(m->p->out_format, mla_encode(m->p->out_format, out[c], MLA_RNE));
        cr_assert_eq(rounded, out[c], "%s: %g is not exact", line, out[c]);
    }
    weights_free(&w);
    return live;
}

/* Returns rows without a key; every other row of the case has its power of two. */
static int check_exact(const char *line) {
    made m;
    int empty = 0, most = 0, different = 0;
    double out[MLA_HEAD_DIM_V], before[MLA_HEAD_DIM_V] = {0};
    make(line, &m);
    for (int32_t b = 0; b < m.c.batch; b++)
        for (int32_t t = 0; t < m.c.q_len[b]; t++)
            for (int32_t h = 0; h < m.c.heads; h++) {
                const int live = check_exact_row(&m, line, b, t, h, out);
                const mla_range visible = mla_visible(m.p, b, m.p->qo_indptr[b] + t);
                cr_assert(live > 0 || m.p->paging == MLA_SPARSE || visible.begin == visible.end, "%s: b %d t %d is dead", line, b, t);
                empty += live == 0;
                most = live > most ? live : most;
                different += memcmp(out, before, sizeof out) != 0;
                memcpy(before, out, sizeof out);
            }
    cr_assert(m.c.kv_len[0] < 200 || most >= 16, "%s: at most %d live keys", line, most);
    cr_assert(m.c.kv_len[0] < 200 || different > m.c.q_len[0], "%s: rows are alike", line);
    drop(&m);
    return empty;
}

Test(inputs, exact_is_exact) {
    cr_assert_eq(check_exact("kv_len=300,1,2,3,5 seed=1 input=exact"), 0);
    cr_assert_eq(check_exact("heads=17 q_len=3 kv_len=200 causal=1 input=exact seed=2"), 0);
    cr_assert_eq(check_exact("heads=2 q_len=5 kv_len=3 causal=1 input=exact seed=3"), 4, "two rows of two heads see no key");
    cr_assert_eq(check_exact("heads=2 q_len=70 kv_len=90 causal=1 input=exact seed=4"), 0);
    cr_assert_eq(check_exact("heads=2 q_len=70 kv_len=66 causal=1 input=exact seed=5"), 8);
    cr_assert_eq(check_exact("heads=3 q_len=4 kv_len=150 causal=1 window=5 input=exact seed=6"), 0);
    cr_assert_eq(check_exact("heads=3 q_len=4 kv_len=200 window=50 page=16 input=exact seed=7"), 0);
    cr_assert_eq(check_exact("heads=2 q_len=8 kv_len=300 page=topk:128 input=exact seed=8"), 2, "one list of eight is empty");
    cr_assert_eq(check_exact("heads=5 q_len=8 kv_len=100,3 page=topk:5 input=exact seed=9"), 10);
}

Test(inputs, exact_is_exact_in_every_format_and_scale) {
    check_exact("heads=4 kv_len=200 kv=fp16 q=fp16 out=fp16 input=exact");
    check_exact("heads=4 kv_len=200 kv=fp8 q=fp8 out=fp32 input=exact");
    check_exact("heads=4 kv_len=200 kv=fp8fnuz q=fp8fnuz input=exact page=list");
    check_exact("heads=4 kv_len=200 kv=fp8b656 input=exact");
    check_exact("heads=4 kv_len=200 kv=mxfp4 input=exact");
    check_exact("heads=4 kv_len=50 scale=7.3 input=exact");
    check_exact("heads=4 kv_len=50 scale=1e-20 input=exact");
    check_exact("heads=4 kv_len=50 scale=1e20 input=exact");
    check_exact("heads=4 kv_len=50 scale=0.07216878364870322 q=fp16 input=exact");
}

/* ---- poison and layouts ---- */

/* Slots some list or table names. */
static uint8_t *owned_slots(const made *m) {
    const mla_problem *p = m->p;
    uint8_t *owned = calloc((size_t)p->total_kv + 1, 1);
    for (int32_t b = 0; b < p->batch; b++)
        for (int64_t j = 0; j < m->c.kv_len[b]; j++) {
            const int64_t slot = mla_kv_slot(p, b, 0, j);
            cr_assert(!owned[slot], "slot %lld has two owners", (long long)slot);
            owned[slot] = 1;
        }
    return owned;
}

static void check_poison(const char *line) {
    made m;
    double row[MLA_HEAD_DIM];
    make(line, &m);
    uint8_t *owned = owned_slots(&m);
    int64_t spare = 0;
    for (int64_t slot = 0; slot < m.p->total_kv; slot++) {
        mla_kv_row_f64(m.p, slot, row);
        for (int d = 0; d < MLA_HEAD_DIM; d++)
            cr_assert_eq(isnan(row[d]) != 0, !owned[slot], "%s: slot %lld holds %g", line, (long long)slot, row[d]);
        spare += !owned[slot];
    }
    cr_assert_gt(spare, 0);
    free(owned);
    drop(&m);
}

Test(inputs, slots_without_owner_hold_nan) {
    check_poison("kv_len=30,0,5");
    check_poison("kv_len=30,0,5 kv=fp16 page=list");
    check_poison("kv_len=30,0,5 kv=fp8 page=4");
    check_poison("kv_len=30,0,5 kv=fp8fnuz page=64");
    check_poison("kv_len=30,0,5 kv=fp8b656 page=7");
    check_poison("kv_len=30,0,5 kv=mxfp4 page=16 scale_stride=21");
}

/* They are never read, so a cache can begin with any number of them. */
Test(inputs, tokens_of_sequences_without_queries_hold_nan) {
    made m;
    double row[MLA_HEAD_DIM];
    make("q_len=0,1 kv_len=30,5", &m);
    for (int64_t slot = 0; slot < 35; slot++) {
        mla_kv_row_f64(m.p, slot, row);
        cr_assert_eq(isnan(row[0]) != 0, slot < 30);
    }
    drop(&m);
}

/* Guards: what lies before and after the cache is NaN in its own format, too. */
Test(inputs, guards_of_the_cache_hold_nan) {
    made m;
    make("kv_len=5 kv=fp8fnuz q=fp8fnuz", &m);
    for (int64_t i = 1; i <= 576; i++)
        cr_assert(m.in.kv.data[-i] == 0x80 && m.in.q.data[-i] == 0x80);
    drop(&m);
    make("kv_len=5 kv=fp8", &m);
    cr_assert_eq(m.in.kv.data[-1], 0xFF);
    drop(&m);
}

/* Every slot is a used one, NaN because one is near, or 0. Returns the last used slot. */
static int64_t check_spread(const char *line, int64_t near) {
    made m;
    double row[MLA_HEAD_DIM];
    make(line, &m);
    uint8_t *owned = owned_slots(&m);
    int64_t last = -1, zeros = 0;
    for (int64_t slot = 0; slot < m.p->total_kv; slot++) {
        mla_kv_row_f64(m.p, slot, row);
        if (owned[slot]) {
            cr_assert(isfinite(row[0]), "%s: slot %lld", line, (long long)slot);
            last = slot;
            continue;
        }
        bool close = false;
        for (int64_t i = slot - near; i <= slot + near; i++)
            close |= i >= 0 && i < m.p->total_kv && owned[i];
        cr_assert(!close || isnan(row[0]), "%s: slot %lld holds %g", line, (long long)slot, row[0]);
        zeros += row[0] == 0;
    }
    cr_assert_gt(zeros, m.p->total_kv / 4);
    free(owned);
    drop(&m);
    return last;
}

Test(inputs, spread_puts_tokens_far_apart) {
    cr_assert_gt(check_spread("kv_len=20 page=list spread=20000 seed=1", 60), 10000);
    cr_assert_gt(check_spread("kv_len=20,30 page=4 spread=20000 kv=fp8 seed=2", 60), 10000);
    cr_assert_gt(check_spread("kv_len=100 page=64 spread=20000 kv=mxfp4 scale_stride=20 seed=3", 1), 10000);
    cr_assert_eq(check_spread("kv_len=20 spread=20000 seed=4", 60), 19);
}

/* Page 4, 13 tokens: the fourth page holds one token and three NaN rows, the fifth and sixth entries are garbage. */
Test(inputs, tables_end_in_garbage_and_pages_in_nan) {
    made m;
    double row[MLA_HEAD_DIM];
    make("kv_len=13,5 page=4", &m);
    cr_assert_eq(m.p->block_table_stride, 6);
    int moved = 0;
    for (int i = 0; i < 4; i++)
        moved += m.p->block_table[i] != i;
    cr_assert_gt(moved, 0);
    for (int i = 4; i < 6; i++)
        cr_assert_gt(m.p->block_table[i], 1000000000);
    for (int i = 1; i < 4; i++) {
        mla_kv_row_f64(m.p, (int64_t)m.p->block_table[3] * 4 + i, row);
        cr_assert(isnan(row[0]) && isnan(row[575]));
    }
    drop(&m);
}

Test(inputs, padding_rows_hold_nan_and_no_keys) {
    made m;
    make("heads=2 q_len=2,1 kv_len=20 q_pad=3 page=topk:5 q=fp8fnuz", &m);
    cr_assert_eq(m.p->total_q, 6);
    cr_assert_eq(m.p->qo_indptr[2], 3);
    for (int i = 3 * 2 * 576; i < 6 * 2 * 576; i++)
        cr_assert_eq(m.in.q.data[i], 0x80);
    for (int i = 0; i < 3 * 2 * 576; i++)
        cr_assert_neq(m.in.q.data[i], 0x80);
    for (int i = 3 * 5; i < 6 * 5; i++)
        cr_assert_eq(m.p->topk_indices[i], -1);
    drop(&m);
}

Test(inputs, nothing_makes_null_pointers) {
    made m;
    make("q_len=0 kv_len=0", &m);
    cr_assert_null(m.p->q);
    cr_assert_null(m.p->kv);
    cr_assert_eq(m.p->total_kv, 0);
    drop(&m);
}

/* Lists name distinct tokens of their own sequence; some lack a head, some are scattered, one in eight is empty. */
Test(inputs, sparse_lists_are_distinct_and_own) {
    made m;
    make("heads=1 q_len=40,40 kv_len=100,30 page=topk:60 seed=5", &m);
    int empty = 0, headless = 0, scattered = 0;
    double row[MLA_HEAD_DIM];
    uint8_t *owner = calloc((size_t)m.p->total_kv, 1);
    for (int32_t t = 0; t < 80; t++) {
        const int32_t *list = m.p->topk_indices + t * 60;
        uint8_t *seen = calloc((size_t)m.p->total_kv, 1);
        int count = 0, holes = 0;
        for (int i = 0; i < 60; i++) {
            if (list[i] < 0) {
                holes += count > 0 && i < 30;
                continue;
            }
            count++;
            cr_assert(!seen[list[i]], "slot %d is listed twice", list[i]);
            seen[list[i]] = 1;
            cr_assert(owner[list[i]] == 0 || owner[list[i]] == 1 + t / 40, "slot %d belongs to the other sequence", list[i]);
            owner[list[i]] = (uint8_t)(1 + t / 40);
            mla_kv_row_f64(m.p, list[i], row);
            cr_assert(isfinite(row[0]));
        }
        cr_assert_leq(count, t < 40 ? 60 : 30);
        empty += count == 0;
        scattered += holes > 0;
        headless += count > 0 && list[0] < 0 && list[15] < 0;
        free(seen);
    }
    free(owner);
    cr_assert_eq(empty, 10);
    cr_assert(headless > 5 && scattered > 3, "%d headless, %d scattered", headless, scattered);
    drop(&m);
}

Test(inputs, sinks_follow_the_case) {
    made m;
    make("heads=8 kv_len=1 sink=-1.5", &m);
    for (int h = 0; h < 8; h++)
        cr_assert_eq(m.p->sink[h], -1.5f);
    drop(&m);
    make("heads=8 kv_len=1 sink=rand", &m);
    cr_assert(m.p->sink[0] != m.p->sink[1] && fabsf(m.p->sink[0]) < 11);
    drop(&m);
    make("heads=8 kv_len=1", &m);
    cr_assert_null(m.p->sink);
    drop(&m);
}

/* ---- every case is a problem, or says why not ---- */

Test(inputs, random_cases_make_good_problems) {
    mla_case_list list = {0};
    int checked = 0;
    cr_assert_eq(mla_case_list_random(&list, 500, 11).code, MLA_OK);
    for (int i = 0; i < list.count; i++) {
        int64_t tokens = 0;
        for (int32_t b = 0; b < list.cases[i].batch; b++)
            tokens += list.cases[i].kv_len[b];
        if (tokens > 400)
            continue;
        mla_inputs in;
        const mla_status status = mla_inputs_make(&list.cases[i], &in);
        char *line = mla_case_print(&list.cases[i]);
        cr_assert_eq(status.code, MLA_OK, "'%s': %s", line, status.message);
        cr_assert_eq(mla_problem_check(&in.problem).code, MLA_OK);
        free(line);
        mla_inputs_free(&in);
        checked++;
    }
    cr_assert_gt(checked, 100);
    mla_case_list_free(&list);
}

static void expect_failure(const char *line, mla_code code, const char *part) {
    mla_case c;
    mla_inputs in;
    cr_assert_eq(mla_case_parse(line, &c).code, MLA_OK);
    const mla_status status = mla_inputs_make(&c, &in);
    cr_assert_eq(status.code, code, "%s", status.message);
    cr_assert_not_null(strstr(status.message, part), "%s", status.message);
    mla_inputs_free(&in);
    mla_case_free(&c);
}

Test(inputs, a_scale_beyond_q_is_refused) {
    expect_failure("kv_len=4 q=fp16 scale=1e-9 input=needle", MLA_EINVAL, "scale=1e-9: input=needle");
    expect_failure("kv_len=4 q=fp16 scale=1e5 input=exact", MLA_EINVAL, "q=fp16 cannot hold");
}

Test(inputs, memory_that_cannot_be_had_is_named) {
    expect_failure("heads=1 q_len=0 batch=4194304 kv_len=1 page=2147483647", MLA_ENOMEM, "kv: ");
}
