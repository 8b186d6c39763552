#include "safetensors.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../ref/try.h"
#include "output_file.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are little-endian");

#define LENGTH_BYTES 8
#define HEADER_LIMIT (16 << 20) /* bytes: thousands of tensors */
#define DEPTH_LIMIT 3           /* header, tensor, shape */
#define METADATA "__metadata__"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[MLA_DTYPE_COUNT] = {
    [MLA_DTYPE_F64] = {"F64", 8},         [MLA_DTYPE_F32] = {"F32", 4}, [MLA_DTYPE_F16] = {"F16", 2}, [MLA_DTYPE_BF16] = {"BF16", 2},
    [MLA_DTYPE_F8_E4M3] = {"F8_E4M3", 1}, [MLA_DTYPE_I32] = {"I32", 4}, [MLA_DTYPE_U8] = {"U8", 1},
};

const char *mla_dtype_name(mla_dtype dtype) {
    return dtypes[dtype].name;
}

size_t mla_dtype_bytes(mla_dtype dtype) {
    return dtypes[dtype].bytes;
}

/* ---- the header's text ------------------------------------------------------------------------------------------------------------------ */

/* Brackets outside strings nest no deeper than DEPTH_LIMIT: the parser is recursive, and so is what frees its result. */
static bool is_shallow(const char *text, size_t length) {
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < length; i++) {
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted && (text[i] == '{' || text[i] == '['))
            depth++;
        else if (!quoted && (text[i] == '}' || text[i] == ']'))
            depth--;
        if (depth > DEPTH_LIMIT)
            return false;
    }
    return true;
}

