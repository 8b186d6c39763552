#include "random.h"

#include <Random123/philox.h>
#include <math.h>

static philox4x32_ctr_t block_at(uint64_t seed, uint64_t counter, uint64_t high) {
    philox4x32_ctr_t ctr = {{(uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)high, (uint32_t)(high >> 32)}};
    philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    return philox4x32(ctr, key);
}

uint32_t mla_random_word(uint64_t seed, mla_stream stream, uint64_t index) {
    return block_at(seed, index / 4, (uint64_t)stream).v[index % 4];
}

void mla_random_words(uint64_t seed, mla_stream stream, uint64_t first, size_t count, uint32_t *words) {
    for (size_t i = 0; i < count; i += 4) {
        philox4x32_ctr_t block = block_at(seed, (first + i) / 4, (uint64_t)stream);
        for (int lane = 0; lane < 4; lane++)
            words[i + (size_t)lane] = block.v[lane];
    }
}

uint32_t mla_random_below(uint64_t seed, mla_stream stream, uint64_t index, uint32_t n) {
    return (uint32_t)(((uint64_t)mla_random_word(seed, stream, index) * n) >> 32);
}

/* The finaliser of MurmurHash3. */
static uint32_t mix(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
    x = (x ^ (x >> 13)) * 0xC2B2AE35u;
    return x ^ (x >> 16);
}

/* A four-round Feistel network permutes 2^(2 half) >= n values; walking along its cycle until below n permutes 0 .. n-1 (Black and Rogaway 2002). */
uint64_t mla_random_permute(uint64_t seed, mla_stream stream, uint64_t key, uint64_t n, uint64_t i) {
    int half = 1;
    while ((UINT64_C(1) << (2 * half)) < n)
        half++;
    const uint32_t mask = (uint32_t)((UINT64_C(1) << half) - 1);
    const philox4x32_ctr_t keys = block_at(seed, key, (uint64_t)stream | (UINT64_C(1) << 32));
    do {
        uint32_t left = (uint32_t)(i >> half), right = (uint32_t)i & mask;
        for (int round = 0; round < 4; round++) {
            uint32_t next = left ^ (mix(right ^ keys.v[round]) & mask);
            left = right;
            right = next;
        }
        i = (uint64_t)left << half | right;
    } while (i >= n);
    return i;
}

void mla_deviate_table(float table[MLA_DEVIATES]) {
    const double twice_deviation = sqrt(4 * 398677.25);
    for (int n = 0; n < MLA_DEVIATES; n++)
        table[n] = (float)((2 * n - (MLA_DEVIATES - 1)) / twice_deviation);
}
