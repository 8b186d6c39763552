/*
 * KV formats on the device: how a token's bytes become operands of the matrix unit. One policy class a format.
 *
 *   CHUNKS     16-byte chunks of a token in memory
 *   DIRECT     the bytes are operands already
 */
#ifndef MLA_SPLITK_KV_H
#define MLA_SPLITK_KV_H

#include "device.h"
#include "mla_gpu.h"

MLA_DEVICE_BEGIN

/* Eight operands of one row. In LDS, chunk c of row r lies at c ^ (r & 7): then neither product meets bank conflicts. */
struct alignas(16) mla_chunk {
    uint32_t w[4];
};

constexpr int mla_key_chunks = MLA_HEAD_DIM / 8;

MLA_DEVICE int mla_swizzle(int row, int chunk) {
    return chunk ^ (row & 7);
}

/* A chunk from memory, zeros where there is none. */
MLA_DEVICE mla_chunk mla_load_chunk(const mla_chunk *from, bool there) {
    mla_chunk chunk = {};
    if (there)
        chunk = *from;
    return chunk;
}

struct mla_kv_bf16 {
    static constexpr int CHUNKS = mla_key_chunks;
    static constexpr bool DIRECT = true;
};

MLA_DEVICE_END

#endif
