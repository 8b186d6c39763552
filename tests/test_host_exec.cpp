/* Host execution: rendezvous, seeds, LDS, asynchronous copies, and the matrix units against products written out. */
#include <criterion/criterion.h>

#define MLA_HOST_EXEC
#define MLA_ENGINE_CDNA3
#include "../gpu/device.h"

#include <omp.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <unistd.h>

struct test_args {
    float *out;
    const void *in;
    int *line; /* where the kernel waits in vain */
};

MLA_DEVICE_BEGIN

constexpr int threads = 128;

struct test_lds {
    alignas(16) float values[threads];
};

/* Each thread reads what its neighbour in the next wave wrote. */
MLA_KERNEL(neighbours, test_args, threads) {
    float *values = mla_lds<test_lds>()->values;
    for (int round = 0; round < 3; ++round) {
        values[mla_thread()] = static_cast<float>(mla_block() * 1000 + round * 200 + mla_thread());
        mla_barrier();
        args.out[(mla_block() * 3 + round) * threads + mla_thread()] = values[(mla_thread() + MLA_WAVE) % threads];
        mla_barrier();
    }
}

/* The same without its barrier. */
MLA_KERNEL(missing_barrier, test_args, threads) {
    float *values = mla_lds<test_lds>()->values;
    values[mla_thread()] = static_cast<float>(mla_thread());
    args.out[mla_thread()] = values[(mla_thread() + 1) % threads];
}

MLA_KERNEL(lone_barrier, test_args, threads) {
    if (mla_thread() < MLA_WAVE) {
        *args.line = __LINE__ + 1;
        mla_barrier();
    }
}

MLA_KERNEL(lone_shuffle, test_args, threads) {
    if (mla_thread() % 2) {
        *args.line = __LINE__ + 1;
        args.out[mla_thread()] = mla_shuffle(1.0f, 0);
    }
}

MLA_KERNEL(two_barriers, test_args, threads) {
    if (mla_thread() < MLA_WAVE) {
        mla_barrier();
    } else {
        *args.line = __LINE__ + 1;
        mla_barrier();
    }
}

/* Block 5 waits for block 6 to start (given two OpenMP threads), and block 6 fails well after it. */
MLA_KERNEL(fails_from_block_5, test_args, threads) {
    if (mla_block() == 5 && mla_thread() == 0)
        for (int i = 0; i < 1000 && !__atomic_load_n(args.line, __ATOMIC_ACQUIRE); ++i)
            usleep(100);
    if (mla_block() == 6 && mla_thread() == 0) {
        __atomic_store_n(args.line, 1, __ATOMIC_RELEASE);
        usleep(5000);
    }
    if (mla_block() >= 5 && mla_thread() == 77)
        mla_barrier();
}

MLA_KERNEL(shuffles, test_args, threads) {
    const float v = static_cast<float>(mla_thread());
    args.out[mla_thread()] = mla_shuffle_xor(v, 5);
    args.out[threads + mla_thread()] = mla_shuffle(v, (mla_thread() * 7 + 3) % MLA_WAVE);
}

MLA_KERNEL(shuffle_outside, test_args, threads) {
    *args.line = __LINE__ + 1;
    args.out[mla_thread()] = mla_shuffle(1.0f, mla_thread());
}

MLA_KERNEL(reads_fresh_lds, test_args, threads) {
    args.out[mla_block() * threads + mla_thread()] = mla_lds<test_lds>()->values[mla_thread()];
    mla_barrier();
    mla_lds<test_lds>()->values[mla_thread()] = 1.0f;
}

MLA_KERNEL(too_much_lds, test_args, threads) {
    *args.line = __LINE__ + 1;
    args.out[0] = static_cast<float>(mla_lds<float[threads + 1]>()[0][0]);
}

