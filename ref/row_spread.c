/*
 * How a row's rounding errors are shared by its columns. Y has a row for every rounding that is independent of the others: of a weight, of a score,
 * of an entry of q. Its entries are how much the rounding, at its worst deviation u / sqrt(3), moves each column, in units of sigma. A rounding's
 * error being bounded and symmetric, it is sub-Gaussian with that deviation as its proxy.
 */
#include "blas_serial.h"
#include "oracle_block.h"
#include "try.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * Partials sum over keys that a split happens to hold: over columns they are normal about their mean square, and their roundings uniform about 0. The
 * fourth moment of such an error is up to 8.4 times its variance squared, of a normal one 3: squares deviate by sqrt(7.4 / 2) times as much.
 */
static const double PARTIALS = 2;

enum { DV = MLA_HEAD_DIM_V, D = MLA_HEAD_DIM, TILE = MLA_ORACLE_TILE, POWER_STEPS = 64 };

typedef struct key_order {
    double x;
    int64_t key;
} key_order;

typedef struct spread_work {
    double *memory;     /* owns the arrays below */
    double *gram;       /* [512, 512]: K */
    double *rows;       /* [TILE, 512]: rows of Y not yet in K */
    double *turned;     /* [512 or 576, TILE]: an operand transposed */
    double *covariance; /* [576, 512]: of k_d and v_c, weighted by p */
    double *vector;     /* [2, 512] */
    double *kv;         /* [TILE, 576] */
    key_order *order;   /* [keys], by score */
    int count;          /* rows in use */
    double per_sigma[DV], out[DV];
    const mla_oracle_block *block;
    const mla_oracle_scratch *scratch;
} spread_work;

/* ---- K -------------------------------------------------------------------------------------------------------------------------------- */

static void transpose(const double *from, int rows, int columns, int64_t stride, double *to) {
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++)
            to[c * TILE + r] = from[r * stride + c];
}

/* K += Y'Y. */
static void flush(spread_work *work) {
    transpose(work->rows, work->count, DV, DV, work->turned);
    work->block->math->multiply_add(DV, DV, work->count, work->turned, TILE, work->rows, DV, work->gram, DV);
    work->count = 0;
}

static double *new_row(spread_work *work) {
    if (work->count == TILE)
        flush(work);
    return memset(work->rows + (size_t)work->count++ * DV, 0, DV * sizeof(double));
}

static void load_value(const spread_work *work, int64_t key, double *kv) {
    mla_kv_row_f64(work->block->problem, work->scratch->slots[key], kv);
}

/* row += weight (v - origin) / sigma */
static void add_key(const spread_work *work, double weight, const double *v, double origin, double *row) {
    for (int c = 0; c < DV; c++)
        row[c] += weight * (v[c] - origin * work->out[c]) * work->per_sigma[c];
}

/*
 * Rows of Y for one rounding a key: keys in the same bin of `width` err alike, and are one row. weight(j) is the deviation; origin 1 where an error
 * counts by the distance of its v from O.
 */
static void add_keys(spread_work *work, double width, double (*weight)(const spread_work *, int64_t), double origin) {
    double *row = NULL, bin = NAN;
    for (int64_t i = 0; i < work->block->keys; i++) {
        const key_order at = work->order[i];
        const double deviation = weight(work, at.key), here = floor(at.x / width);
        if (!(deviation > 0))
            continue;
        if (!row || here != bin)
            row = new_row(work);
        bin = here;
        load_value(work, at.key, work->kv);
        add_key(work, deviation, work->kv, origin, row);
    }
}

static double weight_deviation(const spread_work *work, int64_t key) {
    const double p = work->scratch->weights[key], unit = work->block->sigma.p_unit / sqrt(3);
    return mla_sigma_rounds(&work->block->sigma, &work->scratch->rows[0].sigma, p) ? p * unit : 0;
}

