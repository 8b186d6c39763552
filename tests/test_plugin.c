/* The plug-in loader: what it refuses, and that the example is right. Faulty plug-ins are compiled here, one line different each. */
#include "../gpu/plugin.h"

#include <criterion/criterion.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char source[] =
    "#include \"mla_gpu.h\"\n"
    "static int run(const mla_kernel *k, const mla_launch *l, char *r, size_t n) { (void)k, (void)l, (void)r, (void)n; return 0; }\n"
    "static mla_kernel k = {.abi_version = MLA_KERNEL_ABI, .name = \"mine\", .run = run,\n"
    "    .contract = {.acc_bits = 24, .mma_k = 1, .scores = MLA_FP32, .n_scores = 1, .q_scaled = MLA_NONE,\n"
    "                 .kv_dequant = MLA_NONE, .p_scale = 1, .partial = MLA_FP32, .tile = 64, .max_splits = 1}};\n"
    "const mla_kernel *%s(void) { %s; return %s; }\n";

/* Compiles a plug-in whose entry `entry` runs `fault` and returns `result`. */
static void compile(const char *entry, const char *fault, const char *result, char *path, size_t size) {
    char here[] = __FILE__, directory[] = "/tmp/mla-plugin-XXXXXX", command[2000];
    cr_assert_not_null(mkdtemp(directory));
    snprintf(path, size, "%s/mine.so", directory);
    snprintf(command, sizeof command, "cc -shared -fPIC -w -I'%s/../gpu' -x c -o %s -", dirname(here), path);
    FILE *compiler = popen(command, "w");
    cr_assert_not_null(compiler);
    fprintf(compiler, source, entry, fault, result);
    cr_assert_eq(pclose(compiler), 0, "cc failed");
}

static void remove_compiled(char *path) {
    remove(path);
    rmdir(dirname(path));
}

static void expect_refused(const char *path, const char *message) {
    void *library;
    const mla_kernel *kernel;
    mla_status status = mla_plugin_open(path, &library, &kernel);
    cr_expect_eq(status.code, MLA_EINVAL);
    cr_expect_null(library);
    cr_expect(!strncmp(status.message, path, strlen(path)), "'%s' does not begin with the path", status.message);
    cr_expect(strstr(status.message, message), "'%s' does not say '%s'", status.message, message);
    cr_expect_null(strchr(status.message, '\n'));
}

static void expect_fault(const char *entry, const char *fault, const char *result, const char *message) {
    char path[100];
    compile(entry, fault, result, path, sizeof path);
    expect_refused(path, message);
    remove_compiled(path);
}

Test(plugin, files_that_are_none_are_refused) {
    expect_refused("/nowhere/mine.so", "is no plug-in");
    expect_refused("/bin/ls", "is no plug-in");
    expect_refused("/etc/passwd", "is no plug-in");
    expect_fault("another_name", "", "&k", "is no plug-in: it does not export mla_plugin_kernel");
}

Test(plugin, faulty_kernels_are_refused) {
    expect_fault("mla_plugin_kernel", "", "0", "returned NULL");
    expect_fault("mla_plugin_kernel", "k.abi_version = 2", "&k", "built for kernel ABI 2, this program speaks 1");
    expect_fault("mla_plugin_kernel", "k.name = 0", "&k", "has no name");
    expect_fault("mla_plugin_kernel", "k.name = \"my kernel\"", "&k", "a space or an unprintable character at 2");
    expect_fault("mla_plugin_kernel", "k.space = 7", "&k", "memory space 7");
    expect_fault("mla_plugin_kernel", "k.run = 0", "&k", "kernel mine has no run function");
    expect_fault("mla_plugin_kernel", "k.contract.tile = 0", "&k", "tile = 0");
}

Test(plugin, a_right_kernel_is_opened) {
    char path[100];
    void *library;
    const mla_kernel *kernel;
    compile("mla_plugin_kernel", "", "&k", path, sizeof path);
    mla_status status = mla_plugin_open(path, &library, &kernel);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    cr_expect_str_eq(kernel->name, "mine");
    mla_plugin_close(library);
    remove_compiled(path);
}

/* ---- the example --------------------------------------------------------------------------------------------------------------- */

static void open_example(mla_kernel_handle *handle) {
    char self[4000], path[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    cr_assert_gt(length, 0);
    self[length] = '\0';
    snprintf(path, sizeof path, "%s/../example_plugin.so", dirname(self));
    mla_status status = mla_kernel_open(path, handle);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
}

/* Three tokens: of a sequence of one key, of an empty one, and padding. One key has weight 1: out is its value, lse its score 2 * 3 / 4. */
Test(plugin, the_example_on_one_key) {
    enum { TWO = 0x4000, THREE = 0x4040 };
    static uint16_t q[3 * MLA_HEAD_DIM] = {TWO}, kv[MLA_HEAD_DIM] = {THREE, TWO}, out[3 * MLA_HEAD_DIM_V];
    float lse[3];
    mla_problem p = {.batch = 2,
                     .heads = 1,
                     .q_format = MLA_BF16,
                     .q_scale = 1,
                     .q = q,
                     .total_q = 3,
                     .qo_indptr = (int32_t[]){0, 1, 2},
                     .kv_format = MLA_KV_BF16,
                     .kv_scale = 1,
                     .kv = kv,
                     .total_kv = 1,
                     .kv_indptr = (int32_t[]){0, 1, 1},
                     .sm_scale = 0.25f,
                     .out_format = MLA_BF16};
    mla_kernel_handle handle;
    open_example(&handle);
    char reason[200] = "";
    float scores[1];
    cr_assert(handle.kernel->supports(handle.kernel, &p, reason, sizeof reason), "%s", reason);
    cr_assert_eq(handle.kernel->workspace(handle.kernel, &p), sizeof scores);
    mla_launch launch = {.problem = &p, .host = &p, .output = &(mla_output){.out = out, .lse = lse}, .workspace = scores};
    memset(out, 0xFF, sizeof out);
    cr_assert_eq(handle.kernel->run(handle.kernel, &launch, reason, sizeof reason), 0);
    cr_expect(out[0] == THREE && out[1] == TWO && out[2] == 0);
    cr_expect(out[MLA_HEAD_DIM_V] == 0 && out[3 * MLA_HEAD_DIM_V - 1] == 0);
    cr_expect_float_eq(lse[0], 1.5f, 1e-6f);
    cr_expect(lse[1] == -INFINITY && lse[2] == -INFINITY);
    mla_kernel_close(&handle);
}

Test(plugin, the_example_says_what_it_cannot_do) {
    mla_problem p = {.batch = 1, .heads = 1, .q_format = MLA_FP16};
    mla_kernel_handle handle;
    char reason[200] = "";
    open_example(&handle);
    cr_expect_not(handle.kernel->supports(handle.kernel, &p, reason, sizeof reason));
    cr_expect_str_eq(reason, "q and kv must be bf16");
    mla_kernel_close(&handle);
}
