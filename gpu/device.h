/*
 * The primitives device code is written with: the same names on three places to run. Kernels use nothing else of the machine.
 *
 *   device_amd.h     ordinary HIP           device_nvidia.h   nvcc -x cu           device_host.h   g++, fibers (host_exec.h)
 *
 * Every primitive marked (all) must be reached by all threads of the block, (wave) by all lanes of the wave, in the same order.
 *
 *   MLA_DEVICE_BEGIN, MLA_DEVICE_END        around all device code, types and kernels included, after the last #include: an anonymous namespace on the host,
 *                                           where every engine's version of one name is linked into one program
 *   MLA_DEVICE                              qualifier of a device function, inlined
 *   MLA_KERNEL(name, args_t, threads)       head of a kernel: a function named `name` of one argument `const args_t args`, by value
 *   MLA_UNROLL, MLA_UNROLL_BY_8             before a loop that must be unrolled, or in eights: so many loads are then under way together
 *   int mla_thread(), mla_block()           thread within its block, block within the grid
 *   int mla_late(int v)                     v >= 0, as if it were known from here on alone: on AMD, what follows from it is not computed ahead, to wait in a register
 *   int mla_uniform(int v)                  v, the same in all lanes of a wave: on AMD it takes no vector register
 *   MLA_WAVE                                lanes of a wave: 64 on CDNA, 32 on NVIDIA; the host takes the engine's
 *   T *mla_lds<T>()                         the block's LDS, uninitialised (poisoned on the host), at least sizeof(T), 128-byte aligned
 *   void mla_barrier()                      (all) orders LDS and global accesses of the block
 *   void mla_let_next_launch_begin()        an early launch (launcher.h) after this one may begin once every block has called this or ended
 *   void mla_wait_for_launch_before()       in an early launch: returns when all that the launch before wrote can be read
 *   float mla_shuffle_xor(float v, int m)   (wave) v of lane ^ m
 *   float mla_shuffle(float v, int lane)    (wave) v of `lane`
 *   float mla_mul(float, float)             the product, rounded once: never fused with an addition
 *   float mla_max(float, float)             the larger
 *   float mla_exp2(float), mla_log2(float)  the machine's fast ones: within 2 ulp; exp2(-inf) = 0
 *   float mla_tanh(float)                   absolute error within 8 * 2^-24
 *   uint16_t mla_bf16(float)                to nearest even
 *   float mla_float(uint16_t bf16)          exact
 *   uint32_t mla_bytes(uint32_t low, uint32_t high, int s)    byte i is byte s >> 4i & 7 of the eight bytes high:low
 *   uint32_t mla_mul_bf16x2(uint32_t a, b)  products of two pairs of bf16, where they are exact in bf16
 *   void mla_e4m3_to_float(uint32_t codes, float &low, float &high)    exact, bits 0-7 and 8-15; only where MLA_HAS_E4M3 is defined
 *   void mla_e4m3_to_float(uint32_t codes, float (&values)[4])         all four
 *   uint32_t mla_bf16x2(float low, float high), mla_fp16x2(float low, float high)    two at once, to nearest even; the low half is `low`
 *
 * Asynchronous copies, global memory to LDS, 16 bytes each; both addresses 16-byte aligned. The data is in LDS after a wait, not before. On AMD
 * they may be ordinary loads and stores.
 *   void mla_copy16(void *lds, const void *global, bool there)    zeros where nothing is there: then `global` is not read
 *   void mla_copy_commit()                  closes a group of this thread's copies
 *   void mla_copy_wait<N>()                 until at most N newest groups of this thread are under way (a barrier must follow for other threads' copies)
 *
 * Matrix unit, whole rows of steps at a time (one rendezvous on the host). Accumulators are updated in place.
 *   CDNA:   struct mla_bf16x4 { uint16_t v[4]; }, mla_bf16x8, mla_f32x4 { float v[4]; } or vector types with [] access
 *     void mla_mfma_16x16x16<STEPS, COLS>(const bf16x4 (&a)[STEPS], const bf16x4 (&b)[STEPS][COLS], f32x4 (&c)[COLS])         (wave)  cdna3
 *     void mla_mfma_16x16x32<STEPS, COLS>(const bf16x8 (&a)[STEPS], const bf16x8 (&b)[STEPS][COLS], f32x4 (&c)[COLS])         (wave)  cdna4
 *       A[i][k]: lane i + 16 * (k / n), element k % n (n = 4 or 8). B[k][j]: lane j + 16 * (k / n), element k % n. C[i][j]: lane j + 16 * (i / 4), element i % 4
 *     void mla_in_order()                     the compiler moves nothing across: what is loaded for later products then does not fill registers earlier
 *     mla_mfma_16x16x16_fp16, mla_mfma_16x16x32_fp16: the same with fp16 operands in the same types
 *   NVIDIA: a 4 x 32 bit, b 2 x 32 bit, c 4 floats, the fragments of PTX mma.m16n8k16
 *     void mla_mma_16x8x16<STEPS, COLS>(const uint32_t (&a)[STEPS][4], const uint32_t (&b)[STEPS][COLS][2], float (&c)[COLS][4])  (wave)
 *     mla_mma_16x8x16_fp16: the same with fp16 operands
 *     void mla_ldmatrix<N>(uint32_t (&r)[N][4], const void *const (&rows)[N])         (wave)  N times ldmatrix.x4: lane i gives row i % 8 of matrix i / 8
 *     void mla_ldmatrix_trans<N>(...)                                                 (wave)  transposed
 */
#ifndef MLA_DEVICE_H
#define MLA_DEVICE_H

#if defined(MLA_HOST_EXEC)
#include "device_host.h"
#elif defined(__HIP__)
#include "device_amd.h"
#else
#include "device_nvidia.h"
#endif

#endif
