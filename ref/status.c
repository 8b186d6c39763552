#include "mla.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

mla_status mla_ok(void) {
    return (mla_status){.code = MLA_OK};
}

/* One line, whatever text from outside is in it. */
mla_status mla_error(mla_code code, const char *format, ...) {
    mla_status status = {.code = code};
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(status.message, sizeof status.message, format, arguments);
    va_end(arguments);
    for (char *c = status.message; *c; c++)
        if (iscntrl((unsigned char)*c))
            *c = ' ';
    return status;
}