static mla_status parse_header(const uint8_t *bytes, size_t size, size_t *data_begin, cJSON **header) {
    uint64_t length;
    if (size < LENGTH_BYTES)
        return mla_error(MLA_EINVAL, "%zu bytes are too few for a safetensors file", size);
    memcpy(&length, bytes, LENGTH_BYTES);
    if (length > size - LENGTH_BYTES)
        return mla_error(MLA_EINVAL, "the header's length of %llu bytes reaches beyond the file's %zu", (unsigned long long)length, size);
    if (length > HEADER_LIMIT)
        return mla_error(MLA_EINVAL, "the header's length of %llu bytes is more than %d", (unsigned long long)length, HEADER_LIMIT);
    const char *text = (const char *)bytes + LENGTH_BYTES, *end = NULL;
    if (length == 0 || *text != '{')
        return mla_error(MLA_EINVAL, "the header does not start with '{': this is no safetensors file");
    if (!is_shallow(text, length))
        return mla_error(MLA_EINVAL, "the header is nested more than %d deep", DEPTH_LIMIT);
    *header = cJSON_ParseWithLengthOpts(text, length, &end, false);
    if (!*header)
        return mla_error(MLA_EINVAL, "the header is no valid JSON near byte %td", end ? end - text + LENGTH_BYTES : 0);
    while (end < text + length && *end == ' ')
        end++;
    if (end < text + length)
        return mla_error(MLA_EINVAL, "the header has something after its JSON, at byte %td", end - text + LENGTH_BYTES);
    *data_begin = LENGTH_BYTES + length;
    return mla_ok();
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* JSON allows a name twice in an object; readers then differ in which they take. */
static mla_status check_distinct(const cJSON *object, const char *what) {
    const int count = cJSON_GetArraySize(object);
    const char **names = calloc((size_t)count + 1, sizeof *names);
    if (!names)
        return mla_error(MLA_ENOMEM, "no memory for %d names", count);
    int n = 0;
    for (const cJSON *item = object->child; item; item = item->next)
        names[n++] = item->string;
    qsort(names, (size_t)n, sizeof *names, compare_names);
    mla_status status = mla_ok();
    for (int i = 1; i < n && status.code == MLA_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            status = mla_error(MLA_EINVAL, "%.60s: '%.60s' is there twice", what, names[i]);
    free(names);
    return status;
}

/* A whole number that a double holds exactly. */
static bool to_count(const cJSON *item, int64_t *count) {
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= 0x1p53) || floor(item->valuedouble) != item->valuedouble)
        return false;
    *count = (int64_t)item->valuedouble;
    return true;
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------------------------ */

static mla_status parse_dtype(const cJSON *entry, mla_tensor *tensor) {
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(entry, "dtype");
    if (!cJSON_IsString(dtype))
        return mla_error(MLA_EINVAL, "tensor '%.60s' has no dtype", tensor->name);
    for (int i = 0; i < MLA_DTYPE_COUNT; i++)
        if (strcmp(dtype->valuestring, dtypes[i].name) == 0) {
            tensor->dtype = (mla_dtype)i;
            return mla_ok();
        }
    return mla_error(MLA_EINVAL, "tensor '%.60s' has an unknown dtype '%.20s'", tensor->name, dtype->valuestring);
}

/* The shape, and the bytes it takes. */
static mla_status parse_shape(const cJSON *entry, mla_tensor *tensor) {
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(entry, "shape");
    if (!cJSON_IsArray(shape))
        return mla_error(MLA_EINVAL, "tensor '%.60s' has no shape", tensor->name);
    tensor->bytes = dtypes[tensor->dtype].bytes;
    for (const cJSON *length = shape->child; length; length = length->next) {
        if (tensor->rank == MLA_TENSOR_RANK)
            return mla_error(MLA_EINVAL, "tensor '%.60s' has more than %d dimensions", tensor->name, MLA_TENSOR_RANK);
        int64_t *n = &tensor->shape[tensor->rank++];
        if (!to_count(length, n))
            return mla_error(MLA_EINVAL, "tensor '%.60s': dimension %d of its shape is no whole number", tensor->name, tensor->rank - 1);
        if (__builtin_mul_overflow(tensor->bytes, (size_t)*n, &tensor->bytes))
            return mla_error(MLA_EINVAL, "tensor '%.60s': its shape takes more bytes than there are numbers for", tensor->name);
    }
    return mla_ok();
}

static mla_status parse_offsets(const cJSON *entry, const uint8_t *data, size_t data_bytes, mla_tensor *tensor) {
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
    int64_t begin = 0, end = 0;
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 || !to_count(offsets->child, &begin) ||
        !to_count(offsets->child->next, &end))
        return mla_error(MLA_EINVAL, "tensor '%.60s' has no pair of data_offsets", tensor->name);
    if (begin > end || (size_t)end > data_bytes)
        return mla_error(MLA_EINVAL, "tensor '%.60s': data_offsets [%lld, %lld) do not lie in the file's %zu bytes of data", tensor->name,
                         (long long)begin, (long long)end, data_bytes);
    if ((size_t)(end - begin) != tensor->bytes)
        return mla_error(MLA_EINVAL, "tensor '%.60s': data_offsets [%lld, %lld) hold %lld bytes, but dtype and shape take %zu",
                         tensor->name, (long long)begin, (long long)end, (long long)(end - begin), tensor->bytes);
    tensor->data = data + begin;
    return mla_ok();
}

static mla_status parse_tensor(const cJSON *entry, const uint8_t *data, size_t data_bytes, mla_tensor *tensor) {
    *tensor = (mla_tensor){.name = entry->string};
    if (!cJSON_IsObject(entry))
        return mla_error(MLA_EINVAL, "tensor '%.60s' is described by no JSON object", tensor->name);
    TRY(check_distinct(entry, tensor->name));
    TRY(parse_dtype(entry, tensor));
    TRY(parse_shape(entry, tensor));
    TRY(parse_offsets(entry, data, data_bytes, tensor));
    if (cJSON_GetArraySize(entry) != 3)
        return mla_error(MLA_EINVAL, "tensor '%.60s' has more than dtype, shape and data_offsets", tensor->name);
    return mla_ok();
}

