#include "selection.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "output_file.h"

#define MAX_RANDOM 1000000

const char mla_selection_help[] = "  --kernel KERNEL  reference, oracle, splitk@host[:cdna3|:cdna4|:cdna3tall|:cdna4tall|:mma], "
                                  "splitk@nvidia[:mma|:hopper|:hopper16], splitk@amd, bmm@host,\n"
                                  "                   bmm@nvidia[:own], bmm@amd[:own], or the path of a plug-in (with a '/'); repeatable\n"
                                  "  --case LINE      one case, e.g. 'heads=16 batch=4 kv_len=1024'; '' is all defaults; repeatable\n"
                                  "  --cases FILE     a file of cases, one a line, # comments; repeatable\n"
                                  "  --random N       N cases drawn over the whole grammar\n"
                                  "  --seed S         seed of --random, 0 .. 2^64 - 1 (default 0)\n"
                                  "  --json FILE      results as JSON; '-' is standard output, and the text then goes to standard error\n"
                                  "  -q, --quiet      print only failures, errors and the summary\n"
                                  "  -h, --help       this text\n";

/* ---- options ---------------------------------------------------------------------------------------------------------------------- */

mla_status mla_option_unsigned(const char *option, const char *text, uint64_t low, uint64_t high, uint64_t *value) {
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || *value < low || *value > high)
        return mla_error(MLA_EINVAL, "%s %s: expected a whole number in %" PRIu64 " .. %" PRIu64, option, text, low, high);
    return mla_ok();
}

static mla_status add_subject(mla_selection *s, const char *spec) {
    mla_subject *grown = realloc(s->subjects, (size_t)(s->num_subjects + 1) * sizeof *grown);
    if (!grown)
        return mla_error(MLA_ENOMEM, "no memory for kernel %s", spec);
    s->subjects = grown;
    s->subjects[s->num_subjects++] = (mla_subject){.spec = spec, .opened = mla_error(MLA_EDEVICE, "not opened")};
    return mla_ok();
}

static mla_status set_random(mla_selection *s, const char *text) {
    uint64_t count = 0;
    if (s->random)
        return mla_error(MLA_EINVAL, "--random given twice");
    TRY(mla_option_unsigned("--random", text, 1, MAX_RANDOM, &count));
    s->random = (int64_t)count;
    return mla_ok();
}

static mla_status set_seed(mla_selection *s, const char *text) {
    if (s->seed_given)
        return mla_error(MLA_EINVAL, "--seed given twice");
    s->seed_given = true;
    return mla_option_unsigned("--seed", text, 0, UINT64_MAX, &s->seed);
}

static mla_status set_json(mla_selection *s, const char *path) {
    if (s->json)
        return mla_error(MLA_EINVAL, "--json given twice");
    s->json = path;
    return mla_output_file_check(path);
}

mla_status mla_selection_set(mla_selection *s, int letter, const char *value) {
    switch (letter) {
    case 'k':
        return add_subject(s, value);
    case 'c':
        return mla_case_list_add(&s->cases, value);
    case 'f':
        return mla_case_list_read(&s->cases, value);
    case 'r':
        return set_random(s, value);
    case 's':
        return set_seed(s, value);
    case 'j':
        return set_json(s, value);
    case 'q':
        s->quiet = true;
        return mla_ok();
    default:
        s->help = true;
        return mla_ok();
    }
}

static bool is_own(const mla_own_options *own, int letter) {
    for (int i = 0; i < own->count; i++)
        if (own->list[i].val == letter)
            return true;
    return false;
}

mla_status mla_selection_draw(mla_selection *s) {
    if (s->seed_given && !s->random)
        return mla_error(MLA_EINVAL, "--seed needs --random");
    if (s->random)
        TRY(mla_case_list_random(&s->cases, (int)s->random, s->seed));
    if (s->cases.count == 0 && s->default_case)
        TRY(mla_case_list_add(&s->cases, s->default_case));
    if (s->cases.count == 0)
        return mla_error(MLA_EINVAL, "no case to run: give --case, --cases or --random");
    return mla_ok();
}

static mla_status check(mla_selection *s, int argc, char **argv) {
    if (optind < argc)
        return mla_error(MLA_EINVAL, "unexpected argument: %s", argv[optind]);
    if (s->num_subjects == 0 && !s->kernels_optional)
        return mla_error(MLA_EINVAL, "no kernel: give --kernel");
    return mla_selection_draw(s);
}

mla_exit mla_selection_parse(mla_selection *s, int argc, char **argv, const mla_own_options *own) {
    struct option options[] = {
        {"kernel", required_argument, NULL, 'k'}, {"case", required_argument, NULL, 'c'}, {"cases", required_argument, NULL, 'f'},
        {"random", required_argument, NULL, 'r'}, {"seed", required_argument, NULL, 's'}, {"json", required_argument, NULL, 'j'},
        {"quiet", no_argument, NULL, 'q'},        {"help", no_argument, NULL, 'h'},       [8 + MLA_OWN_OPTIONS] = {NULL, 0, NULL, 0}};
    if (own)
        memcpy(options + 8, own->list, (size_t)own->count * sizeof *options);
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":qh", options, NULL)) != -1;) {
        if (option == '?' || option == ':')
            return mla_option_error(option, argv);
        const mla_status status =
            own && is_own(own, option) ? own->set(own->context, option, optarg) : mla_selection_set(s, option, optarg);
        if (status.code != MLA_OK)
            return mla_usage_error("%s", status.message);
        if (s->help)
            return MLA_EXIT_PASSED;
    }
    const mla_status status = check(s, argc, argv);
    return status.code == MLA_OK ? MLA_EXIT_PASSED : mla_usage_error("%s", status.message);
}

/* ---- kernels ---------------------------------------------------------------------------------------------------------------------- */

mla_exit mla_selection_open(mla_selection *selection) {
    for (mla_subject *s = selection->subjects; s < selection->subjects + selection->num_subjects; s++) {
        s->opened = selection->workers ? mla_worker_open(s->spec, selection->workers, &s->worker) : mla_kernel_open(s->spec, &s->handle);
        if (s->opened.code != MLA_OK && s->opened.code != MLA_EDEVICE && s->opened.code != MLA_EUNSUPPORTED)
            return mla_usage_error("%s", s->opened.message);
    }
    return MLA_EXIT_PASSED;
}

void mla_selection_free(mla_selection *selection) {
    for (mla_subject *s = selection->subjects; s < selection->subjects + selection->num_subjects; s++)
        if (s->worker)
            mla_worker_close(s->worker);
        else if (s->opened.code == MLA_OK)
            mla_kernel_close(&s->handle);
    free(selection->subjects);
    mla_case_list_free(&selection->cases);
    *selection = (mla_selection){0};
}

FILE *mla_selection_text(const mla_selection *selection) {
    return selection->json && strcmp(selection->json, "-") == 0 ? stderr : stdout;
}
