#include "mlaverify.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "chi.h"
#include "contract_line.h"
#include "report.h"
#include "slabs.h"

int mlaverify_abi(void) {
    return MLAVERIFY_ABI;
}

size_t mlaverify_problem_bytes(void) {
    return sizeof(mla_problem);
}

/* ---- to the host -------------------------------------------------------------------------------------------------------------------------- */

enum { MOST_COPIES = 11 };

/* A problem and its output in host memory: the caller's own, or copies. */
typedef struct local {
    mla_problem problem;
    mla_output output;
    mla_device *device; /* NULL: all is in host memory already */
    void *copies[MOST_COPIES];
    int count;
    mla_status status; /* of copying */
} local;

/* A copy of `from`; NULL for NULL, after a failure, and when it fails: l->status says so. */
static void *fetch(local *l, const void *from, int64_t bytes) {
    if (!from || l->status.code != MLA_OK)
        return NULL;
    void *copy = bytes < 0 ? NULL : malloc((size_t)bytes + 1);
    if (!copy) {
        l->status =
            bytes < 0 ? mla_error(MLA_EINVAL, "a size is negative") : mla_error(MLA_ENOMEM, "no memory for %lld bytes", (long long)bytes);
        return NULL;
    }
    l->copies[l->count++] = copy;
    if (bytes > 0)
        l->status = l->device->download(l->device, copy, from, (size_t)bytes);
    return copy;
}

static int32_t *fetch_int32(local *l, const int32_t *from, int64_t count) {
    return fetch(l, from, count * (int64_t)sizeof(int32_t));
}

static mla_status fetch_layout(local *l) {
    mla_problem *p = &l->problem;
    p->qo_indptr = fetch_int32(l, p->qo_indptr, (int64_t)p->batch + 1);
    p->kv_indptr = fetch_int32(l, p->kv_indptr, (int64_t)p->batch + 1);
    if (l->status.code == MLA_OK && (!p->qo_indptr || !p->kv_indptr))
        return mla_error(MLA_EINVAL, "qo_indptr and kv_indptr must not be NULL");
    TRY(l->status);
    p->block_table = fetch_int32(l, p->block_table, p->batch * p->block_table_stride);
    p->kv_indices = fetch_int32(l, p->kv_indices, p->kv_indptr[p->batch]);
    p->topk_indices = fetch_int32(l, p->topk_indices, p->total_q * p->topk);
    return l->status;
}

static mla_status fetch_values(local *l) {
    mla_problem *p = &l->problem;
    const int64_t rows = p->total_q * p->heads, size = (int64_t)sizeof(float);
    p->q = fetch(l, p->q, rows * MLA_HEAD_DIM * (int64_t)mla_format_bytes(p->q_format));
    p->kv = fetch(l, p->kv, p->total_kv * (int64_t)mla_kv_format_get(p->kv_format)->token_bytes);
    p->kv_block_scales = fetch(l, p->kv_block_scales, p->total_kv * p->kv_scale_stride);
    p->sink = fetch(l, p->sink, p->heads * size);
    l->output.out = fetch(l, l->output.out, rows * MLA_HEAD_DIM_V * (int64_t)mla_format_bytes(p->out_format));
    l->output.lse = fetch(l, l->output.lse, rows * size);
    return l->status;
}

/* What sizes are computed from must make sense before anything is copied; the rest is mla_problem_check's. */
static mla_status check_sizes(const mla_problem *p) {
    const int64_t most = INT64_C(1) << 40; /* entries of anything */
    if (p->batch < 1 || p->heads < 1 || p->heads > MLA_MAX_HEADS || p->total_q < 0 || p->total_q > INT32_MAX || p->total_kv < 0 ||
        p->total_kv > most)
        return mla_error(MLA_EINVAL, "batch, heads, total_q or total_kv is out of range");
    if (p->topk < 0 || p->total_q * p->topk > most || p->block_table_stride < 0 || p->block_table_stride > most / p->batch ||
        p->kv_scale_stride < 0 || p->kv_scale_stride > INT64_C(1) << 20)
        return mla_error(MLA_EINVAL, "topk, block_table_stride or kv_scale_stride is out of range");
    if ((unsigned)p->q_format >= MLA_FORMAT_COUNT || (unsigned)p->out_format >= MLA_FORMAT_COUNT ||
        (unsigned)p->kv_format >= MLA_KV_FORMAT_COUNT)
        return mla_error(MLA_EINVAL, "q_format %d, kv_format %d or out_format %d does not exist", (int)p->q_format, (int)p->kv_format,
                         (int)p->out_format);
    return mla_ok();
}

static mla_status localize(const mla_problem *problem, const mla_output *output, mla_space space, local *l) {
    *l = (local){.problem = *problem, .output = *output, .status = mla_ok()};
    if (space == MLA_SPACE_HOST)
        return mla_ok();
    TRY(mla_device_open(space, &l->device));
    TRY(check_sizes(problem));
    TRY(fetch_layout(l));
    return fetch_values(l);
}

static void local_free(local *l) {
    while (l->count > 0)
        free(l->copies[--l->count]);
    if (l->device)
        l->device->close(l->device);
}

/* ---- the problem as a case, for the report ------------------------------------------------------------------------------------------------- */

/* Neighbours that are alike become one element, as a parsed case has them. */
static mla_status list_lengths(const int32_t *indptr, int32_t batch, mla_length_list *list, int32_t **lengths) {
    list->elements = calloc((size_t)batch, sizeof *list->elements);
    *lengths = malloc((size_t)batch * sizeof **lengths);
    if (!list->elements || !*lengths)
        return mla_error(MLA_ENOMEM, "no memory for the lengths of %d sequences", batch);
    for (int32_t b = 0; b < batch; b++) {
        const int32_t length = (*lengths)[b] = indptr[b + 1] - indptr[b];
        if (list->count > 0 && list->elements[list->count - 1].low == length)
            list->elements[list->count - 1].repeat++;
        else
            list->elements[list->count++] = (mla_length){.low = length, .high = length, .repeat = 1};
    }
    if (list->count == 1)
        list->elements[0].repeat = 1;
    return mla_ok();
}

