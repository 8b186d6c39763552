#include "../verify/safetensors.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LARGEST 4096

/* A file in memory: header text, then `data` bytes counting up. The length field says `length`. */
typedef struct image {
    uint8_t bytes[LARGEST];
    size_t size;
} image;

static image image_of(uint64_t length, const char *header, size_t data) {
    image made = {.size = 8 + strlen(header) + data};
    memcpy(made.bytes, &length, 8);
    memcpy(made.bytes + 8, header, strlen(header));
    for (size_t i = 0; i < data; i++)
        made.bytes[8 + strlen(header) + i] = (uint8_t)i;
    return made;
}

static mla_status parse(const char *header, size_t data) {
    const image made = image_of(strlen(header), header, data);
    mla_safetensors file;
    const mla_status status = mla_safetensors_parse(made.bytes, made.size, &file);
    mla_safetensors_free(&file);
    return status;
}

static void expect_error(const char *header, size_t data, const char *reason) {
    const mla_status status = parse(header, data);
    cr_expect_eq(status.code, MLA_EINVAL, "%s", header);
    cr_expect(strstr(status.message, reason) != NULL, "'%s' is not in '%s'", reason, status.message);
}

#define ONE "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]}}"

/* ---- what is right --------------------------------------------------------------------------------------------------------------------- */

Test(safetensors, a_tensor_and_metadata) {
    const char *header = "{\"__metadata__\":{\"case\":\"heads=2\"},\"a\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                         "\"b\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[0,4]}}  ";
    const image made = image_of(strlen(header), header, 16);
    mla_safetensors file;
    cr_assert_eq(mla_safetensors_parse(made.bytes, made.size, &file).code, MLA_OK);
    const mla_tensor *a = mla_safetensors_find(&file, "a"), *b = mla_safetensors_find(&file, "b");
    cr_assert(a && b && !mla_safetensors_find(&file, "c"));
    cr_expect_eq(a->dtype, MLA_DTYPE_BF16);
    cr_expect_eq(a->rank, 2);
    cr_expect_eq(a->shape[0], 2);
    cr_expect_eq(a->shape[1], 3);
    cr_expect_eq(a->bytes, 12);
    cr_expect_eq(*(const uint8_t *)a->data, 4);
    cr_expect_eq(b->rank, 0);
    cr_expect_eq(b->bytes, 4);
    cr_expect_str_eq(mla_safetensors_metadata(&file, "case"), "heads=2");
    cr_expect_null(mla_safetensors_metadata(&file, "none"));
    mla_safetensors_free(&file);
}

