/* The split-K kernels on the host against the oracle: each line is here for a path of plan, walk or combine. */
#include "../gpu/launcher.h"
#include "../gpu/splitk.h"
#include "../verify/inputs.h"
#include "../verify/run.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include <string.h>

static const char *const engines[] = {"splitk@host:cdna3", "splitk@host:cdna4", "splitk@host:cdna3tall", "splitk@host:cdna4tall",
                                      "splitk@host:mma"};

static const char *const cases[] = {
    "kv_len=1 plan=fixed:1",                                     /* one key: direct output */
    "kv_len=65 plan=fixed:1",                                    /* a last tile of one token */
    "kv_len=200 plan=fixed:7",                                   /* splits that end inside a tile, combined */
    "kv_len=63,0,1,130",                                         /* more splits than keys; an empty sequence in a batch */
    "heads=5 kv_len=40 q_len=3 causal=1 plan=fixed:2",           /* a row tile across query tokens, partly masked */
    "heads=16 kv_len=4 q_len=9 causal=1",                        /* queries that see nothing */
    "heads=40 kv_len=100 plan=size:32",                          /* more heads than a tile; aligned splits */
    "kv_len=300,17,90 plan=balanced",                            /* several items a worker */
    "kv_len=150 page=16 plan=fixed:3",                           /* page table */
    "kv_len=50,33 page=list plan=fixed:2",                       /* token list */
    "kv_len=90 q_len=2 page=topk:40 plan=fixed:2",               /* sparse, with absent entries */
    "kv_len=120 window=50 causal=1 q_len=2 sink=1.5 softcap=30", /* every score modifier */
    "kv_len=70 lse=2,+inf out=fp32 input=needle",                /* conventions */
    "kv_len=70 q=fp16 kv=fp16 input=needle",
    "kv_len=70 q=fp8 kv=fp8 input=needle",
    "kv_len=70 q=fp8fnuz kv=fp8fnuz page=16",
    "kv_len=70 kv=fp8b656 page=64 input=needle",
    "kv_len=70 kv=mxfp4 scale_stride=32 page=16 input=needle",
};

static void open_subject(mla_subject *subject, const char *spec) {
    *subject = (mla_subject){.spec = spec, .opened = mla_ok()};
    mla_status status = mla_kernel_open(spec, &subject->handle);
    if (status.code == MLA_EUNSUPPORTED)
        cr_skip_test("built without host execution");
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
}

static mla_result run(const mla_subject *subject, const char *line) {
    mla_case test;
    mla_result result;
    mla_status status = mla_case_parse(line, &test);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    mla_run_case(subject, &test, NULL, &result);
    mla_case_free(&test);
    return result;
}

ParameterizedTestParameters(splitk, within_the_bound) {
    static int indices[] = {0, 1, 2, 3, 4};
    return cr_make_param_array(int, indices, sizeof engines / sizeof *engines);
}

ParameterizedTest(int *engine, splitk, within_the_bound) {
    mla_subject subject;
    open_subject(&subject, engines[*engine]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mla_result result = run(&subject, cases[i]);
        cr_expect_eq(result.verdict.status, MLA_PASSED, "%s on %s: %s", cases[i], subject.spec, result.verdict.reason);
        mla_result_free(&result);
    }
    mla_kernel_close(&subject.handle);
}

Test(splitk, says_what_it_cannot_do) {
    mla_subject subject;
    open_subject(&subject, engines[0]);
    mla_result result = run(&subject, "kv_len=64 q=fp16 kv=mxfp4");
    cr_expect_eq(result.verdict.status, MLA_SKIPPED);
    cr_expect_str_eq(result.verdict.reason, "q=fp16 is not exact in the operands of kv=mxfp4");
    mla_result_free(&result);
    result = run(&subject, "kv_len=2000 plan=size:1");
    cr_expect_eq(result.verdict.status, MLA_SKIPPED);
    cr_expect_str_eq(result.verdict.reason, "the plan has 2000 splits a row; splitk declares at most 1024");
    mla_result_free(&result);
    mla_kernel_close(&subject.handle);
}

Test(splitk, run_needs_prepare) {
    mla_subject subject;
    open_subject(&subject, engines[0]);
    mla_problem p = {.q_format = MLA_BF16, .kv_format = MLA_KV_BF16};
    char workspace[256], reason[200];
    mla_launch launch = {.problem = &p, .host = &p, .output = &(mla_output){0}, .workspace = workspace};
    const mla_kernel *kernel = subject.handle.kernel;
    cr_expect_neq(kernel->run(kernel, &launch, reason, sizeof reason), 0);
    cr_expect_str_eq(reason, "run without a prepare of this problem and workspace");
    mla_kernel_close(&subject.handle);
}

