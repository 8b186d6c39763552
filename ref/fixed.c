/*
 * Truth in double-double, each row's sums in the order of its keys, rounded once to float. Where double-double's error leaves the rounding open, MPFR
 * decides. The bounds are the oracle's, with reproducible arithmetic.
 */
#include "arithmetic.h"
#include "double_double.h"
#include "try.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_HEADS = 8, /* rows that share a key's dequantisation */
    LANES = 8        /* independent sums of a dot product: part of the order, not of the processor */
};

/* A sum of products in twofold precision: value = sum + error (Ogita, Rump and Oishi 2005, Dot2). */
typedef struct fixed_sums {
    double sum[MLA_HEAD_DIM_V], error[MLA_HEAD_DIM_V];
    double abs[MLA_HEAD_DIM_V]; /* of the magnitudes, in plain double */
} fixed_sums;

/* One thread's. A block is a query token and the heads [head, head + heads) of it. */
typedef struct fixed_block {
    const mla_problem *problem;
    int64_t token, first_row; /* the row in truth */
    int32_t head, heads;
    int64_t keys;
    double q[BLOCK_HEADS][MLA_HEAD_DIM], kv[MLA_HEAD_DIM];
    double magnitude[BLOCK_HEADS]; /* largest |sm_scale| sum |q_d k_d| of a row */
    fixed_sums values[BLOCK_HEADS];
    int64_t *slots; /* [positions] */
    mla_dd *scores; /* [BLOCK_HEADS, positions], later weights */
} fixed_block;

/* ---- sums ------------------------------------------------------------------------------------------------------------------------------ */

/* <q, k>, off by at most 2^-85 *magnitude; *magnitude = sum |q_d k_d|. */
static mla_dd dot(const double *q, const double *k, double *magnitude) {
    double sum[LANES] = {0}, error[LANES] = {0}, abs[LANES] = {0};
    for (int d = 0; d < MLA_HEAD_DIM; d += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            const mla_dd product = mla_dd_two_product(q[d + lane], k[d + lane]), next = mla_dd_two_sum(sum[lane], product.hi);
            sum[lane] = next.hi;
            error[lane] += product.lo + next.lo;
            abs[lane] += fabs(product.hi);
        }
    mla_dd total = {0, 0};
    *magnitude = 0;
    for (int lane = 0; lane < LANES; lane++) {
        total = mla_dd_add(total, mla_dd_two_sum(sum[lane], error[lane]));
        *magnitude += abs[lane];
    }
    return total;
}

static void add_value(mla_dd weight, const double *restrict v, fixed_sums *restrict sums) {
    for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
        const mla_dd product = mla_dd_two_product(weight.hi, v[c]), next = mla_dd_two_sum(sums->sum[c], product.hi);
        sums->sum[c] = next.hi;
        sums->error[c] += (product.lo + weight.lo * v[c]) + next.lo;
        sums->abs[c] += fabs(product.hi);
    }
}

static mla_dd score(const mla_problem *problem, const double *q, const double *k, double *magnitude) {
    const mla_dd cap = {(double)problem->softcap, 0};
    const mla_dd z = mla_dd_multiply_double(dot(q, k, magnitude), (double)problem->sm_scale);
    *magnitude *= fabs((double)problem->sm_scale);
    return cap.hi > 0 ? mla_dd_multiply(mla_dd_tanh(mla_dd_divide(z, cap)), cap) : z;
}

static void make_scores(fixed_block *block) {
    memset(block->magnitude, 0, sizeof block->magnitude);
    for (int32_t h = 0; h < block->heads; h++)
        mla_q_row_f64(block->problem, block->token, block->head + h, block->q[h]);
    for (int64_t j = 0; j < block->keys; j++) {
        mla_kv_row_f64(block->problem, block->slots[j], block->kv);
        for (int32_t h = 0; h < block->heads; h++) {
            double magnitude;
            block->scores[h * block->keys + j] = score(block->problem, block->q[h], block->kv, &magnitude);
            block->magnitude[h] = fmax(block->magnitude[h], magnitude);
        }
    }
}

static void sum_values(fixed_block *block) {
    memset(block->values, 0, sizeof block->values);
    for (int64_t j = 0; j < block->keys; j++) {
        mla_kv_row_f64(block->problem, block->slots[j], block->kv);
        for (int32_t h = 0; h < block->heads; h++)
            add_value(block->scores[h * block->keys + j], block->kv, &block->values[h]);
    }
}

/* The softmax of a row: weights exp(x_j - max) in place of the scores. */
typedef struct fixed_softmax {
    mla_dd max, sum; /* of the scores; of the weights */
    mla_dd factor;   /* p_j = weight * factor: the sink is in it */
    double error;    /* of a mean, relative to the mean of the magnitudes; of lse, absolute */
} fixed_softmax;

/*
 * Scores are off by 2^-85 a_j from the dot product and some 2^-103 a_j from the rest, weights by that and 2^-94; numerator and denominator share this
 * error, and add (2 N u)^2 from the compensated sums, u = 2^-53. The powers below leave a factor of two or more.
 */
