#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "../verify/memory.h"

/* A device in host memory that counts what is live and can be told to fail. */
typedef struct fake_device {
    mla_device device;
    int live;
    bool fail_allocate, fail_fill, fail_download;
} fake_device;

static mla_status fake_allocate(mla_device *device, size_t bytes, void **pointer) {
    fake_device *fake = device->state;
    if (fake->fail_allocate)
        return mla_error(MLA_ENOMEM, "no room for %zu bytes", bytes);
    *pointer = aligned_alloc(256, (bytes + 255) / 256 * 256);
    fake->live += *pointer != NULL;
    return *pointer ? mla_ok() : mla_error(MLA_ENOMEM, "malloc");
}

static void fake_release(mla_device *device, void *pointer) {
    ((fake_device *)device->state)->live -= pointer != NULL;
    free(pointer);
}

static mla_status fake_copy(mla_device *device, void *to, const void *from, size_t bytes) {
    if (((fake_device *)device->state)->fail_download)
        return mla_error(MLA_EDEVICE, "copy failed");
    memcpy(to, from, bytes);
    return mla_ok();
}

static mla_status fake_fill(mla_device *device, void *to, uint8_t byte, size_t bytes) {
    if (((fake_device *)device->state)->fail_fill)
        return mla_error(MLA_EDEVICE, "fill failed");
    memset(to, byte, bytes);
    return mla_ok();
}

static void fake_open(fake_device *fake) {
    *fake = (fake_device){.device = {.state = fake,
                                     .allocate = fake_allocate,
                                     .release = fake_release,
                                     .upload = fake_copy,
                                     .download = fake_copy,
                                     .fill = fake_fill}};
}

static void expect_guard(const mla_buffer *buffer, bool touched, int64_t offset) {
    bool found = !touched;
    int64_t at = -7;
    cr_assert_eq(mla_buffer_guards(buffer, &found, &at).code, MLA_OK);
    cr_assert_eq(found, touched, "touched %d", found);
    cr_assert_eq(at, offset, "offset %lld instead of %lld", (long long)at, (long long)offset);
}

/* One byte flipped and put back: both ends of both guards are watched, and the contents are not. */
static void check_guards(mla_device *device) {
    mla_buffer buffer;
    cr_assert_eq(mla_buffer_make(device, 1000, &buffer).code, MLA_OK);
    cr_assert_eq((uintptr_t)buffer.data % 256, 0);
    expect_guard(&buffer, false, 0);
    memset(buffer.data, 0, 1000);
    expect_guard(&buffer, false, 0);
    const int64_t offsets[] = {-MLA_GUARD_BYTES, -1, 1000, 1000 + MLA_GUARD_BYTES - 1};
    for (int i = 0; i < 4; i++) {
        buffer.data[offsets[i]] ^= 1;
        expect_guard(&buffer, true, offsets[i]);
        buffer.data[offsets[i]] ^= 1;
    }
    buffer.data[1500] = 0;
    buffer.data[1200] = 0;
    expect_guard(&buffer, true, 1200);
    buffer.data[-3] = 0;
    expect_guard(&buffer, true, -3);
    mla_buffer_free(&buffer);
    cr_assert_null(buffer.data);
}

Test(memory, guards_watch_both_sides_on_the_host) {
    check_guards(NULL);
}

Test(memory, guards_watch_both_sides_on_a_device) {
    fake_device fake;
    fake_open(&fake);
    check_guards(&fake.device);
    cr_assert_eq(fake.live, 0);
}

/* Larger than one thread's step, so that the parallel paths run. */
static void check_contents(mla_device *device) {
    const size_t bytes = ((size_t)9 << 20) + 13;
    uint8_t *expected = malloc(bytes), *back = malloc(bytes);
    mla_buffer buffer;
    int64_t at;
    cr_assert_eq(mla_buffer_make(device, bytes, &buffer).code, MLA_OK);
    cr_assert_eq(buffer.bytes, bytes);
    memset(expected, MLA_POISON, bytes);
    cr_assert_eq(mla_buffer_changed(&buffer, expected, &at).code, MLA_OK);
    cr_assert_eq(at, -1, "fresh contents are poison");
    for (size_t i = 0; i < bytes; i++)
        expected[i] = (uint8_t)(i * 2654435761u >> 13);
    cr_assert_eq(mla_buffer_upload(&buffer, expected).code, MLA_OK);
    cr_assert_eq(mla_buffer_download(&buffer, back).code, MLA_OK);
    cr_assert_eq(memcmp(back, expected, bytes), 0);
    cr_assert_eq(mla_buffer_changed(&buffer, expected, &at).code, MLA_OK);
    cr_assert_eq(at, -1);
    const size_t places[] = {bytes - 1, 5 << 20, (4 << 20) + 1, 4 << 20, 7, 0};
    for (int i = 0; i < 6; i++) {
        buffer.data[places[i]] ^= 0x80;
        cr_assert_eq(mla_buffer_changed(&buffer, expected, &at).code, MLA_OK);
        cr_assert_eq(at, (int64_t)places[i], "the first of %d changes is at %zu, found %lld", i + 1, places[i], (long long)at);
    }
    mla_buffer_free(&buffer);
    free(expected);
    free(back);
}

Test(memory, contents_round_trip_and_changes_are_found_on_the_host) {
    check_contents(NULL);
}

