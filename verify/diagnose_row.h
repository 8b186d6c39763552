/* A query token's keys and some of its rows in fp64, and what each hypothesis predicts for a row. Internal to diagnose.c and kv_profile.c. */
#ifndef MLA_DIAGNOSE_ROW_H
#define MLA_DIAGNOSE_ROW_H

#include "diagnose.h"

enum { MLA_DIAGNOSED_KEYS = 16384, MLA_DIAGNOSED_ROWS = 4 };

/* One row: scores and weights of its keys, truth, and what was written. */
typedef struct mla_suspect {
    int32_t head;
    double q[MLA_HEAD_DIM];
    double *x, *z, *rope;                /* [keys] scores; before soft-cap; the rope part of z */
    double *w;                           /* [keys] exp(x - top) */
    double top, sum, total;              /* of w; the sink's weight in `total` too */
    double got[MLA_HEAD_DIM_V], got_lse; /* natural log */
    bool has_lse;
    const double *out, *bound, *sigma; /* truth [512] */
    double lse, lse_bound;
    int wrong; /* elements outside the bound, a wrong lse apart */
    bool wrong_lse;
} mla_suspect;

typedef struct mla_scene {
    const mla_problem *problem;
    const mla_output *output;
    int32_t sequence;
    int64_t token, keys;
    int64_t begin;   /* position of key 0 */
    int64_t *slots;  /* [keys] */
    double *kv;      /* [keys, 576] */
    mla_truth truth; /* of all heads of the token */
    mla_suspect rows[MLA_DIAGNOSED_ROWS];
    int num_rows;
} mla_scene;

/* A bug, with its parameters. */
typedef struct mla_hypothesis {
    mla_cause cause;
    int64_t first, last; /* token, or the range [first, last) */
    int64_t slot;        /* leaked; of a shift, the one that is seen in place of a token */
    double factor;
    int32_t other; /* sequence; columns: how far they are shifted, or 0: `first` and `last` are swapped */
    char note[64]; /* appended to the text */
} mla_hypothesis;

/* Free with mla_scene_free, also after failure. Rows: the head of the worst element first, then others that are wrong too. */
mla_status mla_scene_make(const mla_problem *problem, const mla_contract *contract, const mla_output *output, int64_t token, int32_t head,
                          mla_scene *scene) MLA_CHECKED;
void mla_scene_free(mla_scene *scene);

/* out [512] and lse, natural log, that a kernel with the bug writes for the row. NaN where the hypothesis makes no sense. */
void mla_predict(const mla_scene *scene, const mla_suspect *row, const mla_hypothesis *h, double *out, double *lse);
/* The lse and its derivative when scores are multiplied by `factor`. */
double mla_scaled_lse(const mla_scene *scene, const mla_suspect *row, double factor, double *slope);

#endif
