#include "../verify/golden.h"
#include "../verify/inputs.h"
#include "../verify/slabs.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/test_golden.XXXXXX";
static char path[64];

static void make_folder(void) {
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/g.safetensors", folder);
}

static void remove_folder(void) {
    unlink(path);
    cr_expect_eq(rmdir(folder), 0, "something was left behind");
}

TestSuite(golden, .init = make_folder, .fini = remove_folder);

static int64_t write_case(const char *line) {
    mla_case c;
    int64_t doubtful = -1;
    cr_assert_eq(mla_case_parse(line, &c).code, MLA_OK);
    const mla_status status = mla_golden_write(path, &c, NULL, &doubtful);
    cr_assert_eq(status.code, MLA_OK, "%s: %s", line, status.message);
    mla_case_free(&c);
    return doubtful;
}

static mla_golden read_golden(void) {
    mla_golden golden;
    const mla_status status = mla_golden_read(path, &golden);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    return golden;
}

/* ---- names ------------------------------------------------------------------------------------------------------------------------------ */

Test(golden, names_say_the_case) {
    char *name = mla_golden_name("heads=2 kv_len=17,1 lse=2,+inf"),
         *result = mla_golden_result_name("heads=2 kv_len=17,1 lse=2,+inf", "./a.so");
    cr_expect(strncmp(name, "heads-2-kv-len-17-1-lse-2-inf-", 30) == 0, "%s", name);
    cr_expect_eq(strlen(name), 30 + 10 + strlen(".safetensors"));
    cr_expect(strncmp(result, name, 40) == 0 && strcmp(result + 40, ".a-so.safetensors") == 0, "%s", result);
    char *other = mla_golden_name("heads=2 kv_len=17,1 lse=2,-inf");
    cr_expect_str_neq(name, other, "the hash tells what the letters do not");
    char *plain = mla_golden_name("");
    cr_expect(strncmp(plain, "default-", 8) == 0);
    char line[4000];
    memset(line, '9', sizeof line);
    line[sizeof line - 1] = '\0';
    char *long_name = mla_golden_name(line);
    cr_expect_lt(strlen(long_name), 100);
    free(name), free(result), free(other), free(plain), free(long_name);
}

/* ---- what is written is what the generator makes ------------------------------------------------------------------------------------------- */

static void expect_same(const char *what, const void *a, const void *b, size_t bytes) {
    cr_expect(bytes == 0 || (a && memcmp(a, b, bytes) == 0), "%s differs", what);
}

static mla_status agree(void *context, const mla_truth *truth) {
    return mla_golden_agrees(context, truth);
}

static void expect_round_trip(const char *line) {
    mla_inputs inputs;
    write_case(line);
    mla_golden golden = read_golden();
    cr_assert_eq(mla_inputs_make(&golden.test, &inputs).code, MLA_OK);
    const mla_problem *a = &golden.problem, *b = &inputs.problem;
    cr_expect(a->total_q == b->total_q && a->total_kv == b->total_kv && a->block_table_stride == b->block_table_stride, "%s", line);
    cr_expect(a->sm_scale == b->sm_scale && a->q_scale == b->q_scale && a->kv_scale == b->kv_scale, "%s", line);
    expect_same("q", a->q, b->q, inputs.q.bytes);
    expect_same("kv", a->kv, b->kv, inputs.kv.bytes);
    expect_same("kv_block_scales", a->kv_block_scales, b->kv_block_scales, inputs.kv_block_scales.bytes);
    expect_same("block_table", a->block_table, b->block_table, inputs.block_table.bytes);
    expect_same("kv_indices", a->kv_indices, b->kv_indices, inputs.kv_indices.bytes);
    expect_same("topk_indices", a->topk_indices, b->topk_indices, inputs.topk_indices.bytes);
    expect_same("sink", a->sink, b->sink, inputs.sink.bytes);
    const mla_status status = mla_slabs_visit(a, &golden.contract, NULL, agree, &golden);
    cr_expect_eq(status.code, MLA_OK, "%s: %s", line, status.message);
    mla_inputs_free(&inputs);
    mla_golden_free(&golden);
}

