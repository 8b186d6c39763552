/*
 * The deterministic bound. Roundings follow the standard model fl(a op b) = (a op b)(1 + d), |d| <= u; n of them in a row, in any order of
 * summation, stay within gamma(n, u) = n u / (1 - n u) (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). Scalar steps are fp32.
 */
#include "bound.h"

#include <math.h>

static const double U = 0x1p-24; /* unit roundoff of fp32 */
static const double THETA_MAX = 50;

/* 1 / (1 - u)^n - 1 <= gamma where n u is small; beyond, by -ln(1 - u) <= 2u for u <= 1/2. Finite and, past exp(50), meaningless. */
static double gamma_of(const mla_arithmetic *math, double n, double u) {
    const double nu = n * u;
    return nu < 0.5 ? nu / (1 - nu) : math->expm1(fmin(2 * nu, THETA_MAX));
}

static double unit_roundoff(mla_format format, mla_rounding rounding) {
    return ldexp(1, (rounding == MLA_RZ ? 1 : 0) - mla_format_get(format)->digits);
}

/* 0 for fp32: the scalar counts hold that rounding already. */
static double extra_roundoff(mla_format format, mla_rounding rounding) {
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

/*
 * <q, k>: accumulation of D products, and operands rounded on their way. Scaled formats, and q times sm_scale, cost one more fp32 product an
 * operand, wherever the kernel applies the scale.
 */
static double dot_error(const mla_arithmetic *math, const mla_problem *problem, const mla_contract *contract, double u_acc) {
    const double accumulated = 1 + gamma_of(math, fused_count(MLA_HEAD_DIM, contract->mma_k), u_acc);
    const double rounded = (1 + extra_roundoff(contract->q_scaled, MLA_RNE)) * (1 + extra_roundoff(contract->kv_dequant, MLA_RNE));
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
    model->x_error = U + lse + contract->n_scores * extra_roundoff(contract->scores, MLA_RNE);
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
    model->p_error = extra_roundoff(contract->p, contract->p_rounding);
    model->p_floor = floor_error / contract->p_scale;
    model->hull_p_error = few_exponents ? 1 : model->p_error;
    model->rowsum_of_rounded_p = contract->rowsum_of_rounded_p;
}

/* The sums over N keys and S splits. Values dequantised with a scale cost one more product. */
static void set_sum_error(mla_bound_model *model, const mla_problem *problem, const mla_contract *contract, double u_acc, double tiles) {
    const double splits = fmin(contract->max_splits, model->keys);
    const double accumulated = 1 + gamma_of(model->math, fused_count(model->keys, contract->mma_k) + splits, u_acc);
    const double dequantised = (1 + extra_roundoff(contract->kv_dequant, MLA_RNE)) * (1 + has_kv_scale(problem) * U);
    model->rowsum_error = gamma_of(model->math, model->keys + splits, U);
    model->value_error = accumulated * (1 + extra_roundoff(contract->partial, MLA_RNE)) * dequantised - 1;
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

mla_key_sums mla_bound_keys(const mla_bound_model *model, const mla_softmax *softmax, const double *z, const double *x, double *weights,
                            double *dots) {
    mla_key_sums sums = {0};
    for (int64_t j = 0; j < (int64_t)model->keys; j++) {
        const double raw_theta = model->dot_error * dots[j] + model->z_error * fabs(z[j]) + model->x_error * fabs(x[j]) +
                                 model->spread_error * (softmax->top - x[j]) + model->constant_error;
        const double theta = raw_theta > THETA_MAX ? THETA_MAX : raw_theta;
        const double h = model->math->expm1(theta);
        const double floored = model->p_floor >= weights[j] ? 1 : model->p_floor / weights[j];
        const double r = floored > model->p_error ? floored : model->p_error;
        const double p_hat = weights[j] / softmax->sum;
        sums.theta += p_hat * theta;
        sums.high += p_hat * h;
        sums.low += p_hat * (h / (1 + h));
        sums.p += p_hat * r;
        weights[j] = p_hat * softmax->share;
        dots[j] = weights[j] * ((1 + h) * (1 + r) * (1 + model->value_error) - 1);
    }
    return sums;
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
mla_bound_row mla_bound_row_make(const mla_bound_model *model, const mla_softmax *softmax, const mla_key_sums *sums) {
    const mla_arithmetic *math = model->math;
    mla_bound_row row = {0};
    const double g = model->rowsum_error, rounded_p = model->rowsum_of_rounded_p ? sums->p : 0;
    row.sum_error = softmax->share * ((1 + sums->high) * (1 + g) - 1 + rounded_p);
    double low = softmax->share * (1 - sums->low);
    if (softmax->p_sink > 0) {
        const double h = math->expm1(sink_theta(model, softmax));
        row.sum_error += softmax->p_sink * h;
        low += softmax->p_sink * math->exp(-h);
    }
    row.sum_low = low * (1 - g) - softmax->share * rounded_p;
    row.hull = softmax->share * sums->theta > 0.5 || row.sum_low <= 0;
    row.lse_error = model->combine_lse ? (4 * fabs(softmax->lse) + 4 * math->log(model->keys + 1) + model->exp_error + 8) * U : 0;
    row.lse_bound = fmax(math->log1p(sums->high), -math->log1p(-sums->low)) + g + rounded_p +
                    4 * U * (fabs(softmax->max) + math->log(model->keys + 1)) + (8 + model->log_error) * U;
    return row;
}

/* However wrong the weights, an average of values lies among them: a sink averages with 0. What is rounded after the weights comes on top. */
static double hull_error(const mla_bound_model *model, const mla_softmax *softmax, double out, mla_value_range value) {
    const bool sink = softmax->p_sink > 0;
    const double low = sink ? fmin(value.min, 0) : value.min, high = sink ? fmax(value.max, 0) : value.max;
    const double largest = fmax(fabs(low), fabs(high));
    return high - low + 2 * (model->hull_p_error + model->value_error) * largest + 8 * U * fabs(out);
}

double mla_bound_element(const mla_bound_model *model, const mla_softmax *softmax, const mla_bound_row *row, double out, double numerator,
                         mla_value_range value) {
    double error = (numerator + fabs(out) * row->sum_error) / row->sum_low + 8 * U * fabs(out);
    if (row->hull) {
        const double hull = hull_error(model, softmax, out, value);
        error = row->sum_low > 0 && error < hull ? error : hull;
    }
    error += 0x1p-126 * value.abs_sum / softmax->total + model->keys / softmax->total * model->underflow_step + model->underflow;
    error += row->lse_error * (fabs(out) + error);
    return error + model->out_error * (fabs(out) + error) + model->out_floor;
}
