/* What is done about a case that failed: its files are kept, and a smaller one is looked for. */
#ifndef MLA_POST_MORTEM_H
#define MLA_POST_MORTEM_H

#include "run.h"

typedef struct mla_post_mortem {
    bool shrink;
    const char *folder; /* for golden files; the outputs are there already. NULL: none are kept */
} mla_post_mortem;

/* Fills result->smallest, but after a hang, and result->kept. Whatever goes wrong is added to the verdict's reason. */
void mla_post_mortem_run(const mla_post_mortem *what, const mla_subject *subject, mla_progress *progress, mla_result *result);

#endif
