#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "../verify/random.h"

/* Random123's known answer for philox4x32-10: counter and key all zero. */
Test(random, words_are_philox) {
    const uint32_t known[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    for (uint64_t i = 0; i < 4; i++)
        cr_assert_eq(mla_random_word(0, (mla_stream)0, i), known[i]);
}

Test(random, a_word_depends_on_its_index_alone) {
    uint32_t words[32];
    const uint64_t first = (UINT64_C(1) << 34) + 8;
    mla_random_words(77, MLA_STREAM_KV, first, 32, words);
    for (uint64_t i = 0; i < 32; i++)
        cr_assert_eq(words[i], mla_random_word(77, MLA_STREAM_KV, first + i));
    cr_assert_neq(words[0], mla_random_word(77, MLA_STREAM_KV, 8), "the high half of the index counts");
    cr_assert_neq(words[0], mla_random_word(77, MLA_STREAM_Q, first));
    cr_assert_neq(words[0], mla_random_word(77 | UINT64_C(1) << 40, MLA_STREAM_KV, first), "the high half of the seed counts");
}

/* 0xFF0000FF: eight bits of the upper 24, then 255: 8 * 256 + 255. */
Test(random, the_index_of_a_deviate_counts_bits) {
    cr_assert_eq(mla_deviate_index(0), 0);
    cr_assert_eq(mla_deviate_index(0xFFFFFFFF), MLA_DEVIATES - 1);
    cr_assert_eq(mla_deviate_index(0xFF0000FF), 8 * 256 + 255);
    cr_assert_eq(mla_deviate_index(0x00010100), 2 * 256);
    for (uint32_t i = 0; i < 100000; i++) {
        const uint32_t word = i * 2654435761u;
        cr_assert_eq(mla_deviate_index(word), 256u * (uint32_t)__builtin_popcount(word >> 8) + (word & 0xFF));
    }
}

/* Moments of the exact distribution: binomial weights over the table. */
Test(random, deviates_have_mean_0_and_variance_1) {
    float table[MLA_DEVIATES];
    mla_deviate_table(table);
    double weight = 1 / (256 * 16777216.0), mean = 0, variance = 0;
    for (int bits = 0; bits <= 24; bits++) {
        for (int low = 0; low < 256; low++) {
            const double z = (double)table[256 * bits + low];
            mean += weight * z;
            variance += weight * z * z;
        }
        weight = weight * (24 - bits) / (bits + 1);
    }
    cr_assert_lt(fabs(mean), 1e-9);
    cr_assert_lt(fabs(variance - 1), 1e-7);
    cr_assert_leq(table[MLA_DEVIATES - 1], MLA_DEVIATE_MAX);
    cr_assert_gt(table[MLA_DEVIATES - 1], MLA_DEVIATE_MAX - 1e-4f);
    cr_assert_eq(table[0], -table[MLA_DEVIATES - 1]);
}

Test(random, permutations_hit_everything_once) {
    const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 100, 1000, 4097};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const uint64_t n = sizes[s];
        uint8_t *seen = calloc(n, 1);
        uint64_t fixed = 0;
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t j = mla_random_permute(9, MLA_STREAM_SLOTS, 3, n, i);
            cr_assert_lt(j, n);
            cr_assert(!seen[j], "%lu of %lu is hit twice", (unsigned long)j, (unsigned long)n);
            seen[j] = 1;
            fixed += i == j;
        }
        cr_assert(n < 100 || fixed < 10, "%lu points stay where they are", (unsigned long)fixed);
        free(seen);
    }
    cr_assert_neq(mla_random_permute(9, MLA_STREAM_SLOTS, 3, 1000000, 5), mla_random_permute(9, MLA_STREAM_SLOTS, 4, 1000000, 5));
}

Test(random, below_covers_its_range) {
    int seen[7] = {0};
    for (uint64_t i = 0; i < 7000; i++)
        seen[mla_random_below(1, MLA_STREAM_TOPK, i, 7)]++;
    for (int i = 0; i < 7; i++)
        cr_assert(seen[i] > 850 && seen[i] < 1150, "%d of 1000", seen[i]);
}
