#include "golden.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "contract_line.h"
#include "golden_format.h"

#define ANY (-1)
#define SHAPE(...)                                                                                                                         \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) {                                                               \
        __VA_ARGS__                                                                                                                        \
    }

/* ---- one tensor ------------------------------------------------------------------------------------------------------------------------- */

static void print_shape(const int64_t *shape, int rank, char *text, size_t size) {
    size_t used = 0;
    for (int i = 0; i < rank && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, shape[i] == ANY ? "%sany" : "%s%lld", i > 0 ? ", " : "", (long long)shape[i]);
}

static bool has_shape(const mla_tensor *t, int rank, const int64_t *shape) {
    for (int i = 0; i < rank && t->rank == rank; i++)
        if (shape[i] != ANY && t->shape[i] != shape[i])
            return false;
    return t->rank == rank;
}

/* A tensor that must be there, with this dtype and shape. */
static mla_status take(const mla_safetensors *file, const char *name, mla_dtype dtype, int rank, const int64_t *shape,
                       const mla_tensor **tensor) {
    char expected[100] = "", found[100] = "";
    const mla_tensor *t = *tensor = mla_safetensors_find(file, name);
    if (!t)
        return mla_error(MLA_EINVAL, "there is no tensor '%s'", name);
    print_shape(shape, rank, expected, sizeof expected);
    print_shape(t->shape, t->rank, found, sizeof found);
    if (t->dtype != dtype || !has_shape(t, rank, shape))
        return mla_error(MLA_EINVAL, "tensor '%s' is %s [%s], expected %s [%s]", name, mla_dtype_name(t->dtype), found,
                         mla_dtype_name(dtype), expected);
    if ((uintptr_t)t->data % mla_dtype_bytes(dtype) != 0)
        return mla_error(MLA_EINVAL, "tensor '%s' is not aligned to its elements", name);
    return mla_ok();
}

static mla_status take_float(const mla_safetensors *file, const char *name, float *value) {
    const mla_tensor *tensor;
    TRY(take(file, name, MLA_DTYPE_F32, SHAPE(1), &tensor));
    memcpy(value, tensor->data, sizeof *value);
    return mla_ok();
}

/* ---- the problem ------------------------------------------------------------------------------------------------------------------------ */

static int64_t sum_of(const int32_t *lengths, int32_t batch) {
    int64_t sum = 0;
    for (int32_t b = 0; b < batch; b++)
        sum += lengths[b];
    return sum;
}

static void set_scalars(const mla_case *c, mla_problem *p) {
    *p = (mla_problem){.batch = c->batch,
                       .heads = c->heads,
                       .q_format = c->q,
                       .q_scale = 1,
                       .kv_format = c->kv,
                       .kv_scale = 1,
                       .kv_scale_stride = c->scale_stride,
                       .total_q = sum_of(c->q_len, c->batch) + c->q_pad,
                       .paging = c->paging,
                       .page_size = c->page_size,
                       .topk = c->topk,
                       .causal = c->causal,
                       .window = c->window,
                       .softcap = c->softcap,
                       .lse_base = c->lse_base,
                       .lse_empty_positive = c->lse_empty_positive,
                       .out_format = c->out,
                       .split_policy = c->split_policy,
                       .split_arg = c->split_arg};
}

static mla_status take_operands(const mla_safetensors *file, const mla_case *c, mla_problem *p) {
    const mla_tensor *t;
    TRY(take(file, "q", mla_golden_q_dtype(c->q), SHAPE(p->total_q, c->heads, MLA_HEAD_DIM), &t));
    p->q = t->data;
    TRY(take(file, "kv", mla_golden_kv_dtype(c->kv), SHAPE(ANY, mla_golden_kv_columns(c->kv)), &t));
    p->kv = t->data;
    p->total_kv = t->shape[0];
    TRY(take_float(file, "sm_scale", &p->sm_scale));
    if (mla_golden_has_q_scale(p))
        TRY(take_float(file, "q_scale", &p->q_scale));
    if (mla_kv_format_get(c->kv)->has_tensor_scale)
        TRY(take_float(file, "kv_scale", &p->kv_scale));
    if (c->kv == MLA_KV_MXFP4) {
        TRY(take(file, "kv_block_scales", MLA_DTYPE_U8, SHAPE(p->total_kv, c->scale_stride), &t));
        p->kv_block_scales = t->data;
    }
    if (c->has_sink) {
        TRY(take(file, "sink", MLA_DTYPE_F32, SHAPE(c->heads), &t));
        p->sink = t->data;
    }
    return mla_ok();
}

