/*
 * Roundings follow the standard model fl(a op b) = (a op b)(1 + d), |d| <= u; n of them in a row, in any order of
 * summation, stay within gamma(n, u) = n u / (1 - n u) (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). Scalar steps are fp32.
 */
#include "bound.h"

#include <math.h>

static const double U = 0x1p-24; /* unit roundoff of fp32 */
static const double THETA_MAX = 50;
static const double LAMBDA = 7;

/* 1 / (1 - u)^n - 1 <= gamma where n u is small; beyond, by -ln(1 - u) <= 2u for u <= 1/2. Finite and, past exp(50), meaningless. */
static double gamma_of(const mla_arithmetic *math, double n, double u) {
    const double nu = n * u;
    return nu < 0.5 ? nu / (1 - nu) : math->expm1(fmin(2 * nu, THETA_MAX));
}

static double unit_roundoff(mla_format format, mla_rounding rounding) {
    return ldexp(1, (rounding == MLA_RZ ? 1 : 0) - mla_format_get(format)->digits);
}

double mla_bound_extra_roundoff(mla_format format, mla_rounding rounding) {
    return format == MLA_FP32 || format == MLA_NONE ? 0 : unit_roundoff(format, rounding);
}

/* Largest absolute error of rounding among the subnormals; 0 as above. */
static double extra_floor(mla_format format, mla_rounding rounding) {
    if (format == MLA_FP32 || format == MLA_NONE)
        return 0;
    return ldexp(1, mla_format_get(format)->min_exponent - (rounding == MLA_RNE ? 1 : 0));
}

double mla_bound_smallest_normal(mla_format format) {
    if (format == MLA_NONE)
        return 0;
    const mla_format_info *info = mla_format_get(format);
    return ldexp(1, info->min_exponent + info->digits - 1);
}

/* Sums of n products in groups of g: aligning and cutting a group costs up to two more roundings a group. */
static double fused_count(double n, int g) {
    return g > 1 ? n + 2 * ceil(n / g) : n;
}

static bool has_q_scale(const mla_problem *problem) {
    return problem->q_format == MLA_FP8 || problem->q_format == MLA_FP8FNUZ;
}

static bool has_kv_scale(const mla_problem *problem) {
    return mla_kv_format_get(problem->kv_format)->has_tensor_scale || problem->kv_format == MLA_KV_FP8B656;
}

/* n roundings, of which those to nearest average out; `equal` of them at a time are the same. */
static double count_of(double n, double equal, bool random) {
    return random ? fmin(n, LAMBDA * sqrt(n * equal)) : n;
}

/*
 * <q, k>: accumulation of D products, and operands rounded on their way. Scaled formats, and q times sm_scale, cost one more fp32 product an
 * operand, wherever the kernel applies the scale.
 */
static double dot_error(const mla_arithmetic *math, const mla_problem *problem, const mla_contract *contract, double u_acc) {
    const double count = count_of(fused_count(MLA_HEAD_DIM, contract->mma_k), 1, contract->acc_rounding == MLA_RNE);
    const double accumulated = 1 + gamma_of(math, count, u_acc);
    const double rounded =
        (1 + mla_bound_extra_roundoff(contract->q_scaled, MLA_RNE)) * (1 + mla_bound_extra_roundoff(contract->kv_dequant, MLA_RNE));
    const double scaled = (1 + has_q_scale(problem) * U) * (1 + has_kv_scale(problem) * U) * (1 + (contract->q_scaled != MLA_NONE) * U);
    return accumulated * rounded * scaled - 1;
}

/*
 * The exponent's error beyond that of <q, k>. Four roundings make z of <q, k> (sm_scale, log2(e), their product, soft-cap's quotient), one the
 * exponent's reference; differences to running maxima add up to at most three in units of M - x. A weight passes exp2 once, once a rescale for
 * each of T tiles, and once in the combine, each with a product. Where partials are merged by lse, that lse is rounded as well.
 */