/* Free with mla_case_free, also after failure. */
static mla_status case_of(const mla_problem *p, mla_case *c) {
    *c = (mla_case){.heads = p->heads,
                    .batch = p->batch,
                    .q_pad = (int32_t)(p->total_q - p->qo_indptr[p->batch]),
                    .q = p->q_format,
                    .kv = p->kv_format,
                    .scale_stride = p->kv_scale_stride,
                    .paging = p->paging,
                    .page_size = p->page_size,
                    .topk = p->topk,
                    .causal = p->causal,
                    .scale = p->sm_scale,
                    .softcap = p->softcap,
                    .has_sink = p->sink != NULL,
                    .sink_random = p->sink != NULL,
                    .window = p->window,
                    .lse_base = p->lse_base,
                    .lse_empty_positive = p->lse_empty_positive,
                    .out = p->out_format,
                    .split_policy = p->split_policy,
                    .split_arg = p->split_arg};
    const bool usual = p->sm_scale == (float)(1.0 / 24);
    snprintf(c->scale_text, sizeof c->scale_text, usual ? "1/24" : "%.9g", (double)p->sm_scale);
    TRY(list_lengths(p->qo_indptr, p->batch, &c->q_len_list, &c->q_len));
    return list_lengths(p->kv_indptr, p->batch, &c->kv_len_list, &c->kv_len);
}

/* ---- grading -------------------------------------------------------------------------------------------------------------------------------- */

typedef struct comparison {
    const local *local;
    mla_measure *measure;
} comparison;

static mla_status compare_slab(void *context, const mla_truth *truth) {
    const comparison *c = context;
    mla_compare(&c->local->problem, truth, &c->local->output, c->measure);
    return mla_ok();
}

static mla_status measure(const local *l, const mla_contract *contract, const mla_case *test, mla_result *result) {
    comparison c = {l, &result->measure};
    *result = (mla_result){.test = test, .kernel = "(given)", .given = true, .case_line = mla_case_print(test)};
    if (!result->case_line)
        return mla_error(MLA_ENOMEM, "no memory to print the problem");
    TRY(mla_measure_init(&result->measure, &l->problem));
    TRY(mla_slabs_visit(&l->problem, contract, NULL, compare_slab, &c));
    TRY(mla_chi_settle(&l->problem, contract, &result->measure));
    result->measured = true;
    result->verdict = mla_judge(&result->measure, &result->integrity);
    if (result->verdict.status == MLA_FAILED)
        result->diagnosis = mla_diagnose(&l->problem, contract, &l->output, &result->measure);
    return mla_ok();
}

static char *print_text(const mla_result *result) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream)
        return NULL;
    mla_text_result(stream, (mla_text_style){.colour = false}, result);
    return fclose(stream) == 0 ? text : NULL;
}

static mla_status fill_grade(const mla_result *result, mlaverify_grade *grade) {
    const mla_measure *m = &result->measure;
    const mla_sample *worst = &m->worst;
    cJSON *json = mla_json_result(result);
    *grade = (mlaverify_grade){.passed = result->verdict.status == MLA_PASSED,
                               .max_err_over_bound = m->max_err_over_bound,
                               .max_lse_over_bound = m->max_lse_over_bound,
                               .max_ulp = m->max_ulp,
                               .elements = m->out.total,
                               .wrong_elements = mla_counts_wrong(&m->out),
                               .lses = m->lse.total,
                               .wrong_lses = mla_counts_wrong(&m->lse),
                               .worst = {-1, 0, 0, 0, 0, 0, 0},
                               .text = print_text(result),
                               .json = json ? cJSON_Print(json) : NULL};
    cJSON_Delete(json);
    if (worst->present)
        grade->worst = (mlaverify_worst){worst->place.sequence, worst->place.q, worst->place.head, worst->place.column, worst->got,
                                         worst->exact,          worst->bound};
    return grade->text && grade->json ? mla_ok() : mla_error(MLA_ENOMEM, "no memory for the report");
}

static mla_status grade_local(const local *l, const char *contract_line, mlaverify_grade *grade) {
    mla_contract contract;
    mla_case test;
    mla_result result = {.given = true};
    TRY(mla_contract_parse(contract_line ? contract_line : "", &contract));
    TRY(mla_problem_check(&l->problem));
    if (!l->output.out || l->problem.total_q == 0)
        return mla_error(MLA_EINVAL, "there is no output to grade");
    mla_status status = case_of(&l->problem, &test);
    if (status.code == MLA_OK)
        status = measure(l, &contract, &test, &result);
    if (status.code == MLA_OK)
        status = fill_grade(&result, grade);
    mla_result_free(&result);
    mla_case_free(&test);
    return status;
}

mla_status mlaverify_grade_output(const mla_problem *problem, const mla_output *output, mla_space space, const char *contract,
                                  mlaverify_grade *grade) {
    local l;
    *grade = (mlaverify_grade){.passed = 0};
    mla_status status = localize(problem, output, space, &l);
    if (status.code == MLA_OK)
        status = grade_local(&l, contract, grade);
    local_free(&l);
    return status; /* NOLINT(clang-analyzer-unix.Malloc): copies[] owns what the output points to */
}

void mlaverify_grade_free(mlaverify_grade *grade) {
    free(grade->text);
    free(grade->json);
    *grade = (mlaverify_grade){.passed = 0};
}