/* The indptr must be the sums of the case's lengths. */
static mla_status take_indptr(const mla_safetensors *file, const char *name, const int32_t *lengths, int32_t batch,
                              const int32_t **indptr) {
    const mla_tensor *t;
    TRY(take(file, name, MLA_DTYPE_I32, SHAPE((int64_t)batch + 1), &t));
    *indptr = t->data;
    int64_t sum = 0;
    for (int64_t b = 0; b <= batch; sum += b < batch ? lengths[b] : 0, b++)
        if ((*indptr)[b] != sum)
            return mla_error(MLA_EINVAL, "%s[%lld] = %d, but the case's lengths make %lld", name, (long long)b, (*indptr)[b],
                             (long long)sum);
    return mla_ok();
}

static mla_status take_layout(const mla_safetensors *file, const mla_case *c, mla_problem *p) {
    const mla_tensor *t;
    TRY(take_indptr(file, "qo_indptr", c->q_len, c->batch, &p->qo_indptr));
    TRY(take_indptr(file, "kv_indptr", c->kv_len, c->batch, &p->kv_indptr));
    if (c->paging == MLA_PAGED) {
        TRY(take(file, "block_table", MLA_DTYPE_I32, SHAPE(c->batch, ANY), &t));
        p->block_table = t->data;
        p->block_table_stride = t->shape[1];
    } else if (c->paging == MLA_TOKEN_LIST) {
        TRY(take(file, "kv_indices", MLA_DTYPE_I32, SHAPE(sum_of(c->kv_len, c->batch)), &t));
        p->kv_indices = t->data;
    } else if (c->paging == MLA_SPARSE) {
        TRY(take(file, "topk_indices", MLA_DTYPE_I32, SHAPE(p->total_q, c->topk), &t));
        p->topk_indices = t->data;
    }
    return mla_ok();
}

static mla_status take_truth(mla_golden *g) {
    const mla_tensor *t;
    TRY(take(&g->file, "out", MLA_DTYPE_F32, SHAPE(g->problem.total_q, g->problem.heads, MLA_HEAD_DIM_V), &t));
    g->out = t->data;
    TRY(take(&g->file, "lse", MLA_DTYPE_F32, SHAPE(g->problem.total_q, g->problem.heads), &t));
    g->lse = t->data;
    return mla_ok();
}

/* ---- the file --------------------------------------------------------------------------------------------------------------------------- */

static mla_status check_version(const mla_safetensors *file) {
    const char *version = mla_safetensors_metadata(file, MLA_GOLDEN_KEY);
    if (!version)
        return mla_error(MLA_EINVAL, "this is no golden file: its metadata has no " MLA_GOLDEN_KEY);
    if (strcmp(version, MLA_GOLDEN_VERSION) != 0)
        return mla_error(MLA_EINVAL, "golden files of version %.20s are not read here, only of " MLA_GOLDEN_VERSION, version);
    return mla_ok();
}

static mla_status interpret(mla_golden *g) {
    const char *line = mla_safetensors_metadata(&g->file, "case"), *contract = mla_safetensors_metadata(&g->file, "contract");
    TRY(check_version(&g->file));
    if (!line || !contract)
        return mla_error(MLA_EINVAL, "the metadata has no %s", line ? "contract" : "case");
    TRY(mla_case_parse(line, &g->test));
    TRY(mla_contract_parse(contract, &g->contract));
    set_scalars(&g->test, &g->problem);
    TRY(take_operands(&g->file, &g->test, &g->problem));
    TRY(take_layout(&g->file, &g->test, &g->problem));
    if (g->problem.sm_scale != g->test.scale)
        return mla_error(MLA_EINVAL, "sm_scale = %.9g, but the case says %.9g", (double)g->problem.sm_scale, (double)g->test.scale);
    TRY(mla_problem_check(&g->problem));
    return take_truth(g);
}

mla_status mla_golden_read(const char *path, mla_golden *golden) {
    *golden = (mla_golden){.contract = mla_contract_default()};
    TRY(mla_safetensors_read(path, &golden->file));
    const mla_status status = interpret(golden);
    return status.code == MLA_OK ? status : mla_error(status.code, "%.100s: %s", path, status.message);
}

void mla_golden_free(mla_golden *golden) {
    mla_safetensors_free(&golden->file);
    mla_case_free(&golden->test);
}

bool mla_golden_exists(const char *path, const char *case_line) {
    mla_safetensors file;
    const mla_status status = mla_safetensors_read(path, &file);
    const char *line = mla_safetensors_metadata(&file, "case");
    const bool exists = status.code == MLA_OK && check_version(&file).code == MLA_OK && line && strcmp(line, case_line) == 0;
    mla_safetensors_free(&file);
    return exists;
}

