/* What waves do together in host execution: shuffles, the matrix units of CDNA and NVIDIA, and ldmatrix. Each runs once for all lanes. */
#include "host_exec.h"

#include <cstring>

namespace {

typedef uint16_t code16 __attribute__((may_alias)); /* fragments come as vectors, or as 32-bit registers of two */

typedef double f64x8 __attribute__((vector_size(64)));
typedef float f32x8 __attribute__((vector_size(32)));

constexpr int step_k = 16; /* products summed with the accumulator before it is rounded: host execution's mma_k */

/* Wide vectors where the processor has them. The same bits everywhere: the products are exact, and each sum keeps its order. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define MLA_WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MLA_WIDEST
#endif

/* c += a b for 16 rows, 8 columns and one step: summed in double (products of 11-bit significands are exact there), rounded to float once. */
MLA_WIDEST void multiply(const double *a, size_t a_stride, const f64x8 *b, f32x8 *c) {
    for (size_t i = 0; i < 16; i += 4) {
        const double *a0 = a + i * a_stride, *a1 = a0 + a_stride, *a2 = a1 + a_stride, *a3 = a2 + a_stride;
        f64x8 s0 = __builtin_convertvector(c[i], f64x8), s1 = __builtin_convertvector(c[i + 1], f64x8);
        f64x8 s2 = __builtin_convertvector(c[i + 2], f64x8), s3 = __builtin_convertvector(c[i + 3], f64x8);
        for (int k = 0; k < step_k; ++k) {
            s0 += a0[k] * b[k];
            s1 += a1[k] * b[k];
            s2 += a2[k] * b[k];
            s3 += a3[k] * b[k];
        }
        c[i] = __builtin_convertvector(s0, f32x8);
        c[i + 1] = __builtin_convertvector(s1, f32x8);
        c[i + 2] = __builtin_convertvector(s2, f32x8);
        c[i + 3] = __builtin_convertvector(s3, f32x8);
    }
}

/* An operand type: how its 16-bit codes are read. */
struct Bf16 {
    static double decode(uint16_t code) {
        const uint32_t bits = uint32_t{code} << 16;
        float value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }
};

struct Place {
    int row, col;
};

/* A matrix unit: its shape, and where the elements of a lane's fragments belong. n consecutive k a lane. */
template <int n> struct Mfma16x16 {
    static constexpr int lanes = 64, K = 4 * n, N = 16, a_elements = n, b_elements = n, c_elements = 4;
    static Place a(int lane, int e) { return {lane % 16, lane / 16 * n + e}; }
    static Place b(int lane, int e) { return {lane / 16 * n + e, lane % 16}; }
    static Place c(int lane, int e) { return {lane / 16 * 4 + e, lane % 16}; }
};

/* PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" */
struct Mma16x8x16 {
    static constexpr int lanes = 32, K = 16, N = 8, a_elements = 8, b_elements = 4, c_elements = 4;
    static Place a(int lane, int e) { return {lane / 4 + e / 2 % 2 * 8, lane % 4 * 2 + e % 2 + e / 4 * 8}; }
    static Place b(int lane, int e) { return {lane % 4 * 2 + e % 2 + e / 2 * 8, lane / 4}; }
    static Place c(int lane, int e) { return {lane / 4 + e / 2 * 8, lane % 4 * 2 + e % 2}; }
};

/* Columns in blocks of 8: element (k, j) is b[j / 8][k][j % 8], c alike. */
template <class Unit, class Operand> struct Tile {
    double a[16][Unit::K];
    f64x8 b[Unit::N / 8][Unit::K];

    void load_a(const mla_host_operands *lanes, int step) {
        for (int lane = 0; lane < Unit::lanes; ++lane) {
            const code16 *from = static_cast<const code16 *>(lanes[lane].a) + step * Unit::a_elements;
            for (int e = 0; e < Unit::a_elements; ++e) {
                const Place p = Unit::a(lane, e);
                a[p.row][p.col] = Operand::decode(from[e]);
            }
        }
    }
    void load_b(const mla_host_operands *lanes, int fragment) {
        for (int lane = 0; lane < Unit::lanes; ++lane) {
            const code16 *from = static_cast<const code16 *>(lanes[lane].b) + fragment * Unit::b_elements;
            for (int e = 0; e < Unit::b_elements; ++e) {
                const Place p = Unit::b(lane, e);
                b[p.col / 8][p.row][p.col % 8] = Operand::decode(from[e]);
            }
        }
    }
    void multiply_into(f32x8 (*c)[16]) const {
        for (int k = 0; k < Unit::K; k += step_k)
            for (int j = 0; j < Unit::N / 8; ++j)
                multiply(&a[0][k], Unit::K, &b[j][k], c[j]);
    }
};

template <class Unit> float &c_element(const mla_host_operands *lanes, int lane, int col, int e) {
    return static_cast<float *>(lanes[lane].c)[col * Unit::c_elements + e];
}

/* Too large for a fiber's stack. */
__thread f32x8 accumulators[mla_host_max_cols * 2][16];

template <class Unit, class Operand> void matrix_step(const mla_host_step &step, const mla_host_operands *lanes) {
    constexpr int blocks = Unit::N / 8;
    for (int col = 0; col < step.cols; ++col)
        for (int lane = 0; lane < Unit::lanes; ++lane)
            for (int e = 0; e < Unit::c_elements; ++e) {
                const Place p = Unit::c(lane, e);
                accumulators[col * blocks + p.col / 8][p.row][p.col % 8] = c_element<Unit>(lanes, lane, col, e);
            }
    Tile<Unit, Operand> tile;
    for (int s = 0; s < step.steps; ++s) {
        tile.load_a(lanes, s);
        for (int col = 0; col < step.cols; ++col) {
            tile.load_b(lanes, s * step.cols + col);
            tile.multiply_into(&accumulators[col * blocks]);
        }
    }
    for (int col = 0; col < step.cols; ++col)
        for (int lane = 0; lane < Unit::lanes; ++lane)
            for (int e = 0; e < Unit::c_elements; ++e) {
                const Place p = Unit::c(lane, e);
                c_element<Unit>(lanes, lane, col, e) = accumulators[col * blocks + p.col / 8][p.row][p.col % 8];
            }
}

/* Matrix m of an x4: its rows are named by lanes 8m .. 8m + 7, and become register m of every lane. */
template <bool transposed> void load_matrices(const mla_host_step &step, const mla_host_operands *lanes) {
    for (int n = 0; n < step.steps; ++n)
        for (int m = 0; m < 4; ++m)
            for (int lane = 0; lane < 32; ++lane) {
                uint32_t pair = 0;
                for (int e = 0; e < 2; ++e) {
                    const int major = lane / 4, minor = lane % 4 * 2 + e;
                    const int row = transposed ? minor : major, col = transposed ? major : minor;
                    const void *const *rows = static_cast<const void *const *>(lanes[8 * m + row].a);
                    pair |= uint32_t{static_cast<const code16 *>(rows[n])[col]} << 16 * e;
                }
                static_cast<uint32_t *>(lanes[lane].c)[n * 4 + m] = pair;
            }
}

} // namespace

