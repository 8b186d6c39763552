#include "golden.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "contract_line.h"
#include "golden_format.h"
#include "inputs.h"
#include "slabs.h"
#include "text_hash.h"

/* ---- names --------------------------------------------------------------------------------------------------------------------------- */

#define SLUG_LENGTH 64

/* Letters and digits as they are, anything between them one hyphen. */
static void make_slug(const char *text, char slug[SLUG_LENGTH + 1]) {
    size_t length = 0;
    for (; *text && length < SLUG_LENGTH; text++)
        if (isalnum((unsigned char)*text))
            slug[length++] = *text;
        else if (length > 0 && slug[length - 1] != '-')
            slug[length++] = '-';
    slug[length] = '\0';
}

static char *name_case(const char *case_line, const char *suffix) {
    char slug[SLUG_LENGTH + 1], *name = NULL;
    make_slug(*case_line ? case_line : "default", slug);
    return asprintf(&name, "%s-%010llx%s.safetensors", slug, (unsigned long long)(mla_text_hash(MLA_TEXT_HASH, case_line) >> 24), suffix) <
                   0
               ? NULL
               : name;
}

char *mla_golden_name(const char *case_line) {
    return name_case(case_line, "");
}

char *mla_golden_result_name(const char *case_line, const char *kernel) {
    char suffix[SLUG_LENGTH + 2] = ".";
    make_slug(kernel, suffix + 1);
    return name_case(case_line, suffix);
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------------------- */

enum { MOST_TENSORS = 24 };

typedef struct tensor_list {
    mla_tensor tensors[MOST_TENSORS];
    int count;
} tensor_list;

#define SHAPE(...)                                                                                                                         \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) {                                                               \
        __VA_ARGS__                                                                                                                        \
    }

static void add(tensor_list *list, const char *name, mla_dtype dtype, int rank, const int64_t *shape, const void *data) {
    mla_tensor *t = &list->tensors[list->count++];
    *t = (mla_tensor){.name = name, .dtype = dtype, .rank = rank, .data = data, .bytes = mla_dtype_bytes(dtype)};
    for (int i = 0; i < rank; i++) {
        t->shape[i] = shape[i];
        t->bytes *= (size_t)shape[i];
    }
}

static void add_operands(tensor_list *list, const mla_problem *p) {
    add(list, "q", mla_golden_q_dtype(p->q_format), SHAPE(p->total_q, p->heads, MLA_HEAD_DIM), p->q);
    add(list, "kv", mla_golden_kv_dtype(p->kv_format), SHAPE(p->total_kv, mla_golden_kv_columns(p->kv_format)), p->kv);
    add(list, "sm_scale", MLA_DTYPE_F32, SHAPE(1), &p->sm_scale);
    if (mla_golden_has_q_scale(p))
        add(list, "q_scale", MLA_DTYPE_F32, SHAPE(1), &p->q_scale);
    if (mla_kv_format_get(p->kv_format)->has_tensor_scale)
        add(list, "kv_scale", MLA_DTYPE_F32, SHAPE(1), &p->kv_scale);
    if (p->kv_format == MLA_KV_MXFP4)
        add(list, "kv_block_scales", MLA_DTYPE_U8, SHAPE(p->total_kv, p->kv_scale_stride), p->kv_block_scales);
    if (p->sink)
        add(list, "sink", MLA_DTYPE_F32, SHAPE(p->heads), p->sink);
}

static void add_layout(tensor_list *list, const mla_problem *p) {
    add(list, "qo_indptr", MLA_DTYPE_I32, SHAPE((int64_t)p->batch + 1), p->qo_indptr);
    add(list, "kv_indptr", MLA_DTYPE_I32, SHAPE((int64_t)p->batch + 1), p->kv_indptr);
    if (p->paging == MLA_PAGED)
        add(list, "block_table", MLA_DTYPE_I32, SHAPE(p->batch, p->block_table_stride), p->block_table);
    if (p->paging == MLA_TOKEN_LIST)
        add(list, "kv_indices", MLA_DTYPE_I32, SHAPE(p->kv_indptr[p->batch]), p->kv_indices);
    if (p->paging == MLA_SPARSE)
        add(list, "topk_indices", MLA_DTYPE_I32, SHAPE(p->total_q, p->topk), p->topk_indices);
}

