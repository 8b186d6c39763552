/*
 * Multi-head Latent Attention (MLA) decode: the problem, its truth, and how far a correct kernel may stray.
 *
 * Shapes follow DeepSeek V2/V3's absorbed decode (arXiv:2405.04434, section 2.1): every query head attends to one shared latent row
 * a token. All 576 entries of the row are the key, its first 512 (kv_lora_rank) are the value, its last 64 carry the RoPE part.
 *
 * Ownership: the library owns nothing it is handed. A function that allocates says so, and names the function that frees.
 * Errors: a function that can fail returns mla_status; success is code == MLA_OK. The library never prints, exits or aborts.
 * Threads: every result is the same bits for any number of OpenMP threads.
 */
#ifndef MLA_H
#define MLA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MLA_HEAD_DIM 576   /* entries of a key: latent 512 + RoPE 64 */
#define MLA_HEAD_DIM_V 512 /* entries of a value: the key's first 512 */
#define MLA_MAX_HEADS 1024

/* ---- status ------------------------------------------------------------------------------------------------------------- */

typedef enum mla_code {
    MLA_OK = 0,
    MLA_EINVAL,       /* malformed input: the message names field, index and value */
    MLA_EUNSUPPORTED, /* well-formed, but this kernel or build cannot do it */
    MLA_ENOMEM,
    MLA_EIO,     /* a file could not be read or written */
    MLA_EDEVICE, /* a device, driver or kernel launch failed */
} mla_code;

typedef struct mla_status {
    mla_code code;
    char message[252]; /* empty on success; otherwise one line without a newline */
} mla_status;

#if defined(__GNUC__)
#define MLA_CHECKED __attribute__((warn_unused_result))
#define MLA_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define MLA_CHECKED
#define MLA_PRINTF(text, first)
#endif

mla_status mla_ok(void);
/* A failed status; `format` as in printf. Longer messages are cut. */
mla_status mla_error(mla_code code, const char *format, ...) MLA_PRINTF(2, 3);

/* ---- element formats (format.c) ----------------------------------------------------------------------------------------- */

typedef enum mla_format {
    MLA_BF16,
    MLA_FP16,
    MLA_FP32,
    MLA_FP8,     /* e4m3fn: OCP, max 448, NaN 0x7F and 0xFF, no infinity (gfx950, NVIDIA) */
    MLA_FP8FNUZ, /* e4m3fnuz: bias 8, max 240, one NaN 0x80, no -0, no infinity (gfx942) */
    MLA_E2M1,    /* OCP MX fp4: 0 .5 1 1.5 2 3 4 6 and a sign; no NaN, no infinity */
    MLA_E8M0,    /* OCP MX scale: 2^(bits - 127), 255 is NaN */
    MLA_FORMAT_COUNT
} mla_format;

typedef enum mla_rounding {
    MLA_RNE, /* to nearest, ties to even */
    MLA_RZ   /* toward zero */
} mla_rounding;

typedef struct mla_format_info {
    const char *name; /* as in case lines: "bf16", "fp16", "fp32", "fp8", "fp8fnuz", "e2m1", "e8m0" */
    int bits;         /* width of a code: 4, 8, 16 or 32 */
    int digits;       /* significant bits, the hidden one included; unit roundoff is 2^-digits */
    int min_exponent; /* smallest positive subnormal is 2^min_exponent */
    double max_finite;
    bool has_infinity;
    uint32_t nan; /* a NaN code; 0 where the format has none */
} mla_format_info;

/* Never NULL for a valid format. */
const mla_format_info *mla_format_get(mla_format format);
/* MLA_EINVAL for an unknown name. */
mla_status mla_format_parse(const char *name, mla_format *format) MLA_CHECKED;

/* The exact value of a code; NaN and infinities as themselves. Bits above the format's width are ignored. */
double mla_decode(mla_format format, uint32_t code);
/*
 * `value` rounded once to `format`. Beyond the largest finite value: rne gives infinity (formats without one saturate to the largest
 * finite value, the field's cast); rz gives the largest finite value. Infinity stays infinity or saturates; NaN gives the format's NaN (e2m1 has
 * none: 0). -0 keeps its sign where the format has a -0. e8m0 has neither sign nor zero: values below 2^-127 give 2^-127, negative ones NaN.
 */
uint32_t mla_encode(mla_format format, double value, mla_rounding rounding);