/* Two groups of one copy each; out holds a float of both before and after each wait. */
MLA_KERNEL(copies, test_args, MLA_WAVE) {
    const float *in = static_cast<const float *>(args.in);
    float *values = mla_lds<test_lds>()->values, *out = args.out;
    if (mla_thread() != 0)
        return;
    auto note = [&] {
        *out++ = values[0];
        *out++ = values[4];
    };
    values[0] = values[4] = 7.0f;
    mla_copy16(&values[0], &in[0], true);
    mla_copy_commit();
    mla_copy16(&values[4], &in[4], true);
    note();
    mla_copy_wait<0>();
    note();
    mla_copy_commit();
    mla_copy_wait<1>();
    note();
    mla_copy_wait<0>();
    note();
}

MLA_KERNEL(copy_outside, test_args, threads) {
    *args.line = __LINE__ + 1;
    mla_copy16(args.out, args.in, true);
}

constexpr int steps = 3, cols = 2;

/* in: A [16][steps * K], B [steps * K][cols * N], row-major bf16; out: C [16][cols * N], in and out. */
template <int K, int N> struct operands { uint16_t a[16][steps * K], b[steps * K][cols * N]; };

template <int n, typename V>
MLA_DEVICE void mfma(const test_args &args, void (*multiply)(const V (&)[steps], const V (&)[steps][cols], mla_f32x4 (&)[cols])) {
    const auto *in = static_cast<const operands<4 * n, 16> *>(args.in);
    auto out = reinterpret_cast<float(*)[cols * 16]>(args.out);
    const int i = mla_thread() % 16, group = mla_thread() / 16;
    V a[steps], b[steps][cols];
    mla_f32x4 c[cols];
    for (int s = 0; s < steps; ++s)
        for (int e = 0; e < n; ++e) {
            a[s][e] = in->a[i][(s * 4 + group) * n + e];
            for (int col = 0; col < cols; ++col)
                b[s][col][e] = in->b[(s * 4 + group) * n + e][col * 16 + i];
        }
    for (int col = 0; col < cols; ++col)
        for (int e = 0; e < 4; ++e)
            c[col][e] = out[group * 4 + e][col * 16 + i];
    multiply(a, b, c);
    for (int col = 0; col < cols; ++col)
        for (int e = 0; e < 4; ++e)
            out[group * 4 + e][col * 16 + i] = c[col][e];
}

MLA_KERNEL(mfma_cdna3, test_args, 64) {
    mfma<4, mla_bf16x4>(args, [](auto &a, auto &b, auto &c) { mla_mfma_16x16x16(a, b, c); });
}

MLA_KERNEL(mfma_cdna3_fp16, test_args, 64) {
    mfma<4, mla_bf16x4>(args, [](auto &a, auto &b, auto &c) { mla_mfma_16x16x16_fp16(a, b, c); });
}

MLA_KERNEL(mfma_cdna4, test_args, 64) {
    mfma<8, mla_bf16x8>(args, [](auto &a, auto &b, auto &c) { mla_mfma_16x16x32(a, b, c); });
}

MLA_KERNEL(mfma_cdna4_fp16, test_args, 64) {
    mfma<8, mla_bf16x8>(args, [](auto &a, auto &b, auto &c) { mla_mfma_16x16x32_fp16(a, b, c); });
}

/* PTX ISA, mma.m16n8k16: with g = lane / 4 and t = lane % 4. */
template <typename Multiply> MLA_DEVICE void mma(const test_args &args, Multiply multiply) {
    const auto *in = static_cast<const operands<16, 8> *>(args.in);
    auto out = reinterpret_cast<float(*)[cols * 8]>(args.out);
    const int g = mla_thread() / 4, t = mla_thread() % 4;
    auto pair = [](uint16_t low, uint16_t high) { return low | uint32_t{high} << 16; };
    uint32_t a[steps][4], b[steps][cols][2];
    float c[cols][4];
    for (int s = 0; s < steps; ++s) {
        const int k = s * 16 + 2 * t;
        a[s][0] = pair(in->a[g][k], in->a[g][k + 1]);
        a[s][1] = pair(in->a[g + 8][k], in->a[g + 8][k + 1]);
        a[s][2] = pair(in->a[g][k + 8], in->a[g][k + 9]);
        a[s][3] = pair(in->a[g + 8][k + 8], in->a[g + 8][k + 9]);
        for (int col = 0; col < cols; ++col) {
            b[s][col][0] = pair(in->b[k][col * 8 + g], in->b[k + 1][col * 8 + g]);
            b[s][col][1] = pair(in->b[k + 8][col * 8 + g], in->b[k + 9][col * 8 + g]);
        }
    }
    for (int col = 0; col < cols; ++col)
        for (int e = 0; e < 4; ++e)
            c[col][e] = out[g + e / 2 * 8][col * 8 + 2 * t + e % 2];
    multiply(a, b, c);
    for (int col = 0; col < cols; ++col)
        for (int e = 0; e < 4; ++e)
            out[g + e / 2 * 8][col * 8 + 2 * t + e % 2] = c[col][e];
}

