/* libFuzzer: any bytes as a safetensors file. What is accepted must be usable: every tensor lies in the data, and holds what its shape says. */
#include "../verify/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    mla_safetensors file;
    const mla_status status = mla_safetensors_parse(bytes, size, &file);
    if ((status.code == MLA_OK) != (status.message[0] == '\0') || strchr(status.message, '\n'))
        abort();
    size_t covered = 0;
    for (int i = 0; status.code == MLA_OK && i < file.tensor_count; i++) {
        const mla_tensor *t = &file.tensors[i];
        size_t elements = 1;
        for (int d = 0; d < t->rank; d++)
            elements *= (size_t)t->shape[d];
        const uint8_t *data = t->data;
        if (elements * mla_dtype_bytes(t->dtype) != t->bytes || data < bytes + 8 || data + t->bytes > bytes + size)
            abort();
        if (mla_safetensors_find(&file, t->name) != t)
            abort();
        covered += t->bytes;
    }
    if (covered > size)
        abort();
    mla_safetensors_free(&file);
    return 0;
}