/* `count` codes of 1, 2 or 4 bytes each (4-bit codes one a byte) to double or float, exactly: every format here fits in a float. */
void mla_decode_f64(mla_format format, const void *codes, size_t count, double *values);
void mla_decode_f32(mla_format format, const void *codes, size_t count, float *values);
/* float to codes of the same layout, one rounding (rne): mla_encode's result. */
void mla_encode_f32(mla_format format, const float *values, size_t count, void *codes);
/* Bytes of one code: bits / 8, at least 1. */
size_t mla_format_bytes(mla_format format);

/* ---- ulp (ulp.c) --------------------------------------------------------------------------------------------------------- */

/* Unit in the last place of `format` at the real number r, by the binade of r (Goldberg 1991); r = 0 gives the smallest subnormal. */
double mla_ulp(mla_format format, double r);
/* |got - r| / ulp(r). Both NaN: 0. One NaN, or infinity against anything but the same infinity: infinity (an anomaly). */
double mla_ulp_error(mla_format format, double got, double r);
/* Codes between `code` and r rounded to `format` (rne, straight from double); -0 == +0. An anomaly gives UINT32_MAX; both NaN gives 0. */
uint32_t mla_ulp_distance(mla_format format, uint32_t code, double r);

/* ---- KV formats (kv.c) ---------------------------------------------------------------------------------------------------- */

typedef enum mla_kv_format {
    MLA_KV_BF16,
    MLA_KV_FP16,
    MLA_KV_FP8,     /* e4m3fn times kv_scale */
    MLA_KV_FP8FNUZ, /* e4m3fnuz times kv_scale */
    MLA_KV_FP8B656, /* 512 e4m3fn | 4 fp32 scales, one per 128 | 64 bf16 */
    MLA_KV_MXFP4,   /* 288 bytes of e2m1 pairs, low nibble first; 18 e8m0 scales in kv_block_scales */
    MLA_KV_FORMAT_COUNT
} mla_kv_format;

typedef struct mla_kv_format_info {
    const char *name;      /* as in case lines */
    size_t token_bytes;    /* bytes of one token's row in `kv` */
    size_t scale_bytes;    /* bytes of one token's row in `kv_block_scales`, without padding; 0 where there is none */
    bool has_tensor_scale; /* multiplied by kv_scale */
} mla_kv_format_info;

const mla_kv_format_info *mla_kv_format_get(mla_kv_format format);
mla_status mla_kv_format_parse(const char *name, mla_kv_format *format) MLA_CHECKED;

/* ---- problem (problem.c) --------------------------------------------------------------------------------------------------- */

typedef enum mla_paging {
    MLA_CONTIGUOUS, /* sequence b's tokens lie at slots kv_indptr[b] .. kv_indptr[b+1] */
    MLA_PAGED,      /* token j of b lies in slot block_table[b][j / page_size] * page_size + j % page_size */
    MLA_TOKEN_LIST, /* token j of b lies in slot kv_indices[kv_indptr[b] + j] */
    MLA_SPARSE      /* query token t sees the slots topk_indices[t][0 .. topk), -1 = absent; kv_indptr is not consulted */
} mla_paging;

typedef enum mla_lse_base { MLA_LSE_E, MLA_LSE_2 } mla_lse_base;

/* How a kernel is asked to split KV among work items: a hint, no part of the function computed. See gpu/mla_gpu.h. */
typedef enum mla_split_policy { MLA_SPLIT_ADAPTIVE, MLA_SPLIT_FIXED, MLA_SPLIT_BALANCED, MLA_SPLIT_SIZE } mla_split_policy;

/*
 * One decode step. Read-only. Every pointer lies in one memory space: the host's for this library, the kernel's own for a kernel.
 * total_q rows of q and out exist; those at and beyond qo_indptr[batch] are padding: they belong to no sequence and are empty rows.
 */
