/*
 * The operations whose last bits differ between machines: matrix products, since BLAS picks a kernel by the processor, and elementary functions,
 * since every libm has its own. Oracle and bound take them from a table. All else is correctly rounded anywhere. Internal to ref/.
 */
#ifndef MLA_ARITHMETIC_H
#define MLA_ARITHMETIC_H

#include "mla.h"

/* Matrices are row-major with a stride in elements after each pointer. */
typedef struct mla_arithmetic {
    /* c [rows, columns] = scale * a [rows, inner] * b [columns, inner] transposed */
    void (*multiply_transposed)(int rows, int columns, int inner, double scale, const double *a, int64_t a_stride, const double *b,
                                int64_t b_stride, double *c, int64_t c_stride);
    /* c [rows, columns] += a [rows, inner] * b [inner, columns] */
    void (*multiply_add)(int rows, int columns, int inner, const double *a, int64_t a_stride, const double *b, int64_t b_stride, double *c,
                         int64_t c_stride);
    double (*exp)(double x);
    double (*expm1)(double x);
    double (*log)(double x);
    double (*log1p)(double x);
    double (*tanh)(double x);
} mla_arithmetic;

/* BLAS and libm. */
extern const mla_arithmetic mla_arithmetic_fast;
/* Loops in a fixed order and double-double functions: the same bits anywhere, about thirty times slower. */
extern const mla_arithmetic mla_arithmetic_fixed;

/* mla_oracle_run with either. */
mla_status mla_oracle_run_with(const mla_arithmetic *math, const mla_problem *problem, const mla_contract *contract, int64_t first_token,
                               int64_t tokens, mla_truth *truth) MLA_CHECKED;

#endif
