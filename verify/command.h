/* The commands of mla-verify. Adding one is a function here and a line in main.c's table. */
#ifndef MLA_COMMAND_H
#define MLA_COMMAND_H

#include "../ref/mla.h"

typedef enum mla_exit {
    MLA_EXIT_PASSED = 0,
    MLA_EXIT_MISMATCH = 1, /* a case failed, or could not be finished */
    MLA_EXIT_USAGE = 2,    /* bad usage, input or output file */
    MLA_EXIT_NOTHING = 3   /* nothing could run */
} mla_exit;

/* argv[0] is the command's own name. */
typedef struct mla_command {
    const char *name, *summary; /* summary NULL: not shown in the help */
    mla_exit (*run)(int argc, char **argv);
} mla_command;

mla_exit mla_command_worker(int argc, char **argv); /* hidden: a process that run starts */
mla_exit mla_command_run(int argc, char **argv);
mla_exit mla_command_gen(int argc, char **argv);
mla_exit mla_command_check(int argc, char **argv);
mla_exit mla_command_bench(int argc, char **argv);
mla_exit mla_command_mutants(int argc, char **argv);
mla_exit mla_command_invariance(int argc, char **argv);
mla_exit mla_command_merge(int argc, char **argv);
mla_exit mla_command_drift(int argc, char **argv);
mla_exit mla_command_contract(int argc, char **argv);
mla_exit mla_command_info(int argc, char **argv);

/* One line on stderr, "mla-verify: ...", control characters blanked. Returns MLA_EXIT_USAGE. */
mla_exit mla_usage_error(const char *format, ...) MLA_PRINTF(1, 2);
/* What getopt_long (opterr = 0, options starting with ':') said of argv with '?' or ':'. */
mla_exit mla_option_error(int answer, char **argv);
/* Flushes stdout: results that could not be written are no results. */
mla_exit mla_finish_stdout(mla_exit code);

#endif