/* Of a score by its own rounding and its key's, q's left out: noise is p^2 times the mean variance, a third of u^2 the largest. */
static double score_deviation(const spread_work *work, int64_t key) {
    const mla_sigma_model *model = &work->block->sigma;
    const double p = work->scratch->weights[key], x = work->scratch->x[key], noise = work->scratch->noise[key];
    const double own = p * p * model->score * x * x, mean = work->scratch->rows[0].sigma.score_variance * own;
    const double products = model->product > 0 ? fmax(noise - mean, 0) * (model->value / model->product) : 0;
    return sqrt(own / 3 + products / (3 * MLA_ROUNDING_VARIANCE));
}

/* ---- q ---------------------------------------------------------------------------------------------------------------------------------- */

/* covariance_dc = sum p_j k_jd (v_jc - O_c) */
static void sum_covariance(spread_work *work) {
    const mla_oracle_block *block = work->block;
    for (int64_t first = 0; first < block->keys; first += TILE) {
        const int tile = block->keys - first < TILE ? (int)(block->keys - first) : TILE;
        for (int t = 0; t < tile; t++) {
            double *row = work->rows + (size_t)t * DV, *kv = work->kv + (size_t)t * D;
            load_value(work, first + t, kv);
            for (int c = 0; c < DV; c++)
                row[c] = work->scratch->weights[first + t] * (kv[c] - work->out[c]);
        }
        transpose(work->kv, tile, D, D, work->turned);
        block->math->multiply_add(D, DV, tile, work->turned, TILE, work->rows, DV, work->covariance, DV);
    }
}

/* One rounding an entry of q: it moves the scores of all keys. */
static void add_q(spread_work *work) {
    const double unit = sqrt(work->block->sigma.q / (3 * MLA_ROUNDING_VARIANCE)) * fabs((double)work->block->problem->sm_scale);
    sum_covariance(work);
    for (int d = 0; d < D; d++) {
        double *row = new_row(work);
        for (int c = 0; c < DV; c++)
            row[c] = unit * fabs(work->scratch->q[d]) * work->covariance[d * DV + c] * work->per_sigma[c];
    }
}

/* ---- the row ------------------------------------------------------------------------------------------------------------------------------ */

static int by_score(const void *a, const void *b) {
    const key_order *left = a, *right = b;
    if (left->x != right->x)
        return left->x < right->x ? -1 : 1;
    return left->key < right->key ? -1 : left->key > right->key;
}

static bool work_make(spread_work *work, const mla_oracle_block *block, const mla_oracle_scratch *scratch) {
    const size_t gram = (size_t)DV * DV, tile = (size_t)TILE * D, order = (size_t)block->keys * sizeof(key_order) / sizeof(double);
    const size_t count = gram + 3 * tile + (size_t)D * DV + 2 * DV + order;
    *work = (spread_work){.block = block, .scratch = scratch, .memory = calloc(count, sizeof(double))};
    if (!work->memory)
        return false;
    work->gram = work->memory;
    work->rows = work->gram + gram;
    work->turned = work->rows + tile;
    work->kv = work->turned + tile;
    work->covariance = work->kv + tile;
    work->vector = work->covariance + (size_t)D * DV;
    work->order = (key_order *)(work->vector + 2 * DV);
    for (int64_t j = 0; j < block->keys; j++)
        work->order[j] = (key_order){scratch->x[j], j};
    qsort(work->order, (size_t)block->keys, sizeof *work->order, by_score);
    return true;
}

/* 1 / sigma, O, and what goes to K's diagonal and to the shift. */
static void set_columns(spread_work *work, mla_row_spread *spread) {
    double shift2 = 0;
    for (size_t c = 0; c < DV; c++) {
        const mla_variance variance = mla_oracle_block_variance(work->block, work->scratch, 0, c);
        const double total = mla_variance_total(&variance);
        work->per_sigma[c] = 1 / sqrt(total);
        work->out[c] = work->block->truth->out[c];
        work->gram[c * DV + c] = (variance.columns + (PARTIALS - 1) * variance.partials + variance.order) / total;
        shift2 += variance.bias / total;
    }
    spread->shift = sqrt(shift2 / DV);
}

