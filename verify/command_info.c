/* mla-verify info: the build, the machine, and each kernel with its contract, or why it cannot run here. */
#include <cblas.h>
#include <getopt.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "../gpu/mla_gpu.h"
#include "command.h"

static const char help[] = "Says what this build and this machine can run.\n"
                           "\n"
                           "usage: mla-verify info [--kernel KERNEL]...\n"
                           "\n"
                           "  --kernel KERNEL  only this one, as in mla-verify run; repeatable\n"
                           "  -h, --help       this text\n"
                           "\n"
                           "exit: 0 every kernel named runs here   2 bad usage, or no such kernel   3 a kernel named cannot run here\n";

static const char *const known[] = {"reference",     "oracle",     "splitk@host:cdna3", "splitk@host:cdna4", "splitk@host:mma",
                                    "splitk@nvidia", "splitk@amd", "bmm@host",          "bmm@nvidia",        "bmm@amd"};
#define KNOWN (int)(sizeof known / sizeof *known)

static void print_build(void) {
    const char *core = getenv("OPENBLAS_CORETYPE");
    printf("compiler      %s\n", __VERSION__);
    printf("OpenMP        %d threads\n", omp_get_max_threads());
    printf("OpenBLAS      %s, runs as %s, OPENBLAS_CORETYPE %s\n", openblas_get_config(), openblas_get_corename(), core ? core : "not set");
}

static const char *rounding_name(mla_rounding rounding) {
    return rounding == MLA_RNE ? "rne" : "rz";
}

static const char *format_name(mla_format format) {
    return format == MLA_NONE ? "exact" : mla_format_get(format)->name;
}

static void print_contract(const mla_contract *c) {
    printf("%-20sproducts: %s, %d bits, %d a step | scores %s x%d | q*scale %s | dequantised kv %s\n", "", rounding_name(c->acc_rounding),
           c->acc_bits, c->mma_k, format_name(c->scores), c->n_scores, format_name(c->q_scaled), format_name(c->kv_dequant));
    printf("%-20sP: %s %s, times %g | row sum of %s P | %s maximum | subnormals %s\n", "", format_name(c->p), rounding_name(c->p_rounding),
           c->p_scale, c->rowsum_of_rounded_p ? "rounded" : "unrounded", c->lazy_max ? "lazy" : "exact", c->ftz ? "flushed" : "kept");
    printf("%-20spartials %s, merged by %s | exp2 %g, tanh %g, log2 %g units of 2^-24 | out %s | tile %d, at most %d splits\n", "",
           format_name(c->partial), c->combine_lse ? "lse" : "(m, l)", c->exp_error, c->tanh_error, c->log_error,
           rounding_name(c->out_rounding), c->tile, c->max_splits);
}

static mla_status print_kernel(const char *spec) {
    mla_kernel_handle handle;
    mla_status status = mla_kernel_open(spec, &handle);
    if (status.code == MLA_EINVAL)
        return status;
    if (status.code != MLA_OK) {
        printf("%-20soff: %s\n", spec, status.message);
        return status;
    }
    printf("%-20s%s\n", spec, handle.device ? handle.device->description : "host");
    print_contract(&handle.kernel->contract);
    mla_kernel_close(&handle);
    return status;
}

/* Every kernel this build knows; those that cannot run here are told, not counted. */
static mla_exit print_all(void) {
    print_build();
    puts("kernels");
    for (int i = 0; i < KNOWN; i++) {
        mla_status status = print_kernel(known[i]);
        if (status.code == MLA_EINVAL)
            return mla_usage_error("%s", status.message);
    }
    return MLA_EXIT_PASSED;
}

mla_exit mla_command_info(int argc, char **argv) {
    static const struct option options[] = {{"kernel", required_argument, NULL, 'k'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    mla_exit code = MLA_EXIT_PASSED;
    bool named = false;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
        if (option == '?' || option == ':')
            return mla_option_error(option, argv);
        if (option == 'h') {
            fputs(help, stdout);
            return mla_finish_stdout(MLA_EXIT_PASSED);
        }
        mla_status status = print_kernel(optarg);
        if (status.code == MLA_EINVAL)
            return mla_usage_error("%s", status.message);
        if (status.code != MLA_OK)
            code = MLA_EXIT_NOTHING;
        named = true;
    }
    if (optind < argc)
        return mla_usage_error("unexpected argument: %s", argv[optind]);
    return mla_finish_stdout(named ? code : print_all());
}