MLA_KERNEL(mma_nvidia, test_args, 32) {
    mma(args, [](auto &a, auto &b, auto &c) { mla_mma_16x8x16(a, b, c); });
}

MLA_KERNEL(mma_nvidia_fp16, test_args, 32) {
    mma(args, [](auto &a, auto &b, auto &c) { mla_mma_16x8x16_fp16(a, b, c); });
}

/* out: two results of x4, plain and transposed, [2][2][4][32] pairs of codes. Row r of matrix m of load n is in + ((n * 4 + m) * 8 + r) * 8. */
MLA_KERNEL(ldmatrices, test_args, 32) {
    const auto *in = static_cast<const uint16_t *>(args.in);
    auto *out = reinterpret_cast<uint32_t *>(args.out);
    const void *rows[2] = {in + mla_thread() * 8, in + (32 + mla_thread()) * 8};
    uint32_t plain[2][4], transposed[2][4];
    mla_ldmatrix(plain, rows);
    mla_ldmatrix_trans(transposed, rows);
    for (int n = 0; n < 2; ++n)
        for (int m = 0; m < 4; ++m) {
            out[(n * 4 + m) * 32 + mla_thread()] = plain[n][m];
            out[256 + (n * 4 + m) * 32 + mla_thread()] = transposed[n][m];
        }
}

MLA_DEVICE_END

static mla_status launch(const char *name, const test_args &args, int blocks = 1, int block_threads = threads, int wave = MLA_WAVE,
                         uint64_t seed = 0) {
    const mla_host_launch what = {mla_host_kernel_find("cdna3", name), &args, blocks, block_threads, wave, sizeof(test_lds), seed};
    return mla_host_execute(&what);
}

/* The launch fails, and its message names this file and the line the kernel noted. */
static void expect_refusal(const char *name, const char *about) {
    int line = 0;
    std::vector<float> out(2 * threads);
    for (uint64_t seed = 0; seed < 4; ++seed) {
        const mla_status status = launch(name, {out.data(), out.data(), &line}, 1, threads, MLA_WAVE, seed);
        const std::string message = status.message, place = "test_host_exec.cpp:" + std::to_string(line);
        cr_assert_eq(status.code, MLA_EDEVICE, "%s", name);
        cr_assert(message.find(place) != std::string::npos && message.find(about) != std::string::npos, "%s: '%s' lacks %s or '%s'", name,
                  status.message, place.c_str(), about);
    }
}

Test(host_exec, kernels_are_found_by_engine_and_name) {
    cr_assert(mla_host_kernel_find("cdna3", "neighbours"));
    cr_assert_null(mla_host_kernel_find("cdna4", "neighbours"));
    cr_assert_null(mla_host_kernel_find("cdna3", "neighbour"));
}

Test(host_exec, malformed_launches_are_refused) {
    cr_assert_eq(mla_host_execute(nullptr).code, MLA_EINVAL);
    cr_assert_eq(launch("no such kernel", {}).code, MLA_EINVAL);
    cr_assert_eq(launch("neighbours", {}, -1).code, MLA_EINVAL);
    cr_assert_eq(launch("neighbours", {}, 1, 96).code, MLA_EINVAL);
    cr_assert_eq(launch("neighbours", {}, 1, 0).code, MLA_EINVAL);
    cr_assert_eq(launch("neighbours", {}, 0).code, MLA_OK);
}

