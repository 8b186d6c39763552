#include <stdio.h>
#include <string.h>

#include "command.h"

static const mla_command commands[] = {
    {"run", "grade kernels on cases against the fp64 oracle", mla_command_run},
    {"gen", "write golden files: inputs, truth and bound of a case", mla_command_gen},
    {"check", "grade outputs made elsewhere against a golden file", mla_command_check},
    {"bench", "grade kernels, and time those that pass", mla_command_bench},
    {"worker", NULL, mla_command_worker},
    {"mutants", "plant bugs, and count those the gate notices", mla_command_mutants},
    {"invariance", "see whether bits depend on what they should not", mla_command_invariance},
    {"merge", "join the reports of a run that was shared", mla_command_merge},
    {"drift", "where a kernel's error comes from: which rounding, which order", mla_command_drift},
    {"contract", "what contracts say, and which explains a kernel's errors", mla_command_contract},
    {"info", "what this build and this machine can run", mla_command_info},
};
#define COMMANDS (sizeof commands / sizeof *commands)

static mla_exit help(void) {
    puts("Grades MLA decode-attention kernels.\n\nusage: mla-verify COMMAND [OPTION...]\n");
    for (size_t i = 0; i < COMMANDS; i++)
        if (commands[i].summary)
            printf("  %-12s%s\n", commands[i].name, commands[i].summary);
    puts("\nmla-verify COMMAND --help says more."
         "\nexit: 0 all passed   1 a mismatch   2 bad usage or input   3 nothing could run");
    return mla_finish_stdout(MLA_EXIT_PASSED);
}

int main(int argc, char **argv) {
    if (argc < 2)
        return mla_usage_error("no command: try mla-verify --help");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help();
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    return mla_usage_error("no such command: %s (try mla-verify --help)", argv[1]);
}