static void add_truth(tensor_list *list, const mla_problem *p, const mla_fixed_truth *truth) {
    add(list, "out", MLA_DTYPE_F32, SHAPE(p->total_q, p->heads, MLA_HEAD_DIM_V), truth->out);
    add(list, "bound", MLA_DTYPE_F32, SHAPE(p->total_q, p->heads, MLA_HEAD_DIM_V), truth->bound);
    add(list, "sigma", MLA_DTYPE_F32, SHAPE(p->total_q, p->heads, MLA_HEAD_DIM_V), truth->sigma);
    add(list, "lse", MLA_DTYPE_F32, SHAPE(p->total_q, p->heads), truth->lse);
    add(list, "lse_bound", MLA_DTYPE_F32, SHAPE(p->total_q, p->heads), truth->lse_bound);
}

/* ---- metadata ------------------------------------------------------------------------------------------------------------------------- */

static const char *const kv_layouts[MLA_KV_FORMAT_COUNT] = {
    [MLA_KV_BF16] = "bf16 [slots, 576]",
    [MLA_KV_FP16] = "fp16 [slots, 576]",
    [MLA_KV_FP8] = "e4m3fn [slots, 576], value = code * kv_scale",
    [MLA_KV_FP8FNUZ] = "e4m3fnuz [slots, 576] as bytes, value = code * kv_scale",
    [MLA_KV_FP8B656] = "656 bytes a slot: 512 e4m3fn, 4 fp32 scales (one per 128), 64 bf16",
    [MLA_KV_MXFP4] = "288 bytes a slot: e2m1 pairs, low nibble first; kv_block_scales: e8m0, one per 32 elements",
};

static const char *q_layout(mla_format format) {
    switch (format) {
    case MLA_FP8:
        return "e4m3fn, value = code * q_scale";
    case MLA_FP8FNUZ:
        return "e4m3fnuz as bytes, value = code * q_scale";
    default:
        return mla_format_get(format)->name;
    }
}

static const char *lse_convention(const mla_problem *p) {
    if (p->lse_base == MLA_LSE_2)
        return p->lse_empty_positive ? "base 2, sink excluded, +inf on an empty row" : "base 2, sink excluded, -inf on an empty row";
    return p->lse_empty_positive ? "natural, sink excluded, +inf on an empty row" : "natural, sink excluded, -inf on an empty row";
}

static mla_status write_file(const char *path, const mla_problem *p, const mla_fixed_truth *truth, const char *case_line,
                             const char *contract) {
    tensor_list list = {.count = 0};
    add_operands(&list, p);
    add_layout(&list, p);
    add_truth(&list, p, truth);
    const mla_metadata metadata[] = {
        {MLA_GOLDEN_KEY, MLA_GOLDEN_VERSION},
        {"case", case_line},
        {"contract", contract},
        {"q", q_layout(p->q_format)},
        {"kv", kv_layouts[p->kv_format]},
        {"lse", lse_convention(p)},
        {"out", "the exact result, rounded once to float32"},
        {"bound", "a correct kernel of this contract that writes the case's out lies within it of out; lse_bound of lse"},
        {"sigma", "the standard deviation to expect of such a kernel's error"},
    };
    return mla_safetensors_write(path, list.tensors, list.count, metadata, (int)(sizeof metadata / sizeof *metadata));
}

/* ---- truth ---------------------------------------------------------------------------------------------------------------------------- */

