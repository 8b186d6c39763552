/* A case made ready to grade many runs of it: its inputs, its truth, what the kernel itself writes, and what rival gates compare with. */
#ifndef MLA_EXAM_H
#define MLA_EXAM_H

#include "diagnose.h"
#include "rivals.h"
#include "run.h"
#include "trial.h"

/* What failed a run. */
typedef enum mla_killer {
    MLA_BY_BOUND = 1,   /* an element outside its bound */
    MLA_BY_CHI = 2,     /* errors of the wrong size */
    MLA_BY_LSE = 4,     /* an lse outside its bound */
    MLA_BY_ANOMALY = 8, /* NaN or infinity */
    MLA_BY_UNWRITTEN = 16,
    MLA_BY_MEMORY = 32, /* a guard touched, an input changed */
    MLA_BY_ERROR = 64,  /* the launch failed */
    MLA_BY_BITS = 128   /* not the exact result, where inputs have one whatever the order of summation */
} mla_killer;
enum { MLA_KILLERS = 8 };

const char *mla_killer_name(int bit); /* "bound" ... */

typedef enum mla_grade_status {
    MLA_GRADE_NONE,   /* not run: it does not apply, or the kernel cannot do it */
    MLA_GRADE_SAME,   /* the very bits of the kernel without the bug: nothing to notice */
    MLA_GRADE_PASSED, /* other bits, and no complaint */
    MLA_GRADE_KILLED
} mla_grade_status;

typedef struct mla_grade {
    mla_grade_status status;
    unsigned killers; /* of mla_killer */
    bool out_changed; /* not the lse alone: what rivals look at */
    unsigned rivals;  /* bit i: mla_rivals[i] fails it; bit mla_num_rivals: the user's tolerance does */
    mla_cause cause;  /* of a killed one: as diagnosed */
    char reason[320]; /* the verdict's */
} mla_grade;

typedef struct mla_tolerance {
    bool given;
    double rtol, atol;
} mla_tolerance;

enum { MLA_EXAM_TRUTHS = 4 };

typedef struct mla_exam {
    const mla_case *test;
    mla_inputs inputs;
    struct {
        char *contract; /* its line; NULL: free */
        mla_truth truth;
    } truths[MLA_EXAM_TRUTHS];
    mla_trial plain;                           /* what the kernel itself wrote; nothing when it is unable */
    bool able;                                 /* the kernel can do this case */
    int64_t elements;                          /* of out */
    double *exact, *expected, *baseline, *got; /* [elements], for the rivals */
} mla_exam;

/*
 * Runs the kernel itself, and grades it: PASSED, KILLED, or NONE when it cannot do the case. Free with mla_exam_free, also after failure. `test` must
 * outlive it.
 */
mla_status mla_exam_make(const mla_subject *subject, const mla_case *test, mla_tolerance tolerance, mla_exam *exam,
                         mla_grade *grade) MLA_CHECKED;
void mla_exam_free(mla_exam *exam);
bool mla_exam_able(const mla_exam *exam, const mla_kernel *kernel);
/* The truth with the bounds of this contract: made once. */
mla_status mla_exam_truth(mla_exam *exam, const mla_contract *contract, const mla_truth **truth) MLA_CHECKED;
/* Grades what a kernel of this contract wrote. `plain` is what it writes without a bug. */
mla_status mla_exam_grade(mla_exam *exam, const mla_contract *contract, const mla_trial *trial, const mla_output *plain,
                          mla_tolerance tolerance, mla_grade *grade) MLA_CHECKED;
/* Joins the grades of two runs of one kernel: the worse counts. */
void mla_grade_join(mla_grade *grade, const mla_grade *other);

#endif