static double error_of(const fixed_block *block, double magnitude) {
    const double n = (double)block->keys;
    return 0x1p-82 * (1 + magnitude) + 0x1p-103 * n * n;
}

static fixed_softmax soften(const fixed_block *block, int32_t h) {
    const mla_problem *problem = block->problem;
    mla_dd *x = block->scores + h * block->keys;
    fixed_softmax s = {.max = x[0]};
    for (int64_t j = 1; j < block->keys; j++)
        if (x[j].hi > s.max.hi)
            s.max = x[j];
    for (int64_t j = 0; j < block->keys; j++) {
        x[j] = mla_dd_exp(mla_dd_subtract(x[j], s.max));
        s.sum = mla_dd_add(s.sum, x[j]);
    }
    const mla_dd sink = {problem->sink ? (double)problem->sink[block->head + h] : -INFINITY, 0};
    s.factor = mla_dd_divide((mla_dd){1, 0}, s.sum);
    s.error = error_of(block, fmax(block->magnitude[h], problem->sink ? fabs(sink.hi) : 0));
    if (problem->sink) {
        const mla_dd top = sink.hi > s.max.hi ? sink : s.max;
        const mla_dd share = mla_dd_exp(mla_dd_subtract(s.max, top)), sink_weight = mla_dd_exp(mla_dd_subtract(sink, top));
        s.factor = mla_dd_divide(share, mla_dd_add(mla_dd_multiply(s.sum, share), sink_weight));
    }
    return s;
}

/* ---- rounding -------------------------------------------------------------------------------------------------------------------------- */

/* False: not everything within `error` of x rounds to the same float. Weights below exp(-600), taken for 0, stay below 2^-650. */
static bool round_decided(mla_dd x, double error, float *rounded) {
    *rounded = mla_dd_to_float(mla_dd_add_double(x, -(error + 0x1p-650)));
    return *rounded == mla_dd_to_float(mla_dd_add_double(x, error + 0x1p-650));
}

/* The smallest float not below x >= 0; NaN stays. */
static float round_up(double x) {
    const float rounded = (float)x;
    return (double)rounded < x ? nextafterf(rounded, INFINITY) : rounded;
}

static double distance(mla_dd x, float rounded) {
    return fabs(mla_dd_add_double(x, -(double)rounded).hi);
}

/* The row's rounded values, and whether double-double decides them all. */
static bool round_row(const mla_problem *problem, const mla_dd *out, const double *errors, mla_dd lse, double lse_error, float *out_f32,
                      float *lse_f32) {
    bool decided = round_decided(lse, (problem->lse_base == MLA_LSE_2 ? 2 : 1) * lse_error, lse_f32);
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        decided = round_decided(out[c], errors[c], &out_f32[c]) && decided;
    return decided;
}

/* lse in the problem's base. */
static mla_dd lse_of(const mla_problem *problem, const fixed_softmax *softmax) {
    const mla_dd natural = mla_dd_add(softmax->max, mla_dd_log(softmax->sum));
    return problem->lse_base == MLA_LSE_2 ? mla_dd_divide(natural, MLA_DD_LN_2) : natural;
}

static mla_status finish_row(const fixed_block *block, int32_t h, const fixed_softmax *softmax, const mla_truth *oracle,
                             mla_fixed_truth *truth, int64_t *doubtful) {
    const int64_t row = block->first_row + h, at = row * MLA_HEAD_DIM_V;
    const fixed_sums *values = &block->values[h];
    const mla_dd lse = lse_of(block->problem, softmax);
    mla_dd out[MLA_HEAD_DIM_V];
    double errors[MLA_HEAD_DIM_V];
    for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
        out[c] = mla_dd_multiply(mla_dd_two_sum(values->sum[c], values->error[c]), softmax->factor);
        errors[c] = softmax->error * values->abs[c] * softmax->factor.hi;
    }
    if (!round_row(block->problem, out, errors, lse, softmax->error, truth->out + at, &truth->lse[row])) {
        TRY(mla_exact_row_f32(block->problem, block->token, block->head + h, truth->out + at, &truth->lse[row]));
        ++*doubtful;
    }
    for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
        truth->bound[at + c] = round_up(oracle->bound[at + c] + distance(out[c], truth->out[at + c]));
        truth->sigma[at + c] = (float)oracle->sigma[at + c];
    }
    const double unit = block->problem->lse_base == MLA_LSE_2 ? MLA_DD_LN_2.hi : 1;
    truth->lse_bound[row] = round_up(oracle->lse_bound[row] / unit * (1 + 0x1p-50) + distance(lse, truth->lse[row]));
    return mla_ok();
}

/* ---- the run --------------------------------------------------------------------------------------------------------------------------- */

