#include "sigma.h"

#include <math.h>

static const double U2 = 0x1p-48;    /* unit roundoff of fp32, squared */
static const double WORST = 1.0 / 3; /* a rounding's variance just above a power of two, in units of u^2 */
static const double TRUNCATED = 0.201,
                    TRUNCATED_MEAN = 0.7213; /* the same of rounding toward zero: variance in units of u^2, and mean in units of u */
/* Of accumulation toward zero: a step errs by up to 2 u of the running sum, 0.72 u on average, and n steps add up. In units of (2 u)^2 n^2. */
static const double STEP_BIAS = 0.13;
/* Weights whose logarithms deviate by less than this do not fill a binade, which is 0.69 wide. */
static const double SPREAD_MANTISSAS = 0.3;
static const double NARROW = 2; /* unit roundoffs */
static const double REPEATED = 1.05;

static double square(double x) {
    return x * x;
}

static double rounding_variance(mla_format format) {
    return MLA_ROUNDING_VARIANCE * square(mla_bound_extra_roundoff(format, MLA_RNE));
}

/* fp8 has 8 mantissas, fp4 fewer: rounded again, times a scale, they have as many errors. */
static bool operands_repeat(const mla_problem *problem, const mla_contract *contract) {
    const bool coarse_q = problem->q_format == MLA_FP8 || problem->q_format == MLA_FP8FNUZ;
    const bool coarse_kv = problem->kv_format != MLA_KV_BF16 && problem->kv_format != MLA_KV_FP16;
    return (coarse_q && contract->q_scaled != MLA_NONE) || (coarse_kv && contract->kv_dequant != MLA_NONE);
}

/* Of x rounded to nearest. */
static double ulp_variance(mla_format format, double x) {
    return square(mla_ulp(format, x)) / 12;
}

/* Mean error of rounding out toward zero, in ulp; nearly a whole one where partials were rounded to a grid that the rest falls short of. */
static double out_mean(const mla_contract *contract) {
    if (contract->out_rounding == MLA_RNE)
        return 0;
    return contract->partial == MLA_FP32 ? 0.5 : 1;
}

/* The matrix unit takes g products a step: D / g and N / g steps, whose sizes wander (b, Q) or grow (z, O). */
static void set_accumulation(mla_sigma_model *model, const mla_contract *contract) {
    const bool biased = contract->acc_rounding == MLA_RZ;
    const double u2 = ldexp(biased ? 4 : 1, -2 * contract->acc_bits), g = contract->mma_k;
    const double splits = fmin(contract->max_splits, model->keys);
    model->dot_walk = MLA_ROUNDING_VARIANCE * u2 * MLA_HEAD_DIM / g;
    model->sum_walk = MLA_ROUNDING_VARIANCE * u2 * (model->keys / g + splits);
    model->dot_bias = biased ? STEP_BIAS * u2 * square(MLA_HEAD_DIM / g) : 0;
    model->sum_bias = biased ? STEP_BIAS * u2 * square(model->keys / g) : 0;
}

mla_sigma_model mla_sigma_model_make(const mla_arithmetic *math, const mla_problem *problem, const mla_contract *contract, int64_t keys) {
    mla_sigma_model model = {.keys = (double)keys, .log_keys = math->log((double)keys + 1), .out_format = problem->out_format};
    model.p_unit = mla_bound_extra_roundoff(contract->p, MLA_RNE);
    model.p_truncates = contract->p_rounding == MLA_RZ;
    model.rowsum_of_rounded_p = contract->rowsum_of_rounded_p;
    model.top_is_exact = !contract->lazy_max;
    model.score = contract->n_scores * square(mla_bound_extra_roundoff(contract->scores, MLA_RNE));
    model.q = rounding_variance(contract->q_scaled);
    model.value = rounding_variance(contract->kv_dequant);
    model.product = model.q + model.value;
    model.partial = rounding_variance(contract->partial);
    model.partial_format = contract->partial;
    model.value_floor = model.value > 0 ? ulp_variance(contract->kv_dequant, 0) : 0;
    model.operands_repeat = operands_repeat(problem, contract);
    model.out_mean = out_mean(contract);
    model.step = MLA_ROUNDING_VARIANCE * U2;
    model.exponential = (square(contract->exp_error) / 3 + 2 + square(contract->tanh_error * (double)problem->softcap) / 3) * U2;
    set_accumulation(&model, contract);
    return model;
}