Test(memory, contents_round_trip_and_changes_are_found_on_a_device) {
    fake_device fake;
    fake_open(&fake);
    check_contents(&fake.device);
    cr_assert_eq(fake.live, 0);
}

Test(memory, guards_are_of_the_poison_asked_for) {
    fake_device fake;
    fake_open(&fake);
    mla_buffer buffer, copy;
    cr_assert_eq(mla_buffer_make_filled(NULL, 100, 0x80, false, &buffer).code, MLA_OK);
    for (int i = -MLA_GUARD_BYTES; i < 100 + MLA_GUARD_BYTES; i++)
        cr_assert_eq(buffer.data[i], 0x80);
    expect_guard(&buffer, false, 0);
    buffer.data[7] = 1;
    cr_assert_eq(mla_buffer_copy(&fake.device, &buffer, &copy).code, MLA_OK);
    cr_assert(copy.data[7] == 1 && copy.data[8] == 0x80 && copy.data[-1] == 0x80);
    expect_guard(&copy, false, 0);
    copy.data[100] = MLA_POISON;
    expect_guard(&copy, true, 100);
    mla_buffer_free(&copy);
    mla_buffer_free(&buffer);
    cr_assert_eq(fake.live, 0);
}

static long resident_kilobytes(void) {
    struct rusage usage;
    cr_assert_eq(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

/* Twice 3 GiB of which one byte is used. */
Test(memory, sparse_buffers_take_memory_where_they_were_written) {
    const size_t bytes = ((size_t)3 << 30) + 100, place = ((size_t)2 << 30) + 12345;
    const long before = resident_kilobytes();
    mla_buffer buffer, copy;
    int64_t at;
    cr_assert_eq(mla_buffer_make_filled(NULL, bytes, MLA_POISON, true, &buffer).code, MLA_OK);
    cr_assert(buffer.data[0] == 0 && buffer.data[bytes - 1] == 0, "contents are not poisoned");
    expect_guard(&buffer, false, 0);
    buffer.data[place] = 7;
    cr_assert_eq(mla_buffer_copy(NULL, &buffer, &copy).code, MLA_OK);
    cr_assert_eq(copy.data[place], 7);
    cr_assert_eq(mla_buffer_changed(&copy, buffer.data, &at).code, MLA_OK);
    cr_assert_eq(at, -1);
    copy.data[place + 1] = 1;
    cr_assert_eq(mla_buffer_changed(&copy, buffer.data, &at).code, MLA_OK);
    cr_assert_eq(at, (int64_t)place + 1);
    copy.data[bytes] ^= 1;
    expect_guard(&copy, true, (int64_t)bytes);
    mla_buffer_free(&copy);
    mla_buffer_free(&buffer);
    cr_assert_lt(resident_kilobytes() - before, 100000);
}

Test(memory, nothing_is_allocated_for_no_bytes) {
    mla_buffer buffer;
    int64_t at = 5;
    cr_assert_eq(mla_buffer_make(NULL, 0, &buffer).code, MLA_OK);
    cr_assert_null(buffer.data);
    cr_assert_null(buffer.allocation);
    expect_guard(&buffer, false, 0);
    cr_assert_eq(mla_buffer_upload(&buffer, NULL).code, MLA_OK);
    cr_assert_eq(mla_buffer_download(&buffer, NULL).code, MLA_OK);
    cr_assert_eq(mla_buffer_changed(&buffer, NULL, &at).code, MLA_OK);
    cr_assert_eq(at, -1);
    mla_buffer_free(&buffer);
    mla_buffer_free(&buffer);
}

Test(memory, what_cannot_be_had_names_its_size) {
    mla_buffer buffer;
    const mla_status status = mla_buffer_make(NULL, SIZE_MAX - 5, &buffer);
    cr_assert_eq(status.code, MLA_ENOMEM);
    cr_assert_not_null(strstr(status.message, "18446744073709551610"), "%s", status.message);
    mla_buffer_free(&buffer);
}

Test(memory, failures_of_a_device_are_passed_on_and_leak_nothing) {
    fake_device fake;
    fake_open(&fake);
    mla_buffer buffer;
    fake.fail_allocate = true;
    cr_assert_eq(mla_buffer_make(&fake.device, 100, &buffer).code, MLA_ENOMEM);
    mla_buffer_free(&buffer);
    fake.fail_allocate = false;
    fake.fail_fill = true;
    cr_assert_eq(mla_buffer_make(&fake.device, 100, &buffer).code, MLA_EDEVICE);
    mla_buffer_free(&buffer);
    cr_assert_eq(fake.live, 0);
    fake.fail_fill = false;
    cr_assert_eq(mla_buffer_make(&fake.device, 100, &buffer).code, MLA_OK);
    fake.fail_download = true;
    bool touched;
    int64_t at;
    uint8_t bytes[100] = {0};
    cr_assert_eq(mla_buffer_guards(&buffer, &touched, &at).code, MLA_EDEVICE);
    cr_assert_eq(mla_buffer_changed(&buffer, bytes, &at).code, MLA_EDEVICE);
    cr_assert_eq(mla_buffer_download(&buffer, bytes).code, MLA_EDEVICE);
    mla_buffer_free(&buffer);
    cr_assert_eq(fake.live, 0);
}
