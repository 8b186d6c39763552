/* Buffers with guard zones and poison, on the host and on a device. */
#ifndef MLA_MEMORY_H
#define MLA_MEMORY_H

#include "../gpu/mla_gpu.h"

#define MLA_GUARD_BYTES 65536
#define MLA_POISON 0xFF /* a NaN in bf16, fp16, fp32, e4m3fn and e8m0 */

/* `bytes` usable bytes at `data`, MLA_GUARD_BYTES of poison on either side. */
typedef struct mla_buffer {
    mla_device *device; /* NULL: host memory of the verifier itself */
    uint8_t *data;      /* NULL when bytes == 0 */
    size_t bytes;
    uint8_t poison; /* of guards and fresh contents */
    bool sparse;    /* host memory that reads as 0, and takes room only where it was written */
    void *allocation;
} mla_buffer;

/* Guards and contents poisoned. bytes == 0: data is NULL, nothing allocated. Free with mla_buffer_free; a zeroed buffer is allowed. */
mla_status mla_buffer_make(mla_device *device, size_t bytes, mla_buffer *buffer) MLA_CHECKED;
/* The same with another byte as poison. `sparse` leaves the contents 0 instead, in memory that is not yet there; on a device it changes nothing. */
mla_status mla_buffer_make_filled(mla_device *device, size_t bytes, uint8_t poison, bool sparse, mla_buffer *buffer) MLA_CHECKED;
/* A copy with guards of its own, of the same poison; a sparse buffer in host memory gives a sparse one. Free with mla_buffer_free, also after failure. */
mla_status mla_buffer_copy(mla_device *device, const mla_buffer *original, mla_buffer *copied) MLA_CHECKED;
void mla_buffer_free(mla_buffer *buffer);
mla_status mla_buffer_upload(mla_buffer *buffer, const void *from) MLA_CHECKED;
mla_status mla_buffer_download(const mla_buffer *buffer, void *to) MLA_CHECKED;
/* Offset from `data` of the first guard byte that changed (negative: before it), or 0 and *touched = false. */
mla_status mla_buffer_guards(const mla_buffer *buffer, bool *touched, int64_t *offset) MLA_CHECKED;
/* Offset of the first byte that differs from `expected` [bytes], or -1. */
mla_status mla_buffer_changed(const mla_buffer *buffer, const void *expected, int64_t *offset) MLA_CHECKED;

#endif
