/*
 * The primitives of the engine of Hopper's wgmma (sm_90a): a warpgroup, four warps, multiplies from LDS. NVIDIA alone; host execution has none.
 *
 * Operands in LDS are groups of 64 columns: rows of 128 bytes, swizzled, a group 1024-byte aligned. What ordinary stores and copies put there is for the
 * matrix unit to see after mla_wgmma_publish() by each writer, then a barrier.
 *
 * C: 64 rows of the warpgroup's product; a lane's c[n][e] is row 16 * (warp % 4) + lane / 4 + 8 * (e / 2), column 8 * n + 2 * (lane % 4) + e % 2. Products are under
 * way until mla_wgmma_wait().
 */
#ifndef MLA_DEVICE_HOPPER_H
#define MLA_DEVICE_HOPPER_H

#include "device.h"

MLA_DEVICE_BEGIN

/* Is v true in any lane of the wave? */
MLA_DEVICE bool mla_any(bool v) {
    return __any_sync(0xFFFFFFFFu, v);
}

/* A barrier that tells whether v is true in any thread of the block. */
MLA_DEVICE bool mla_barrier_any(bool v) {
    return __syncthreads_or(v);
}

/* v of lane i of the four, neighbours, to which this lane belongs. */
template <typename T> MLA_DEVICE T mla_of_four(T v, int i) {
    return __shfl_sync(0xFFFFFFFFu, v, i, 4);
}

MLA_DEVICE int64_t mla_shuffle_slot(int64_t v, int lane) {
    return __shfl_sync(0xFFFFFFFFu, v, lane);
}

/* Four matrices of 8 rows of 16 bytes, the fragments of mla_mma_16x8x16's a, to LDS: lane i gives the place of row i % 8 of matrix i / 8. */
MLA_DEVICE void mla_stmatrix(void *row, const uint32_t (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(mla_lds_address(row)), "r"(r[0]), "r"(r[1]),
                 "r"(r[2]), "r"(r[3])
                 : "memory");
}

/* Sixteen bytes, past the first cache, or eight, that are read once: loads in the order of the program. */
MLA_DEVICE void mla_load_once(const void *from, uint32_t (&w)[4]) {
    asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "l"(from)
                 : "memory");
}
MLA_DEVICE void mla_load_once(const void *from, uint32_t (&w)[2]) {
    asm volatile("ld.global.L2::128B.v2.u32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "l"(from) : "memory");
}

MLA_DEVICE void mla_wgmma_publish() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* Before the first product after registers of its operands were touched. */
MLA_DEVICE void mla_wgmma_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/* Closes a group of this warpgroup's products. */
MLA_DEVICE void mla_wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Until at most the N newest groups are under way. */
template <int N> MLA_DEVICE void mla_wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Where chunk 0 .. 7 of a row of a group lies in it. */
MLA_DEVICE int mla_wgmma_swizzle(int row, int chunk) {
    return chunk ^ (row & 7);
}

/* A matrix in LDS whose groups of eight rows lie 1024 bytes apart, and its groups of 64 columns `group_bytes`. */
MLA_DEVICE uint64_t mla_wgmma_matrix(const void *lds, int group_bytes) {
    constexpr uint64_t swizzle_128 = 1ull << 62, rows_apart = 1024 >> 4;
    return swizzle_128 | rows_apart << 32 | static_cast<uint64_t>(group_bytes >> 4) << 16 | (mla_lds_address(lds) & 0x3FFFF) >> 4;
}
/* The same, `bytes` further on. */
MLA_DEVICE uint64_t mla_wgmma_advance(uint64_t matrix, int bytes) {
    return matrix + (bytes >> 4);
}

#define MLA_QUAD(c) "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])
#define MLA_QUADS(c, n)                                                                                                                    \
    MLA_QUAD((c)[n]), MLA_QUAD((c)[n + 1]), MLA_QUAD((c)[n + 2]), MLA_QUAD((c)[n + 3]), MLA_QUAD((c)[n + 4]), MLA_QUAD((c)[n + 5]),        \
        MLA_QUAD((c)[n + 6]), MLA_QUAD((c)[n + 7])

/* After the wait for c's products: the compiler does not know that registers change in between. */
template <int N> MLA_DEVICE void mla_wgmma_arrived(float (&c)[N][4]) {
    MLA_UNROLL
    for (int n = 0; n < N; n++)
        asm volatile("" : MLA_QUAD(c[n])::"memory");
}

/* c (+)= A B^T over 16 columns: A [64][16], B [32][16]. */
#define MLA_WGMMA_64X32(type)                                                                                                              \
    asm volatile("{ .reg .pred add; setp.ne.b32 add, %18, 0;\n"                                                                            \
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " {"                                                          \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"                                                    \
                 "}, %16, %17, add, 1, 1, 0, 0; }"                                                                                         \
                 : MLA_QUAD(c[0]), MLA_QUAD(c[1]), MLA_QUAD(c[2]), MLA_QUAD(c[3])                                                          \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add))                                                                              \
                 : "memory")
template <bool FP16> MLA_DEVICE void mla_wgmma_64x32(uint64_t a, uint64_t b, bool add, float (&c)[4][4]) {
    if constexpr (FP16)
        MLA_WGMMA_64X32("f16");
    else
        MLA_WGMMA_64X32("bf16");
}

/* c (+)= A B^T over 16 columns: A [64][16] in registers, the fragment of mla_mma_16x8x16 for each warp's 16 rows; B [16][16]; bf16. a is read until the wait. */
MLA_DEVICE void mla_wgmma_64x16_of_registers(const uint32_t (&a)[4], uint64_t b, bool add, float (&c)[2][4]) {
    asm volatile(
        "{ .reg .pred add; setp.ne.b32 add, %13, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, add, 1, 1, 0; }"
        : MLA_QUAD(c[0]), MLA_QUAD(c[1])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add))
        : "memory");
}

/* c += A^T B^T over 16 rows of A: A [16][64], B [16][16]; bf16. */
MLA_DEVICE void mla_wgmma_64x16_of_columns(uint64_t a, uint64_t b, float (&c)[2][4]) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, 1, 1, 1, 1, 0;"
                 : MLA_QUAD(c[0]), MLA_QUAD(c[1])
                 : "l"(a), "l"(b)
                 : "memory");
}

/* c += A B over 16 columns of A, rows of B: A [64][16], B [16][256]. */
#define MLA_WGMMA_64X256(type)                                                                                                             \
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " {"                                                         \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                                  \
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                                        \
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                                        \
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "                                        \
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                                        \
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                                        \
                 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "                            \
                 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"                          \
                 "}, %128, %129, 1, 1, 1, 0, 1;"                                                                                           \
                 : MLA_QUADS(c, 0), MLA_QUADS(c, 8), MLA_QUADS(c, 16), MLA_QUADS(c, 24)                                                    \
                 : "l"(a), "l"(b)                                                                                                          \
                 : "memory")
template <bool FP16> MLA_DEVICE void mla_wgmma_64x256(uint64_t a, uint64_t b, float (&c)[32][4]) {
    if constexpr (FP16)
        MLA_WGMMA_64X256("f16");
    else
        MLA_WGMMA_64X256("bf16");
}

MLA_DEVICE_END

#endif