static void keep_slab(const mla_fixed_truth *slab, int32_t heads, mla_fixed_truth *whole) {
    const size_t row = (size_t)(slab->first_token * heads), rows = (size_t)slab->rows;
    memcpy(whole->out + row * MLA_HEAD_DIM_V, slab->out, rows * MLA_HEAD_DIM_V * sizeof(float));
    memcpy(whole->bound + row * MLA_HEAD_DIM_V, slab->bound, rows * MLA_HEAD_DIM_V * sizeof(float));
    memcpy(whole->sigma + row * MLA_HEAD_DIM_V, slab->sigma, rows * MLA_HEAD_DIM_V * sizeof(float));
    memcpy(whole->lse + row, slab->lse, rows * sizeof(float));
    memcpy(whole->lse_bound + row, slab->lse_bound, rows * sizeof(float));
    whole->doubtful += slab->doubtful;
}

static mla_status whole_make(const mla_problem *p, mla_fixed_truth *whole) {
    const size_t rows = (size_t)(p->total_q * p->heads) + 1;
    *whole = (mla_fixed_truth){.tokens = p->total_q, .rows = p->total_q * p->heads};
    whole->out = malloc(rows * MLA_HEAD_DIM_V * sizeof(float));
    whole->bound = malloc(rows * MLA_HEAD_DIM_V * sizeof(float));
    whole->sigma = malloc(rows * MLA_HEAD_DIM_V * sizeof(float));
    whole->lse = malloc(rows * sizeof(float));
    whole->lse_bound = malloc(rows * sizeof(float));
    if (whole->out && whole->bound && whole->sigma && whole->lse && whole->lse_bound)
        return mla_ok();
    return mla_error(MLA_ENOMEM, "no memory for the truth of %zu rows", rows - 1);
}

/* Free with mla_fixed_truth_free, also after failure. */
static mla_status find_truth(const mla_problem *p, const mla_contract *contract, mla_progress *progress, mla_fixed_truth *whole) {
    const int64_t slab = mla_slab_tokens(p), total = p->total_q;
    mla_status status = whole_make(p, whole);
    for (int64_t token = 0; token < total && status.code == MLA_OK; token += slab) {
        mla_fixed_truth part;
        mla_progress_update(progress, (double)token / (double)total);
        status = mla_fixed_run(p, contract, token, total - token < slab ? total - token : slab, &part);
        if (status.code == MLA_OK)
            keep_slab(&part, p->heads, whole);
        mla_fixed_truth_free(&part);
    }
    return status;
}

static mla_status write_golden(const char *path, const mla_case *c, const mla_problem *problem, mla_progress *progress, int64_t *doubtful) {
    const mla_contract contract = mla_contract_default();
    char *case_line = mla_case_print(c), *contract_line = mla_contract_print(&contract);
    mla_fixed_truth truth = {0};
    mla_status status = case_line && contract_line ? mla_ok() : mla_error(MLA_ENOMEM, "no memory to print the case");
    if (status.code == MLA_OK)
        status = find_truth(problem, &contract, progress, &truth);
    if (status.code == MLA_OK)
        status = write_file(path, problem, &truth, case_line, contract_line);
    *doubtful = truth.doubtful;
    mla_fixed_truth_free(&truth);
    free(case_line);
    free(contract_line);
    return status;
}

mla_status mla_golden_write(const char *path, const mla_case *c, mla_progress *progress, int64_t *doubtful) {
    mla_inputs inputs;
    *doubtful = 0;
    mla_status status = mla_inputs_make(c, &inputs);
    if (status.code == MLA_OK)
        status = write_golden(path, c, &inputs.problem, progress, doubtful);
    mla_inputs_free(&inputs);
    return status;
}

/* ---- results -------------------------------------------------------------------------------------------------------------------------- */

mla_status mla_golden_result_write(const char *path, const char *case_line, const char *kernel, const mla_problem *p,
                                   const mla_output *output) {
    tensor_list list = {.count = 0};
    add(&list, "out", mla_golden_q_dtype(p->out_format), SHAPE(p->total_q, p->heads, MLA_HEAD_DIM_V), output->out);
    add(&list, "lse", MLA_DTYPE_F32, SHAPE(p->total_q, p->heads), output->lse);
    const mla_metadata metadata[] = {{"case", case_line}, {"kernel", kernel}};
    return mla_safetensors_write(path, list.tensors, list.count, metadata, 2);
}