Test(host_exec, barriers_order_waves_for_any_seed_and_thread_count) {
    constexpr int blocks = 50;
    for (uint64_t seed = 0; seed < 4; ++seed)
        for (int omp_threads = 1; omp_threads <= 2; ++omp_threads) {
            omp_set_num_threads(omp_threads);
            std::vector<float> out(blocks * 3 * threads);
            cr_assert_eq(launch("neighbours", {out.data(), nullptr, nullptr}, blocks, threads, MLA_WAVE, seed).code, MLA_OK);
            for (int i = 0; i < blocks * 3 * threads; ++i) {
                const int block = i / (3 * threads), round = i / threads % 3, thread = i % threads;
                cr_assert_eq(out[i], static_cast<float>(block * 1000 + round * 200 + (thread + MLA_WAVE) % threads));
            }
        }
}

Test(host_exec, a_missing_barrier_shows_between_seeds) {
    std::vector<float> first(threads), second(threads);
    cr_assert_eq(launch("missing_barrier", {first.data(), nullptr, nullptr}, 1, threads, MLA_WAVE, 1).code, MLA_OK);
    cr_assert_eq(launch("missing_barrier", {second.data(), nullptr, nullptr}, 1, threads, MLA_WAVE, 2).code, MLA_OK);
    cr_assert_neq(memcmp(first.data(), second.data(), threads * sizeof(float)), 0);
    std::vector<float> again(threads);
    cr_assert_eq(launch("missing_barrier", {again.data(), nullptr, nullptr}, 1, threads, MLA_WAVE, 2).code, MLA_OK);
    cr_assert_eq(memcmp(again.data(), second.data(), threads * sizeof(float)), 0, "one seed gave two orders");
}

Test(host_exec, rendezvous_not_reached_by_all_name_file_and_line) {
    expect_refusal("lone_barrier", "has ended");
    expect_refusal("lone_shuffle", "shuffle");
    expect_refusal("two_barriers", "barrier");
}

Test(host_exec, misuse_names_file_and_line) {
    expect_refusal("shuffle_outside", "shuffle from lane");
    expect_refusal("too_much_lds", "LDS");
    expect_refusal("copy_outside", "outside LDS");
}

Test(host_exec, a_matrix_step_needs_its_own_wave) {
    operands<16, 16> in = {};
    float out[16 * cols * 16] = {};
    const mla_status status = launch("mfma_cdna3", {out, &in, nullptr}, 1, 32, 32);
    cr_assert_eq(status.code, MLA_EDEVICE);
    cr_assert(strstr(status.message, "needs a wave of 64"), "%s", status.message);
}

Test(host_exec, the_lowest_failing_block_is_reported_and_the_machine_survives) {
    omp_set_num_threads(2);
    for (int i = 0; i < 5; ++i) {
        int block_6_runs = 0;
        const mla_status status = launch("fails_from_block_5", {nullptr, nullptr, &block_6_runs}, 40);
        cr_assert_eq(status.code, MLA_EDEVICE);
        cr_assert(strstr(status.message, "block 5"), "%s", status.message);
        std::vector<float> out(3 * threads);
        cr_assert_eq(launch("neighbours", {out.data(), nullptr, nullptr}).code, MLA_OK);
        cr_assert_eq(out[0], static_cast<float>(MLA_WAVE));
    }
}

Test(host_exec, shuffles_stay_in_their_wave) {
    std::vector<float> out(2 * threads);
    cr_assert_eq(launch("shuffles", {out.data(), nullptr, nullptr}).code, MLA_OK);
    for (int i = 0; i < threads; ++i) {
        cr_assert_eq(out[i], static_cast<float>(i ^ 5));
        cr_assert_eq(out[threads + i], static_cast<float>(i / MLA_WAVE * MLA_WAVE + (i * 7 + 3) % MLA_WAVE));
    }
}