Test(golden, every_format_and_layout_comes_back) {
    expect_round_trip("heads=2 kv_len=9 q_len=2 causal=1");
    expect_round_trip("heads=1 kv_len=9 kv=fp16 q=fp16 page=list out=fp32");
    expect_round_trip("heads=1 kv_len=9,3 kv=fp8 q=fp8 page=4 lse=2 sink=rand");
    expect_round_trip("heads=1 kv_len=9 kv=fp8fnuz q=fp8fnuz page=topk:5 softcap=8.5");
    expect_round_trip("heads=1 kv_len=9,0 kv=fp8b656 window=3 q_pad=2 lse=2,+inf out=fp16");
    expect_round_trip("heads=1 kv_len=9 kv=mxfp4 scale_stride=21 scale=0.1352");
    expect_round_trip("heads=1 kv_len=40 input=large");
    expect_round_trip("heads=1 kv_len=40 input=cancel");
    expect_round_trip("heads=1 kv_len=40 input=subnormal out=fp32");
    expect_round_trip("heads=1 kv_len=0");
}

Test(golden, cancelled_values_are_rounded_by_mpfr) {
    cr_expect_eq(write_case("heads=2 kv_len=9 kv=mxfp4 input=cancel"), 2);
    cr_expect_eq(write_case("heads=2 kv_len=8 input=normal"), 0);
}

Test(golden, exists_when_it_is_whole_and_of_this_case) {
    cr_expect_not(mla_golden_exists(path, "heads=1 kv_len=3"));
    write_case("heads=1 kv_len=3");
    cr_expect(mla_golden_exists(path, "heads=1 kv_len=3"));
    cr_expect_not(mla_golden_exists(path, "heads=1 kv_len=4"));
    cr_assert_eq(truncate(path, 9000), 0);
    cr_expect_not(mla_golden_exists(path, "heads=1 kv_len=3"));
}

/* ---- files that are wrong --------------------------------------------------------------------------------------------------------------- */

/* The file in memory, changed and written again. */
static void rewrite(void (*change)(mla_tensor *tensors, int *count, mla_metadata *metadata, int *metadata_count)) {
    mla_safetensors file;
    cr_assert_eq(mla_safetensors_read(path, &file).code, MLA_OK);
    change(file.tensors, &file.tensor_count, file.metadata, &file.metadata_count);
    cr_assert_eq(mla_safetensors_write(path, file.tensors, file.tensor_count, file.metadata, file.metadata_count).code, MLA_OK);
    mla_safetensors_free(&file);
}

static mla_tensor *tensor_of(mla_tensor *tensors, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(tensors[i].name, name) == 0)
            return &tensors[i];
    cr_assert_fail("no tensor %s", name);
    return NULL;
}

static void expect_refused(void (*change)(mla_tensor *, int *, mla_metadata *, int *), const char *reason) {
    mla_golden golden;
    write_case("heads=2 kv_len=5");
    rewrite(change);
    const mla_status status = mla_golden_read(path, &golden);
    cr_expect_eq(status.code, MLA_EINVAL);
    cr_expect(strstr(status.message, reason) != NULL, "'%s' is not in '%s'", reason, status.message);
    mla_golden_free(&golden);
}

#define CHANGE(name, statement)                                                                                                            \
    static void name(mla_tensor *tensors, int *count, mla_metadata *metadata, int *metadata_count) {                                       \
        (void)tensors, (void)count, (void)metadata, (void)metadata_count;                                                                  \
        statement;                                                                                                                         \
    }

CHANGE(drop_metadata, *metadata_count = 0)
CHANGE(drop_case, metadata[1].key = "other")
CHANGE(age_version, metadata[0].value = "0")
CHANGE(break_case, metadata[1].value = "heads=2 kv_len=x")
CHANGE(other_case, metadata[1].value = "heads=2 kv_len=6")
CHANGE(other_scale, metadata[1].value = "heads=2 kv_len=5 scale=1/25")
CHANGE(break_contract, metadata[2].value = "tile=0")
CHANGE(rename_q, tensor_of(tensors, *count, "q")->name = "Q")
CHANGE(retype_q, tensor_of(tensors, *count, "q")->dtype = MLA_DTYPE_F16)
CHANGE(flatten_out, (tensor_of(tensors, *count, "out")->rank = 2, tensor_of(tensors, *count, "out")->shape[1] = 1024))

Test(golden, files_that_contradict_themselves) {
    expect_refused(drop_metadata, "no golden file");
    expect_refused(drop_case, "the metadata has no case");
    expect_refused(age_version, "version 0");
    expect_refused(break_case, "kv_len=x");
    expect_refused(other_case, "kv_indptr[1] = 5, but the case's lengths make 6");
    expect_refused(other_scale, "but the case says 0.0399999991");
    expect_refused(break_contract, "tile = 0");
    expect_refused(rename_q, "there is no tensor 'q'");
    expect_refused(retype_q, "tensor 'q' is F16 [1, 2, 576], expected BF16 [1, 2, 576]");
    expect_refused(flatten_out, "tensor 'out' is F32 [1, 1024], expected F32 [1, 2, 512]");
}