static int compare_data(const void *a, const void *b) {
    const mla_tensor *x = a, *y = b;
    if (x->data != y->data)
        return (uintptr_t)x->data < (uintptr_t)y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* By offset, each must begin where the one before ends, and the last must end with the file. */
static mla_status check_gapless(const mla_safetensors *file, const uint8_t *data, size_t data_bytes) {
    const uint8_t *at = data;
    for (const mla_tensor *t = file->tensors; t < file->tensors + file->tensor_count; t++) {
        if ((const uint8_t *)t->data != at)
            return mla_error(MLA_EINVAL, "tensor '%.60s' begins at byte %td of the data, where %s", t->name,
                             (const uint8_t *)t->data - data, (const uint8_t *)t->data < at ? "it overlaps another" : "it leaves a hole");
        at += t->bytes;
    }
    if ((size_t)(at - data) != data_bytes)
        return mla_error(MLA_EINVAL, "%zu bytes of data belong to no tensor", data_bytes - (size_t)(at - data));
    return mla_ok();
}

static mla_status parse_metadata(const cJSON *map, mla_safetensors *file) {
    if (!cJSON_IsObject(map))
        return mla_error(MLA_EINVAL, METADATA " is no JSON object");
    TRY(check_distinct(map, METADATA));
    file->metadata = calloc((size_t)cJSON_GetArraySize(map) + 1, sizeof *file->metadata);
    if (!file->metadata)
        return mla_error(MLA_ENOMEM, "no memory for %d strings", cJSON_GetArraySize(map));
    for (const cJSON *item = map->child; item; item = item->next) {
        if (!cJSON_IsString(item))
            return mla_error(MLA_EINVAL, METADATA ": '%.60s' is no string", item->string);
        file->metadata[file->metadata_count++] = (mla_metadata){item->string, item->valuestring};
    }
    return mla_ok();
}

static mla_status parse_entries(const uint8_t *data, size_t data_bytes, mla_safetensors *file) {
    TRY(check_distinct(file->header, "the header"));
    file->tensors = calloc((size_t)cJSON_GetArraySize(file->header) + 1, sizeof *file->tensors);
    if (!file->tensors)
        return mla_error(MLA_ENOMEM, "no memory for %d tensors", cJSON_GetArraySize(file->header));
    for (const cJSON *entry = file->header->child; entry; entry = entry->next) {
        if (strcmp(entry->string, METADATA) == 0)
            TRY(parse_metadata(entry, file));
        else
            TRY(parse_tensor(entry, data, data_bytes, &file->tensors[file->tensor_count++]));
    }
    qsort(file->tensors, (size_t)file->tensor_count, sizeof *file->tensors, compare_data);
    return check_gapless(file, data, data_bytes);
}

mla_status mla_safetensors_parse(const uint8_t *bytes, size_t size, mla_safetensors *file) {
    size_t data_begin = 0;
    *file = (mla_safetensors){0};
    TRY(parse_header(bytes, size, &data_begin, &file->header));
    return parse_entries(bytes + data_begin, size - data_begin, file);
}

void mla_safetensors_free(mla_safetensors *file) {
    free(file->tensors);
    free(file->metadata);
    cJSON_Delete(file->header);
    free(file->bytes);
    *file = (mla_safetensors){0};
}

const mla_tensor *mla_safetensors_find(const mla_safetensors *file, const char *name) {
    for (int i = 0; i < file->tensor_count; i++)
        if (strcmp(file->tensors[i].name, name) == 0)
            return &file->tensors[i];
    return NULL;
}

const char *mla_safetensors_metadata(const mla_safetensors *file, const char *key) {
    for (int i = 0; i < file->metadata_count; i++)
        if (strcmp(file->metadata[i].key, key) == 0)
            return file->metadata[i].value;
    return NULL;
}

/* ---- reading a file ------------------------------------------------------------------------------------------------------------------------- */

/* Copied, not mapped: a file that shrinks while it is read must not end the process. */
static mla_status read_bytes(int fd, const char *path, uint8_t **bytes, size_t *size) {
    struct stat info;
    if (fstat(fd, &info) != 0)
        return mla_error(MLA_EIO, "%.150s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return mla_error(MLA_EIO, "%.150s is no regular file", path);
    *size = (size_t)info.st_size;
    *bytes = malloc(*size + 1);
    if (!*bytes)
        return mla_error(MLA_ENOMEM, "%.150s: no memory for %zu bytes", path, *size);
    for (size_t at = 0; at < *size;) {
        const ssize_t count = read(fd, *bytes + at, *size - at);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return mla_error(MLA_EIO, "%.150s: %s", path, count < 0 ? strerror(errno) : "it shrank while it was read");
        at += (size_t)count;
    }
    return mla_ok();
}

mla_status mla_safetensors_read(const char *path, mla_safetensors *file) {
    uint8_t *bytes = NULL;
    size_t size = 0;
    *file = (mla_safetensors){0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return mla_error(MLA_EIO, "%.150s: %s", path, strerror(errno));
    mla_status status = read_bytes(fd, path, &bytes, &size);
    close(fd);
    if (status.code == MLA_OK) {
        status = mla_safetensors_parse(bytes, size, file);
        if (status.code != MLA_OK)
            status = mla_error(status.code, "%.100s: %s", path, status.message);
    }
    file->bytes = bytes;
    return status;
}

/* ---- writing -------------------------------------------------------------------------------------------------------------------------------- */

/* Indices of the tensors, the largest elements first, otherwise as given. */
static void order_tensors(const mla_tensor *tensors, int count, int *order) {
    int n = 0;
    for (size_t bytes = 8; bytes > 0; bytes /= 2)
        for (int i = 0; i < count; i++)
            if (dtypes[tensors[i].dtype].bytes == bytes)
                order[n++] = i;
}

static bool add_tensor(cJSON *header, const mla_tensor *t, size_t begin) {
    cJSON *entry = cJSON_AddObjectToObject(header, t->name);
    cJSON *dtype = cJSON_AddStringToObject(entry, "dtype", dtypes[t->dtype].name);
    cJSON *shape = cJSON_AddArrayToObject(entry, "shape"), *offsets = cJSON_AddArrayToObject(entry, "data_offsets");
    bool good = dtype && shape && offsets;
    for (int i = 0; i < t->rank && good; i++)
        good = cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)t->shape[i]));
    return good && cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)begin)) &&
           cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)(begin + t->bytes)));
}

