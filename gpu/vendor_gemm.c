/* The few declarations below are those of cublas_v2.h (CUDA 12 and 13) and rocblas.h (ROCm 5 to 7). */
#include "vendor_gemm.h"
#include "library.h"

#include <stdlib.h>

enum {
    CUBLAS_OP_N = 0,
    CUBLAS_OP_T = 1,
    CUDA_R_32F = 0,
    CUDA_R_16F = 2,
    CUDA_R_16BF = 14,
    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_GEMM_DEFAULT = -1
};
enum {
    rocblas_operation_none = 111,
    rocblas_operation_transpose = 112,
    rocblas_datatype_f16_r = 150,
    rocblas_datatype_f32_r = 151,
    rocblas_datatype_bf16_r = 168,
    rocblas_gemm_algo_standard = 0
};

typedef struct cublas {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*gemm)(void *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha, const void *a, int a_type, int lda,
                const void *b, int b_type, int ldb, const void *beta, void *c, int c_type, int ldc, int compute_type, int algorithm);
    int (*batched)(void *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha, const void *a, int a_type, int lda,
                   long long stride_a, const void *b, int b_type, int ldb, long long stride_b, const void *beta, void *c, int c_type,
                   int ldc, long long stride_c, int batch, int compute_type, int algorithm);
} cublas;

typedef struct rocblas {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*gemm)(void *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha, const void *a, int a_type, int lda,
                const void *b, int b_type, int ldb, const void *beta, const void *c, int c_type, int ldc, void *d, int d_type, int ldd,
                int compute_type, int algorithm, int32_t solution, uint32_t flags);
    int (*batched)(void *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha, const void *a, int a_type, int lda,
                   int64_t stride_a, const void *b, int b_type, int ldb, int64_t stride_b, const void *beta, const void *c, int c_type,
                   int ldc, int64_t stride_c, void *d, int d_type, int ldd, int64_t stride_d, int batch, int compute_type, int algorithm,
                   int32_t solution, uint32_t flags);
} rocblas;

struct mla_vendor_gemm {
    mla_device *device;
    void *library, *handle;
    cublas cublas;
    rocblas rocblas;
};

static mla_status check(const char *what, int result) {
    return result == 0 ? mla_ok() : mla_error(MLA_EDEVICE, "%s failed with status %d", what, result);
}

static mla_status open_cublas(mla_vendor_gemm *g) {
    static const char *const names[] = {"libcublas.so", "libcublas.so.13", "libcublas.so.12", "/usr/local/cuda/lib64/libcublas.so", NULL};
    static const mla_symbol symbols[] = {{"cublasCreate_v2", offsetof(cublas, create)},
                                         {"cublasDestroy_v2", offsetof(cublas, destroy)},
                                         {"cublasSetStream_v2", offsetof(cublas, set_stream)},
                                         {"cublasGemmEx", offsetof(cublas, gemm)},
                                         {"cublasGemmStridedBatchedEx", offsetof(cublas, batched)}};
    mla_status status = mla_library_open("cuBLAS", names, symbols, sizeof symbols / sizeof *symbols, &g->cublas, &g->library);
    if (status.code == MLA_OK)
        status = check("cublasCreate", g->cublas.create(&g->handle));
    return status;
}

static mla_status open_rocblas(mla_vendor_gemm *g) {
    static const char *const names[] = {"librocblas.so", "librocblas.so.5", "librocblas.so.4", "/opt/rocm/lib/librocblas.so", NULL};
    static const mla_symbol symbols[] = {{"rocblas_create_handle", offsetof(rocblas, create)},
                                         {"rocblas_destroy_handle", offsetof(rocblas, destroy)},
                                         {"rocblas_set_stream", offsetof(rocblas, set_stream)},
                                         {"rocblas_gemm_ex", offsetof(rocblas, gemm)},
                                         {"rocblas_gemm_strided_batched_ex", offsetof(rocblas, batched)}};
    mla_status status = mla_library_open("rocBLAS", names, symbols, sizeof symbols / sizeof *symbols, &g->rocblas, &g->library);
    if (status.code == MLA_OK)
        status = check("rocblas_create_handle", g->rocblas.create(&g->handle));
    return status;
}