Test(host_exec, lds_is_poisoned_before_each_block) {
    std::vector<float> out(4 * threads);
    cr_assert_eq(launch("reads_fresh_lds", {out.data(), nullptr, nullptr}, 4).code, MLA_OK);
    for (float v : out)
        cr_assert(isnan(v));
}

Test(host_exec, copies_land_at_their_wait_and_poison_until_then) {
    alignas(16) float in[8], out[8];
    for (int i = 0; i < 8; ++i)
        in[i] = static_cast<float>(i + 1);
    cr_assert_eq(launch("copies", {out, in, nullptr}, 1, MLA_WAVE).code, MLA_OK);
    cr_assert(isnan(out[0]) && isnan(out[1]), "issued: neither is there");
    cr_assert(out[2] == 1.0f && isnan(out[3]), "the second is in no group yet");
    cr_assert(out[4] == 1.0f && isnan(out[5]), "one group may be under way");
    cr_assert(out[6] == 1.0f && out[7] == 5.0f);
}

/* Small dyadic values, exact in both formats, and so is a sum of a few dozen of their products. */
static uint16_t random_code(mla_format format, unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return static_cast<uint16_t>(mla_encode(format, (static_cast<int>(*state >> 24) - 128) / 16.0, MLA_RNE));
}

template <int K, int N> static void expect_product(const char *kernel, mla_format format, int wave) {
    operands<K, N> in;
    unsigned state = 1;
    for (auto &row : in.a)
        for (auto &code : row)
            code = random_code(format, &state);
    for (auto &row : in.b)
        for (auto &code : row)
            code = random_code(format, &state);
    float out[16][cols * N];
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < cols * N; ++j)
            out[i][j] = static_cast<float>(i * 64 + j);
    cr_assert_eq(launch(kernel, {&out[0][0], &in, nullptr}, 1, wave, wave).code, MLA_OK);
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < cols * N; ++j) {
            double sum = i * 64 + j;
            for (int k = 0; k < steps * K; ++k)
                sum += mla_decode(format, in.a[i][k]) * mla_decode(format, in.b[k][j]);
            cr_assert_eq(out[i][j], sum, "%s: C[%d][%d] is %g, not %g", kernel, i, j, out[i][j], sum);
        }
}

Test(host_exec, matrix_units_multiply) {
    expect_product<16, 16>("mfma_cdna3", MLA_BF16, 64);
    expect_product<32, 16>("mfma_cdna4", MLA_BF16, 64);
    expect_product<16, 8>("mma_nvidia", MLA_BF16, 32);
    expect_product<16, 16>("mfma_cdna3_fp16", MLA_FP16, 64);
    expect_product<32, 16>("mfma_cdna4_fp16", MLA_FP16, 64);
    expect_product<16, 8>("mma_nvidia_fp16", MLA_FP16, 32);
}

/* Times one, each code of the format must come out as itself. */
static void expect_every_code_read(const char *kernel, mla_format format) {
    for (uint32_t first = 0; first < 65536; first += 16) {
        operands<16, 16> in = {};
        for (uint32_t i = 0; i < 16; ++i)
            in.a[i][0] = static_cast<uint16_t>(first + i);
        for (auto &code : in.b[0])
            code = static_cast<uint16_t>(mla_encode(format, 1.0, MLA_RNE));
        float out[16][cols * 16] = {};
        cr_assert_eq(launch(kernel, {&out[0][0], &in, nullptr}, 1, 64, 64).code, MLA_OK);
        for (uint32_t i = 0; i < 16; ++i) {
            const double value = mla_decode(format, first + i);
            cr_assert(isnan(value) ? isnan(out[i][9]) : out[i][9] == value, "%s: code %x gives %a", kernel, first + i, out[i][9]);
        }
    }
}

Test(host_exec, matrix_units_read_every_code) {
    expect_every_code_read("mfma_cdna3", MLA_BF16);
    expect_every_code_read("mfma_cdna3_fp16", MLA_FP16);
}

