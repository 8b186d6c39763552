/*
 * BLAS calls inside an OpenMP region of one's own, one thread a call. OpenBLAS's setting is global and, in its OpenMP build, also overwrites
 * OpenMP's thread count of the calling thread: both are put back.
 */
#ifndef MLA_BLAS_SERIAL_H
#define MLA_BLAS_SERIAL_H

#include <cblas.h>
#include <omp.h>

typedef struct mla_blas_serial {
    int threads; /* for the region's num_threads */
    int blas_threads;
} mla_blas_serial;

static inline mla_blas_serial mla_blas_serial_begin(void) {
    const mla_blas_serial saved = {omp_get_max_threads(), openblas_get_num_threads()};
    openblas_set_num_threads(1);
    return saved;
}

static inline void mla_blas_serial_end(mla_blas_serial saved) {
    openblas_set_num_threads(saved.blas_threads);
    omp_set_num_threads(saved.threads);
}

#endif
