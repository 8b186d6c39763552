/* The choices that a stage of the rounding model has. */
#ifndef MLA_DRIFT_CHOICES_H
#define MLA_DRIFT_CHOICES_H

#include "drift_attribution.h"

/* A model of which the fields of one stage count. */
typedef struct mla_choice {
    mla_stage stage;
    mla_model model;
} mla_choice;

extern const mla_choice mla_choices[];
extern const int mla_num_choices;

/* Copies the fields of one stage. The format of the output stays the target's. */
void mla_stage_copy(mla_stage stage, const mla_model *from, mla_model *to);

#endif
