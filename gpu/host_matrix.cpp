/* What waves do together in host execution: shuffles, the matrix units of CDNA and NVIDIA, and ldmatrix. Each runs once for all lanes. */
#include "host_exec.h"

#include <cstring>

namespace {

typedef uint16_t code16 __attribute__((may_alias)); /* fragments come as vectors, or as 32-bit registers of two */

typedef double f64x8 __attribute__((vector_size(64), may_alias));
typedef float f32x8 __attribute__((vector_size(32), may_alias));
typedef uint32_t u32x8 __attribute__((vector_size(32)));
typedef uint16_t u16x8 __attribute__((vector_size(16)));

constexpr int step_k = 16; /* products summed with the accumulator before it is rounded: host execution's mma_k */

/* Wide vectors where the processor has them. The same bits everywhere: the products are exact, and each sum keeps its order. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define MLA_WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MLA_WIDEST
#endif

/*
 * c += a b for 16 rows, 8 columns and one step. b and c are rows of 8. Summed in double, where products of 16-bit floats are exact, and rounded to
 * float once.
 */
MLA_WIDEST void multiply(const double *a, size_t a_stride, const double *b_rows, float *c_rows) {
    const f64x8 *b = reinterpret_cast<const f64x8 *>(b_rows);
    f32x8 *c = reinterpret_cast<f32x8 *>(c_rows);
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

/* Operand types: how `count` codes, a multiple of 8, are read. */
MLA_WIDEST void decode_bf16(const uint16_t *codes, double *values, size_t count) {
    for (size_t i = 0; i < count; i += 8) {
        u16x8 code;
        std::memcpy(&code, codes + i, sizeof code);
        const u32x8 bits = __builtin_convertvector(code, u32x8) << 16;
        f32x8 value;
        std::memcpy(&value, &bits, sizeof value);
        const f64x8 wide = __builtin_convertvector(value, f64x8);
        std::memcpy(values + i, &wide, sizeof wide);
    }
}
/* Read with float's exponent bias, then scaled: exact for subnormals too. An exponent of all ones becomes float's. */
MLA_WIDEST void decode_fp16(const uint16_t *codes, double *values, size_t count) {
    for (size_t i = 0; i < count; i += 8) {
        u16x8 code;
        std::memcpy(&code, codes + i, sizeof code);
        const u32x8 wide_code = __builtin_convertvector(code, u32x8);
        u32x8 bits = (wide_code & 0x7FFF) << 13;
        f32x8 value;
        std::memcpy(&value, &bits, sizeof value);
        value *= 0x1p112f;
        std::memcpy(&bits, &value, sizeof value);
        bits |= (wide_code & 0x8000) << 16;
        bits |= reinterpret_cast<u32x8>((wide_code & 0x7C00) == 0x7C00) & 0x7F800000;
        std::memcpy(&value, &bits, sizeof value);
        const f64x8 wide = __builtin_convertvector(value, f64x8);
        std::memcpy(values + i, &wide, sizeof wide);
    }
}
typedef void decode_function(const uint16_t *codes, double *values, size_t count);

struct Place {
    unsigned row, col;
};

/* A matrix unit: its shape, and where the elements of a lane's fragments belong. n consecutive k a lane. */
template <unsigned n> struct Mfma16x16 {
    static constexpr unsigned lanes = 64, K = 4 * n, N = 16, a_elements = n, b_elements = n, c_elements = 4;
    static constexpr Place a(unsigned lane, unsigned e) { return {lane % 16, lane / 16 * n + e}; }
    static constexpr Place b(unsigned lane, unsigned e) { return {lane / 16 * n + e, lane % 16}; }
    static constexpr Place c(unsigned lane, unsigned e) { return {lane / 16 * 4 + e, lane % 16}; }
};

/* PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" */
struct Mma16x8x16 {
    static constexpr unsigned lanes = 32, K = 16, N = 8, a_elements = 8, b_elements = 4, c_elements = 4;
    static constexpr Place a(unsigned lane, unsigned e) { return {lane / 4 + e / 2 % 2 * 8, lane % 4 * 2 + e % 2 + e / 4 * 8}; }
    static constexpr Place b(unsigned lane, unsigned e) { return {lane % 4 * 2 + e % 2 + e / 2 * 8, lane / 4}; }
    static constexpr Place c(unsigned lane, unsigned e) { return {lane / 4 + e / 2 * 8, lane % 4 * 2 + e % 2}; }
};

/* For a matrix of `rows` rows in blocks of `width` columns, row-major within a block: where each element of each lane's fragment lies. */
template <unsigned lanes, unsigned elements> struct Map {
    uint16_t at[lanes][elements];
    constexpr Map(Place (*place)(unsigned, unsigned), unsigned rows, unsigned width) : at() {
        for (unsigned lane = 0; lane < lanes; ++lane)
            for (unsigned e = 0; e < elements; ++e) {
                const Place p = place(lane, e);
                at[lane][e] = static_cast<uint16_t>((p.col / width * rows + p.row) * width + p.col % width);
            }
    }
};

/* Too large for a fiber's stack. */
alignas(64) __thread float accumulators[mla_host_max_cols * 256];

template <class Unit, decode_function decode> struct Matrix {
    static constexpr unsigned a_count = 16 * Unit::K, b_count = Unit::K * Unit::N, c_count = 16 * Unit::N;
    static constexpr Map<Unit::lanes, Unit::a_elements> a_map{Unit::a, 16, Unit::K};
    static constexpr Map<Unit::lanes, Unit::b_elements> b_map{Unit::b, Unit::K, 8};
    static constexpr Map<Unit::lanes, Unit::c_elements> c_map{Unit::c, 16, 8};

    /* One fragment of all lanes as a matrix of doubles. */
    template <unsigned elements>
    static void load(const Map<Unit::lanes, elements> &map, const mla_host_operands *lanes, const void *mla_host_operands::*which,
                     int fragment, double *to) {
        uint16_t codes[Unit::lanes * elements];
        for (unsigned lane = 0; lane < Unit::lanes; ++lane) {
            const code16 *from = static_cast<const code16 *>(lanes[lane].*which) + static_cast<unsigned>(fragment) * elements;
            for (unsigned e = 0; e < elements; ++e)
                codes[map.at[lane][e]] = from[e];
        }
        decode(codes, to, Unit::lanes * elements);
    }

    /* Calls f(element in its lane, element in accumulators). */
    template <class F> static void for_accumulators(const mla_host_step &step, const mla_host_operands *lanes, F f) {
        for (unsigned lane = 0; lane < Unit::lanes; ++lane)
            for (unsigned col = 0; col < static_cast<unsigned>(step.cols); ++col)
                for (unsigned e = 0; e < Unit::c_elements; ++e)
                    f(static_cast<float *>(lanes[lane].c)[col * Unit::c_elements + e], accumulators[col * c_count + c_map.at[lane][e]]);
    }

    static void perform(const mla_host_step &step, const mla_host_operands *lanes) {
        alignas(64) double a[a_count], b[b_count];
        for_accumulators(step, lanes, [](float &in_lane, float &here) { here = in_lane; });
        for (int s = 0; s < step.steps; ++s) {
            load(a_map, lanes, &mla_host_operands::a, s, a);
            for (int col = 0; col < step.cols; ++col) {
                load(b_map, lanes, &mla_host_operands::b, s * step.cols + col, b);
                for (unsigned k = 0; k < Unit::K; k += step_k)
                    for (unsigned j = 0; j < Unit::N; j += 8)
                        multiply(a + k, Unit::K, b + j * Unit::K + k * 8, accumulators + static_cast<unsigned>(col) * c_count + j * 16);
            }
        }
        for_accumulators(step, lanes, [](float &in_lane, float &here) { in_lane = here; });
    }
};

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
    Matrix<Mfma16x16<4>, decode_bf16>::perform(step, lanes);
}
void mla_host_mfma_16x16x32(const mla_host_step &step, const mla_host_operands *lanes) {
    Matrix<Mfma16x16<8>, decode_bf16>::perform(step, lanes);
}
void mla_host_mma_16x8x16(const mla_host_step &step, const mla_host_operands *lanes) {
    Matrix<Mma16x8x16, decode_bf16>::perform(step, lanes);
}
void mla_host_mfma_16x16x16_fp16(const mla_host_step &step, const mla_host_operands *lanes) {
    Matrix<Mfma16x16<4>, decode_fp16>::perform(step, lanes);
}
void mla_host_mfma_16x16x32_fp16(const mla_host_step &step, const mla_host_operands *lanes) {
    Matrix<Mfma16x16<8>, decode_fp16>::perform(step, lanes);
}
void mla_host_mma_16x8x16_fp16(const mla_host_step &step, const mla_host_operands *lanes) {
    Matrix<Mma16x8x16, decode_fp16>::perform(step, lanes);
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
