/* The gate as a library: given outputs are graded, right ones, wrong ones, and those in a device's memory. */
#include "../verify/mlaverify.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support_problem.h"

static test_problem made;
static mla_output output;
static mlaverify_grade grade;

static void make(test_shape shape) {
    made = test_problem_make(&shape);
    output = test_output_make(&made.problem);
    cr_assert_eq(mla_reference_run(&made.problem, &output).code, MLA_OK);
}

static const test_shape plain = {.batch = 3, .heads = 2, .q_len = {1, 2, 1}, .kv_len = {17, 30, 0}, .seed = 3};

static void setup(void) {
    make(plain);
}

static void teardown(void) {
    mlaverify_grade_free(&grade);
    test_output_free(&output);
    test_problem_free(&made);
}

TestSuite(mlaverify, .init = setup, .fini = teardown);

static void grade_host(const char *contract) {
    mlaverify_grade_free(&grade);
    const mla_status status = mlaverify_grade_output(&made.problem, &output, MLA_SPACE_HOST, contract, &grade);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
}

Test(mlaverify, right_outputs_pass) {
    grade_host(NULL);
    cr_expect_eq(grade.passed, 1, "%s", grade.text);
    cr_expect_eq(grade.elements, 4 * 2 * MLA_HEAD_DIM_V);
    cr_expect_eq(grade.lses, 8);
    cr_expect_eq(grade.wrong_elements + grade.wrong_lses, 0);
    cr_expect(grade.max_err_over_bound > 0 && grade.max_err_over_bound < 1);
    cr_expect(grade.worst.sequence >= 0 && grade.worst.sequence < 2); /* the third is empty */
    cr_expect(strstr(grade.text, "PASSED  heads=2 q_len=1,2,1 kv_len=17,30,0  ") == grade.text, "%s", grade.text);
    cJSON *json = cJSON_Parse(grade.json);
    cr_expect_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(json, "status")), "PASSED");
    cr_expect_eq(cJSON_GetNumberValue(cJSON_GetObjectItem(json, "max_err_over_bound")), grade.max_err_over_bound);
    cJSON_Delete(json);
}

/* Row 2 is query token 1 of all, the first of sequence 1. */
Test(mlaverify, a_wrong_element_fails) {
    uint16_t *element = (uint16_t *)output.out + (2 * 2 + 1) * MLA_HEAD_DIM_V + 77;
    *element ^= 0x4000;
    grade_host("");
    cr_expect_eq(grade.passed, 0);
    cr_expect_eq(grade.wrong_elements, 1);
    cr_expect_eq(grade.wrong_lses, 0);
    cr_expect(grade.worst.sequence == 1 && grade.worst.q == 1 && grade.worst.head == 1 && grade.worst.column == 77);
    cr_expect_gt(fabs(grade.worst.got - grade.worst.exact), grade.worst.bound);
    cr_expect(strstr(grade.text, "1 of 4096 elements outside the bound"), "%s", grade.text);
    cr_expect(strstr(grade.text, "seq 1 (q_len 2, kv_len 30): 1 of 2,052 values wrong"), "%s", grade.text);
    cr_expect_null(strstr(grade.text, "repeat:"), "%s", grade.text);
}

Test(mlaverify, a_wrong_lse_fails_and_an_absent_one_does_not) {
    output.lse[0] += 0.5f;
    grade_host(NULL);
    cr_expect_eq(grade.passed, 0);
    cr_expect_eq(grade.wrong_lses, 1);
    mla_output whole = output;
    output.lse = NULL;
    grade_host(NULL);
    output = whole;
    cr_expect_eq(grade.passed, 1);
    cr_expect_eq(grade.lses, 0);
}

Test(mlaverify, the_contract_decides) {
    uint16_t *out = output.out;
    for (int i = 0; i < 8; i++) /* 8 bf16 ulps: no rounding of P in bf16 does that, one in fp8 may */
        out[i] += 8;
    grade_host("");
    cr_expect_eq(grade.passed, 0);
    grade_host("p=fp8 p_scale=256");
    cr_expect_eq(grade.passed, 1, "%s", grade.text);
}

static void expect_refused(mla_space space, const char *contract, mla_code code, const char *message) {
    const mla_status status = mlaverify_grade_output(&made.problem, &output, space, contract, &grade);
    cr_expect_eq(status.code, code);
    cr_expect(strstr(status.message, message), "'%s' does not say '%s'", status.message, message);
    cr_expect_null(grade.text);
    mlaverify_grade_free(&grade);
}

