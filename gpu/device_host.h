/* The primitives of device.h on the CPU: fibers for threads, rendezvous for everything lanes do together (host_exec.cpp). */
#ifndef MLA_DEVICE_HOST_H
#define MLA_DEVICE_HOST_H

#include "host_exec.h"

#include <math.h>
#include <string.h>

#if defined(MLA_ENGINE_CDNA3)
#define MLA_ENGINE_NAME "cdna3"
#define MLA_WAVE 64
#elif defined(MLA_ENGINE_CDNA4)
#define MLA_ENGINE_NAME "cdna4"
#define MLA_WAVE 64
#elif defined(MLA_ENGINE_CDNA3TALL)
#define MLA_ENGINE_NAME "cdna3tall"
#define MLA_WAVE 64
#elif defined(MLA_ENGINE_CDNA4TALL)
#define MLA_ENGINE_NAME "cdna4tall"
#define MLA_WAVE 64
#elif defined(MLA_ENGINE_MMA)
#define MLA_ENGINE_NAME "mma"
#define MLA_WAVE 32
#else
#error "define one of MLA_ENGINE_CDNA3, MLA_ENGINE_CDNA4, MLA_ENGINE_CDNA3TALL, MLA_ENGINE_CDNA4TALL, MLA_ENGINE_MMA"
#endif

/* The same names with other contents are compiled for each engine and linked into one program: keep them apart. */
#define MLA_DEVICE_BEGIN namespace {
#define MLA_DEVICE_END }

#define MLA_DEVICE inline
#define MLA_UNROLL
#define MLA_UNROLL_BY_8
#define MLA_KERNEL(name, args_t, threads)                                                                                                  \
    static void name(const args_t args);                                                                                                   \
    static const mla_host_kernel name##_registration(MLA_ENGINE_NAME, #name,                                                               \
                                                     [](const void *args) { name(*static_cast<const args_t *>(args)); });                  \
    static void name([[maybe_unused]] const args_t args)

/* Where a primitive was called, for messages. */
#define MLA_HOST_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

MLA_DEVICE_BEGIN

typedef uint16_t mla_bf16x4 __attribute__((vector_size(8), may_alias));
typedef uint16_t mla_bf16x8 __attribute__((vector_size(16), may_alias));
typedef float mla_f32x4 __attribute__((vector_size(16), may_alias));

inline int mla_thread() {
    return mla_host_thread;
}
inline int mla_late(int v) {
    return v;
}
inline int mla_uniform(int v) {
    return v;
}
inline void mla_in_order() {}
inline int mla_block() {
    return mla_host_block;
}

template <typename T> inline T *mla_lds(MLA_HOST_SITE) {
    return static_cast<T *>(mla_host_lds(sizeof(T), file, line));
}

inline void mla_barrier(MLA_HOST_SITE) {
    mla_host_meet({"barrier", file, line, nullptr, 0, 0, 0}, {});
}

inline void mla_let_next_launch_begin() {}
inline void mla_wait_for_launch_before() {}

inline float mla_shuffle(float v, int lane, MLA_HOST_SITE) {
    float result;
    mla_host_meet({"shuffle", file, line, mla_host_shuffle, MLA_WAVE, 0, MLA_WAVE}, {&v, &lane, &result});
    return result;
}

inline float mla_shuffle_xor(float v, int m, MLA_HOST_SITE) {
    return mla_shuffle(v, (mla_thread() % MLA_WAVE) ^ m, file, line);
}

inline float mla_mul(float a, float b) {
    return a * b;
}
inline float mla_max(float a, float b) {
    return std::fmax(a, b);
}
inline float mla_exp2(float x) {
    return exp2f(x);
}
inline float mla_log2(float x) {
    return log2f(x);
}
inline float mla_tanh(float x) {
    return tanhf(x);
}

inline float mla_float(uint16_t bf16) {
    const uint32_t bits = uint32_t{bf16} << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

inline uint16_t mla_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7FFFFFFF) > 0x7F800000)
        return static_cast<uint16_t>(bits >> 16 | 0x40);
    return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

inline uint32_t mla_bf16x2(float low, float high) {
    return mla_bf16(low) | uint32_t{mla_bf16(high)} << 16;
}

inline uint32_t mla_bytes(uint32_t low, uint32_t high, int s) {
    const uint64_t from = uint64_t{high} << 32 | low;
    uint32_t bytes = 0;
    for (int i = 0; i < 4; i++)
        bytes |= static_cast<uint32_t>(from >> (s >> 4 * i & 7) * 8 & 0xFF) << 8 * i;
    return bytes;
}
inline uint32_t mla_mul_bf16x2(uint32_t a, uint32_t b) {
    const auto product = [a, b](int at) { return mla_float(static_cast<uint16_t>(a >> at)) * mla_float(static_cast<uint16_t>(b >> at)); };
    return mla_bf16x2(product(0), product(16));
}