bool mla_sigma_has_noise(const mla_sigma_model *model) {
    return model->score + model->product > 0;
}

bool mla_sigma_has_products(const mla_sigma_model *model) {
    return model->product > 0;
}

/* Sums over rounded keys, of the distance below the maximum. */
typedef struct moments {
    double weight, first, second;
} moments;

static void add_moment(moments *m, double weight, double offset) {
    m->weight += weight;
    m->first += weight * offset;
    m->second += weight * offset * offset;
}

static double deviation(const moments *m) {
    return m->weight > 0 ? sqrt(fmax(m->second / m->weight - square(m->first / m->weight), 0)) : INFINITY;
}

/*
 * Variance of a weight by the order of accumulation. b_j^2 is taken as s^2 |q|^2 |k_j|^2 / D, which it is on average: where one product is larger than
 * all others, z_j^2 holds it.
 */
static double order_variance(const mla_sigma_model *model, double z, double x, double offset, double product2) {
    return model->dot_walk * (product2 / 2 + z * z / 3) + model->dot_bias * z * z +
           3 * model->step * (x * x + offset * offset + model->log_keys * model->log_keys) + model->exponential;
}

/* Of a score's rounding: weighted by p^2 x^2, do |x| deviate enough to fill a binade? The deviation of |x| / mean |x| stands for that of ln |x|. */
static double score_variance(const mla_sigma_model *model, const double *p, const double *x) {
    moments by_effect = {0};
    for (int64_t j = 0; j < (int64_t)model->keys; j++)
        add_moment(&by_effect, p[j] * p[j] * x[j] * x[j], fabs(x[j]));
    const bool narrow = deviation(&by_effect) < SPREAD_MANTISSAS * by_effect.first / by_effect.weight;
    return narrow ? WORST : MLA_ROUNDING_VARIANCE;
}

mla_sigma_row mla_sigma_row_make(const mla_sigma_model *model, const mla_softmax *softmax, const double *p, const double *z,
                                 const double *x, const double *lengths, double q_length, const int32_t *equal, double *noise) {
    mla_sigma_row row = {.top_p = softmax->share / softmax->sum};
    row.score_variance = model->score > 0 ? score_variance(model, p, x) : 0;
    const double score = row.score_variance * model->score;
    moments by_p = {0}, by_p2 = {0};
    double repeated = 0;
    int64_t tops = 0;
    for (int64_t j = 0; j < (int64_t)model->keys; j++) {
        const double p2 = p[j] * p[j], offset = softmax->max - x[j];
        row.p2 += p2;
        row.order += p2 * order_variance(model, z[j], x[j], offset, q_length * lengths[j] / MLA_HEAD_DIM);
        if (noise) {
            noise[j] = p2 * (score * x[j] * x[j] + (model->product > 0 ? model->product * noise[j] : 0));
            row.noise += noise[j];
        }
        tops += mla_sigma_is_top(&row, p[j]);
        if (mla_sigma_rounds(model, &row, p[j])) {
            add_moment(&by_p, p[j], offset);
            add_moment(&by_p2, p2, offset);
            repeated += equal[j] * p2;
        }
    }
    row.order = row.p2 > 0 ? row.order / row.p2 : 0;
    row.rounded_p = by_p.weight;
    row.rounded_p2 = by_p2.weight;
    row.p_variance = deviation(&by_p2) < SPREAD_MANTISSAS ? WORST : model->p_truncates ? TRUNCATED : MLA_ROUNDING_VARIANCE;
    row.sum_step2 = model->step * (model->keys / 2 + 8 + softmax->lse * softmax->lse);
    const double unit2 = fmax(square(model->p_unit), row.p2 > 0 ? row.noise / row.p2 / MLA_ROUNDING_VARIANCE : 0);
    if (unit2 > 0 && square(deviation(&by_p)) < NARROW * NARROW * unit2)
        row.doubts |= MLA_CHI_NARROW;
    if (unit2 > 0 && repeated > REPEATED * row.rounded_p2)
        row.doubts |= MLA_CHI_REPEATED;
    if (model->operands_repeat || (model->p_unit > 0 && model->p_truncates && tops > 1)) /* a weight just below 1 loses a whole ulp */
        row.doubts |= MLA_CHI_REPEATED;
    return row;
}

