/* The vendor's matrix products (cuBLAS, rocBLAS), opened at run time: what a device's matrix units reach in practice, and bmm's products. */
#ifndef MLA_VENDOR_GEMM_H
#define MLA_VENDOR_GEMM_H

#include "mla_gpu.h"

typedef struct mla_vendor_gemm mla_vendor_gemm;

/* One of a batch of matrices in the device's space, stored by columns. */
typedef struct mla_vendor_matrix {
    const void *data;
    int64_t pitch; /* elements from column to column */
    int64_t apart; /* elements from matrix to matrix of the batch */
} mla_vendor_matrix;

/* c = a b, `batch` times: a [m, k], or [k, m] where transpose_a, b [k, n], of bf16 or fp16; c [m, n], written, and sums in fp32. */
typedef struct mla_vendor_product {
    bool transpose_a, fp16;
    int m, n, k, batch; /* >= 1 */
    mla_vendor_matrix a, b, c;
} mla_vendor_product;

/* MLA_EDEVICE, MLA_EUNSUPPORTED: there is none, and why. The device must outlive it. Close with mla_vendor_gemm_close. */
mla_status mla_vendor_gemm_open(mla_device *device, mla_vendor_gemm **gemm) MLA_CHECKED;
/* Where products are enqueued from then on; at first the device's own stream. */
mla_status mla_vendor_gemm_set_stream(const mla_vendor_gemm *gemm, void *stream) MLA_CHECKED;
/* c = a b, all [n, n] bf16 in the device's space, accumulated in fp32. Enqueued. */
mla_status mla_vendor_gemm_run(const mla_vendor_gemm *gemm, int n, const void *a, const void *b, void *c) MLA_CHECKED;
/* Enqueued. */
mla_status mla_vendor_gemm_multiply(const mla_vendor_gemm *gemm, const mla_vendor_product *product) MLA_CHECKED;
void mla_vendor_gemm_close(mla_vendor_gemm *gemm);

#endif