static bool fill_header(cJSON *header, const mla_tensor *tensors, const int *order, int count, const mla_metadata *metadata,
                        int metadata_count) {
    cJSON *map = metadata_count > 0 ? cJSON_AddObjectToObject(header, METADATA) : NULL;
    bool good = header && (map || metadata_count == 0);
    for (int i = 0; i < metadata_count && good; i++)
        good = cJSON_AddStringToObject(map, metadata[i].key, metadata[i].value) != NULL;
    size_t begin = 0;
    for (int i = 0; i < count && good; i++) {
        good = add_tensor(header, &tensors[order[i]], begin);
        begin += tensors[order[i]].bytes;
    }
    return good;
}

/* Length and text, blanks after it up to a multiple of 8. NULL: out of memory. */
static char *print_header(const mla_tensor *tensors, const int *order, int count, const mla_metadata *metadata, int metadata_count,
                          size_t *bytes) {
    cJSON *header = cJSON_CreateObject();
    char *text = fill_header(header, tensors, order, count, metadata, metadata_count) ? cJSON_PrintUnformatted(header) : NULL;
    cJSON_Delete(header);
    const uint64_t length = text ? (strlen(text) + 7) / 8 * 8 : 0;
    char *printed = text ? malloc(LENGTH_BYTES + length + 1) : NULL;
    if (printed) {
        memcpy(printed, &length, LENGTH_BYTES);
        sprintf(printed + LENGTH_BYTES, "%-*s", (int)length, text);
        *bytes = LENGTH_BYTES + length;
    }
    cJSON_free(text);
    return printed;
}

static mla_status write_parts(const char *path, const mla_tensor *tensors, int count, const int *order, const char *header,
                              size_t header_bytes, mla_output_part *parts) {
    parts[0] = (mla_output_part){header, header_bytes};
    for (int i = 0; i < count; i++)
        parts[i + 1] = (mla_output_part){tensors[order[i]].data, tensors[order[i]].bytes};
    return mla_output_file_write_parts(path, parts, count + 1);
}

mla_status mla_safetensors_write(const char *path, const mla_tensor *tensors, int tensor_count, const mla_metadata *metadata,
                                 int metadata_count) {
    int *order = calloc((size_t)tensor_count + 1, sizeof *order);
    mla_output_part *parts = calloc((size_t)tensor_count + 1, sizeof *parts);
    char *header = NULL;
    size_t header_bytes = 0;
    if (order) {
        order_tensors(tensors, tensor_count, order);
        header = print_header(tensors, order, tensor_count, metadata, metadata_count, &header_bytes);
    }
    mla_status status = header && parts ? write_parts(path, tensors, tensor_count, order, header, header_bytes, parts)
                                        : mla_error(MLA_ENOMEM, "%.150s: no memory for its header", path);
    free(header);
    free(parts);
    free(order);
    return status;
}
