#include "yardstick.h"

#include <cblas.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "../gpu/vendor_gemm.h"
#include "../ref/try.h"
#include "launch_timer.h"
#include "memory.h"
#include "random.h"

#define LAUNCHES 9
#define COPY_BYTES ((size_t)1 << 30) /* on a GPU, at least */
#define CACHES 4                     /* copies are at least as many last-level caches large */
#define DEVICE_SIZE 8192             /* of the product's matrices */

/* Two untimed calls, then the timed ones. */
static mla_status time_call(mla_device *device, mla_timed_call call, mla_timing *timing) {
    double seconds[LAUNCHES];
    TRY(mla_time_burst(device, call, 2, seconds));
    TRY(mla_time_burst(device, call, LAUNCHES, seconds));
    *timing = mla_timing_of(seconds, LAUNCHES);
    return mla_ok();
}

/* Operands and result of one call. */
typedef struct operands {
    mla_device *device;
    mla_buffer a, b, c;
    int n; /* of a product */
    const mla_vendor_gemm *gemm;
} operands;

static void operands_free(operands *o) {
    mla_buffer_free(&o->a);
    mla_buffer_free(&o->b);
    mla_buffer_free(&o->c);
}

/* The verifier's own host memory is touched by all threads, so that it spreads over the machine's memory controllers. */
static mla_device *space_of(mla_device *device) {
    return device->space == MLA_SPACE_HOST ? NULL : device;
}

/* ---- copies ------------------------------------------------------------------------------------------------------------------------- */

static mla_status copy(void *context) {
    const operands *o = context;
    return o->device->copy(o->device, o->c.data, o->a.data, o->a.bytes);
}

static mla_status measure_copy(mla_device *device, operands *o, double *bandwidth) {
    const size_t least = device->space == MLA_SPACE_HOST ? 0 : COPY_BYTES;
    const size_t bytes = CACHES * device->cache_bytes > least ? CACHES * device->cache_bytes : least;
    mla_timing timing = {0};
    TRY(mla_buffer_make(space_of(device), bytes, &o->a));
    TRY(mla_buffer_make(space_of(device), bytes, &o->c));
    TRY(time_call(device, (mla_timed_call){copy, o}, &timing));
    *bandwidth = 2.0 * (double)bytes / timing.median;
    return mla_ok();
}

/* ---- products ------------------------------------------------------------------------------------------------------------------------ */

static mla_status multiply_on_host(void *context) {
    const operands *o = context;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, o->n, o->n, o->n, 1, (const float *)(const void *)o->a.data, o->n,
                (const float *)(const void *)o->b.data, o->n, 0, (float *)(void *)o->c.data, o->n);
    return mla_ok();
}

static mla_status multiply_on_device(void *context) {
    const operands *o = context;
    return mla_vendor_gemm_run(o->gemm, o->n, o->a.data, o->b.data, o->c.data);
}

/* A float, or two bf16, of magnitude 1 .. 2 with random mantissas: zeros would draw less power, and clocks depend on it. */
static uint32_t random_words(uint32_t word) {
    return (word & 0x807F807Fu) | 0x3F803F80u;
}

static mla_status make_operands(operands *o, size_t bytes) {
    uint32_t *words = malloc(bytes);
    if (!words)
        return mla_error(MLA_ENOMEM, "no memory for %zu bytes", bytes);
    mla_random_words(0, MLA_STREAM_KV, 0, bytes / sizeof *words, words);
    for (size_t i = 0; i < bytes / sizeof *words; i++)
        words[i] = random_words(words[i]);
    mla_buffer *const buffers[] = {&o->a, &o->b, &o->c};
    mla_status status = mla_ok();
    for (int i = 0; i < 3 && status.code == MLA_OK; i++) {
        status = mla_buffer_make(space_of(o->device), bytes, buffers[i]);
        if (status.code == MLA_OK)
            status = mla_buffer_upload(buffers[i], words);
    }
    free(words);
    return status;
}

/* Large enough to keep every thread busy. */
static int host_size(void) {
    return omp_get_max_threads() > 8 ? 4096 : 2048;
}

static mla_status time_product(operands *o, mla_yardstick *y) {
    const bool host = o->device->space == MLA_SPACE_HOST;
    const double flops = 2.0 * o->n * o->n * o->n;
    mla_timing timing = {0};
    TRY(make_operands(o, (size_t)o->n * (size_t)o->n * (host ? sizeof(float) : sizeof(uint16_t))));
    TRY(time_call(o->device, (mla_timed_call){host ? multiply_on_host : multiply_on_device, o}, &timing));
    y->ceiling.matrix_rate = flops / timing.median;
    if (host)
        snprintf(y->matrix, sizeof y->matrix, "sgemm of %d^3, %d threads", o->n, omp_get_max_threads());
    else
        snprintf(y->matrix, sizeof y->matrix, "bf16 gemm of %d^3", o->n);
    return mla_ok();
}

/* Without a library that multiplies there is no matrix rate, which is no error. */
static mla_status measure_product(mla_device *device, operands *o, mla_yardstick *y) {
    mla_vendor_gemm *gemm = NULL;
    o->n = device->space == MLA_SPACE_HOST ? host_size() : DEVICE_SIZE;
    if (device->space != MLA_SPACE_HOST) {
        const mla_status opened = mla_vendor_gemm_open(device, &gemm);
        if (opened.code != MLA_OK) {
            snprintf(y->matrix, sizeof y->matrix, "matrix rate not measured: %.160s", opened.message);
            return mla_ok();
        }
    }
    o->gemm = gemm;
    const mla_status status = time_product(o, y);
    if (gemm)
        mla_vendor_gemm_close(gemm);
    return status;
}

static void close_racer(void *context) {
    operands_free(context);
    free(context);
}

mla_status mla_yardstick_racer(mla_device *host, mla_racer *racer) {
    operands *o = calloc(1, sizeof *o);
    if (!o)
        return mla_error(MLA_ENOMEM, "no memory for a matrix product");
    o->device = host;
    o->n = host_size();
    const mla_status status = make_operands(o, (size_t)o->n * (size_t)o->n * sizeof(float));
    if (status.code == MLA_OK)
        *racer = (mla_racer){.call = {multiply_on_host, o}, .flops = 2.0 * o->n * o->n * o->n, .close = close_racer};
    else
        close_racer(o);
    return status;
}

mla_status mla_yardstick_measure(mla_device *device, mla_yardstick *yardstick) {
    operands copied = {.device = device}, multiplied = {.device = device};
    *yardstick = (mla_yardstick){0};
    mla_status status = measure_copy(device, &copied, &yardstick->ceiling.bandwidth);
    operands_free(&copied);
    if (status.code == MLA_OK)
        status = measure_product(device, &multiplied, yardstick);
    operands_free(&multiplied);
    return status;
}