Test(safetensors, nothing_at_all) {
    cr_expect_eq(parse("{}", 0).code, MLA_OK);
    cr_expect_eq(parse("{\"a\":{\"dtype\":\"F32\",\"shape\":[0,512],\"data_offsets\":[0,0]}}", 0).code, MLA_OK);
    cr_expect_eq(parse("{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]},"
                       "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                       4)
                     .code,
                 MLA_OK);
}

/* ---- what is wrong ------------------------------------------------------------------------------------------------------------------------ */

static void expect_length_error(uint64_t length, const char *header, size_t data, const char *reason) {
    const image made = image_of(length, header, data);
    mla_safetensors file;
    const mla_status status = mla_safetensors_parse(made.bytes, made.size, &file);
    cr_expect_eq(status.code, MLA_EINVAL);
    cr_expect(strstr(status.message, reason) != NULL, "'%s' is not in '%s'", reason, status.message);
    mla_safetensors_free(&file);
}

Test(safetensors, header_lengths) {
    expect_length_error(UINT64_C(1) << 63, ONE, 12, "reaches beyond the file");
    expect_length_error(UINT64_MAX, ONE, 12, "reaches beyond the file");
    expect_length_error(strlen(ONE) + 13, ONE, 12, "reaches beyond the file");
    expect_length_error(strlen(ONE) - 1, ONE, 12, "no valid JSON");
    expect_length_error(strlen(ONE) + 1, ONE, 12, "after its JSON");
    expect_length_error(0, ONE, 12, "does not start with '{'");
    mla_safetensors file;
    for (size_t size = 0; size < 8; size++) {
        cr_expect_eq(mla_safetensors_parse((const uint8_t *)"\1\0\0\0\0\0\0\0", size, &file).code, MLA_EINVAL);
        mla_safetensors_free(&file);
    }
}

/* The same header cut anywhere: never accepted, never read beyond (ASan sees it: the copy is as long as the file). */
Test(safetensors, truncated_anywhere) {
    const image whole = image_of(strlen(ONE), ONE, 12);
    for (size_t size = 0; size < whole.size; size++) {
        uint8_t *copy = malloc(size + 1);
        memcpy(copy, whole.bytes, size);
        mla_safetensors file;
        cr_expect_eq(mla_safetensors_parse(copy, size, &file).code, MLA_EINVAL, "cut to %zu bytes", size);
        mla_safetensors_free(&file);
        free(copy);
    }
}

Test(safetensors, json) {
    expect_error("[1]", 0, "does not start with '{'");
    expect_error("{\"a\":}", 0, "no valid JSON near byte");
    expect_error("{} {}", 0, "something after its JSON, at byte 11");
    expect_error("{\"a\":[[[[1]]]]}", 0, "nested more than 3 deep");
    expect_error("{\"a\":1}", 0, "tensor 'a' is described by no JSON object");
    char deep[2048] = "{\"a\":";
    memset(deep + 5, '[', 2000);
    expect_error(deep, 0, "nested more than 3 deep");
    cr_expect_eq(parse("{\"[[[[[[\\\"[[[\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1).code, MLA_OK, "brackets in a name");
}

Test(safetensors, names_that_are_there_twice) {
    expect_error(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]},"
        "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
        3, "the header: 'a' is there twice");
    expect_error("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "a: 'dtype' is there twice");
    expect_error("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "__metadata__: 'k' is there twice");
}

Test(safetensors, metadata) {
    expect_error("{\"__metadata__\":[\"k\"]}", 0, "__metadata__ is no JSON object");
    expect_error("{\"__metadata__\":{\"k\":1}}", 0, "__metadata__: 'k' is no string");
}

#define TENSOR(dtype, shape, offsets) "{\"a\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

Test(safetensors, fields_of_a_tensor) {
    expect_error("{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "has no dtype");
    expect_error("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "has no shape");
    expect_error("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "has no pair of data_offsets");
    expect_error("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":1}}", 1, "has more than dtype");
    expect_error(TENSOR("\"F7\"", "[1]", "[0,1]"), 1, "unknown dtype 'F7'");
    expect_error(TENSOR("3", "[1]", "[0,1]"), 1, "has no dtype");
    expect_error(TENSOR("\"U8\"", "[1,1,1,1,1]", "[0,1]"), 1, "more than 4 dimensions");
    expect_error(TENSOR("\"U8\"", "[-1]", "[0,1]"), 1, "dimension 0 of its shape is no whole number");
    expect_error(TENSOR("\"U8\"", "[1,0.5]", "[0,1]"), 1, "dimension 1 of its shape is no whole number");
    expect_error(TENSOR("\"U8\"", "[\"1\"]", "[0,1]"), 1, "is no whole number");
    expect_error(TENSOR("\"U8\"", "[1e300]", "[0,1]"), 1, "is no whole number");
    expect_error(TENSOR("\"U8\"", "[1]", "[0]"), 1, "no pair of data_offsets");
    expect_error(TENSOR("\"U8\"", "[1]", "[0,1,2]"), 1, "no pair of data_offsets");
    expect_error(TENSOR("\"U8\"", "[1]", "[0.5,1]"), 1, "no pair of data_offsets");
}

/* 2^32 * 2^32 elements; and 2^62 doubles, whose bytes alone do not fit. A product that wraps to 0 must not pass as empty. */
Test(safetensors, products_that_overflow) {
    expect_error(TENSOR("\"U8\"", "[4294967296,4294967296]", "[0,0]"), 0, "more bytes than there are numbers for");
    expect_error(TENSOR("\"F64\"", "[2147483648,2147483648]", "[0,0]"), 0, "more bytes than there are numbers for");
    expect_error(TENSOR("\"F64\"", "[9007199254740992,512]", "[0,0]"), 0, "more bytes than there are numbers for");
}

Test(safetensors, offsets) {
    expect_error(TENSOR("\"U8\"", "[2]", "[0,2]"), 1, "do not lie in the file's 1 bytes of data");
    expect_error(TENSOR("\"U8\"", "[2]", "[2,0]"), 2, "do not lie in");
    expect_error(TENSOR("\"U8\"", "[2]", "[9007199254740990,9007199254740992]"), 2, "do not lie in");
    expect_error(TENSOR("\"F32\"", "[2]", "[0,4]"), 4, "hold 4 bytes, but dtype and shape take 8");
    expect_error(TENSOR("\"U8\"", "[2]", "[1,3]"), 3, "begins at byte 1 of the data, where it leaves a hole");
    expect_error(TENSOR("\"U8\"", "[2]", "[0,2]"), 3, "1 bytes of data belong to no tensor");
    expect_error("{}", 1, "1 bytes of data belong to no tensor");
    expect_error(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", 3,
        "tensor 'b' begins at byte 1 of the data, where it overlaps another");
    expect_error(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2,
        "overlaps another");
    expect_error(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}", 3,
        "tensor 'b' begins at byte 2 of the data, where it leaves a hole");
}

/* ---- files ---------------------------------------------------------------------------------------------------------------------------------- */

static char folder[] = "/tmp/test_safetensors.XXXXXX";
static char path[64];

static void make_folder(void) {
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/t.safetensors", folder);
}

static void remove_folder(void) {
    unlink(path);
    cr_expect_eq(rmdir(folder), 0, "something was left behind");
}

TestSuite(safetensors_file, .init = make_folder, .fini = remove_folder);

Test(safetensors_file, what_is_written_is_read) {
    const uint8_t bytes[3] = {7, 8, 9};
    const double number = 0.1;
    const uint16_t half[4] = {1, 2, 3, 4};
    const mla_tensor tensors[] = {
        {.name = "bytes", .dtype = MLA_DTYPE_U8, .rank = 1, .shape = {3}, .data = bytes, .bytes = 3},
        {.name = "number", .dtype = MLA_DTYPE_F64, .rank = 0, .data = &number, .bytes = 8},
        {.name = "half", .dtype = MLA_DTYPE_F16, .rank = 2, .shape = {2, 2}, .data = half, .bytes = 8},
        {.name = "empty", .dtype = MLA_DTYPE_F32, .rank = 2, .shape = {0, 5}, .data = NULL, .bytes = 0},
    };
    const mla_metadata metadata[] = {{"quoted \"key\"", "back\\slash"}};
    mla_safetensors file;
    cr_assert_eq(mla_safetensors_write(path, tensors, 4, metadata, 1).code, MLA_OK);
    const mla_status status = mla_safetensors_read(path, &file);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    cr_expect_str_eq(mla_safetensors_metadata(&file, "quoted \"key\""), "back\\slash");
    for (int i = 0; i < 4; i++) {
        const mla_tensor *t = mla_safetensors_find(&file, tensors[i].name);
        cr_assert(t && t->dtype == tensors[i].dtype && t->rank == tensors[i].rank && t->bytes == tensors[i].bytes);
        cr_expect_arr_eq(t->shape, tensors[i].shape, sizeof t->shape);
        cr_expect(t->bytes == 0 || memcmp(t->data, tensors[i].data, t->bytes) == 0);
        cr_expect_eq((uintptr_t)t->data % mla_dtype_bytes(t->dtype), 0, "aligned to its elements");
    }
    mla_safetensors_free(&file);
}

Test(safetensors_file, files_that_cannot_be_read) {
    mla_safetensors file;
    cr_expect_eq(mla_safetensors_read("/nonexistent", &file).code, MLA_EIO);
    mla_safetensors_free(&file);
    cr_expect_eq(mla_safetensors_read(folder, &file).code, MLA_EIO);
    mla_safetensors_free(&file);
    cr_expect_eq(mla_safetensors_read("/dev/null", &file).code, MLA_EIO);
    mla_safetensors_free(&file);
    cr_expect_eq(mla_safetensors_write("/nonexistent/t.safetensors", NULL, 0, NULL, 0).code, MLA_EIO);
}

Test(safetensors_file, the_message_names_the_file) {
    FILE *out = fopen(path, "w");
    cr_assert(out && fputs("hello", out) > 0 && fclose(out) == 0);
    mla_safetensors file;
    const mla_status status = mla_safetensors_read(path, &file);
    cr_expect_eq(status.code, MLA_EINVAL);
    cr_expect(strstr(status.message, "t.safetensors: 5 bytes are too few") != NULL, "%s", status.message);
    mla_safetensors_free(&file);
}
