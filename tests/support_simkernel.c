#include "support_simkernel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { D = MLA_HEAD_DIM, DV = MLA_HEAD_DIM_V, LANES = 16 };

/* Loops are element-wise: wider vectors leave their bits as they are. */
#if defined(__x86_64__) && defined(__gnu_linux__)
#define WIDE_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE_VECTORS
#endif

static const float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

typedef struct sim_row {
    float m, l;
    float acc[DV];
} sim_row;

/* One thread's: a query token's keys, and the work of one head. */
typedef struct sim_scratch {
    void *memory;
    int64_t *slots; /* [positions] */
    float *kv;      /* [positions, 576] */
    float *scores;  /* [positions] */
    float *p;       /* [tile] */
    sim_row *parts; /* [splits] */
} sim_scratch;

sim_kernel sim_kernel_default(void) {
    return (sim_kernel){.contract = mla_contract_default(), .splits = 1};
}

/* ---- numbers --------------------------------------------------------------------------------------------------------------------------- */

/* SplitMix64's finaliser (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static float round_to(mla_format format, double x, mla_rounding rounding) {
    return format == MLA_FP32 || format == MLA_NONE ? (float)x : (float)mla_decode(format, mla_encode(format, x, rounding));
}

/* To so many significant bits of a float. */
static float round_bits(double x, int bits, mla_rounding rounding) {
    if (bits >= 24 && rounding == MLA_RNE)
        return (float)x;
    int exponent;
    const double fraction = ldexp(frexp(x, &exponent), bits < 24 ? bits : 24);
    return (float)ldexp(rounding == MLA_RNE ? nearbyint(fraction) : trunc(fraction), exponent - (bits < 24 ? bits : 24));
}

/* fp32 exp2 with an error of up to exp_error units of 2^-24; flushes subnormals where told to. */
static float exp2_of(const sim_kernel *sim, float x, uint64_t place) {
    const double noise = ldexp((double)(int64_t)mix(sim->seed + place), -63);
    const double y = exp2((double)x), off = x == 0 ? 0 : noise * fmax(sim->contract.exp_error - 1, 0) * 0x1p-24;
    const float result = (float)(y * (1 + off));
    return sim->contract.ftz && fabsf(result) < 0x1p-126f ? 0 : result;
}

/* ---- products -------------------------------------------------------------------------------------------------------------------------- */

WIDE_VECTORS static float dot_fp32(const float *q, const float *k) {
    float lanes[LANES] = {0};
    for (int d = 0; d < D; d += LANES)
        for (int i = 0; i < LANES; i++)
            lanes[i] += q[d + i] * k[d + i];
    for (int step = LANES / 2; step > 0; step /= 2)
        for (int i = 0; i < step; i++)
            lanes[i] += lanes[i + step];
    return lanes[0];
}

/* Groups of mma_k exact products, each added to the accumulator and rounded. */
static float dot_fused(const mla_contract *contract, const float *q, const float *k) {
    float sum = 0;
    for (int d = 0; d < D; d += contract->mma_k) {
        double group = 0;
        for (int i = d; i < d + contract->mma_k && i < D; i++)
            group += (double)q[i] * (double)k[i];
        sum = round_bits((double)sum + group, contract->acc_bits, contract->acc_rounding);
    }
    return sum;
}

WIDE_VECTORS static void add_value(float p, const float *restrict v, float *restrict acc) {
    for (int c = 0; c < DV; c++)
        acc[c] += p * v[c];
}

WIDE_VECTORS static void add_exact(float p, const float *restrict v, double *restrict group) {
    for (int c = 0; c < DV; c++)
        group[c] += (double)p * (double)v[c];
}

static void add_fused(const sim_kernel *sim, const float *p, const float *kv, int keys, float *acc) {
    const int bits = sim->accumulator_bits ? sim->accumulator_bits : sim->contract.acc_bits;
    for (int first = 0; first < keys; first += sim->contract.mma_k) {
        double group[DV] = {0};
        for (int j = first; j < first + sim->contract.mma_k && j < keys; j++)
            add_exact(p[j], kv + (size_t)j * D, group);
        for (int c = 0; c < DV; c++)
            acc[c] = round_bits((double)acc[c] + group[c], bits, sim->contract.acc_rounding);
    }
}

static bool is_plain(const mla_contract *contract) {
    return contract->mma_k == 1 && contract->acc_bits == 24 && contract->acc_rounding == MLA_RNE;
}

/* ---- scores ---------------------------------------------------------------------------------------------------------------------------- */

