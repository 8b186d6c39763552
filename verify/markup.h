/* Text in XML 1.0 and in HTML. */
#ifndef MLA_MARKUP_H
#define MLA_MARKUP_H

#include <stdbool.h>
#include <stdio.h>

/* Escaped, of an element or of an attribute in double quotes; what is no UTF-8 or not allowed in XML becomes U+FFFD. NULL is empty. */
void mla_markup_text(FILE *stream, const char *text, bool attribute);

#endif