typedef struct mla_problem {
    int32_t batch; /* sequences, >= 1 */
    int32_t heads; /* query heads, 1 .. MLA_MAX_HEADS */

    mla_format q_format;      /* bf16, fp16, fp8, fp8fnuz */
    float q_scale;            /* finite, > 0: q = code * q_scale (fp8 only; 1 otherwise) */
    const void *q;            /* [total_q, heads, 576], q_format; NULL when total_q == 0 */
    int64_t total_q;          /* query tokens in q and out, >= qo_indptr[batch] */
    const int32_t *qo_indptr; /* [batch+1], query tokens, non-decreasing, [0] == 0 */

    mla_kv_format kv_format;
    float kv_scale;                 /* finite, > 0: fp8 and fp8fnuz; 1 otherwise */
    const void *kv;                 /* [total_kv, token_bytes]; NULL when total_kv == 0 */
    const uint8_t *kv_block_scales; /* [total_kv, kv_scale_stride], e8m0; mxfp4 only, else NULL */
    int64_t kv_scale_stride;        /* bytes, >= 18 for mxfp4; 0 otherwise */
    int64_t total_kv;               /* token slots in kv */
    const int32_t *kv_indptr;       /* [batch+1], tokens, non-decreasing, [0] == 0; differences are the KV lengths, paged or not */

    mla_paging paging;
    int32_t page_size;           /* tokens a page, >= 1; MLA_PAGED only, else 0 */
    const int32_t *block_table;  /* [batch, block_table_stride], pages; entries beyond a sequence's last page are garbage; MLA_PAGED only */
    int64_t block_table_stride;  /* pages */
    const int32_t *kv_indices;   /* [kv_indptr[batch]], slots; MLA_TOKEN_LIST only */
    const int32_t *topk_indices; /* [total_q, topk], slots or -1; MLA_SPARSE only */
    int32_t topk;                /* MLA_SPARSE only, >= 1 */

    float sm_scale;    /* finite, multiplies <q, k> */
    bool causal;       /* bottom-right aligned: query t of n sees keys 0 .. N - n + t */
    int32_t window;    /* > 0: query t sees no key before N - n + t - window + 1; 0: off */
    float softcap;     /* > 0: scores become softcap * tanh(score / softcap); 0: off */
    const float *sink; /* [heads], finite: a logit that takes weight and carries no value; NULL: off */

    mla_lse_base lse_base;
    bool lse_empty_positive; /* lse of an empty row: +inf, else -inf */
    mla_format out_format;   /* bf16, fp16, fp32 */

    mla_split_policy split_policy;
    int32_t split_arg; /* number of splits for FIXED, tokens a split for SIZE, otherwise 0 */
} mla_problem;

/* A kernel's results. Row r = query token * heads + head. */
typedef struct mla_output {
    void *out;  /* [total_q, heads, 512], out_format */
    float *lse; /* [total_q, heads], lse_base; the sink's weight is not in it */
} mla_output;

/* Refuses every malformed problem; the message names field, index and value. All arrays must be readable by the host. */
mla_status mla_problem_check(const mla_problem *problem) MLA_CHECKED;

/* Query tokens and KV tokens of sequence b; under MLA_SPARSE the latter are topk. */
int32_t mla_q_len(const mla_problem *problem, int32_t sequence);
int32_t mla_kv_len(const mla_problem *problem, int32_t sequence);
/* Sequence of a query token, or -1 for a padding row. */
int32_t mla_sequence_of(const mla_problem *problem, int64_t q_token);

/* Keys a query token may see: the half-open range of positions [begin, end), before absent sparse entries are left out. Empty: begin == end. */
typedef struct mla_range {
    int64_t begin, end;
} mla_range;
mla_range mla_visible(const mla_problem *problem, int32_t sequence, int64_t q_token);

/* Slot of key position j: for MLA_SPARSE an entry of q_token's list (-1: absent), otherwise of the sequence's tokens. */
int64_t mla_kv_slot(const mla_problem *problem, int32_t sequence, int64_t q_token, int64_t position);
/* Slots of the keys that a query token sees, by position; returns their number. `slots` has room for the whole of mla_visible's range. */
int64_t mla_visible_slots(const mla_problem *problem, int64_t q_token, int64_t *slots);
/* One slot dequantised: exactly, or rounded once to float (bf16, fp16 and mxfp4 are exact there too). `row` holds 576. */
void mla_kv_row_f64(const mla_problem *problem, int64_t slot, double *row);
void mla_kv_row_f32(const mla_problem *problem, int64_t slot, float *row);
/* One query row [576], q_scale applied. */
void mla_q_row_f64(const mla_problem *problem, int64_t q_token, int32_t head, double *row);
void mla_q_row_f32(const mla_problem *problem, int64_t q_token, int32_t head, float *row);

/* ---- quantisers (quantize.c) ------------------------------------------------------------------------------------------------ */

