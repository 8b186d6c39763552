/*
 * How KV tiles reach LDS on NVIDIA: rings filled by cp.async, each thread copying its part of one token a tile.
 *
 * A tile's tokens are rows of 72 swizzled chunks of operands. Where a token's bytes are operands, the tiles are the ring. Otherwise the ring holds
 * raw bytes, and each thread converts what it copied itself, which needs no barrier in between.
 */
#ifndef MLA_ENGINE_MMA_RING_H
#define MLA_ENGINE_MMA_RING_H

#include "engine_limits.h"
#include "splitk_kv.h"

MLA_DEVICE_BEGIN

template <typename Kv> struct mla_ring_part {
    static constexpr int TOKENS = MLA_MMA_TOKENS;
    static constexpr int STAGERS = MLA_MMA_THREADS / TOKENS; /* threads that stage one token, neighbours in a warp */
    static constexpr int ROUNDS = (Kv::CHUNKS + STAGERS - 1) / STAGERS;

    const int token = mla_thread() / STAGERS, stager = mla_thread() % STAGERS;

    /* Copies this thread's chunks of its token, stager + i * STAGERS to to(i); slot -1 is an absent token: zeros. */
    template <typename To> MLA_DEVICE void copy(const mla_problem &problem, int64_t slot, To to) const {
        const mla_chunk *source = static_cast<const mla_chunk *>(problem.kv) + (slot >= 0 ? slot : 0) * Kv::CHUNKS + stager;
        MLA_UNROLL
        for (int i = 0; i < ROUNDS; i++)
            if (Kv::CHUNKS % STAGERS == 0 || stager + i * STAGERS < Kv::CHUNKS)
                mla_copy16(to(i), source + i * STAGERS, slot >= 0);
    }
};

template <typename Kv, bool DIRECT = Kv::DIRECT> struct mla_ring;

template <typename Kv> struct mla_ring<Kv, true> : mla_ring_part<Kv> {
    using part = mla_ring_part<Kv>;
    static constexpr int TILES = 3, AHEAD = TILES - 1; /* tiles between a fetch and its use */

    struct shared {
        mla_chunk kv[TILES][part::TOKENS][mla_key_chunks];
        int32_t present[TILES][part::TOKENS];
    };

    MLA_DEVICE void foresee(const mla_problem &, int64_t) {}
    MLA_DEVICE void fetch(shared &lds, const mla_problem &problem, int64_t slot, int tile) {
        mla_chunk *row = lds.kv[tile % TILES][part::token];
        part::copy(problem, slot, [this, row](int i) {
            return &row[mla_place{part::stager + i * part::STAGERS % 8, i * part::STAGERS / 8 * 8}.in(part::token)];
        });
        if (part::stager == 0)
            lds.present[tile % TILES][part::token] = slot >= 0;
    }
    MLA_DEVICE void land(shared &, int) { mla_copy_wait<AHEAD - 1>(); }
    static MLA_DEVICE bool present(const shared &lds, int tile, int token) { return lds.present[tile % TILES][token] != 0; }
};

template <typename Kv> struct mla_ring<Kv, false> : mla_ring_part<Kv> {
    using part = mla_ring_part<Kv>;
    static constexpr int TILES = 2, RAW_TILES = Kv::CHUNKS <= 18 ? 3 : Kv::CHUNKS <= 36 ? 2 : 1, AHEAD = RAW_TILES;

    struct shared {
        mla_chunk kv[TILES][part::TOKENS][mla_key_chunks];
        mla_chunk raw[RAW_TILES][part::ROUNDS][MLA_MMA_THREADS]; /* each thread's own, side by side: no bank conflicts */
        uint8_t scales[RAW_TILES][Kv::SCALES ? part::ROUNDS : 1][MLA_MMA_THREADS];
        int32_t present[AHEAD + 1][part::TOKENS];
    };

    uint8_t coming[part::ROUNDS]; /* scales of the tile to fetch next: bytes at any address, which cp.async cannot copy */

    MLA_DEVICE void foresee(const mla_problem &problem, int64_t slot) {
        if (!Kv::SCALES)
            return;
        const uint8_t *source = problem.kv_block_scales + slot * problem.kv_scale_stride;
        MLA_UNROLL
        for (int i = 0; i < part::ROUNDS; i++) {
            const int c = part::stager + i * part::STAGERS;
            coming[i] = slot >= 0 && c < Kv::CHUNKS ? source[c] : 0;
        }
    }
    MLA_DEVICE void fetch(shared &lds, const mla_problem &problem, int64_t slot, int tile) {
        part::copy(problem, slot, [&lds, tile](int i) { return &lds.raw[tile % RAW_TILES][i][mla_thread()]; });
        if (Kv::SCALES) {
            MLA_UNROLL
            for (int i = 0; i < part::ROUNDS; i++)
                lds.scales[tile % RAW_TILES][i][mla_thread()] = coming[i];
        }
        if (part::stager == 0)
            lds.present[tile % (AHEAD + 1)][part::token] = slot >= 0;
    }
    MLA_DEVICE void land(shared &lds, int tile) {
        mla_copy_wait<AHEAD - 1>();
        mla_chunk raw[part::ROUNDS];
        uint8_t scales[part::ROUNDS] = {};
        MLA_UNROLL
        for (int i = 0; i < part::ROUNDS; i++) {
            raw[i] = lds.raw[tile % RAW_TILES][i][mla_thread()];
            if (Kv::SCALES)
                scales[i] = lds.scales[tile % RAW_TILES][i][mla_thread()];
        }
        mla_chunk *row = lds.kv[tile % TILES][part::token];
        Kv::template convert<part::STAGERS>(raw, scales, part::stager,
                                            [this, row](mla_place place, const mla_chunk &chunk) { row[place.in(part::token)] = chunk; });
    }
    static MLA_DEVICE bool present(const shared &lds, int tile, int token) { return lds.present[tile % (AHEAD + 1)][token] != 0; }
};

MLA_DEVICE_END

#endif