static void set_score_error(mla_bound_model *model, const mla_problem *problem, const mla_contract *contract, double tiles) {
    const double lse = contract->combine_lse ? 3 * U : 0;
    model->z_error = 4 * U;
    model->x_error = U + lse + contract->n_scores * mla_bound_extra_roundoff(contract->scores, MLA_RNE);
    model->spread_error = 3 * U + lse;
    model->constant_error = (contract->exp_error * (tiles + 2) + tiles + 4) * U + lse * model->math->log(model->keys + 1);
    if (problem->softcap > 0)
        model->constant_error += contract->tanh_error * (double)problem->softcap * U;
}

/* P's rounding: relative u_p, and absolute among its subnormals; p_scale lifts weights away from those. */
static void set_p_error(mla_bound_model *model, const mla_contract *contract) {
    const bool few_exponents = contract->p != MLA_BF16 && contract->p != MLA_FP32;
    const double floor_error =
        contract->ftz && contract->p != MLA_FP32 ? mla_bound_smallest_normal(contract->p) : extra_floor(contract->p, contract->p_rounding);
    model->p_error = mla_bound_extra_roundoff(contract->p, contract->p_rounding);
    model->p_random = contract->p_rounding == MLA_RNE;
    model->p_floor = floor_error / contract->p_scale;
    model->hull_p_error = few_exponents ? 1 : model->p_error;
    model->rowsum_of_rounded_p = contract->rowsum_of_rounded_p;
}

/* The sums over N keys and S splits. Values dequantised with a scale cost one more product. */
static void set_sum_error(mla_bound_model *model, const mla_problem *problem, const mla_contract *contract, double u_acc, double tiles) {
    const double splits = fmin(contract->max_splits, model->keys);
    const double dequantised = (1 + mla_bound_extra_roundoff(contract->kv_dequant, MLA_RNE)) * (1 + has_kv_scale(problem) * U);
    model->sum_count = fused_count(model->keys, contract->mma_k) + splits;
    model->sum_step = u_acc;
    model->sum_random = contract->acc_rounding == MLA_RNE;
    model->rowsum_count = model->keys + splits;
    model->value_error = (1 + mla_bound_extra_roundoff(contract->partial, MLA_RNE)) * dequantised - 1;
    model->underflow_step = contract->ftz ? 0x1p-126 : 0x1p-149;
    model->underflow =
        (tiles + splits + 2) * model->underflow_step + extra_floor(contract->partial, MLA_RNE) + extra_floor(contract->kv_dequant, MLA_RNE);
}

mla_bound_model mla_bound_model_make(const mla_arithmetic *math, const mla_problem *problem, const mla_contract *contract, int64_t keys) {
    mla_bound_model model = {.math = math, .keys = (double)keys, .combine_lse = contract->combine_lse};
    const double u_acc = ldexp(1, (contract->acc_rounding == MLA_RZ ? 1 : 0) - contract->acc_bits);
    const double tiles = ceil(model.keys / contract->tile);
    model.exp_error = contract->exp_error;
    model.log_error = contract->log_error;
    model.dot_error = dot_error(math, problem, contract, u_acc);
    set_score_error(&model, problem, contract, tiles);
    set_p_error(&model, contract);
    set_sum_error(&model, problem, contract, u_acc, tiles);
    model.out_error = unit_roundoff(problem->out_format, contract->out_rounding);
    model.out_floor = ldexp(1, mla_format_get(problem->out_format)->min_exponent - (contract->out_rounding == MLA_RNE ? 1 : 0));
    return model;
}

/*
 * Adding c to a running sum errs by the same amount again and again while neither c nor the sum's binade changes, so equal weights of equal values do
 * not average out: 10,000 times 0.1 in fp32 errs by 1,600 u, more than lambda sqrt(n) = 700. Runs of n_j equal scores count as one error of n_j
 * times the size: lambda sqrt(sum n_j^2 over runs) = lambda sqrt(sum n_j over keys).
 */
