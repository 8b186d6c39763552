/*
 * Golden files: a case's inputs, its truth and how far a kernel may stray from it, for users who have no verifier at hand. A safetensors file whose
 * bytes follow from the case line alone, wherever it is made. The README says what is in it.
 */
#ifndef MLA_GOLDEN_H
#define MLA_GOLDEN_H

#include "case.h"
#include "progress.h"
#include "safetensors.h"

/* File names for a case and for a kernel's outputs: the line, made readable, and a hash of it. Allocated; free(). NULL: out of memory. */
char *mla_golden_name(const char *case_line);
char *mla_golden_result_name(const char *case_line, const char *kernel);

/* Makes the inputs and the truth, and writes `path`, whole or not at all. *doubtful: rows that MPFR had to round. `progress` may be NULL. */
mla_status mla_golden_write(const char *path, const mla_case *c, mla_progress *progress, int64_t *doubtful) MLA_CHECKED;
/* Is `path` a golden file of this version, and of this case? */
bool mla_golden_exists(const char *path, const char *case_line);

/* A golden file that was read. `problem` points into the file. */
typedef struct mla_golden {
    mla_safetensors file;
    mla_case test;
    mla_contract contract; /* of its bound */
    mla_problem problem;
    const float *out, *lse; /* the stored truth, as in mla_fixed_truth */
} mla_golden;

/* MLA_EINVAL: the file is malformed, or contradicts its case. Free with mla_golden_free, also after failure. */
mla_status mla_golden_read(const char *path, mla_golden *golden) MLA_CHECKED;
void mla_golden_free(mla_golden *golden);

/* Does the oracle agree with the stored truth of these rows, as closely as float allows? MLA_EINVAL names the first place where it does not. */
mla_status mla_golden_agrees(const mla_golden *golden, const mla_truth *truth) MLA_CHECKED;

/* A kernel's outputs: `out` [total_q, heads, 512] in bf16, fp16 or fp32, and `lse` [total_q, heads] in fp32, which may be left out. */
typedef struct mla_golden_result {
    mla_safetensors file;
    mla_format out_format;
    mla_output output; /* points into the file; lse may be NULL */
} mla_golden_result;

/* MLA_EINVAL: malformed, of other shapes than the golden file's, or says itself to be of another case. Free with mla_golden_result_free, also after failure. */
mla_status mla_golden_result_read(const char *path, const mla_golden *golden, mla_golden_result *result) MLA_CHECKED;
void mla_golden_result_free(mla_golden_result *result);
/* Writes such a file: `output` in host memory. `kernel` is who made it. */
mla_status mla_golden_result_write(const char *path, const char *case_line, const char *kernel, const mla_problem *problem,
                                   const mla_output *output) MLA_CHECKED;

#endif