/* Per-tensor fp8: scale = max(amax, 1e-12) / max_finite, in float. */
float mla_fp8_scale(mla_format format, float amax);
/* x / scale rounded to bf16, clamped, cast (the field's order). count codes of 1 byte. */
void mla_fp8_quantize(mla_format format, const float *x, size_t count, float scale, uint8_t *codes);
/* One 656-byte token from 576 floats: scale = 2^ceil(log2(max(amax / 448, 1e-4))) per 128. */
void mla_fp8b656_quantize(const float *row, uint8_t *token);
/* One mxfp4 token from 576 floats: 288 bytes of pairs, 18 scales. */
void mla_mxfp4_quantize(const float *row, uint8_t *pairs, uint8_t *scales);

/* ---- contract (contract.c) ---------------------------------------------------------------------------------------------------- */

#define MLA_NONE MLA_FORMAT_COUNT /* for q_scaled: q is not rounded again; for kv_dequant: exact */

/* What a kernel's arithmetic declares. The bound is derived from it. u = 2^-24 below. */
typedef struct mla_contract {
    mla_rounding acc_rounding; /* the matrix unit's accumulation */
    int acc_bits;              /* significant bits it keeps, 8 .. 53 */
    int mma_k;                 /* products fused in one step, >= 1 */
    mla_format scores;         /* scores rounded to this type before softmax: fp32, bf16, fp16 */
    int n_scores;              /* that many times, >= 1 */
    mla_format q_scaled;       /* q * sm_scale * log2(e) rounded to this first: MLA_NONE, bf16, fp16 */
    mla_format kv_dequant;     /* type of dequantised operands: MLA_NONE (exact), bf16, fp16 */
    mla_format p;              /* weights before P V: bf16, fp16, fp32, fp8, fp8fnuz */
    mla_rounding p_rounding;
    double p_scale;           /* P is multiplied by this before it is rounded, >= 1 */
    bool rowsum_of_rounded_p; /* l sums P after its rounding */
    mla_format partial;       /* split partials: fp32, bf16, fp16 */
    bool combine_lse;         /* partials normalised and merged by lse; else unnormalised with (m, l) */
    double exp_error;         /* kappa: relative error of exp2 in units of u */
    double tanh_error;        /* absolute error of tanh in units of u */
    double log_error;         /* absolute error of log2 in units of u */
    bool lazy_max;            /* the running maximum may lag */
    bool ftz;                 /* subnormals are flushed */
    mla_rounding out_rounding;
    int tile;       /* tokens between rescales, >= 1 */
    int max_splits; /* >= 1 */
} mla_contract;

/* The defaults: fp32 everywhere but P in bf16, nearest rounding, exp2 within 2 ulp. */
mla_contract mla_contract_default(void);
mla_status mla_contract_check(const mla_contract *contract) MLA_CHECKED;

/* ---- reference (reference.c) ---------------------------------------------------------------------------------------------------- */

/* The fp32 reference: OpenBLAS sgemm, fp32 softmax, KV tiles, parallel over sequences and KV splits. Memory does not grow with KV. */
mla_status mla_reference_run(const mla_problem *problem, const mla_output *output) MLA_CHECKED;
/* What its arithmetic declares. */
mla_contract mla_reference_contract(void);

/* ---- oracle and bound (oracle.c, bound.c) ---------------------------------------------------------------------------------------- */

typedef enum mla_row_kind {
    MLA_ROW_BOUND, /* bounded term by term */
    MLA_ROW_EMPTY, /* no visible key: out is 0 and lse the convention's infinity, bit for bit */
    MLA_ROW_HULL   /* errors of the scores are so large that only the hull of V bounds it: gated by little */
} mla_row_kind;

/* Why the size of a row's errors is reported and does not gate. */
typedef enum mla_chi_doubt {
    MLA_CHI_ORDER = 1,    /* accumulation in fp32 is more than 5 % of sigma^2: an estimate, since its order is unknown */
    MLA_CHI_NARROW = 2,   /* scores differ by less than they, or their weights, are rounded by: errors are alike */
    MLA_CHI_REPEATED = 4, /* scores repeat: so do their errors */
    MLA_CHI_HULL = 8      /* the row is MLA_ROW_HULL */
} mla_chi_doubt;

/* Truth in fp64 for the rows of query tokens [first_token, first_token + tokens). Row r here is row first_token * heads + r there. */
typedef struct mla_truth {
    int64_t first_token, tokens, rows; /* rows = tokens * heads */
    double *out;                       /* [rows, 512] */
    double *abs;                       /* [rows, 512]  A_c   = sum p_j |v_jc| */
    double *square;                    /* [rows, 512]  Q_c^2 = sum p_j^2 v_jc^2 */
    double *bound;                     /* [rows, 512]  B_c: a correct kernel of this contract lies within */
    double *sigma;                     /* [rows, 512]  standard deviation of its error; 0 on an empty row */
    double *lse;                       /* [rows], natural log, sink excluded; -inf on an empty row whatever the convention */
    double *lse_bound;                 /* [rows], natural log */
    uint8_t *kind;                     /* [rows], mla_row_kind */
    uint8_t *doubts;                   /* [rows], of mla_chi_doubt; 0: chi, the rms of error / sigma over the row, gates */
} mla_truth;

