/* The primitives of device.h for AMD CDNA (gfx90a, gfx942, gfx950): compiler builtins alone, so neither HIP's headers nor its device library is needed. */
#ifndef MLA_DEVICE_AMD_H
#define MLA_DEVICE_AMD_H

#include <stdint.h>

#define MLA_DEVICE_BEGIN
#define MLA_DEVICE_END
#define MLA_DEVICE __attribute__((device, always_inline)) inline
#define MLA_KERNEL(name, args_t, threads)                                                                                                  \
    extern "C"                                                                                                                             \
        __attribute__((global, visibility("protected"), amdgpu_flat_work_group_size(threads, threads), amdgpu_waves_per_eu(1))) void       \
        name(const args_t args)
#define MLA_UNROLL _Pragma("unroll")
#define MLA_UNROLL_BY_8 _Pragma("unroll 8")
#define MLA_WAVE 64

typedef uint16_t mla_bf16x4 __attribute__((ext_vector_type(4)));
typedef uint16_t mla_bf16x8 __attribute__((ext_vector_type(8)));
typedef float mla_f32x4 __attribute__((ext_vector_type(4)));

MLA_DEVICE int mla_thread() {
    return static_cast<int>(__builtin_amdgcn_workitem_id_x());
}
MLA_DEVICE int mla_late(int v) {
    asm volatile("" : "+v"(v));
    __builtin_assume(v >= 0);
    return v;
}
MLA_DEVICE int mla_uniform(int v) {
    return __builtin_amdgcn_readfirstlane(v);
}
MLA_DEVICE void mla_in_order() {
    __builtin_amdgcn_sched_barrier(0);
}
MLA_DEVICE int mla_block() {
    return static_cast<int>(__builtin_amdgcn_workgroup_id_x());
}

template <typename T> struct alignas(128) mla_lds_of { unsigned char bytes[sizeof(T)]; };
template <typename T> MLA_DEVICE T *mla_lds() {
    static __attribute__((shared)) mla_lds_of<T> storage;
    return reinterpret_cast<T *>(&storage);
}

/* Kernels hand data over through LDS alone, so global loads may stay under way across it. */
MLA_DEVICE void mla_barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}
MLA_DEVICE void mla_let_next_launch_begin() {}
MLA_DEVICE void mla_wait_for_launch_before() {}
MLA_DEVICE float mla_shuffle(float v, int lane) {
    return __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute(lane * 4, __builtin_bit_cast(int, v)));
}
MLA_DEVICE float mla_shuffle_xor(float v, int m) {
    return mla_shuffle(v, (mla_late(mla_thread()) % MLA_WAVE) ^ m);
}

MLA_DEVICE float mla_mul(float a, float b) {
#pragma clang fp contract(off)
    return a * b;
}
MLA_DEVICE float mla_max(float a, float b) {
    return __builtin_fmaxf(a, b);
}
MLA_DEVICE float mla_exp2(float x) {
    return __builtin_amdgcn_exp2f(x);
}
MLA_DEVICE float mla_log2(float x) {
    return __builtin_amdgcn_logf(x);
}
/* 1 - 2 / (e^2|x| + 1), with the sign of x. */
MLA_DEVICE float mla_tanh(float x) {
    return __builtin_copysignf(1.0f - 2.0f / (mla_exp2(2.885390082f * __builtin_fabsf(x)) + 1.0f), x);
}

MLA_DEVICE uint16_t mla_bf16(float x) {
    return __builtin_bit_cast(uint16_t, static_cast<__bf16>(x));
}
MLA_DEVICE uint32_t mla_bf16x2(float low, float high) {
    typedef float pair __attribute__((ext_vector_type(2)));
    typedef __bf16 bf16_pair __attribute__((ext_vector_type(2)));
    return __builtin_bit_cast(uint32_t, __builtin_convertvector((pair{low, high}), bf16_pair));
}
MLA_DEVICE float mla_float(uint16_t bf16) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(bf16) << 16);
}
MLA_DEVICE uint32_t mla_fp16x2(float low, float high) {
    typedef float pair __attribute__((ext_vector_type(2)));
    typedef _Float16 fp16_pair __attribute__((ext_vector_type(2)));
    return __builtin_bit_cast(uint32_t, __builtin_convertvector((pair{low, high}), fp16_pair));
}