/* 2^24 + 1 - 2^24 over k: exact within 16 products, whatever their order; the 1 is lost when a rounding falls in between. */
template <int K, int N> static void expect_rounding_each_16(const char *kernel, int wave) {
    for (int last : {15, 16}) {
        operands<K, N> in = {};
        for (auto &row : in.a) {
            row[0] = mla_bf16(16777216.0f);
            row[1] = mla_bf16(1.0f);
            row[last] = mla_bf16(-16777216.0f);
        }
        for (int k : {0, 1, last})
            for (auto &code : in.b[k])
                code = mla_bf16(1.0f);
        float out[16][cols * N] = {};
        cr_assert_eq(launch(kernel, {&out[0][0], &in, nullptr}, 1, wave, wave).code, MLA_OK);
        for (const auto &row : out)
            for (float v : row)
                cr_assert_eq(v, last == 15 ? 1.0f : 0.0f, "%s", kernel);
    }
}

Test(host_exec, sixteen_products_are_summed_before_one_rounding) {
    expect_rounding_each_16<16, 16>("mfma_cdna3", 64);
    expect_rounding_each_16<32, 16>("mfma_cdna4", 64);
    expect_rounding_each_16<16, 8>("mma_nvidia", 32);
}

Test(host_exec, ldmatrix_hands_out_rows_or_columns) {
    uint16_t in[2][4][8][8];
    for (int i = 0; i < 512; ++i)
        (&in[0][0][0][0])[i] = static_cast<uint16_t>(i * 127);
    uint32_t out[2][2][4][32];
    cr_assert_eq(launch("ldmatrices", {reinterpret_cast<float *>(out), in, nullptr}, 1, 32, 32).code, MLA_OK);
    for (int n = 0; n < 2; ++n)
        for (int m = 0; m < 4; ++m)
            for (int lane = 0; lane < 32; ++lane) {
                const int g = lane / 4, t = lane % 4;
                const uint16_t(&matrix)[8][8] = in[n][m];
                cr_assert_eq(out[0][n][m][lane], matrix[g][2 * t] | uint32_t{matrix[g][2 * t + 1]} << 16);
                cr_assert_eq(out[1][n][m][lane], matrix[2 * t][g] | uint32_t{matrix[2 * t + 1][g]} << 16);
            }
}

/* The conversions of host execution, written with integers, against the correctly rounded ones of the formats. */
Test(host_exec, floats_round_to_nearest_even) {
    uint32_t bits = 0;
    for (int i = 0; i < 1 << 20; ++i, bits += 4093) {
        float value;
        memcpy(&value, &bits, sizeof value);
        if (isnan(value)) {
            cr_assert(isnan(mla_float(mla_bf16(value))) && isnan(mla_decode(MLA_FP16, mla_fp16x2(value, 0.0f) & 0xFFFF)));
            continue;
        }
        const uint32_t bf16 = mla_encode(MLA_BF16, value, MLA_RNE), fp16 = mla_encode(MLA_FP16, value, MLA_RNE);
        cr_assert_eq(mla_bf16(value), bf16, "%a", value);
        cr_assert_eq(mla_bf16x2(1.0f, value), bf16 << 16 | 0x3F80, "%a", value);
        cr_assert_eq(mla_fp16x2(1.0f, value), fp16 << 16 | 0x3C00, "%a", value);
    }
    cr_assert_eq(mla_bf16(1.00390625f), 0x3F80, "1 + 2^-8 is a tie: to even, down");
    cr_assert_eq(mla_bf16(1.01171875f), 0x3F82, "1 + 3 * 2^-8 is a tie: to even, up");
    cr_assert_eq(mla_fp16x2(0x1.002p0f, 0x1.006p0f), 0x3C023C00, "1 + 2^-11 and 1 + 3 * 2^-11 are ties");
    cr_assert_eq(mla_fp16x2(0x1p-25f, 0x3p-25f), 0x00020000, "half and three halves of the smallest subnormal are ties");
}