Test(splitk, a_malformed_fiber_seed_is_refused) {
    mla_kernel_handle handle;
    setenv("MLA_FIBER_SEED", "12x", 1);
    mla_status status = mla_kernel_open("splitk@host:mma", &handle);
    if (status.code == MLA_EUNSUPPORTED)
        cr_skip_test("built without host execution");
    cr_expect_eq(status.code, MLA_EINVAL);
    cr_expect_str_eq(status.message, "MLA_FIBER_SEED=12x is no 64-bit number");
}

/* ---- which engine ---- */

static const mla_engine *engine_of(const mla_kernel *kernel, const char *line) {
    mla_case test;
    mla_inputs inputs;
    cr_assert_eq(mla_case_parse(line, &test).code, MLA_OK);
    cr_assert_eq(mla_inputs_make(&test, &inputs).code, MLA_OK);
    const mla_engine *engine = mla_splitk_engine(kernel, &inputs.problem);
    mla_inputs_free(&inputs);
    mla_case_free(&test);
    return engine;
}

static mla_contract contract_of(const mla_kernel *kernel, const char *line) {
    mla_case test;
    mla_inputs inputs;
    cr_assert_eq(mla_case_parse(line, &test).code, MLA_OK);
    cr_assert_eq(mla_inputs_make(&test, &inputs).code, MLA_OK);
    const mla_contract contract = kernel->contract_for(kernel, &inputs.problem);
    mla_inputs_free(&inputs);
    mla_case_free(&test);
    return contract;
}

/* A tile has 16 rows: 8 heads times 5 and 1 query tokens are 24 on average. */
Test(splitk, splits_of_a_fixed_size_choose_an_engine_by_the_heads_alone) {
    mla_device *device;
    mla_launcher *launcher, *tall;
    mla_kernel *kernel;
    if (mla_host_device_open(&device).code != MLA_OK)
        cr_skip_test("built without host execution");
    cr_assert_eq(mla_host_launcher_open(device, "mma", &launcher).code, MLA_OK);
    cr_assert_eq(mla_host_launcher_open(device, "cdna4tall", &tall).code, MLA_OK);
    launcher->better = tall;
    cr_assert_eq(mla_splitk_open(launcher, "splitk", &kernel).code, MLA_OK);
    cr_expect_eq(engine_of(kernel, "heads=8 q_len=5,1 kv_len=40"), tall->engine);
    cr_expect_eq(engine_of(kernel, "heads=8 q_len=1 kv_len=40"), launcher->engine);
    cr_expect_eq(engine_of(kernel, "heads=8 q_len=5,1 kv_len=40 plan=size:64"), launcher->engine);
    cr_expect_eq(engine_of(kernel, "heads=32 q_len=5,1 kv_len=40 plan=size:64"), tall->engine);
    tall->close(tall);
    mla_splitk_close(kernel);
    device->close(device);
}

Test(splitk, an_engine_runs_the_kv_formats_that_it_has_kernels_for_and_its_contract_holds) {
    mla_device *device;
    mla_launcher *launcher, *better;
    mla_kernel *kernel;
    if (mla_host_device_open(&device).code != MLA_OK)
        cr_skip_test("built without host execution");
    cr_assert_eq(mla_host_launcher_open(device, "mma", &launcher).code, MLA_OK);
    cr_assert_eq(mla_host_launcher_open(device, "cdna4", &better).code, MLA_OK);
    mla_engine converts = *better->engine;
    converts.kv = MLA_ENGINE_CONVERTED_KV;
    converts.max_slack = 8;
    better->engine = &converts;
    launcher->better = better;
    cr_assert_eq(mla_splitk_open(launcher, "splitk", &kernel).code, MLA_OK);
    cr_expect_eq(engine_of(kernel, "kv_len=40 kv=bf16"), launcher->engine);
    cr_expect_eq(engine_of(kernel, "kv_len=40 kv=mxfp4"), &converts);
    cr_expect(!contract_of(kernel, "kv_len=40 kv=bf16").lazy_max);
    cr_expect(contract_of(kernel, "kv_len=40 kv=mxfp4").lazy_max);
    better->close(better);
    mla_splitk_close(kernel);
    device->close(device);
}
