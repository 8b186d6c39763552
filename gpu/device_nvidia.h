/* The primitives of device.h for NVIDIA, sm_80 and later: nvcc -x cu, PTX where CUDA C++ has no word for it. */
#ifndef MLA_DEVICE_NVIDIA_H
#define MLA_DEVICE_NVIDIA_H

#include <stdint.h>

#define MLA_DEVICE_BEGIN
#define MLA_DEVICE_END
#define MLA_DEVICE __device__ __forceinline__
#define MLA_KERNEL(name, args_t, threads) extern "C" __global__ void __launch_bounds__(threads, 1) name(const __grid_constant__ args_t args)
#define MLA_UNROLL _Pragma("unroll")
#define MLA_UNROLL_BY_8 _Pragma("unroll 8")
#define MLA_WAVE 32

MLA_DEVICE int mla_thread() {
    return threadIdx.x;
}
MLA_DEVICE int mla_late(int v) {
    return v;
}
MLA_DEVICE int mla_uniform(int v) {
    return v;
}
MLA_DEVICE int mla_block() {
    return blockIdx.x;
}

extern __shared__ __align__(1024) unsigned char mla_lds_bytes[];
template <typename T> MLA_DEVICE T *mla_lds() {
    return reinterpret_cast<T *>(mla_lds_bytes);
}
MLA_DEVICE uint32_t mla_lds_address(const void *lds) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(lds));
}

MLA_DEVICE void mla_barrier() {
    __syncthreads();
}
MLA_DEVICE void mla_let_next_launch_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
MLA_DEVICE void mla_wait_for_launch_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
MLA_DEVICE float mla_shuffle_xor(float v, int m) {
    return __shfl_xor_sync(0xFFFFFFFFu, v, m);
}
MLA_DEVICE float mla_shuffle(float v, int lane) {
    return __shfl_sync(0xFFFFFFFFu, v, lane);
}

MLA_DEVICE float mla_mul(float a, float b) {
    return __fmul_rn(a, b);
}
MLA_DEVICE float mla_max(float a, float b) {
    return fmaxf(a, b);
}
MLA_DEVICE float mla_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
MLA_DEVICE float mla_log2(float x) {
    return log2f(x);
}
/* 1 - 2 / (e^2|x| + 1), with the sign of x. A quotient within 2 ulp is a few instructions, a rounded one a call in the middle of the loop. */
MLA_DEVICE float mla_tanh(float x) {
    return copysignf(1.0f - __fdividef(2.0f, mla_exp2(2.885390082f * fabsf(x)) + 1.0f), x);
}

MLA_DEVICE uint32_t mla_bf16x2(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
MLA_DEVICE uint16_t mla_bf16(float x) {
    return static_cast<uint16_t>(mla_bf16x2(x, 0.0f));
}
MLA_DEVICE float mla_float(uint16_t bf16) {
    return __uint_as_float(static_cast<uint32_t>(bf16) << 16);
}
MLA_DEVICE uint32_t mla_fp16x2(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

MLA_DEVICE uint32_t mla_bytes(uint32_t low, uint32_t high, int s) {
    return __byte_perm(low, high, s);
}
MLA_DEVICE uint32_t mla_mul_bf16x2(uint32_t a, uint32_t b) {
    uint32_t product; /* a sum with -0, which sm_80 has, is the product */
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000));
    return product;
}
#if __CUDA_ARCH__ >= 890
#define MLA_HAS_E4M3
MLA_DEVICE void mla_e4m3_to_float(uint32_t codes, float &low, float &high) {
    asm("{ .reg .b32 both; .reg .b16 l, h; cvt.rn.f16x2.e4m3x2 both, %2; mov.b32 {l, h}, both; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
        : "=f"(low), "=f"(high)
        : "h"(static_cast<uint16_t>(codes)));
}
MLA_DEVICE void mla_e4m3_to_float(uint32_t codes, float (&values)[4]) {
    asm("{ .reg .b32 both; .reg .b16 first, second, l, h; mov.b32 {first, second}, %4;\n"
        "cvt.rn.f16x2.e4m3x2 both, first; mov.b32 {l, h}, both; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;\n"
        "cvt.rn.f16x2.e4m3x2 both, second; mov.b32 {l, h}, both; cvt.f32.f16 %2, l; cvt.f32.f16 %3, h; }"
        : "=f"(values[0]), "=f"(values[1]), "=f"(values[2]), "=f"(values[3])
        : "r"(codes));
}
#endif

MLA_DEVICE void mla_copy16(void *lds, const void *global, bool there) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(mla_lds_address(lds)), "l"(global), "r"(there ? 16 : 0)
                 : "memory");
}
MLA_DEVICE void mla_copy_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N> MLA_DEVICE void mla_copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#define MLA_MMA_16X8X16(type, a, b, c)                                                                                                     \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"      \
        : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])                                                                           \
        : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"((b)[0]), "r"((b)[1]))

MLA_DEVICE void mla_mma_step_bf16(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&c)[4]) {
    MLA_MMA_16X8X16("bf16", a, b, c);
}
MLA_DEVICE void mla_mma_step_fp16(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&c)[4]) {
    MLA_MMA_16X8X16("f16", a, b, c);
}

/* A column is a chain of dependent steps: where there are few columns, two half chains hide half of their latency. */
template <int STEPS, int COLS, typename Step>
MLA_DEVICE void mla_mma_steps(const uint32_t (&a)[STEPS][4], const uint32_t (&b)[STEPS][COLS][2], float (&c)[COLS][4], Step step) {
    constexpr int CHAINS = COLS <= 2 && STEPS > 2 ? 2 : 1;
    float other[CHAINS][COLS][4] = {};
    MLA_UNROLL
    for (int s = 0; s < STEPS; s++) {
        MLA_UNROLL
        for (int n = 0; n < COLS; n++)
            step(a[s], b[s][n], s % CHAINS == 0 ? c[n] : other[CHAINS - 1][n]);
    }
    if (CHAINS > 1) {
        MLA_UNROLL
        for (int n = 0; n < COLS; n++)
            for (int e = 0; e < 4; e++)
                c[n][e] += other[CHAINS - 1][n][e];
    }
}
template <int STEPS, int COLS>
MLA_DEVICE void mla_mma_16x8x16(const uint32_t (&a)[STEPS][4], const uint32_t (&b)[STEPS][COLS][2], float (&c)[COLS][4]) {
    mla_mma_steps(a, b, c, mla_mma_step_bf16);
}
template <int STEPS, int COLS>
MLA_DEVICE void mla_mma_16x8x16_fp16(const uint32_t (&a)[STEPS][4], const uint32_t (&b)[STEPS][COLS][2], float (&c)[COLS][4]) {
    mla_mma_steps(a, b, c, mla_mma_step_fp16);
}

template <int N> MLA_DEVICE void mla_ldmatrix(uint32_t (&r)[N][4], const void *const (&rows)[N]) {
    MLA_UNROLL
    for (int n = 0; n < N; n++)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[n][0]), "=r"(r[n][1]), "=r"(r[n][2]), "=r"(r[n][3])
                     : "r"(mla_lds_address(rows[n]))
                     : "memory");
}
template <int N> MLA_DEVICE void mla_ldmatrix_trans(uint32_t (&r)[N][4], const void *const (&rows)[N]) {
    MLA_UNROLL
    for (int n = 0; n < N; n++)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[n][0]), "=r"(r[n][1]), "=r"(r[n][2]), "=r"(r[n][3])
                     : "r"(mla_lds_address(rows[n]))
                     : "memory");
}

#endif