/* ---- the stored truth ------------------------------------------------------------------------------------------------------------------- */

/*
 * The stored value is rounded to float (half a unit of 2^-24), the oracle's sums are off by far less than 2^-26 of A_c even where scores reach tens of
 * thousands: a wrong bit below that is nothing a kernel could be failed by.
 */
static bool out_agrees(float stored, double truth, double abs) {
    return fabs((double)stored - truth) <= 0x1p-24 * fabs(truth) + 0x1p-26 * abs + 0x1p-149;
}

/* In the problem's base, whose units are the larger in base 2. */
static bool lse_agrees(const mla_problem *p, float stored, double truth, bool empty) {
    if (empty)
        return stored == (p->lse_empty_positive ? INFINITY : -INFINITY);
    const double expected = p->lse_base == MLA_LSE_2 ? truth / 0x1.62e42fefa39efp-1 /* ln 2 */ : truth;
    return fabs((double)stored - expected) <= 0x1p-22 * (1 + fabs(expected));
}

mla_status mla_golden_agrees(const mla_golden *g, const mla_truth *truth) {
    const int64_t first_row = truth->first_token * g->problem.heads;
    for (int64_t r = 0; r < truth->rows; r++) {
        const int64_t row = first_row + r, token = row / g->problem.heads, head = row % g->problem.heads;
        if (!lse_agrees(&g->problem, g->lse[row], truth->lse[r], truth->kind[r] == MLA_ROW_EMPTY))
            return mla_error(MLA_EINVAL, "its lse[%lld][%lld] = %.9g is not what its inputs give: the file is damaged", (long long)token,
                             (long long)head, (double)g->lse[row]);
        for (int64_t c = 0; c < MLA_HEAD_DIM_V; c++) {
            const float stored = g->out[row * MLA_HEAD_DIM_V + c];
            if (!out_agrees(stored, truth->out[r * MLA_HEAD_DIM_V + c], truth->abs[r * MLA_HEAD_DIM_V + c]))
                return mla_error(MLA_EINVAL, "its out[%lld][%lld][%lld] = %.9g is not what its inputs give: the file is damaged",
                                 (long long)token, (long long)head, (long long)c, (double)stored);
        }
    }
    return mla_ok();
}

/* ---- results ---------------------------------------------------------------------------------------------------------------------------- */

static mla_status find_out_format(const mla_safetensors *file, mla_format *format) {
    const mla_tensor *t = mla_safetensors_find(file, "out");
    if (!t)
        return mla_error(MLA_EINVAL, "there is no tensor 'out'");
    for (*format = MLA_BF16; *format <= MLA_FP32; (*format)++)
        if (t->dtype == mla_golden_q_dtype(*format))
            return mla_ok();
    return mla_error(MLA_EINVAL, "tensor 'out' is %s, expected BF16, F16 or F32", mla_dtype_name(t->dtype));
}

static mla_status interpret_result(const mla_golden *golden, mla_golden_result *r) {
    const char *line = mla_safetensors_metadata(&r->file, "case"), *golden_line = mla_safetensors_metadata(&golden->file, "case");
    const mla_problem *p = &golden->problem;
    const mla_tensor *t;
    if (line && strcmp(line, golden_line) != 0)
        return mla_error(MLA_EINVAL, "it is of the case '%.100s', the golden file of '%.100s'", line, golden_line);
    TRY(find_out_format(&r->file, &r->out_format));
    TRY(take(&r->file, "out", mla_golden_q_dtype(r->out_format), SHAPE(p->total_q, p->heads, MLA_HEAD_DIM_V), &t));
    r->output.out = (void *)(uintptr_t)t->data;
    if (!mla_safetensors_find(&r->file, "lse"))
        return mla_ok();
    TRY(take(&r->file, "lse", MLA_DTYPE_F32, SHAPE(p->total_q, p->heads), &t));
    r->output.lse = (float *)(uintptr_t)t->data;
    return mla_ok();
}

mla_status mla_golden_result_read(const char *path, const mla_golden *golden, mla_golden_result *result) {
    *result = (mla_golden_result){.out_format = MLA_BF16};
    TRY(mla_safetensors_read(path, &result->file));
    const mla_status status = interpret_result(golden, result);
    return status.code == MLA_OK ? status : mla_error(status.code, "%.100s: %s", path, status.message);
}

void mla_golden_result_free(mla_golden_result *result) {
    mla_safetensors_free(&result->file);
}