static void load_query(const sim_kernel *sim, const mla_problem *problem, int64_t token, int32_t head, float *q) {
    mla_q_row_f32(problem, token, head, q);
    const double scale = (double)problem->sm_scale * 1.4426950408889634;
    if (sim->contract.q_scaled != MLA_NONE)
        for (int d = 0; d < D; d++)
            q[d] = round_to(sim->contract.q_scaled, (double)q[d] * scale, MLA_RNE);
}

static float round_score(const sim_kernel *sim, float score) {
    for (int i = 0; i < sim->contract.n_scores; i++)
        score = round_to(sim->contract.scores, (double)score * (i > 0 ? 0.75 : 1), MLA_RNE) * (i > 0 ? 1 / 0.75f : 1);
    return sim->hides_scores ? round_to(sim->hidden_scores, (double)score, MLA_RNE) : score;
}

/* The score in base e or base 2. */
static float make_score(const sim_kernel *sim, const mla_problem *problem, const float *q, const float *k) {
    const float scale = (float)((double)problem->sm_scale * (1 + sim->scale_error));
    const float raw = is_plain(&sim->contract) ? dot_fp32(q, k) : dot_fused(&sim->contract, q, k);
    const bool folded = sim->contract.q_scaled != MLA_NONE;
    float score = folded ? raw : raw * (sim->natural || problem->softcap > 0 ? scale : scale * LOG2_E);
    if (problem->softcap > 0) {
        const float z = folded ? score * LN_2 : score;
        score = problem->softcap * (float)tanh((double)(z / problem->softcap)) * (sim->natural ? 1 : LOG2_E);
    } else if (folded && sim->natural) {
        score *= LN_2;
    }
    return round_score(sim, score);
}

/* exp of a difference of scores. */
static float exp_of(const sim_kernel *sim, float difference, uint64_t place) {
    return exp2_of(sim, sim->natural ? difference * LOG2_E : difference, place);
}

/* log of a positive sum, in the scores' base. */
static float log_of(const sim_kernel *sim, float sum) {
    const float log = (float)log2((double)sum);
    return sim->natural ? log * LN_2 : log;
}

/* ---- one head -------------------------------------------------------------------------------------------------------------------------- */

static float round_p(const sim_kernel *sim, float p) {
    const mla_contract *contract = &sim->contract;
    const mla_rounding rounding = sim->truncates_p ? MLA_RZ : contract->p_rounding;
    const float rounded = round_to(contract->p, (double)p * contract->p_scale, rounding);
    const float normal = (float)ldexp(1, mla_format_get(contract->p)->min_exponent + mla_format_get(contract->p)->digits - 1);
    return contract->ftz && rounded < normal ? 0 : rounded;
}

/* A tile of keys: weights, row sum, values. */
static void run_tile(const sim_kernel *sim, const float *scores, const float *kv, int keys, int64_t place, float *p, sim_row *row) {
    float m = row->m;
    for (int j = 0; j < keys; j++)
        m = scores[j] > m ? scores[j] : m;
    if (sim->contract.lazy_max && row->m > -INFINITY && m - row->m < 2)
        m = row->m;
    const float rescale = row->m == -INFINITY ? 0 : exp_of(sim, row->m - m, (uint64_t)place << 20);
    row->m = m;
    row->l *= rescale;
    for (int c = 0; c < DV; c++)
        row->acc[c] *= rescale;
    for (int j = 0; j < keys; j++) {
        const float weight = exp_of(sim, scores[j] - m, (uint64_t)(place + j));
        p[j] = round_p(sim, weight);
        row->l += sim->contract.rowsum_of_rounded_p ? (float)((double)p[j] / sim->contract.p_scale) : weight;
    }
    if (is_plain(&sim->contract) && !sim->accumulator_bits)
        for (int j = 0; j < keys; j++)
            add_value(p[j], kv + (size_t)j * D, row->acc);
    else
        add_fused(sim, p, kv, keys, row->acc);
}

static void run_split(const sim_kernel *sim, sim_scratch *scratch, int64_t begin, int64_t end, sim_row *row) {
    *row = (sim_row){.m = -INFINITY};
    for (int64_t first = begin; first < end; first += sim->contract.tile) {
        const int keys = (int)(end - first < sim->contract.tile ? end - first : sim->contract.tile);
        run_tile(sim, scratch->scores + first, scratch->kv + first * D, keys, first, scratch->p, row);
    }
    for (int c = 0; c < DV; c++)
        row->acc[c] = (float)((double)row->acc[c] / sim->contract.p_scale);
}

/* Partials of exact type merge by (m, l); others are normalised before they are rounded. */
static void store_partial(const sim_kernel *sim, sim_row *row) {
    const mla_format partial = sim->contract.partial;
    if (!sim->contract.combine_lse && partial == MLA_FP32)
        return;
    const float per_l = 1 / row->l;
    for (int c = 0; c < DV; c++) {
        const float rounded = round_to(partial, (double)(row->acc[c] * per_l), MLA_RNE);
        row->acc[c] = sim->contract.combine_lse ? rounded : rounded * row->l;
    }
    if (sim->contract.combine_lse) {
        row->m += log_of(sim, row->l);
        row->l = 1;
    }
}

