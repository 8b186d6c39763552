/* mla-verify contract: what contracts say, and which one explains a kernel's errors. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "command.h"
#include "contract_infer.h"
#include "contract_line.h"
#include "contract_preset.h"

static const char help[] =
    "Prints contracts: what a kernel's arithmetic declares, and the bound is derived from.\n"
    "\n"
    "usage: mla-verify contract                            the presets, and every key with its default\n"
    "       mla-verify contract LINE                       a contract in full; LINE is a preset, key=value pairs, or both\n"
    "       mla-verify contract --kernel KERNEL [--infer]  what a kernel declares, and the likeliest contract that explains its errors\n"
    "\n"
    "  --kernel KERNEL  as in mla-verify run\n"
    "  --infer          runs the kernel, and tries choices of scores, p, p_rounding, p_scale, rowsum, partial and out_rounding;\n"
    "                   the other keys are as the kernel declares\n"
    "  -h, --help       this text\n"
    "\n"
    "exit: 0 done; with --infer, what the kernel declares explains its errors   1 it does not   2 bad usage   3 the kernel cannot run "
    "here\n";

typedef struct contract_options {
    const char *kernel, *line; /* NULL: none */
    bool infer, help;
} contract_options;

static mla_status print_line(const char *label, const mla_contract *contract) {
    char *line = mla_contract_print(contract);
    if (!line)
        return mla_error(MLA_ENOMEM, "no memory to print a contract");
    printf("%s%s\n", label, line);
    free(line);
    return mla_ok();
}

static mla_status print_presets(void) {
    const mla_contract contract = mla_contract_default();
    for (const mla_contract_preset *preset = mla_contract_presets; preset->name; preset++)
        printf("%-14s%s\n%-14s%s\n", preset->name, preset->line, "", preset->source);
    return print_line("\ndefaults      ", &contract);
}

/* ---- inference ------------------------------------------------------------------------------------------------------------------------- */

static void print_fits(const mla_infer_fit *fits) {
    for (int i = 0; i < MLA_INFER_PROBES; i++)
        if (fits[i].run)
            printf("              chi %.2f  |e|/B %.2g  %s\n", fits[i].chi, fits[i].over_bound, fits[i].case_line);
}

/* Keys whose values differ, as the second contract has them. */
static void print_differences(char *declared, char *found) {
    char *rest = NULL, *other_rest = NULL;
    const char *separator = "differs in    ";
    char *theirs = strtok_r(declared, " ", &other_rest);
    for (char *mine = strtok_r(found, " ", &rest); mine && theirs; mine = strtok_r(NULL, " ", &rest)) {
        if (strcmp(mine, theirs) != 0) {
            printf("%s%s (declared: %s)", separator, mine, strchr(theirs, '=') + 1);
            separator = ", ";
        }
        theirs = strtok_r(NULL, " ", &other_rest);
    }
    if (*separator == ',')
        putchar('\n');
}

static bool explained(const mla_infer_fit *fits) {
    for (int i = 0; i < MLA_INFER_PROBES; i++)
        if (fits[i].run && !(fits[i].chi <= MLA_CHI_CASE && fits[i].over_bound <= 1))
            return false;
    return true;
}

static mla_status print_inference(const mla_contract *declared, const mla_inference *inference) {
    char *theirs = mla_contract_print(declared), *mine = mla_contract_print(&inference->contract);
    const bool printed = theirs && mine;
    printf("declared      %s\n", explained(inference->declared) ? "explains the errors" : "does not explain the errors");
    print_fits(inference->declared);
    printf("%s, of %d tried\n",
           inference->explains ? "likeliest     of the contracts that explain the errors" : "closest       none explains the errors",
           inference->candidates);
    print_fits(inference->fits);
    if (printed) {
        printf("              %s\n", mine);
        print_differences(theirs, mine);
    }
    free(theirs);
    free(mine);
    return printed ? mla_ok() : mla_error(MLA_ENOMEM, "no memory to print a contract");
}

static mla_status infer(const mla_kernel_handle *handle, mla_exit *code) {
    const mla_kernel *kernel = handle->kernel;
    mla_inference inference;
    TRY(mla_contract_infer(kernel, kernel->space == MLA_SPACE_HOST ? NULL : handle->device, &inference));
    *code = explained(inference.declared) ? MLA_EXIT_PASSED : MLA_EXIT_MISMATCH;
    return print_inference(&kernel->contract, &inference);
}

/* ---- the command ----------------------------------------------------------------------------------------------------------------------- */

static mla_exit run_kernel(const contract_options *o) {
    mla_kernel_handle handle;
    mla_exit code = MLA_EXIT_PASSED;
    mla_status status = mla_kernel_open(o->kernel, &handle);
    if (status.code == MLA_EDEVICE || status.code == MLA_EUNSUPPORTED) {
        printf("%s: off: %s\n", o->kernel, status.message);
        return MLA_EXIT_NOTHING;
    }
    if (status.code != MLA_OK)
        return mla_usage_error("%s", status.message);
    status = print_line("contract      ", &handle.kernel->contract);
    if (status.code == MLA_OK && o->infer)
        status = infer(&handle, &code);
    mla_kernel_close(&handle);
    return status.code == MLA_OK ? code : mla_usage_error("%s: %s", o->kernel, status.message);
}

static mla_exit run(const contract_options *o) {
    mla_contract contract;
    if (o->kernel)
        return run_kernel(o);
    mla_status status = o->line ? mla_contract_parse(o->line, &contract) : print_presets();
    if (status.code == MLA_OK && o->line)
        status = print_line("", &contract);
    return status.code == MLA_OK ? MLA_EXIT_PASSED : mla_usage_error("%s", status.message);
}

static mla_exit parse(contract_options *o, int argc, char **argv) {
    static const struct option options[] = {
        {"kernel", required_argument, NULL, 'k'}, {"infer", no_argument, NULL, 'i'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    opterr = 0;
    for (int letter; (letter = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
        if (letter == '?' || letter == ':')
            return mla_option_error(letter, argv);
        o->kernel = letter == 'k' ? optarg : o->kernel;
        o->infer |= letter == 'i';
        o->help |= letter == 'h';
    }
    o->line = optind < argc ? argv[optind] : NULL;
    if (o->help)
        return MLA_EXIT_PASSED;
    if (argc - optind > 1)
        return mla_usage_error("unexpected argument: %s (a contract is one argument: quote it)", argv[optind + 1]);
    if (o->kernel && o->line)
        return mla_usage_error("a contract or --kernel, not both");
    return o->infer && !o->kernel ? mla_usage_error("--infer needs --kernel") : MLA_EXIT_PASSED;
}

mla_exit mla_command_contract(int argc, char **argv) {
    contract_options options = {.kernel = NULL};
    mla_exit code = parse(&options, argc, argv);
    if (code != MLA_EXIT_PASSED)
        return code;
    if (options.help)
        fputs(help, stdout);
    else
        code = run(&options);
    return code == MLA_EXIT_USAGE ? code : mla_finish_stdout(code);
}