/* Fills `truth` (allocated here; free with mla_truth_free). `contract` decides the bound alone. */
mla_status mla_oracle_run(const mla_problem *problem, const mla_contract *contract, int64_t first_token, int64_t tokens,
                          mla_truth *truth) MLA_CHECKED;
/* Frees the arrays; a zeroed or freed truth is allowed. */
void mla_truth_free(mla_truth *truth);

/*
 * How far chi^2 of one row may exceed its mean, rounding errors being shared by all 512 columns. e / sigma = shift + K^(1/2) g, where g is sub-Gaussian
 * with unit proxy variance, K = Y'Y + diag(columns / sigma^2), and Y has a row an independent rounding: by how much it moves each column.
 */
typedef struct mla_row_spread {
    double trace, frobenius, spectral; /* of K; spectral is its largest eigenvalue */
    double shift;                      /* rms over the row of |shift|: what roundings toward zero, and of weights near 0, share */
    bool gates;                        /* the row has keys, and no doubts */
} mla_row_spread;

/* Recomputes one row: row = query token * heads + head. All zero and false for an empty row. */
mla_status mla_oracle_row_spread(const mla_problem *problem, const mla_contract *contract, int64_t row, mla_row_spread *spread) MLA_CHECKED;

/* ---- exact (exact.c, MPFR) --------------------------------------------------------------------------------------------------------- */

/* One row at `precision` bits, rounded to double at the end. out [512], abs [512] = A_c; lse in natural log. */
mla_status mla_exact_row(const mla_problem *problem, int64_t q_token, int32_t head, int precision, double *out, double *abs,
                         double *lse) MLA_CHECKED;

/* One row rounded once to float, to nearest, ties to even, whatever precision it takes; zeros are +0. out [512]; lse by the problem's convention. */
mla_status mla_exact_row_f32(const mla_problem *problem, int64_t q_token, int32_t head, float *out, float *lse) MLA_CHECKED;

/* ---- fixed (fixed.c) ------------------------------------------------------------------------------------------------------------------ */

/*
 * Truth for files: the same bytes from any processor, compiler, BLAS, libm and number of threads. Row r here is row first_token * heads + r there.
 * A bound holds for the distance to the float beside it: that float's own rounding is added, and the sum rounded up.
 */
typedef struct mla_fixed_truth {
    int64_t first_token, tokens, rows; /* rows = tokens * heads */
    float *out;                        /* [rows, 512] correctly rounded; zeros are +0 */
    float *bound;                      /* [rows, 512] */
    float *sigma;                      /* [rows, 512] standard deviation of a kernel's error */
    float *lse;                        /* [rows] correctly rounded, in the problem's base; an empty row has the problem's infinity */
    float *lse_bound;                  /* [rows] in the problem's base */
    int64_t doubtful;                  /* rows that double-double could not round, and MPFR did */
} mla_fixed_truth;

/* As mla_oracle_run; free with mla_fixed_truth_free. */
mla_status mla_fixed_run(const mla_problem *problem, const mla_contract *contract, int64_t first_token, int64_t tokens,
                         mla_fixed_truth *truth) MLA_CHECKED;
/* Frees the arrays; a zeroed or freed truth is allowed. */
void mla_fixed_truth_free(mla_fixed_truth *truth);

/* ---- merge (merge.c) ----------------------------------------------------------------------------------------------------------------- */

/*
 * Merges two partial results over disjoint keys into the first: out [rows, 512] normalised, lse [rows] in `base`. An empty partial has lse -inf
 * (or +inf when empty_positive) and out 0; two empties give an empty. In place; fp32 throughout.
 */
void mla_merge(int64_t rows, float *out, float *lse, const float *other_out, const float *other_lse, mla_lse_base base,
               bool empty_positive);
/* lse of one row between conventions; an empty row's infinity is mapped too. */
float mla_lse_convert(float lse, mla_lse_base from, bool from_empty_positive, mla_lse_base to, bool to_empty_positive);

#ifdef __cplusplus
}
#endif
#endif