/* sum w (v - O)^2 of weights that sum to `total`, from w v^2 and w v. */
static double about_out(double square_sum, double value_sum, double total, double out) {
    return fmax(square_sum - 2 * out * value_sum + out * out * total, 0);
}

/* P's rounding: the spread, and, returned, how much it takes off when it is toward zero. Where l sums rounded weights, an error counts by v - O. */
static double add_weights(const mla_sigma_model *model, const mla_sigma_row *row, const mla_sigma_sums *sums, mla_variance *variance) {
    const bool exact_top = model->top_is_exact;
    const double top_p = row->top_p, unit2 = square(model->p_unit);
    double spread = fmax(sums->square - (exact_top ? square(top_p) * sums->top_square : 0), 0);
    double shift = sums->out - (exact_top ? top_p * sums->top_value : 0);
    if (model->rowsum_of_rounded_p) {
        spread = about_out(spread, sums->square_value - (exact_top ? square(top_p) * sums->top_value : 0), row->rounded_p2, sums->out);
        shift -= sums->out * row->rounded_p;
    }
    variance->weights = row->p_variance * unit2 * spread;
    return model->p_truncates ? (row->p_variance == WORST ? 1 : TRUNCATED_MEAN) * model->p_unit * shift : 0;
}

/* q_c moves the score of key j by s k_jc, and k_jc is v_jc: the one entry whose error an element's values follow. */
static double own_column(const mla_sigma_model *model, const mla_sigma_sums *sums) {
    return model->q * square(sums->q * (sums->spread - sums->out * sums->out));
}

/*
 * How splits divide a row is unknown: the largest partial is about as large as O, and the rest as they are when keys are independent.
 */
mla_variance mla_sigma_element(const mla_sigma_model *model, const mla_sigma_row *row, const mla_sigma_sums *sums) {
    const double out2 = sums->out * sums->out;
    mla_variance variance = {.bias = square(sums->underflow) + square(sums->tiny)};
    const double lost = model->p_unit > 0 ? add_weights(model, row, sums, &variance) : 0;
    variance.bias += square(lost + copysign(model->out_mean * mla_ulp(model->out_format, sums->out), sums->out));
    if (mla_sigma_has_noise(model))
        variance.scores = about_out(sums->noise_square, sums->noise_value, row->noise, sums->out) + own_column(model, sums);
    variance.columns =
        ulp_variance(model->out_format, sums->out) + (model->partial + model->value) * sums->square + model->value_floor * row->p2;
    if (model->partial > 0) {
        const double largest = ulp_variance(model->partial_format, sums->out);
        variance.columns += largest;
        variance.partials = model->partial * sums->square + largest;
    }
    variance.order = row->order * (sums->square + out2 * row->p2) + model->sum_walk * (sums->square / 2 + out2 / 3) +
                     model->sum_bias * out2 + row->sum_step2 * out2;
    return variance;
}

double mla_variance_total(const mla_variance *variance) {
    return variance->weights + variance->bias + variance->scores + variance->columns + variance->order;
}

double mla_sigma_luck(mla_format format, mla_rounding rounding, double out) {
    const double steps = fabs(out) / mla_ulp(format, out);
    return rounding == MLA_RNE ? 12 * square(steps - floor(steps + 0.5)) : 3 * square(steps - floor(steps));
}
