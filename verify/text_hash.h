/* FNV-1a, 64 bits: tells texts apart where nobody means harm. */
#ifndef MLA_TEXT_HASH_H
#define MLA_TEXT_HASH_H

#include <stdint.h>

#define MLA_TEXT_HASH UINT64_C(0xCBF29CE484222325) /* of the empty text */

static inline uint64_t mla_text_hash(uint64_t hash, const char *text) {
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001B3);
    return hash;
}

#endif
