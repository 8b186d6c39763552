#include "memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CHUNK ((size_t)4 << 20) /* bytes one thread handles at a time */

static size_t chunk_count(size_t bytes) {
    return (bytes + CHUNK - 1) / CHUNK;
}
static size_t chunk_size(size_t bytes, size_t chunk) {
    return bytes - chunk * CHUNK < CHUNK ? bytes - chunk * CHUNK : CHUNK;
}

static void fill(uint8_t *to, uint8_t byte, size_t bytes) {
    const size_t chunks = chunk_count(bytes);
#pragma omp parallel for if (chunks > 1)
    for (size_t i = 0; i < chunks; i++)
        memset(to + i * CHUNK, byte, chunk_size(bytes, i));
}

static void copy(uint8_t *to, const uint8_t *from, size_t bytes) {
    const size_t chunks = chunk_count(bytes);
#pragma omp parallel for if (chunks > 1)
    for (size_t i = 0; i < chunks; i++)
        memcpy(to + i * CHUNK, from + i * CHUNK, chunk_size(bytes, i));
}

#define PAGE ((size_t)4096)

/* To `to`, which is all zeros. Pages of zeros are not written: what a sparse buffer never used stays unused in its copy. */
static void copy_sparse(uint8_t *to, const uint8_t *from, size_t bytes) {
    const size_t pages = (bytes + PAGE - 1) / PAGE;
#pragma omp parallel for
    for (size_t i = 0; i < pages; i++) {
        const size_t at = i * PAGE, count = bytes - at < PAGE ? bytes - at : PAGE;
        if (from[at] != 0 || memcmp(from + at, from + at + 1, count - 1) != 0)
            memcpy(to + at, from + at, count);
    }
}

/* Offset of the first byte of [0, bytes) in which the two differ, or -1. */
static int64_t first_difference(const uint8_t *a, const uint8_t *b, size_t bytes) {
    const size_t chunks = chunk_count(bytes);
    size_t first = chunks;
#pragma omp parallel for reduction(min : first) if (chunks > 1)
    for (size_t i = 0; i < chunks; i++)
        if (i < first && memcmp(a + i * CHUNK, b + i * CHUNK, chunk_size(bytes, i)) != 0)
            first = i;
    if (first == chunks)
        return -1;
    size_t at = first * CHUNK;
    while (a[at] == b[at])
        at++;
    return (int64_t)at;
}

/* Offset of the first byte that is not poison, or -1. */
static int64_t first_unpoisoned(const uint8_t *bytes, size_t count, uint8_t poison) {
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != poison)
            return (int64_t)i;
    return -1;
}

/* What is allocated for a buffer. */
static size_t total_bytes(size_t bytes) {
    return (bytes + 2 * MLA_GUARD_BYTES + 255) / 256 * 256;
}

static mla_status make_on_device(mla_device *device, size_t total, mla_buffer *buffer) {
    mla_status status = device->allocate(device, total, &buffer->allocation);
    if (status.code != MLA_OK) {
        buffer->allocation = NULL;
        return status;
    }
    return device->fill(device, buffer->allocation, buffer->poison, total);
}

static mla_status make_on_host(size_t total, mla_buffer *buffer) {
    buffer->allocation = aligned_alloc(256, total);
    if (buffer->allocation == NULL)
        return mla_error(MLA_ENOMEM, "cannot allocate %zu bytes", total);
    fill(buffer->allocation, buffer->poison, total);
    return mla_ok();
}

static mla_status make_sparse(size_t total, size_t bytes, mla_buffer *buffer) {
    void *memory = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return mla_error(MLA_ENOMEM, "cannot map %zu bytes", total);
    buffer->allocation = memory;
    fill(memory, buffer->poison, MLA_GUARD_BYTES);
    fill((uint8_t *)memory + MLA_GUARD_BYTES + bytes, buffer->poison, total - MLA_GUARD_BYTES - bytes);
    return mla_ok();
}

mla_status mla_buffer_make_filled(mla_device *device, size_t bytes, uint8_t poison, bool sparse, mla_buffer *buffer) {
    *buffer = (mla_buffer){.device = device, .poison = poison, .sparse = sparse && !device};
    if (bytes == 0)
        return mla_ok();
    if (bytes > SIZE_MAX / 2)
        return mla_error(MLA_ENOMEM, "cannot allocate %zu bytes", bytes);
    const size_t total = total_bytes(bytes);
    mla_status status = device           ? make_on_device(device, total, buffer)
                        : buffer->sparse ? make_sparse(total, bytes, buffer)
                                         : make_on_host(total, buffer);
    if (status.code != MLA_OK) {
        mla_buffer_free(buffer);
        return status;
    }
    buffer->data = (uint8_t *)buffer->allocation + MLA_GUARD_BYTES;
    buffer->bytes = bytes;
    return status;
}