MLA_DEVICE uint32_t mla_bytes(uint32_t low, uint32_t high, int s) {
    return __builtin_amdgcn_perm(high, low, (s & 7) | (s >> 4 & 7) << 8 | (s >> 8 & 7) << 16 | (s >> 12 & 7) << 24);
}
MLA_DEVICE uint32_t mla_mul_bf16x2(uint32_t a, uint32_t b) {
    const float low = mla_float(static_cast<uint16_t>(a)) * mla_float(static_cast<uint16_t>(b));
    const float high = mla_float(static_cast<uint16_t>(a >> 16)) * mla_float(static_cast<uint16_t>(b >> 16));
    return mla_bytes(__builtin_bit_cast(uint32_t, low), __builtin_bit_cast(uint32_t, high), 0x7632);
}

template <int STEPS, int COLS>
MLA_DEVICE void mla_mfma_16x16x16(const mla_bf16x4 (&a)[STEPS], const mla_bf16x4 (&b)[STEPS][COLS], mla_f32x4 (&c)[COLS]) {
    typedef short operand __attribute__((ext_vector_type(4)));
    MLA_UNROLL
    for (int s = 0; s < STEPS; s++) {
        MLA_UNROLL
        for (int n = 0; n < COLS; n++)
            c[n] = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(operand, a[s]), __builtin_bit_cast(operand, b[s][n]), c[n],
                                                             0, 0, 0);
    }
}
template <int STEPS, int COLS>
MLA_DEVICE void mla_mfma_16x16x16_fp16(const mla_bf16x4 (&a)[STEPS], const mla_bf16x4 (&b)[STEPS][COLS], mla_f32x4 (&c)[COLS]) {
    typedef _Float16 operand __attribute__((ext_vector_type(4)));
    MLA_UNROLL
    for (int s = 0; s < STEPS; s++) {
        MLA_UNROLL
        for (int n = 0; n < COLS; n++)
            c[n] = __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(operand, a[s]), __builtin_bit_cast(operand, b[s][n]), c[n], 0,
                                                         0, 0);
    }
}

#if defined(__gfx950__)
template <int STEPS, int COLS>
MLA_DEVICE void mla_mfma_16x16x32(const mla_bf16x8 (&a)[STEPS], const mla_bf16x8 (&b)[STEPS][COLS], mla_f32x4 (&c)[COLS]) {
    typedef __bf16 operand __attribute__((ext_vector_type(8)));
    MLA_UNROLL
    for (int s = 0; s < STEPS; s++) {
        MLA_UNROLL
        for (int n = 0; n < COLS; n++)
            c[n] = __builtin_amdgcn_mfma_f32_16x16x32_bf16(__builtin_bit_cast(operand, a[s]), __builtin_bit_cast(operand, b[s][n]), c[n], 0,
                                                           0, 0);
    }
}
template <int STEPS, int COLS>
MLA_DEVICE void mla_mfma_16x16x32_fp16(const mla_bf16x8 (&a)[STEPS], const mla_bf16x8 (&b)[STEPS][COLS], mla_f32x4 (&c)[COLS]) {
    typedef _Float16 operand __attribute__((ext_vector_type(8)));
    MLA_UNROLL
    for (int s = 0; s < STEPS; s++) {
        MLA_UNROLL
        for (int n = 0; n < COLS; n++)
            c[n] = __builtin_amdgcn_mfma_f32_16x16x32_f16(__builtin_bit_cast(operand, a[s]), __builtin_bit_cast(operand, b[s][n]), c[n], 0,
                                                          0, 0);
    }
}
#endif

#endif
