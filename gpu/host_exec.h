/*
 * Host execution: a GPU kernel's source compiled by g++ and run on the CPU, one fiber a thread.
 *
 * The C side: find a kernel, launch it over blocks. The C++ side: what device_host.h builds the primitives of device.h from.
 */
#ifndef MLA_HOST_EXEC_H
#define MLA_HOST_EXEC_H

#include "mla_gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*mla_host_entry)(const void *args);

typedef struct mla_host_launch {
    mla_host_entry kernel;
    const void *args;
    int blocks, threads, wave; /* wave divides threads */
    size_t lds_bytes;
    uint64_t fiber_seed; /* 0: lanes, then waves, run in order; otherwise each round of a wave runs its lanes in an order drawn from it */
} mla_host_launch;

/*
 * Runs all blocks (in parallel over OpenMP threads) to their end. A thread runs until its next rendezvous: a barrier, shuffle or matrix step.
 * MLA_EINVAL: a malformed launch. MLA_ENOMEM. MLA_EDEVICE: a rendezvous was not reached by all, or a primitive was misused; the message names
 * file and line in the lowest block that failed, and the outputs are partly written.
 */
mla_status mla_host_execute(const mla_host_launch *launch) MLA_CHECKED;

/* The kernel `name` as compiled for `engine` ("cdna3", "cdna4", ...: HOST_ENGINES of the Makefile); NULL when it is not linked in. */
mla_host_entry mla_host_kernel_find(const char *engine, const char *name);

#ifdef __cplusplus
}

#include <boost/context/detail/fcontext.hpp>

/* ---- for device_host.h ------------------------------------------------------------------------------------------------------ */

/* Registers a kernel before main: one static object each, made by MLA_KERNEL. */
struct mla_host_kernel {
    mla_host_kernel(const char *engine, const char *name, mla_host_entry entry);
    const char *engine, *name;
    mla_host_entry entry;
    const mla_host_kernel *next;
};

/* What the lane hands to the step it waits for. */
struct mla_host_operands {
    const void *a, *b;
    void *c;
};

/* A rendezvous as one lane reaches it; it lives on that lane's stack. */
struct mla_host_step {
    const char *what, *file;
    int line;
    void (*perform)(const mla_host_step &step, const mla_host_operands *lanes); /* for the whole wave; NULL: a barrier of the block */
    int wave;                                                                   /* lanes it is defined for; 0: any */
    int steps, cols; /* of a matrix step; matrices of an ldmatrix; lanes of a shuffle */
};

extern __thread int mla_host_thread, mla_host_block;

constexpr int mla_host_max_cols = 64; /* of a matrix step */

/* The two halves of mla_host_meet: whom to jump to (nobody when fctx is NULL), and what to do on arriving here. */
boost::context::detail::transfer_t mla_host_arrive(const mla_host_step &step, const mla_host_operands &operands);
void mla_host_landed(boost::context::detail::transfer_t from);

/*
 * Returns when all have met and the step was performed; does not return when they cannot. The jump is inlined into the kernel because a
 * return after it, on another stack than its call, is mispredicted each time: that made a switch cost 25 ns.
 */
inline void mla_host_meet(const mla_host_step &step, const mla_host_operands &operands) {
    const boost::context::detail::transfer_t to = mla_host_arrive(step, operands);
    if (to.fctx)
        mla_host_landed(boost::context::detail::jump_fcontext(to.fctx, to.data));
}

/* Ends the launch from within a kernel: its other threads never run again. */
[[noreturn]] void mla_host_abandon(const mla_status &status);

void mla_host_shuffle(const mla_host_step &step, const mla_host_operands *lanes);       /* a: float, b: int source lane, c: float */
void mla_host_mfma_16x16x16(const mla_host_step &step, const mla_host_operands *lanes); /* the fragments of device.h, bf16 operands */
void mla_host_mfma_16x16x32(const mla_host_step &step, const mla_host_operands *lanes);
void mla_host_mma_16x8x16(const mla_host_step &step, const mla_host_operands *lanes);
void mla_host_mfma_16x16x16_fp16(const mla_host_step &step, const mla_host_operands *lanes);
void mla_host_mfma_16x16x32_fp16(const mla_host_step &step, const mla_host_operands *lanes);
void mla_host_mma_16x8x16_fp16(const mla_host_step &step, const mla_host_operands *lanes);
void mla_host_ldmatrix(const mla_host_step &step, const mla_host_operands *lanes); /* a: row pointers, c: registers */
void mla_host_ldmatrix_trans(const mla_host_step &step, const mla_host_operands *lanes);

void *mla_host_lds(size_t bytes, const char *file, int line);
void mla_host_copy16(void *lds, const void *global, const char *file, int line);
void mla_host_copy_commit();
void mla_host_copy_wait(int newest);
#endif
#endif
