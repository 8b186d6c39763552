/* The vendor's matrix product (cuBLAS, rocBLAS), opened at run time: what a device's matrix units reach in practice. */
#ifndef MLA_VENDOR_GEMM_H
#define MLA_VENDOR_GEMM_H

#include "mla_gpu.h"

typedef struct mla_vendor_gemm mla_vendor_gemm;

/* MLA_EDEVICE, MLA_EUNSUPPORTED: there is none, and why. The device must outlive it. Close with mla_vendor_gemm_close. */
mla_status mla_vendor_gemm_open(mla_device *device, mla_vendor_gemm **gemm) MLA_CHECKED;
/* c = a b, all [n, n] bf16 in the device's space, accumulated in fp32. Enqueued. */
mla_status mla_vendor_gemm_run(const mla_vendor_gemm *gemm, int n, const void *a, const void *b, void *c) MLA_CHECKED;
void mla_vendor_gemm_close(mla_vendor_gemm *gemm);

#endif
