#include "markup.h"

#include <stdint.h>

/* The code point at `text` and its bytes; 0xFFFD, one byte, where there is no well-formed UTF-8. */
static uint32_t decode(const unsigned char *text, int *bytes) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const int length = *text < 0x80 ? 1 : *text >> 5 == 6 ? 2 : *text >> 4 == 14 ? 3 : *text >> 3 == 30 ? 4 : 0;
    uint32_t code = length > 1 ? *text & (0xFFu >> (length + 1)) : *text;
    for (int i = 1; i < length; i++) {
        if (text[i] >> 6 != 2) {
            *bytes = 1;
            return 0xFFFD;
        }
        code = code << 6 | (text[i] & 63);
    }
    *bytes = length > 0 ? length : 1;
    if (length > 0 && code >= least[length])
        return code;
    *bytes = 1;
    return 0xFFFD;
}

static bool is_allowed(uint32_t code) {
    return code == '\t' || code == '\n' || (code >= 0x20 && code < 0xD800) || (code >= 0xE000 && code < 0xFFFE) ||
           (code >= 0x10000 && code < 0x110000);
}

static const char *escape_of(uint32_t code, bool attribute) {
    switch (code) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\n':
        return attribute ? "&#10;" : NULL;
    case '\t':
        return attribute ? "&#9;" : NULL;
    default:
        return is_allowed(code) && code != 0xFFFD ? NULL : "\xEF\xBF\xBD";
    }
}

void mla_markup_text(FILE *stream, const char *text, bool attribute) {
    int bytes;
    for (const unsigned char *c = (const unsigned char *)(text ? text : ""); *c; c += bytes) {
        const char *escape = escape_of(decode(c, &bytes), attribute);
        if (escape)
            fputs(escape, stream);
        else
            fwrite(c, 1, (size_t)bytes, stream);
    }
}
