#include "mutant_base.h"

#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"

static mla_status run_cases(const mla_kernel_handle *base, const mla_exam *exams, int cases, mla_trial *trials) {
    const mla_kernel *kernel = base->kernel;
    for (int c = 0; c < cases; c++)
        if (exams[c].able && mla_exam_able(&exams[c], kernel))
            TRY(mla_trial_run(kernel, kernel->space == MLA_SPACE_HOST ? NULL : base->device, &exams[c].inputs, &trials[c]));
    return mla_ok();
}

static mla_status add_base(mla_mutant_bases *bases, const char *spec, size_t length, const mla_exam *exams, int cases) {
    mla_kernel_handle handle;
    if (bases->count == MLA_MAX_BASES)
        return mla_error(MLA_EUNSUPPORTED, "mutants of more than %d kernels", MLA_MAX_BASES);
    const int i = bases->count++;
    bases->list[i].spec = strndup(spec, length);
    bases->list[i].trials = calloc((size_t)cases, sizeof(mla_trial));
    if (!bases->list[i].spec || !bases->list[i].trials)
        return mla_error(MLA_ENOMEM, "no memory for a kernel's outputs on %d cases", cases);
    TRY(mla_kernel_open(bases->list[i].spec, &handle));
    const mla_status status = run_cases(&handle, exams, cases, bases->list[i].trials);
    mla_kernel_close(&handle);
    return status;
}

mla_status mla_mutant_base(mla_mutant_bases *bases, const mla_kernel *mutant, const mla_exam *exams, int cases, const mla_trial **plain) {
    const char *plus = strchr(mutant->name, '+');
    *plain = NULL;
    if (!plus)
        return mla_ok();
    const size_t length = (size_t)(plus - mutant->name);
    int i = 0;
    while (i < bases->count && !(strlen(bases->list[i].spec) == length && memcmp(bases->list[i].spec, mutant->name, length) == 0))
        i++;
    if (i == bases->count)
        TRY(add_base(bases, mutant->name, length, exams, cases));
    *plain = bases->list[i].trials;
    return mla_ok();
}

void mla_mutant_bases_free(mla_mutant_bases *bases, int cases) {
    for (int i = 0; i < bases->count; i++) {
        for (int c = 0; c < cases && bases->list[i].trials; c++)
            mla_trial_free(&bases->list[i].trials[c]);
        free(bases->list[i].trials);
        free(bases->list[i].spec);
    }
    *bases = (mla_mutant_bases){.count = 0};
}