void mla_host_mfma_16x16x16(const mla_host_step &step, const mla_host_operands *lanes) {
    matrix_step<Mfma16x16<4>, Bf16>(step, lanes);
}
void mla_host_mfma_16x16x32(const mla_host_step &step, const mla_host_operands *lanes) {
    matrix_step<Mfma16x16<8>, Bf16>(step, lanes);
}
void mla_host_mma_16x8x16(const mla_host_step &step, const mla_host_operands *lanes) {
    matrix_step<Mma16x8x16, Bf16>(step, lanes);
}
void mla_host_ldmatrix(const mla_host_step &step, const mla_host_operands *lanes) {
    load_matrices<false>(step, lanes);
}
void mla_host_ldmatrix_trans(const mla_host_step &step, const mla_host_operands *lanes) {
    load_matrices<true>(step, lanes);
}

void mla_host_shuffle(const mla_host_step &step, const mla_host_operands *lanes) {
    for (int lane = 0; lane < step.cols; ++lane) {
        const int from = *static_cast<const int *>(lanes[lane].b);
        if (from < 0 || from >= step.cols)
            mla_host_abandon(mla_error(MLA_EDEVICE, "%s:%d: shuffle from lane %d of %d", step.file, step.line, from, step.cols));
        *static_cast<float *>(lanes[lane].c) = *static_cast<const float *>(lanes[from].a);
    }
}