mla_sum_errors mla_bound_sum_errors(const mla_bound_model *model, const int32_t *equal) {
    double total = 0;
    for (int64_t j = 0; j < (int64_t)model->keys; j++)
        total += equal[j];
    const double sums = count_of(model->sum_count, total / model->keys, model->sum_random);
    const double rowsums = count_of(model->rowsum_count, total / model->keys, true);
    const double value = (1 + gamma_of(model->math, sums, model->sum_step)) * (1 + model->value_error);
    return (mla_sum_errors){.value = value - 1, .per_value = 1 / value, .rowsum = gamma_of(model->math, rowsums, U)};
}

/* Relative error of a rounded weight whose exp(x - m) is `weight`. */
static double weight_error(const mla_bound_model *model, double weight) {
    const double floored = model->p_floor >= weight ? 1 : model->p_floor / weight;
    return floored > model->p_error ? floored : model->p_error;
}

mla_key_sums mla_bound_keys(const mla_bound_model *model, const mla_softmax *softmax, const mla_sum_errors *errors, const double *z,
                            const double *x, const int32_t *alike, double *weights, double *dots, double *alike_weights) {
    mla_key_sums sums = {0};
    for (int64_t j = 0; j < (int64_t)model->keys; j++) {
        const double raw_theta = model->dot_error * dots[j] + model->z_error * fabs(z[j]) + model->x_error * fabs(x[j]) +
                                 model->spread_error * (softmax->top - x[j]) + model->constant_error;
        const double theta = raw_theta > THETA_MAX ? THETA_MAX : raw_theta;
        const double h = model->math->expm1(theta), p_hat = weights[j] / softmax->sum, raised = p_hat * (1 + h);
        const double offset = softmax->max - x[j];
        sums.theta += p_hat * theta;
        sums.high += p_hat * h;
        sums.low += p_hat * (h / (1 + h));
        sums.raised += raised;
        sums.offset += p_hat * offset;
        sums.offset2 += p_hat * offset * offset;
        if (model->p_error > 0) {
            const double r = weight_error(model, weights[j]);
            sums.tiny += r > model->p_error ? raised * r : 0;
            sums.alike += alike[j] * raised * raised;
            alike_weights[j] = alike[j] * (raised * softmax->share) * (raised * softmax->share);
        }
        weights[j] = p_hat * softmax->share;
        dots[j] = weights[j] * ((1 + h) * (1 + errors->value) - 1);
    }
    return sums;
}

double mla_bound_tiny(const mla_bound_model *model, const mla_softmax *softmax, const mla_sum_errors *errors, double p, double dot) {
    const double r = weight_error(model, p / softmax->share * softmax->sum);
    return r > model->p_error ? (dot + p) * errors->per_value * r : 0;
}

/*
 * The error that P's rounding makes in a sum of p values: `raised` is the sum of p (1 + h) |value|, `alike` of n (p (1 + h) value)^2, `tiny` of
 * p (1 + h) r |value| over tiny weights. To nearest, errors of weights that differ are independent but for what the spread of scores leaves of a bias: a
 * weight's place between two neighbours of p is uniform to 2 u_p over that spread, the standard deviation of x.
 */
static double weights_error(const mla_bound_model *model, double p_bias, double raised, double alike, double tiny) {
    const double worst = model->p_error * raised, likely = LAMBDA * model->p_error * sqrt(alike) + p_bias * raised;
    return (likely < worst ? likely : worst) + tiny;
}

static double bias_of_weights(const mla_bound_model *model, const mla_key_sums *sums) {
    const double deviation = sqrt(fmax(sums->offset2 - sums->offset * sums->offset, 0));
    const bool averages = model->p_random && deviation > 2 * model->p_error;
    return averages ? model->p_error * (2 * model->p_error / deviation) : model->p_error;
}

