/* Kernels by name, and the host as a device. */
#include "../gpu/mla_gpu.h"
#include "../verify/run.h"

#include <criterion/criterion.h>
#include <string.h>

static void expect_unknown(const char *spec, const char *message) {
    mla_kernel_handle handle;
    mla_status status = mla_kernel_open(spec, &handle);
    cr_expect_eq(status.code, MLA_EINVAL, "%s", spec);
    cr_expect(strstr(status.message, message), "'%s' does not say '%s'", status.message, message);
    cr_expect(!handle.kernel && !handle.device && !handle.state);
}

Test(kernel, unknown_names) {
    expect_unknown("", "no kernel ''");
    expect_unknown("theirs.so", "a plug-in's path");
    expect_unknown("splitk", "no kernel 'splitk'");
    expect_unknown("splitk@", "no machine ''");
    expect_unknown("splitk@mars", "no machine 'mars'");
    expect_unknown("splitk@host:", "no machine 'host:'");
    expect_unknown("splitk@host:hopper", "no machine 'host:hopper'");
    expect_unknown("splitk@cdna3", "no machine 'cdna3'");
    expect_unknown("bmm", "no kernel 'bmm'");
    expect_unknown("bmm@host:mma", "no machine 'host:mma': bmm runs @host, @nvidia[:own] or @amd[:own]");
    expect_unknown("bmm@nvidia:mma", "no machine 'nvidia:mma'");
    expect_unknown("./theirs.so", "./theirs.so is no plug-in");
}

Test(kernel, the_default_engine_is_cdna3) {
    mla_kernel_handle handle;
    mla_status status = mla_kernel_open("splitk@host", &handle);
    if (status.code == MLA_EUNSUPPORTED)
        cr_skip_test("built without host execution");
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    cr_expect_str_eq(handle.kernel->name, "splitk@host:cdna3");
    cr_expect_eq(handle.kernel->space, MLA_SPACE_HOST);
    cr_expect_eq(mla_contract_check(&handle.kernel->contract).code, MLA_OK);
    mla_kernel_close(&handle);
}

/* Without a driver or a device it is MLA_EDEVICE, with a reason; with one it opens. */
Test(kernel, absent_devices_are_errors) {
    const char *const specs[] = {"splitk@nvidia", "splitk@amd", "bmm@nvidia", "bmm@amd:own"};
    for (int i = 0; i < 4; i++) {
        mla_kernel_handle handle;
        mla_status status = mla_kernel_open(specs[i], &handle);
        cr_expect(status.code == MLA_OK || status.code == MLA_EDEVICE || status.code == MLA_EUNSUPPORTED, "%s: %s", specs[i],
                  status.message);
        cr_expect_eq(status.code == MLA_OK, status.message[0] == '\0');
        mla_kernel_close(&handle);
    }
}

Test(kernel, closing_twice_is_allowed) {
    mla_kernel_handle handle;
    cr_assert_eq(mla_kernel_open("reference", &handle).code, MLA_OK);
    cr_expect_str_eq(handle.kernel->name, "reference");
    mla_kernel_close(&handle);
    mla_kernel_close(&handle);
}

Test(kernel, host_memory) {
    mla_device *device;
    void *memory;
    char back[4];
    cr_assert_eq(mla_device_open(MLA_SPACE_HOST, &device).code, MLA_OK);
    cr_assert_eq(device->allocate(device, 100, &memory).code, MLA_OK);
    cr_expect_eq((uintptr_t)memory % 256, 0);
    cr_expect_eq(device->fill(device, memory, 0xAB, 100).code, MLA_OK);
    cr_expect_eq(device->upload(device, memory, "xy", 2).code, MLA_OK);
    cr_expect_eq(device->download(device, back, memory, 4).code, MLA_OK);
    cr_expect_arr_eq(back, "xy\xAB\xAB", 4);
    device->release(device, memory);
    device->release(device, NULL);
    cr_expect_eq(device->allocate(device, SIZE_MAX, &memory).code, MLA_ENOMEM);
    cr_expect_eq(device->synchronize(device).code, MLA_OK);
    device->close(device);
}

Test(kernel, a_space_that_does_not_exist) {
    mla_device *device;
    cr_expect_eq(mla_device_open((mla_space)9, &device).code, MLA_EINVAL);
}

Test(kernel, the_reference_passes) {
    mla_subject subject = {.spec = "reference", .opened = mla_ok()};
    mla_case test;
    mla_result result;
    cr_assert_eq(mla_kernel_open(subject.spec, &subject.handle).code, MLA_OK);
    cr_assert_eq(mla_case_parse("heads=4 kv_len=33,0,200 q_len=2 causal=1", &test).code, MLA_OK);
    mla_run_case(&subject, &test, NULL, &result);
    cr_expect_eq(result.verdict.status, MLA_PASSED, "%s", result.verdict.reason);
    mla_result_free(&result);
    mla_case_free(&test);
    mla_kernel_close(&subject.handle);
}