/* Rounding happens in the integer: subnormals are aligned by an addition, the others lose 13 bits. */
inline uint16_t mla_fp16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000)
        return static_cast<uint16_t>(sign | 0x7E00);
    if (magnitude < 0x38800000) {
        const float aligned = fabsf(value) + 0.5f;
        memcpy(&bits, &aligned, sizeof bits);
        return static_cast<uint16_t>(sign | (bits - 0x3F000000));
    }
    const uint32_t rounded = (magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13;
    return static_cast<uint16_t>(sign | (rounded < 0x7C00 ? rounded : 0x7C00));
}
inline uint32_t mla_fp16x2(float low, float high) {
    return mla_fp16(low) | uint32_t{mla_fp16(high)} << 16;
}

inline void mla_copy16(void *lds, const void *global, bool there, MLA_HOST_SITE) {
    alignas(16) static const unsigned char zeros[16] = {};
    mla_host_copy16(lds, there ? global : zeros, file, line);
}
inline void mla_copy_commit() {
    mla_host_copy_commit();
}
template <int N> inline void mla_copy_wait() {
    mla_host_copy_wait(N);
}

template <int STEPS, int COLS>
inline void mla_mfma_16x16x16(const mla_bf16x4 (&a)[STEPS], const mla_bf16x4 (&b)[STEPS][COLS], mla_f32x4 (&c)[COLS], MLA_HOST_SITE) {
    static_assert(COLS <= mla_host_max_cols, "too many columns a step");
    mla_host_meet({"mfma 16x16x16", file, line, mla_host_mfma_16x16x16, 64, STEPS, COLS}, {a, b, c});
}

template <int STEPS, int COLS>
inline void mla_mfma_16x16x16_fp16(const mla_bf16x4 (&a)[STEPS], const mla_bf16x4 (&b)[STEPS][COLS], mla_f32x4 (&c)[COLS], MLA_HOST_SITE) {
    static_assert(COLS <= mla_host_max_cols, "too many columns a step");
    mla_host_meet({"mfma 16x16x16 fp16", file, line, mla_host_mfma_16x16x16_fp16, 64, STEPS, COLS}, {a, b, c});
}

template <int STEPS, int COLS>
inline void mla_mfma_16x16x32(const mla_bf16x8 (&a)[STEPS], const mla_bf16x8 (&b)[STEPS][COLS], mla_f32x4 (&c)[COLS], MLA_HOST_SITE) {
    static_assert(COLS <= mla_host_max_cols, "too many columns a step");
    mla_host_meet({"mfma 16x16x32", file, line, mla_host_mfma_16x16x32, 64, STEPS, COLS}, {a, b, c});
}

template <int STEPS, int COLS>
inline void mla_mfma_16x16x32_fp16(const mla_bf16x8 (&a)[STEPS], const mla_bf16x8 (&b)[STEPS][COLS], mla_f32x4 (&c)[COLS], MLA_HOST_SITE) {
    static_assert(COLS <= mla_host_max_cols, "too many columns a step");
    mla_host_meet({"mfma 16x16x32 fp16", file, line, mla_host_mfma_16x16x32_fp16, 64, STEPS, COLS}, {a, b, c});
}

template <int STEPS, int COLS>
inline void mla_mma_16x8x16(const uint32_t (&a)[STEPS][4], const uint32_t (&b)[STEPS][COLS][2], float (&c)[COLS][4], MLA_HOST_SITE) {
    static_assert(COLS <= mla_host_max_cols, "too many columns a step");
    mla_host_meet({"mma 16x8x16", file, line, mla_host_mma_16x8x16, 32, STEPS, COLS}, {a, b, c});
}

template <int STEPS, int COLS>
inline void mla_mma_16x8x16_fp16(const uint32_t (&a)[STEPS][4], const uint32_t (&b)[STEPS][COLS][2], float (&c)[COLS][4], MLA_HOST_SITE) {
    static_assert(COLS <= mla_host_max_cols, "too many columns a step");
    mla_host_meet({"mma 16x8x16 fp16", file, line, mla_host_mma_16x8x16_fp16, 32, STEPS, COLS}, {a, b, c});
}

template <int N> inline void mla_ldmatrix(uint32_t (&r)[N][4], const void *const (&rows)[N], MLA_HOST_SITE) {
    mla_host_meet({"ldmatrix", file, line, mla_host_ldmatrix, 32, N, 0}, {rows, nullptr, r});
}

template <int N> inline void mla_ldmatrix_trans(uint32_t (&r)[N][4], const void *const (&rows)[N], MLA_HOST_SITE) {
    mla_host_meet({"ldmatrix.trans", file, line, mla_host_ldmatrix_trans, 32, N, 0}, {rows, nullptr, r});
}

MLA_DEVICE_END

#endif