Test(mlaverify, what_makes_no_sense_is_refused) {
    expect_refused(MLA_SPACE_HOST, "p=bf17", MLA_EINVAL, "bf17");
    expect_refused((mla_space)7, "", MLA_EINVAL, "memory space 7 does not exist");
    made.problem.heads = 0;
    expect_refused(MLA_SPACE_HOST, "", MLA_EINVAL, "heads");
    made.problem.heads = 2;
    void *kept = output.out;
    output.out = NULL;
    expect_refused(MLA_SPACE_HOST, "", MLA_EINVAL, "no output");
    output.out = kept;
    setenv("MLA_HIP_LIBRARY", "/nowhere/libamdhip64.so", 1);
    expect_refused(MLA_SPACE_HIP, "", MLA_EDEVICE, "not found");
}

Test(mlaverify, a_binding_can_tell_versions_apart) {
    cr_expect_eq(mlaverify_abi(), MLAVERIFY_ABI);
    cr_expect_eq(mlaverify_problem_bytes(), sizeof(mla_problem));
}

/* ---- memory of a device: the fake one's ---------------------------------------------------------------------------------------------------- */

static mla_device *open_device(void) {
    char self[4000], path[4096];
    mla_device *device;
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    cr_assert_gt(length, 0);
    self[length] = '\0';
    snprintf(path, sizeof path, "%s/fake_hip.so", dirname(self));
    if (access(path, R_OK) != 0)
        cr_skip_test("built without host execution");
    setenv("MLA_HIP_LIBRARY", path, 1);
    setenv("MLA_FAKE_HIP_ARCH", "gfx942", 1);
    cr_assert_eq(mla_device_open(MLA_SPACE_HIP, &device).code, MLA_OK);
    return device;
}

static void *uploaded[12];
static int uploads;

static void *upload(mla_device *device, const void *from, size_t bytes) {
    if (!from)
        return NULL;
    void **to = &uploaded[uploads++];
    cr_assert_eq(device->allocate(device, bytes + 1, to).code, MLA_OK);
    cr_assert_eq(device->upload(device, *to, from, bytes).code, MLA_OK);
    return *to;
}

static void upload_all(mla_device *device) {
    mla_problem *p = &made.problem;
    const size_t slots = (size_t)p->total_kv, queries = (size_t)p->total_q, rows = queries * (size_t)p->heads;
    output.out = upload(device, output.out, rows * MLA_HEAD_DIM_V * mla_format_bytes(p->out_format));
    output.lse = upload(device, output.lse, rows * sizeof(float));
    p->block_table = upload(device, p->block_table, (size_t)(p->batch * p->block_table_stride) * sizeof(int32_t));
    p->kv_indices = upload(device, p->kv_indices, (size_t)p->kv_indptr[p->batch] * sizeof(int32_t));
    p->topk_indices = upload(device, p->topk_indices, queries * (size_t)p->topk * sizeof(int32_t));
    p->qo_indptr = upload(device, p->qo_indptr, ((size_t)p->batch + 1) * sizeof(int32_t));
    p->kv_indptr = upload(device, p->kv_indptr, ((size_t)p->batch + 1) * sizeof(int32_t));
    p->q = upload(device, p->q, rows * MLA_HEAD_DIM * mla_format_bytes(p->q_format));
    p->kv = upload(device, p->kv, slots * mla_kv_format_get(p->kv_format)->token_bytes);
    p->kv_block_scales = upload(device, p->kv_block_scales, slots * (size_t)p->kv_scale_stride);
    p->sink = upload(device, p->sink, (size_t)p->heads * sizeof(float));
}

static void grade_on_device(test_shape shape) {
    mla_device *device = open_device();
    teardown();
    make(shape);
    const mla_problem kept_problem = made.problem;
    const mla_output kept_output = output;
    uploads = 0;
    upload_all(device);
    const mla_status status = mlaverify_grade_output(&made.problem, &output, MLA_SPACE_HIP, NULL, &grade);
    cr_expect_eq(status.code, MLA_OK, "%s", status.message);
    cr_expect_eq(grade.passed, 1, "%s", grade.text);
    for (int i = 0; i < uploads; i++)
        device->release(device, uploaded[i]);
    device->close(device);
    made.problem = kept_problem;
    output = kept_output;
}

Test(mlaverify, memory_of_a_device) {
    grade_on_device(plain);
    grade_on_device(
        (test_shape){.batch = 2, .heads = 3, .q_len = {1, 1}, .kv_len = {20, 9}, .paging = MLA_PAGED, .page_size = 4, .sink = true});
    grade_on_device(
        (test_shape){.batch = 2, .heads = 1, .q_len = {1, 2}, .kv_len = {20, 9}, .paging = MLA_TOKEN_LIST, .kv_format = MLA_KV_MXFP4});
    grade_on_device((test_shape){.batch = 1, .heads = 1, .q_len = {2}, .kv_len = {40}, .paging = MLA_SPARSE, .topk = 7});
}