/* The sink's weight passes exp2 up to three times and is compared with maxima and lse. */
static double sink_theta(const mla_bound_model *model, const mla_softmax *softmax) {
    const double theta =
        3 * U * fabs(softmax->sink) + 6 * U * (softmax->top - softmax->sink) + (3 * model->exp_error + 8) * U + 3 * U * fabs(softmax->lse);
    return theta > THETA_MAX ? THETA_MAX : theta;
}

/*
 * Weights w_j (1 + e_j) in numerator and denominator give O' - O = sum p_j e_j (v_j - O) / (1 + sum p_j e_j) for any point of reference: that is
 * why the running maximum's own error drops out. `sum_error` bounds |sum p e|, `sum_low` bounds 1 + sum p e from below.
 */
mla_bound_row mla_bound_row_make(const mla_bound_model *model, const mla_softmax *softmax, const mla_sum_errors *errors,
                                 const mla_key_sums *sums) {
    const mla_arithmetic *math = model->math;
    mla_bound_row row = {.errors = *errors, .p_bias = bias_of_weights(model, sums), .tiny = softmax->share * sums->tiny};
    const double g = errors->rowsum;
    const double rounded_p = model->rowsum_of_rounded_p ? weights_error(model, row.p_bias, sums->raised, sums->alike, sums->tiny) : 0;
    row.sum_error = softmax->share * ((1 + sums->high) * (1 + g) - 1 + rounded_p);
    double low = softmax->share * (1 - sums->low);
    if (softmax->p_sink > 0) {
        const double h = math->expm1(sink_theta(model, softmax));
        row.sum_error += softmax->p_sink * h;
        low += softmax->p_sink * math->exp(-h);
    }
    row.sum_low = low * (1 - g) - softmax->share * rounded_p;
    row.per_low = 1 / row.sum_low;
    row.underflow = model->keys / softmax->total * model->underflow_step + model->underflow;
    row.value_underflow = 0x1p-126 / softmax->total;
    row.hull = softmax->share * sums->theta > 0.5 || row.sum_low <= 0;
    row.lse_error = model->combine_lse ? (4 * fabs(softmax->lse) + 4 * math->log(model->keys + 1) + model->exp_error + 8) * U : 0;
    row.lse_bound = fmax(math->log1p(sums->high), -math->log1p(-sums->low)) + g + rounded_p +
                    4 * U * (fabs(softmax->max) + math->log(model->keys + 1)) + (8 + model->log_error) * U;
    return row;
}

/* However wrong the weights, an average of values lies among them: a sink averages with 0. What is rounded after the weights comes on top. */
static double hull_error(const mla_bound_model *model, const mla_softmax *softmax, const mla_bound_row *row, double out,
                         mla_value_range value) {
    const bool sink = softmax->p_sink > 0;
    const double low = sink ? fmin(value.min, 0) : value.min, high = sink ? fmax(value.max, 0) : value.max;
    const double largest = fmax(fabs(low), fabs(high));
    return high - low + 2 * (model->hull_p_error + row->errors.value) * largest + 8 * U * fabs(out);
}

double mla_bound_element(const mla_bound_model *model, const mla_softmax *softmax, const mla_bound_row *row, const mla_element_sums *sums) {
    const double out = fabs(sums->out), raised = (sums->numerator + sums->abs) * row->errors.per_value;
    const double p_error = model->p_error > 0 ? weights_error(model, row->p_bias, raised, sums->alike, sums->tiny) : 0;
    const double numerator = sums->numerator + (1 + row->errors.value) * p_error;
    double error = (numerator + out * row->sum_error) * row->per_low + 8 * U * out;
    if (row->hull) {
        const double hull = hull_error(model, softmax, row, out, sums->value);
        error = row->sum_low > 0 && error < hull ? error : hull;
    }
    error += row->value_underflow * sums->value.abs_sum + row->underflow;
    error += row->lse_error * (out + error);
    return error + model->out_error * (out + error) + model->out_floor;
}