/* Merges the parts into the first; returns the lse in the scores' base. */
static float combine(const sim_kernel *sim, sim_row *parts, int count, float sink) {
    float max = -INFINITY, sum = 0, out[DV] = {0};
    for (int i = 0; i < count; i++)
        max = parts[i].m > max ? parts[i].m : max;
    for (int i = 0; i < count; i++)
        sum += parts[i].l * exp_of(sim, parts[i].m - max, (uint64_t)i << 40);
    const float lse = max + log_of(sim, sum), top = sink > max ? sink : max;
    const float total = sink == -INFINITY ? sum : sum * exp_of(sim, max - top, 3) + exp_of(sim, sink - top, 5);
    const float whole = top + log_of(sim, total);
    for (int i = 0; i < count; i++)
        add_value(exp_of(sim, parts[i].m - (sim->contract.combine_lse ? whole : top), (uint64_t)i << 40), parts[i].acc, out);
    for (int c = 0; c < DV; c++)
        parts[0].acc[c] = sim->contract.combine_lse ? out[c] : out[c] * (1 / total);
    return lse;
}

static void store_row(const sim_kernel *sim, const mla_problem *problem, const mla_output *output, int64_t row, const float *out,
                      float lse) {
    const size_t bytes = mla_format_bytes(problem->out_format);
    uint8_t *to = (uint8_t *)output->out + (size_t)row * DV * bytes;
    for (int c = 0; c < DV; c++) {
        const uint32_t code = mla_encode(problem->out_format, (double)out[c], sim->contract.out_rounding);
        memcpy(to + (size_t)c * bytes, &code, bytes);
    }
    output->lse[row] = lse;
}

static void run_head(const sim_kernel *sim, const mla_problem *problem, const mla_output *output, int64_t token, int32_t head, int64_t keys,
                     sim_scratch *scratch) {
    float q[D];
    int64_t splits = keys < sim->splits ? keys : sim->splits;
    const int64_t length = (keys + splits - 1) / splits;
    splits = (keys + length - 1) / length;
    load_query(sim, problem, token, head, q);
    for (int64_t j = 0; j < keys; j++)
        scratch->scores[j] = make_score(sim, problem, q, scratch->kv + j * D);
    for (int64_t i = 0; i < splits; i++) {
        run_split(sim, scratch, i * length, (i + 1) * length < keys ? (i + 1) * length : keys, &scratch->parts[i]);
        store_partial(sim, &scratch->parts[i]);
    }
    const float sink = problem->sink ? problem->sink[head] * (sim->natural ? 1 : LOG2_E) : -INFINITY;
    const float lse = combine(sim, scratch->parts, (int)splits, sink);
    const bool base2 = problem->lse_base == MLA_LSE_2;
    const float unit = base2 == !sim->natural ? 1 : base2 ? LOG2_E : LN_2;
    store_row(sim, problem, output, token * problem->heads + head, scratch->parts[0].acc, lse * unit);
}

/* ---- the run --------------------------------------------------------------------------------------------------------------------------- */

static void run_token(const sim_kernel *sim, const mla_problem *problem, const mla_output *output, int64_t token, sim_scratch *scratch) {
    static const float zeros[DV];
    int64_t keys = mla_visible_slots(problem, token, scratch->slots);
    keys -= sim->skips_last_key && keys > 0;
    for (int64_t j = 0; j < keys; j++) {
        float *row = scratch->kv + j * D;
        mla_kv_row_f32(problem, scratch->slots[j], row);
        if (sim->contract.kv_dequant != MLA_NONE)
            for (int d = 0; d < D; d++)
                row[d] = round_to(sim->contract.kv_dequant, (double)row[d], MLA_RNE);
    }
    for (int32_t head = 0; head < problem->heads; head++) {
        if (keys > 0)
            run_head(sim, problem, output, token, head, keys, scratch);
        else
            store_row(sim, problem, output, token * problem->heads + head, zeros, problem->lse_empty_positive ? INFINITY : -INFINITY);
    }
}

static int64_t most_positions(const mla_problem *problem) {
    int64_t most = 1;
    for (int64_t token = 0; token < problem->total_q; token++) {
        const mla_range seen = mla_visible(problem, mla_sequence_of(problem, token), token);
        most = seen.end - seen.begin > most ? seen.end - seen.begin : most;
    }
    return most;
}

