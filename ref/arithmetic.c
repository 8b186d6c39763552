#include "arithmetic.h"
#include "double_double.h"

#include <cblas.h>
#include <math.h>

/* ---- fast ------------------------------------------------------------------------------------------------------------------------------ */

static void blas_multiply_transposed(int rows, int columns, int inner, double scale, const double *a, int64_t a_stride, const double *b,
                                     int64_t b_stride, double *c, int64_t c_stride) {
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, columns, inner, scale, a, (blasint)a_stride, b, (blasint)b_stride, 0, c,
                (blasint)c_stride);
}

static void blas_multiply_add(int rows, int columns, int inner, const double *a, int64_t a_stride, const double *b, int64_t b_stride,
                              double *c, int64_t c_stride) {
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, columns, inner, 1, a, (blasint)a_stride, b, (blasint)b_stride, 1, c,
                (blasint)c_stride);
}

const mla_arithmetic mla_arithmetic_fast = {
    .multiply_transposed = blas_multiply_transposed,
    .multiply_add = blas_multiply_add,
    .exp = exp,
    .expm1 = expm1,
    .log = log,
    .log1p = log1p,
    .tanh = tanh,
};

/* ---- fixed ----------------------------------------------------------------------------------------------------------------------------- */

enum { LANES = 8 }; /* independent sums: part of the order, not of the processor */

static double dot(int count, const double *a, const double *b) {
    double lanes[LANES] = {0}, sum = 0;
    int i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] += a[i + lane] * b[i + lane];
    for (int lane = 0; lane < LANES; lane++)
        sum += lanes[lane];
    for (; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static void loop_multiply_transposed(int rows, int columns, int inner, double scale, const double *a, int64_t a_stride, const double *b,
                                     int64_t b_stride, double *c, int64_t c_stride) {
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            c[i * c_stride + j] = scale * dot(inner, a + i * a_stride, b + j * b_stride);
}

static void add_multiple(int count, double factor, const double *restrict from, double *restrict to) {
    for (int i = 0; i < count; i++)
        to[i] += factor * from[i];
}

static void loop_multiply_add(int rows, int columns, int inner, const double *a, int64_t a_stride, const double *b, int64_t b_stride,
                              double *c, int64_t c_stride) {
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < inner; k++)
            add_multiple(columns, a[i * a_stride + k], b + k * b_stride, c + i * c_stride);
}

static double fixed_exp(double x) {
    return mla_dd_exp((mla_dd){x, 0}).hi;
}

static double fixed_expm1(double x) {
    return mla_dd_expm1((mla_dd){x, 0}).hi;
}

static double fixed_log(double x) {
    return mla_dd_log((mla_dd){x, 0}).hi;
}

static double fixed_log1p(double x) {
    return mla_dd_log(mla_dd_two_sum(1, x)).hi;
}

static double fixed_tanh(double x) {
    return mla_dd_tanh((mla_dd){x, 0}).hi;
}

const mla_arithmetic mla_arithmetic_fixed = {
    .multiply_transposed = loop_multiply_transposed,
    .multiply_add = loop_multiply_add,
    .exp = fixed_exp,
    .expm1 = fixed_expm1,
    .log = fixed_log,
    .log1p = fixed_log1p,
    .tanh = fixed_tanh,
};
