/* The AMD backend against fake_hip.so, which lies beside this program. */
#include "../gpu/launcher.h"
#include "../gpu/splitk.h"
#include "../gpu/splitk_args.h"
#include "../verify/run.h"

#include <criterion/criterion.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support_problem.h"

/* Stand-ins for code objects, for builds without an AMD compiler: the head of an ELF file, the processor at byte 48. */
#define CODE_OBJECT(arch, machine)                                                                                                         \
    extern const unsigned char mla_image_##arch[64];                                                                                       \
    __attribute__((weak, visibility("hidden"))) const unsigned char mla_image_##arch[64] = {0x7F, 'E', 'L', 'F', [48] = machine};

CODE_OBJECT(gfx90a, 0x3F)
CODE_OBJECT(gfx90a_tall, 0x3F)
CODE_OBJECT(gfx942, 0x4C)
CODE_OBJECT(gfx942_tall, 0x4C)
CODE_OBJECT(gfx950, 0x4F)
CODE_OBJECT(gfx950_tall, 0x4F)

static void use_fake_hip(const char *arch) {
    char self[4000], path[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    cr_assert_gt(length, 0);
    self[length] = '\0';
    snprintf(path, sizeof path, "%s/fake_hip.so", dirname(self));
    if (access(path, R_OK) != 0)
        cr_skip_test("built without host execution");
    setenv("MLA_HIP_LIBRARY", path, 1);
    setenv("MLA_FAKE_HIP_ARCH", arch, 1);
}

static mla_device *open_device(void) {
    mla_device *device;
    mla_status status = mla_device_open(MLA_SPACE_HIP, &device);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    return device;
}

static void expect_device_error(const char *message) {
    mla_device *device;
    mla_status status = mla_device_open(MLA_SPACE_HIP, &device);
    cr_expect_eq(status.code, MLA_EDEVICE);
    cr_expect_str_eq(status.message, message);
}

Test(backend_hip, describes_the_device) {
    use_fake_hip("gfx942");
    mla_device *device = open_device();
    cr_expect_str_eq(device->description, "Fake Instinct (gfx942), 304 CUs, HIP 6.3");
    cr_expect_eq(device->compute_units, 304);
    device->close(device);
}

Test(backend_hip, says_what_is_missing) {
    setenv("MLA_HIP_LIBRARY", "/nowhere/libamdhip64.so", 1);
    expect_device_error("no AMD driver: /nowhere/libamdhip64.so not found");
    setenv("MLA_HIP_LIBRARY", "libm.so.6", 1);
    expect_device_error("the AMD driver lacks hipRuntimeGetVersion");
    use_fake_hip("none");
    expect_device_error("no AMD device");
}

Test(backend_hip, memory) {
    use_fake_hip("gfx942");
    mla_device *device = open_device();
    void *memory;
    char there[] = "partial", back[sizeof there] = "";
    cr_assert_eq(device->allocate(device, sizeof there, &memory).code, MLA_OK);
    cr_expect_eq(device->fill(device, memory, 0xFF, sizeof there).code, MLA_OK);
    cr_expect_eq(device->upload(device, memory, there, 4).code, MLA_OK);
    cr_expect_eq(device->download(device, back, memory, sizeof back).code, MLA_OK);
    cr_expect_arr_eq(back, "part\xFF\xFF\xFF\xFF", sizeof back);
    mla_status status = device->upload(device, memory, there, 1000);
    cr_expect_eq(status.code, MLA_EDEVICE);
    cr_expect_str_eq(status.message, "hipMemcpyAsync: invalid argument (HIP error 1)");
    device->release(device, memory);
    device->release(device, NULL);
    cr_expect_eq(device->allocate(device, SIZE_MAX / 2, &memory).code, MLA_ENOMEM);
    device->close(device);
}

Test(backend_hip, copies_and_marks) {
    use_fake_hip("gfx942");
    mla_device *device = open_device();
    void *from, *to;
    const char text[] = "within the device";
    char back[sizeof text] = "";
    double forward = 0, backward = 0;
    cr_assert_eq(device->allocate(device, sizeof text, &from).code, MLA_OK);
    cr_assert_eq(device->allocate(device, sizeof text, &to).code, MLA_OK);
    cr_expect_eq(device->upload(device, from, text, sizeof text).code, MLA_OK);
    cr_expect_eq(device->mark(device, 0).code, MLA_OK);
    cr_expect_eq(device->copy(device, to, from, sizeof text).code, MLA_OK);
    cr_expect_eq(device->mark(device, MLA_DEVICE_MARKS - 1).code, MLA_OK);
    cr_expect_eq(device->elapsed(device, 0, MLA_DEVICE_MARKS - 1, &forward).code, MLA_OK);
    cr_expect_eq(device->elapsed(device, MLA_DEVICE_MARKS - 1, 0, &backward).code, MLA_OK);
    cr_expect(forward > 0 && forward < 10 && backward == -forward, "%g s, %g s", forward, backward);
    cr_expect_eq(device->elapsed(device, 0, 1, &forward).code, MLA_EDEVICE);
    cr_expect_eq(device->download(device, back, to, sizeof text).code, MLA_OK);
    cr_expect_str_eq(back, text);
    cr_expect_eq(device->copy(device, back, to, sizeof text).code, MLA_EDEVICE);
    device->release(device, from);
    device->release(device, to);
    device->close(device);
}

Test(backend_hip, chooses_the_code_object) {
    const char *const archs[] = {"gfx90a", "gfx942", "gfx950"}, *const engines[] = {"cdna3", "cdna3", "cdna4"},
                      *const tall[] = {"cdna3tall", "cdna3tall", "cdna4tall"};
    for (int i = 0; i < 3; i++) {
        use_fake_hip(archs[i]);
        mla_device *device = open_device();
        mla_launcher *launcher;
        mla_status status = mla_hip_launcher_open(device, &launcher);
        cr_assert_eq(status.code, MLA_OK, "%s: %s", archs[i], status.message);
        cr_expect_str_eq(launcher->engine->name, engines[i]);
        cr_expect_str_eq(launcher->better->engine->name, tall[i]);
        launcher->close(launcher);
        device->close(device);
    }
}

Test(backend_hip, refuses_other_architectures) {
    use_fake_hip("gfx1100");
    mla_kernel_handle handle;
    mla_status status = mla_kernel_open("splitk@amd", &handle);
    cr_expect_eq(status.code, MLA_EUNSUPPORTED);
    cr_expect_str_eq(status.message, "no kernels for gfx1100: they exist for gfx90a, gfx942 and gfx950");
}

Test(backend_hip, launch_errors_are_reported) {
    use_fake_hip("gfx942");
    mla_device *device = open_device();
    mla_launcher *launcher;
    mla_splitk_args args = {0};
    cr_assert_eq(mla_hip_launcher_open(device, &launcher).code, MLA_OK);
    mla_status status =
        launcher->launch(launcher, "mla_no_such_kernel", (mla_grid){.blocks = 1, .threads = 64}, &args, sizeof args, device->stream);
    cr_expect_str_eq(status.message, "mla_no_such_kernel: named symbol not found (HIP error 500)");
    status = launcher->launch(launcher, "mla_combine", (mla_grid){.blocks = 1, .threads = 64}, &args, sizeof args - 8, device->stream);
    cr_expect_str_eq(status.message, "mla_combine: invalid argument (HIP error 1)");
    cr_expect_eq(launcher->launch(launcher, "mla_combine", (mla_grid){.threads = 64}, NULL, 0, device->stream).code, MLA_OK);
    launcher->close(launcher);
    device->close(device);
}

static void expect_passed(const char *arch, const char *kernel, const char *line) {
    use_fake_hip(arch);
    mla_subject subject = {.spec = kernel, .opened = mla_ok()};
    mla_case test;
    mla_result result;
    mla_status status = mla_kernel_open(subject.spec, &subject.handle);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    cr_assert_eq(mla_case_parse(line, &test).code, MLA_OK);
    mla_run_case(&subject, &test, NULL, &result);
    cr_expect_eq(result.verdict.status, MLA_PASSED, "%s on %s: %s", line, arch, result.verdict.reason);
    mla_result_free(&result);
    mla_case_free(&test);
    mla_kernel_close(&subject.handle);
}

Test(backend_hip, runs_kernels) {
    expect_passed("gfx942", "splitk@amd", "kv_len=70,0,300 plan=fixed:3");
    expect_passed("gfx950", "splitk@amd", "kv_len=70,0,300 plan=balanced");
    expect_passed("gfx942", "splitk@amd", "heads=128 kv_len=70 plan=fixed:2");
    expect_passed("gfx950", "splitk@amd", "q_len=2 kv_len=70 kv=fp8");
    expect_passed("gfx942", "bmm@amd:own", "kv_len=70,0,300 kv=fp8 q=fp8 page=16");
}

static const char *engine_for(const mla_kernel *kernel, int32_t heads) {
    test_problem made = test_problem_make(&(test_shape){.heads = heads, .q_len = {1}, .kv_len = {8}, .seed = 1});
    const char *name = mla_splitk_engine(kernel, &made.problem)->name;
    test_problem_free(&made);
    return name;
}

Test(backend_hip, many_rows_take_the_tall_engine) {
    use_fake_hip("gfx950");
    mla_kernel_handle handle;
    mla_status status = mla_kernel_open("splitk@amd", &handle);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    cr_expect_str_eq(engine_for(handle.kernel, 16), "cdna4");
    cr_expect_str_eq(engine_for(handle.kernel, 128), "cdna4tall");
    mla_kernel_close(&handle);
}