static bool scratch_make(const sim_kernel *sim, int64_t positions, sim_scratch *scratch) {
    const size_t keys = (size_t)positions, tile = (size_t)sim->contract.tile;
    const size_t parts = (size_t)sim->splits * sizeof(sim_row), slots = keys * sizeof(int64_t);
    char *memory = malloc(slots + parts + (keys * (D + 1) + tile) * sizeof(float));
    *scratch = (sim_scratch){.memory = memory};
    if (!memory)
        return false;
    scratch->slots = (int64_t *)(void *)memory;
    scratch->parts = (sim_row *)(void *)(memory + slots);
    scratch->kv = (float *)(void *)(memory + slots + parts);
    scratch->scores = scratch->kv + keys * D;
    scratch->p = scratch->scores + keys;
    return true;
}

mla_status sim_kernel_run(const sim_kernel *sim, const mla_problem *problem, const mla_output *output) {
    const int64_t positions = most_positions(problem);
    bool failed = false;
#pragma omp parallel reduction(|| : failed)
    {
        sim_scratch scratch;
        const bool ready = scratch_make(sim, positions, &scratch);
        failed = !ready;
#pragma omp for schedule(dynamic)
        for (int64_t token = 0; token < problem->total_q; token++)
            if (ready)
                run_token(sim, problem, output, token, &scratch);
        free(scratch.memory);
    }
    return failed ? mla_error(MLA_ENOMEM, "simulated kernel: no memory for %lld keys", (long long)positions) : mla_ok();
}

/* ---- random contracts ------------------------------------------------------------------------------------------------------------------ */

typedef struct dice {
    uint64_t seed, thrown;
} dice;

static uint64_t below(dice *d, uint64_t sides) {
    return mix(d->seed + 0x9E3779B97F4A7C15u * ++d->thrown) % sides;
}

/* One in so many. */
static bool seldom(dice *d, uint64_t sides) {
    return below(d, sides) == 0;
}

static void draw_p(dice *d, mla_contract *contract) {
    static const mla_format formats[] = {MLA_BF16, MLA_BF16, MLA_BF16, MLA_FP16, MLA_FP32, MLA_FP8, MLA_FP8FNUZ};
    contract->p = formats[below(d, 7)];
    if (contract->p == MLA_FP8)
        contract->p_scale = seldom(d, 3) ? 1 : 256;
    if (contract->p == MLA_FP8FNUZ)
        contract->p_scale = seldom(d, 3) ? 1 : 128;
    contract->p_rounding = seldom(d, 5) ? MLA_RZ : MLA_RNE;
    contract->rowsum_of_rounded_p = seldom(d, 4);
    contract->lazy_max = seldom(d, 6) && contract->p != MLA_FP8 && contract->p != MLA_FP8FNUZ;
}

static void draw_accumulation(dice *d, mla_contract *contract) {
    static const int widths[] = {1, 1, 1, 8, 16};
    contract->mma_k = widths[below(d, 5)];
    contract->acc_rounding = contract->mma_k > 1 && seldom(d, 2) ? MLA_RZ : MLA_RNE;
    contract->tile = 16 << below(d, 5);
    contract->exp_error = (double)(1 + below(d, 4));
}

static void draw_scores(dice *d, mla_contract *contract) {
    static const mla_format formats[] = {MLA_FP32, MLA_FP32, MLA_FP32, MLA_FP32, MLA_BF16, MLA_FP16};
    contract->scores = formats[below(d, 6)];
    contract->n_scores = contract->scores != MLA_FP32 && seldom(d, 3) ? 2 : 1;
    contract->q_scaled = seldom(d, 8) ? seldom(d, 2) ? MLA_FP16 : MLA_BF16 : MLA_NONE;
    contract->kv_dequant = seldom(d, 8) ? seldom(d, 2) ? MLA_FP16 : MLA_BF16 : MLA_NONE;
}

sim_kernel sim_kernel_random(uint64_t seed) {
    static const mla_format partials[] = {MLA_FP32, MLA_FP32, MLA_BF16, MLA_FP16};
    static const int splits[] = {1, 2, 4, 7, 16, 32};
    dice d = {.seed = mix(seed ^ 0x5851F42D4C957F2Du)};
    sim_kernel sim = sim_kernel_default();
    draw_p(&d, &sim.contract);
    draw_accumulation(&d, &sim.contract);
    draw_scores(&d, &sim.contract);
    sim.contract.combine_lse = seldom(&d, 2);
    sim.contract.partial = partials[below(&d, 4)];
    sim.contract.out_rounding = seldom(&d, 8) ? MLA_RZ : MLA_RNE;
    sim.contract.ftz = seldom(&d, 5);
    sim.splits = splits[below(&d, 6)];
    sim.contract.max_splits = sim.splits;
    sim.natural = seldom(&d, 2);
    sim.seed = seed;
    return sim;
}