mla_status mla_vendor_gemm_open(mla_device *device, mla_vendor_gemm **gemm) {
    if (device->space == MLA_SPACE_HOST)
        return mla_error(MLA_EUNSUPPORTED, "the host has no vendor's matrix product");
    mla_vendor_gemm *g = calloc(1, sizeof *g);
    if (!g)
        return mla_error(MLA_ENOMEM, "no memory for a matrix product");
    g->device = device;
    mla_status status = device->space == MLA_SPACE_CUDA ? open_cublas(g) : open_rocblas(g);
    if (status.code == MLA_OK)
        status = mla_vendor_gemm_set_stream(g, device->stream);
    if (status.code == MLA_OK)
        *gemm = g;
    else
        mla_vendor_gemm_close(g);
    return status;
}

mla_status mla_vendor_gemm_set_stream(const mla_vendor_gemm *g, void *stream) {
    return g->device->space == MLA_SPACE_CUDA ? check("cublasSetStream", g->cublas.set_stream(g->handle, stream))
                                              : check("rocblas_set_stream", g->rocblas.set_stream(g->handle, stream));
}

mla_status mla_vendor_gemm_run(const mla_vendor_gemm *g, int n, const void *a, const void *b, void *c) {
    const float one = 1, zero = 0;
    if (g->device->space == MLA_SPACE_CUDA)
        return check("cublasGemmEx", g->cublas.gemm(g->handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a, CUDA_R_16BF, n, b, CUDA_R_16BF,
                                                    n, &zero, c, CUDA_R_16BF, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    const int none = rocblas_operation_none, bf16 = rocblas_datatype_bf16_r;
    return check("rocblas_gemm_ex", g->rocblas.gemm(g->handle, none, none, n, n, n, &one, a, bf16, n, b, bf16, n, &zero, c, bf16, n, c,
                                                    bf16, n, rocblas_datatype_f32_r, rocblas_gemm_algo_standard, 0, 0));
}

static int multiply_by_cublas(const mla_vendor_gemm *g, const mla_vendor_product *p) {
    const float one = 1, zero = 0;
    const int type = p->fp16 ? CUDA_R_16F : CUDA_R_16BF;
    return g->cublas.batched(g->handle, p->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, p->m, p->n, p->k, &one, p->a.data, type,
                             (int)p->a.pitch, p->a.apart, p->b.data, type, (int)p->b.pitch, p->b.apart, &zero, (void *)(uintptr_t)p->c.data,
                             CUDA_R_32F, (int)p->c.pitch, p->c.apart, p->batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

static int multiply_by_rocblas(const mla_vendor_gemm *g, const mla_vendor_product *p) {
    const float one = 1, zero = 0;
    const int type = p->fp16 ? rocblas_datatype_f16_r : rocblas_datatype_bf16_r, f32 = rocblas_datatype_f32_r;
    void *c = (void *)(uintptr_t)p->c.data;
    return g->rocblas.batched(g->handle, p->transpose_a ? rocblas_operation_transpose : rocblas_operation_none, rocblas_operation_none,
                              p->m, p->n, p->k, &one, p->a.data, type, (int)p->a.pitch, p->a.apart, p->b.data, type, (int)p->b.pitch,
                              p->b.apart, &zero, c, f32, (int)p->c.pitch, p->c.apart, c, f32, (int)p->c.pitch, p->c.apart, p->batch, f32,
                              rocblas_gemm_algo_standard, 0, 0);
}

mla_status mla_vendor_gemm_multiply(const mla_vendor_gemm *g, const mla_vendor_product *p) {
    return g->device->space == MLA_SPACE_CUDA ? check("cublasGemmStridedBatchedEx", multiply_by_cublas(g, p))
                                              : check("rocblas_gemm_strided_batched_ex", multiply_by_rocblas(g, p));
}

void mla_vendor_gemm_close(mla_vendor_gemm *g) {
    if (g->handle)
        (g->device->space == MLA_SPACE_CUDA ? g->cublas.destroy : g->rocblas.destroy)(g->handle);
    mla_library_close(g->library);
    free(g);
}