static mla_status run_block(fixed_block *block, const mla_truth *oracle, mla_fixed_truth *truth, int64_t *doubtful) {
    if (block->keys == 0) {
        for (int64_t row = block->first_row; row < block->first_row + block->heads; row++)
            truth->lse[row] = block->problem->lse_empty_positive ? INFINITY : -INFINITY;
        return mla_ok();
    }
    fixed_softmax softmax[BLOCK_HEADS] = {{.error = 0}};
    make_scores(block);
    for (int32_t h = 0; h < block->heads; h++)
        softmax[h] = soften(block, h);
    sum_values(block);
    for (int32_t h = 0; h < block->heads; h++)
        TRY(finish_row(block, h, &softmax[h], oracle, truth, doubtful));
    return mla_ok();
}

static void block_free(fixed_block *block) {
    if (block) {
        free(block->slots);
        free(block->scores);
    }
    free(block);
}

static int64_t largest_range(const mla_problem *problem, const mla_fixed_truth *truth) {
    int64_t largest = 1;
    for (int64_t token = truth->first_token; token < truth->first_token + truth->tokens; token++) {
        const mla_range seen = mla_visible(problem, mla_sequence_of(problem, token), token);
        largest = seen.end - seen.begin > largest ? seen.end - seen.begin : largest;
    }
    return largest;
}

/* NULL: out of memory. */
static fixed_block *block_make(const mla_problem *problem, int64_t positions) {
    fixed_block *block = calloc(1, sizeof *block);
    if (!block)
        return NULL;
    block->problem = problem;
    block->slots = malloc((size_t)positions * sizeof *block->slots);
    block->scores = calloc((size_t)positions, BLOCK_HEADS * sizeof *block->scores);
    if (block->slots && block->scores)
        return block;
    block_free(block);
    return NULL;
}

static void block_set(fixed_block *block, const mla_fixed_truth *truth, int64_t token, int32_t head) {
    const int32_t left = block->problem->heads - head;
    block->token = truth->first_token + token;
    block->first_row = token * block->problem->heads + head;
    block->head = head;
    block->heads = left < BLOCK_HEADS ? left : BLOCK_HEADS;
    block->keys = mla_visible_slots(block->problem, block->token, block->slots);
}

/* Only memory can run short. */
static bool run_blocks(const mla_problem *problem, const mla_truth *oracle, mla_fixed_truth *truth) {
    const int64_t positions = largest_range(problem, truth);
    int64_t doubtful = 0;
    bool failed = false;
#pragma omp parallel reduction(+ : doubtful) reduction(|| : failed)
    {
        fixed_block *block = block_make(problem, positions);
        failed = !block;
#pragma omp for collapse(2) schedule(dynamic)
        for (int64_t token = 0; token < truth->tokens; token++)
            for (int32_t head = 0; head < problem->heads; head += BLOCK_HEADS)
                if (block) {
                    block_set(block, truth, token, head);
                    failed = run_block(block, oracle, truth, &doubtful).code != MLA_OK || failed;
                }
        block_free(block);
    }
    truth->doubtful = doubtful;
    return !failed;
}

static mla_status truth_make(const mla_problem *problem, int64_t first_token, int64_t tokens, mla_fixed_truth *truth) {
    *truth = (mla_fixed_truth){.first_token = first_token, .tokens = tokens, .rows = tokens * problem->heads};
    const size_t rows = truth->rows > 0 ? (size_t)truth->rows : 1;
    truth->out = calloc(rows * MLA_HEAD_DIM_V, sizeof(float));
    truth->bound = calloc(rows * MLA_HEAD_DIM_V, sizeof(float));
    truth->sigma = calloc(rows * MLA_HEAD_DIM_V, sizeof(float));
    truth->lse = calloc(rows, sizeof(float));
    truth->lse_bound = calloc(rows, sizeof(float));
    if (truth->out && truth->bound && truth->sigma && truth->lse && truth->lse_bound)
        return mla_ok();
    return mla_error(MLA_ENOMEM, "fixed: no memory for %lld rows", (long long)rows);
}

void mla_fixed_truth_free(mla_fixed_truth *truth) {
    free(truth->out);
    free(truth->bound);
    free(truth->sigma);
    free(truth->lse);
    free(truth->lse_bound);
    *truth = (mla_fixed_truth){0};
}

mla_status mla_fixed_run(const mla_problem *problem, const mla_contract *contract, int64_t first_token, int64_t tokens,
                         mla_fixed_truth *truth) {
    mla_truth oracle;
    *truth = (mla_fixed_truth){0};
    TRY(mla_oracle_run_with(&mla_arithmetic_fixed, problem, contract, first_token, tokens, &oracle));
    mla_status status = truth_make(problem, first_token, tokens, truth);
    if (status.code == MLA_OK && !run_blocks(problem, &oracle, truth))
        status = mla_error(MLA_ENOMEM, "fixed: no memory for the scores of a block");
    mla_truth_free(&oracle);
    if (status.code != MLA_OK)
        mla_fixed_truth_free(truth);
    return status;
}