static void fill_gram(spread_work *work) {
    const mla_oracle_block *block = work->block;
    if (block->sigma.p_unit > 0)
        add_keys(work, MLA_ALIKE_SCORES * block->bound.p_error, weight_deviation, block->bound.rowsum_of_rounded_p);
    if (mla_sigma_has_noise(&block->sigma))
        add_keys(work, MLA_EQUAL_SCORES, score_deviation, 1);
    flush(work);
    if (block->sigma.q > 0)
        add_q(work);
    flush(work);
}

static double length(const double *v) {
    double sum = 0;
    for (int c = 0; c < DV; c++)
        sum += v[c] * v[c];
    return sqrt(sum);
}

/* The largest eigenvalue of K, by power iteration from a fixed vector. */
static double spectral_norm(spread_work *work) {
    double *v = work->vector, *next = v + DV, norm = 0;
    for (int c = 0; c < DV; c++)
        v[c] = 1 + (c * 7 % 16) / 16.0;
    for (int step = 0; step < POWER_STEPS; step++) {
        const double size = length(v);
        for (int c = 0; c < DV; c++)
            v[c] /= size;
        memset(next, 0, DV * sizeof(double));
        for (int r = 0; r < DV; r++)
            for (int c = 0; c < DV; c++)
                next[c] += v[r] * work->gram[r * DV + c];
        norm = length(next);
        memcpy(v, next, DV * sizeof(double));
    }
    return norm;
}

static void measure_gram(spread_work *work, mla_row_spread *spread) {
    double squares = 0;
    for (int r = 0; r < DV; r++)
        for (int c = 0; c < DV; c++)
            squares += work->gram[r * DV + c] * work->gram[r * DV + c];
    for (int c = 0; c < DV; c++)
        spread->trace += work->gram[c * DV + c];
    spread->frobenius = sqrt(squares);
    spread->spectral = spectral_norm(work);
}

static mla_status spread_row(mla_oracle_block *block, mla_oracle_scratch *scratch, mla_row_spread *spread) {
    spread_work work;
    mla_oracle_block_run(block, scratch);
    if (block->keys == 0)
        return mla_ok();
    if (!work_make(&work, block, scratch))
        return mla_error(MLA_ENOMEM, "oracle: no memory for a row's spread");
    set_columns(&work, spread);
    fill_gram(&work);
    measure_gram(&work, spread);
    spread->gates = block->truth->doubts[0] == 0;
    free(work.memory);
    return mla_ok();
}

static mla_status run_row(mla_oracle_block *block, mla_row_spread *spread) {
    const int64_t positions = mla_oracle_positions(block->problem, block->token);
    const mla_oracle_sizes sizes = {.positions = positions, .scores = positions};
    mla_oracle_scratch scratch;
    if (!mla_oracle_scratch_make(&scratch, &sizes))
        return mla_error(MLA_ENOMEM, "oracle: no memory for the scores of a row");
    const mla_blas_serial blas = mla_blas_serial_begin();
    const mla_status status = spread_row(block, &scratch, spread);
    mla_blas_serial_end(blas);
    free(scratch.memory);
    return status;
}

mla_status mla_oracle_row_spread(const mla_problem *problem, const mla_contract *contract, int64_t row, mla_row_spread *spread) {
    *spread = (mla_row_spread){0};
    TRY(mla_problem_check(problem));
    TRY(mla_contract_check(contract));
    if (row < 0 || row >= problem->total_q * problem->heads)
        return mla_error(MLA_EINVAL, "oracle: there is no row %lld", (long long)row);
    mla_truth truth;
    mla_oracle_block block = {.math = &mla_arithmetic_fast, .problem = problem, .contract = contract, .truth = &truth, .heads = 1};
    block.token = row / problem->heads;
    block.head = (int32_t)(row % problem->heads);
    TRY(mla_truth_make(block.token, 1, 1, &truth));
    const mla_status status = run_row(&block, spread);
    mla_truth_free(&truth);
    return status;
}