/* Two units of the last place of float in one element of the stored truth. */
static void nudge(const char *name) {
    mla_safetensors file;
    cr_assert_eq(mla_safetensors_read(path, &file).code, MLA_OK);
    *(uint32_t *)(uintptr_t)mla_safetensors_find(&file, name)->data += 64;
    cr_assert_eq(mla_safetensors_write(path, file.tensors, file.tensor_count, file.metadata, file.metadata_count).code, MLA_OK);
    mla_safetensors_free(&file);
}

static void expect_disagreement(const char *name, const char *reason) {
    write_case("heads=2 kv_len=5");
    nudge(name);
    mla_golden golden = read_golden();
    const mla_status status = mla_slabs_visit(&golden.problem, &golden.contract, NULL, agree, &golden);
    cr_expect_eq(status.code, MLA_EINVAL);
    cr_expect(strstr(status.message, reason) != NULL, "'%s' is not in '%s'", reason, status.message);
    mla_golden_free(&golden);
}

Test(golden, a_damaged_truth_is_seen) {
    expect_disagreement("out", "its out[0][0][0] = ");
    expect_disagreement("lse", "its lse[0][0] = ");
}

/* ---- results ------------------------------------------------------------------------------------------------------------------------------ */

static void write_result(const mla_tensor *tensors, int count, const char *line) {
    const mla_metadata metadata = {"case", line};
    char other[80];
    snprintf(other, sizeof other, "%s/r.safetensors", folder);
    cr_assert_eq(mla_safetensors_write(other, tensors, count, &metadata, line ? 1 : 0).code, MLA_OK);
}

static mla_status read_result(const mla_golden *golden, mla_golden_result *result) {
    char other[80];
    snprintf(other, sizeof other, "%s/r.safetensors", folder);
    const mla_status status = mla_golden_result_read(other, golden, result);
    unlink(other);
    return status;
}

static void expect_result(const mla_golden *golden, mla_tensor out, mla_tensor lse, int count, const char *line, const char *reason) {
    mla_golden_result result;
    const mla_tensor tensors[] = {out, lse};
    write_result(tensors, count, line);
    const mla_status status = read_result(golden, &result);
    cr_expect_eq(status.code, *reason ? MLA_EINVAL : MLA_OK, "%s", status.message);
    cr_expect(strstr(status.message, reason) != NULL, "'%s' is not in '%s'", reason, status.message);
    mla_golden_result_free(&result);
}

Test(golden, shapes_and_types_of_results) {
    static const uint8_t zeros[4096];
    write_case("heads=2 kv_len=5");
    mla_golden golden = read_golden();
    const mla_tensor out = {.name = "out", .dtype = MLA_DTYPE_BF16, .rank = 3, .shape = {1, 2, 512}, .data = zeros, .bytes = 2048};
    const mla_tensor lse = {.name = "lse", .dtype = MLA_DTYPE_F32, .rank = 2, .shape = {1, 2}, .data = zeros, .bytes = 8};
    expect_result(&golden, out, lse, 2, NULL, "");
    expect_result(&golden, out, lse, 2, "heads=2 kv_len=5", "");
    expect_result(&golden, out, lse, 1, NULL, "");
    expect_result(&golden, lse, out, 1, NULL, "there is no tensor 'out'");
    expect_result(&golden, out, lse, 2, "heads=2 kv_len=6", "it is of the case 'heads=2 kv_len=6', the golden file of 'heads=2 kv_len=5'");
    mla_tensor other = out;
    other.shape[0] = 2, other.shape[1] = 1;
    expect_result(&golden, other, lse, 2, NULL, "tensor 'out' is BF16 [2, 1, 512], expected BF16 [1, 2, 512]");
    other = out;
    other.dtype = MLA_DTYPE_U8, other.shape[2] = 1024;
    expect_result(&golden, other, lse, 2, NULL, "tensor 'out' is U8, expected BF16, F16 or F32");
    other = lse;
    other.rank = 1, other.shape[0] = 2;
    expect_result(&golden, out, other, 2, NULL, "tensor 'lse' is F32 [2], expected F32 [1, 2]");
    other = lse;
    other.dtype = MLA_DTYPE_F64, other.bytes = 16;
    expect_result(&golden, out, other, 2, NULL, "tensor 'lse' is F64");
    mla_golden_free(&golden);
}
