#include "command.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

mla_exit mla_usage_error(const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    for (char *c = line; *c; c++)
        if (iscntrl((unsigned char)*c))
            *c = ' ';
    fprintf(stderr, "mla-verify: %s\n", line);
    return MLA_EXIT_USAGE;
}

mla_exit mla_option_error(int answer, char **argv) {
    const char *option = argv[optind - 1];
    if (answer == ':')
        return mla_usage_error("option %s needs a value", option);
    return mla_usage_error("no such option, or one that takes no value: %s (see mla-verify %s --help)", option, argv[0]);
}

mla_exit mla_finish_stdout(mla_exit code) {
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    return mla_usage_error("cannot write standard output: %s", strerror(errno));
}