mla_status mla_buffer_make(mla_device *device, size_t bytes, mla_buffer *buffer) {
    return mla_buffer_make_filled(device, bytes, MLA_POISON, false, buffer);
}

/* From here on, what was never written is read through one huge page of zeros, not hundreds of small ones: a third of the time. Only a hint. */
static void read_holes_fast(const mla_buffer *buffer) {
    if (buffer->sparse && buffer->allocation)
        (void)madvise(buffer->allocation, total_bytes(buffer->bytes), MADV_HUGEPAGE);
}

mla_status mla_buffer_copy(mla_device *device, const mla_buffer *original, mla_buffer *copied) {
    const mla_status status = mla_buffer_make_filled(device, original->bytes, original->poison, original->sparse, copied);
    if (status.code != MLA_OK)
        return status;
    read_holes_fast(original);
    if (!copied->sparse)
        return mla_buffer_upload(copied, original->data);
    copy_sparse(copied->data, original->data, copied->bytes);
    return status;
}

void mla_buffer_free(mla_buffer *buffer) {
    if (buffer->device)
        buffer->device->release(buffer->device, buffer->allocation);
    else if (buffer->sparse && buffer->allocation)
        munmap(buffer->allocation, total_bytes(buffer->bytes));
    else
        free(buffer->allocation);
    *buffer = (mla_buffer){0};
}

mla_status mla_buffer_upload(mla_buffer *buffer, const void *from) {
    if (buffer->bytes == 0)
        return mla_ok();
    if (buffer->device)
        return buffer->device->upload(buffer->device, buffer->data, from, buffer->bytes);
    copy(buffer->data, from, buffer->bytes);
    return mla_ok();
}

/* Bytes [offset, offset + bytes) of the buffer, counted from `data`; guards may be read too. */
static mla_status read_range(const mla_buffer *buffer, int64_t offset, size_t bytes, void *to) {
    if (buffer->device)
        return buffer->device->download(buffer->device, to, buffer->data + offset, bytes);
    copy(to, buffer->data + offset, bytes);
    return mla_ok();
}

mla_status mla_buffer_download(const mla_buffer *buffer, void *to) {
    return buffer->bytes == 0 ? mla_ok() : read_range(buffer, 0, buffer->bytes, to);
}

mla_status mla_buffer_guards(const mla_buffer *buffer, bool *touched, int64_t *offset) {
    *touched = false;
    *offset = 0;
    if (buffer->bytes == 0)
        return mla_ok();
    uint8_t *guard = malloc(MLA_GUARD_BYTES);
    if (guard == NULL)
        return mla_error(MLA_ENOMEM, "cannot allocate %d bytes", MLA_GUARD_BYTES);
    const int64_t starts[2] = {-MLA_GUARD_BYTES, (int64_t)buffer->bytes};
    mla_status status = mla_ok();
    for (int side = 0; side < 2 && status.code == MLA_OK && !*touched; side++) {
        status = read_range(buffer, starts[side], MLA_GUARD_BYTES, guard);
        const int64_t at = status.code == MLA_OK ? first_unpoisoned(guard, MLA_GUARD_BYTES, buffer->poison) : -1;
        *touched = at >= 0;
        *offset = at >= 0 ? starts[side] + at : 0;
    }
    free(guard);
    return status;
}

static mla_status changed_on_device(const mla_buffer *buffer, const uint8_t *expected, int64_t *offset) {
    const size_t step = buffer->bytes < CHUNK ? buffer->bytes : CHUNK;
    uint8_t *staging = malloc(step);
    if (staging == NULL)
        return mla_error(MLA_ENOMEM, "cannot allocate %zu bytes", step);
    mla_status status = mla_ok();
    for (size_t at = 0; at < buffer->bytes && status.code == MLA_OK && *offset < 0; at += step) {
        const size_t count = buffer->bytes - at < step ? buffer->bytes - at : step;
        status = read_range(buffer, (int64_t)at, count, staging);
        const int64_t found = status.code == MLA_OK ? first_difference(staging, expected + at, count) : -1;
        if (found >= 0)
            *offset = (int64_t)at + found;
    }
    free(staging);
    return status;
}

mla_status mla_buffer_changed(const mla_buffer *buffer, const void *expected, int64_t *offset) {
    *offset = -1;
    if (buffer->bytes == 0)
        return mla_ok();
    if (buffer->device)
        return changed_on_device(buffer, expected, offset);
    read_holes_fast(buffer);
    *offset = first_difference(buffer->data, expected, buffer->bytes);
    return mla_ok();
}
