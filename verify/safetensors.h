/*
 * Files of named tensors, in the safetensors format (github.com/huggingface/safetensors): 8 bytes of header length, little-endian; a JSON header of
 * names, types, shapes and offsets, and of "__metadata__", a map of strings; the data, without holes. The reader trusts nothing it reads.
 */
#ifndef MLA_SAFETENSORS_H
#define MLA_SAFETENSORS_H

#include "../ref/mla.h"

#define MLA_TENSOR_RANK 4 /* most of any tensor here */

typedef enum mla_dtype {
    MLA_DTYPE_F64,
    MLA_DTYPE_F32,
    MLA_DTYPE_F16,
    MLA_DTYPE_BF16,
    MLA_DTYPE_F8_E4M3, /* e4m3fn */
    MLA_DTYPE_I32,
    MLA_DTYPE_U8,
    MLA_DTYPE_COUNT
} mla_dtype;

const char *mla_dtype_name(mla_dtype dtype); /* as in the header */
size_t mla_dtype_bytes(mla_dtype dtype);

typedef struct mla_tensor {
    const char *name;
    mla_dtype dtype;
    int rank;
    int64_t shape[MLA_TENSOR_RANK];
    const void *data; /* row-major; aligned to nothing in a file that was read */
    size_t bytes;     /* shape times dtype */
} mla_tensor;

typedef struct mla_metadata {
    const char *key, *value;
} mla_metadata;

/* A file that was read. Everything in it belongs to it. */
typedef struct mla_safetensors {
    mla_tensor *tensors; /* by offset */
    int tensor_count;
    mla_metadata *metadata;
    int metadata_count;
    struct cJSON *header; /* names and strings */
    uint8_t *bytes;       /* of the whole file; NULL where the caller keeps them */
} mla_safetensors;

/*
 * MLA_EIO: the file cannot be read. MLA_EINVAL: it is no well-formed safetensors file, or has a tensor of a type or rank unknown here; the message says
 * what is wrong with which tensor. Free with mla_safetensors_free, also after failure.
 */
mla_status mla_safetensors_read(const char *path, mla_safetensors *file) MLA_CHECKED;
/* The same of `size` bytes in memory, which must outlive `file`. */
mla_status mla_safetensors_parse(const uint8_t *bytes, size_t size, mla_safetensors *file) MLA_CHECKED;
void mla_safetensors_free(mla_safetensors *file);

/* NULL: there is none. */
const mla_tensor *mla_safetensors_find(const mla_safetensors *file, const char *name);
const char *mla_safetensors_metadata(const mla_safetensors *file, const char *key);

/*
 * Writes a file, whole or not at all (output_file.h). The same arguments give the same bytes. Data goes in the order given, by size of the elements, the
 * largest first, so that every tensor is aligned to them; names and keys must be distinct.
 */
mla_status mla_safetensors_write(const char *path, const mla_tensor *tensors, int tensor_count, const mla_metadata *metadata,
                                 int metadata_count) MLA_CHECKED;

#endif
