/* What plug-ins write without their bugs. */
#ifndef MLA_MUTANT_BASE_H
#define MLA_MUTANT_BASE_H

#include "exam.h"

enum { MLA_MAX_BASES = 4 };

typedef struct mla_mutant_bases {
    struct {
        char *spec;
        mla_trial *trials; /* [cases] */
    } list[MLA_MAX_BASES];
    int count;
} mla_mutant_bases;

/*
 * A plug-in whose kernel is named BASE+BUG is a mutant of the kernel BASE, which is opened and run on all exams, once. `plain` is what it wrote there
 * [cases], out NULL where it cannot do the case; or NULL when the name says no base.
 */
mla_status mla_mutant_base(mla_mutant_bases *bases, const mla_kernel *mutant, const mla_exam *exams, int cases,
                           const mla_trial **plain) MLA_CHECKED;
void mla_mutant_bases_free(mla_mutant_bases *bases, int cases);

#endif
