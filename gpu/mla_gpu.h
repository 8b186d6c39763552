/*
 * Kernels under test: the plug-in ABI, the devices they run on, and the split plan.
 *
 * Anybody's kernel is graded through `mla_kernel`: a shared library that exports `mla_plugin_kernel` (see example_plugin.c). The
 * verifier owns memory, stream and time: it allocates inputs, outputs and workspace in the space the kernel names, and passes pointers.
 */
#ifndef MLA_GPU_H
#define MLA_GPU_H

#include "../ref/mla.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the plug-in ABI ------------------------------------------------------------------------------------------------------- */

#define MLA_KERNEL_ABI 1

typedef enum mla_space { MLA_SPACE_HOST, MLA_SPACE_CUDA, MLA_SPACE_HIP } mla_space;

/* One launch. Two views of one problem: `problem` has every pointer in the kernel's space, `host` every pointer in the host's. */
typedef struct mla_launch {
    const mla_problem *problem;
    const mla_problem *host;
    const mla_output *output; /* pointers in the kernel's space; every element must be written, padding rows too */
    void
        *workspace; /* kernel's space, 256-byte aligned, as many bytes as `workspace` asked for; NULL when 0. Contents on entry: garbage, or
                                 what `prepare` left */
    void *stream;   /* CUstream or hipStream_t; NULL in host space */
} mla_launch;

typedef struct mla_kernel mla_kernel;
struct mla_kernel {
    uint32_t abi_version; /* MLA_KERNEL_ABI */
    const char *name;     /* for reports, without spaces */
    mla_space space;
    mla_contract contract; /* what its arithmetic declares, where contract_for does not say otherwise */
    void *context;         /* the kernel's own */

    /* All calls: `reason` receives one line when the result says no or failed. Any may be called from one thread at a time. */

    /* What it declares for this problem, e.g. another type of P for another KV format. NULL: `contract`, always. */
    mla_contract (*contract_for)(const mla_kernel *kernel, const mla_problem *host);
    /* Can it do this problem? NULL: it can do all. */
    bool (*supports)(const mla_kernel *kernel, const mla_problem *host, char *reason, size_t reason_size);
    /* Bytes of workspace for this problem. NULL: 0. */
    size_t (*workspace)(const mla_kernel *kernel, const mla_problem *host);
    /* Once a shape, before any run with it: a plan, a table. Enqueued on the stream. 0 on success. NULL: nothing to prepare. */
    int (*prepare)(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t reason_size);
    /* Enqueues one launch; need not wait for it. Runs any number of times after one prepare. 0 on success. */
    int (*run)(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t reason_size);
};

/* A plug-in exports this under the name "mla_plugin_kernel". The kernel stays valid until the library is closed. */
typedef const mla_kernel *(*mla_plugin_entry)(void);

/* ---- devices (device.c, backend_*.c) ------------------------------------------------------------------------------------------ */

#define MLA_DEVICE_MARKS 256

/* A memory space with a stream. Not thread-safe. All pointers it hands out are aligned to 256 bytes. */
typedef struct mla_device mla_device;
struct mla_device {
    mla_space space;
    char description[128]; /* "NVIDIA H200, 132 SMs, driver 13.0" */
    int compute_units;
    size_t cache_bytes; /* last-level cache: what is read for the first time after several times as many bytes comes from memory */
    void *stream;       /* NULL in host space */
    void *state;        /* the backend's own */
    mla_status (*allocate)(mla_device *device, size_t bytes, void **pointer);
    void (*release)(mla_device *device, void *pointer);                                   /* NULL is allowed */
    mla_status (*upload)(mla_device *device, void *to, const void *from, size_t bytes);   /* returns when done */
    mla_status (*download)(mla_device *device, void *to, const void *from, size_t bytes); /* returns when done */
    mla_status (*fill)(mla_device *device, void *to, uint8_t byte, size_t bytes);
    mla_status (*copy)(mla_device *device, void *to, const void *from, size_t bytes); /* within the space; enqueued */
    mla_status (*synchronize)(mla_device *device);                                    /* waits for the stream; reports a kernel's failure */
    /* Moments in the stream's time, 0 .. MLA_DEVICE_MARKS - 1: `mark` enqueues one; `elapsed` waits for `to`, and counts the seconds since `from`. */
    mla_status (*mark)(mla_device *device, int mark);
    mla_status (*elapsed)(mla_device *device, int from, int to, double *seconds);
    void (*close)(mla_device *device);
};

/* Opens the space's first device. MLA_EDEVICE with a reason when there is no driver or no device. Close with device->close. */
mla_status mla_device_open(mla_space space, mla_device **device) MLA_CHECKED;

/* ---- kernels by name (kernel.c) ------------------------------------------------------------------------------------------------- */

typedef struct mla_kernel_handle {
    const mla_kernel *kernel;
    mla_device *device;
    void *state; /* the loader's own */
} mla_kernel_handle;

/*
 * Opens a kernel and the device it needs:
 *   reference | oracle | splitk@host[:cdna3|:cdna4|:cdna3tall|:cdna4tall|:mma] | splitk@nvidia[:mma|:hopper|:hopper16] | splitk@amd | bmm@host | bmm@nvidia[:own] | bmm@amd[:own]
 *   | PATH of a plug-in (it contains a '/')
 * MLA_EINVAL: no such kernel, or the file is no plug-in. MLA_EDEVICE: it exists but cannot run here.
 */
mla_status mla_kernel_open(const char *spec, mla_kernel_handle *handle) MLA_CHECKED;
void mla_kernel_close(mla_kernel_handle *handle);

/* What the kernel declares for this problem. */
mla_contract mla_kernel_contract(const mla_kernel *kernel, const mla_problem *host);
/* The kernel's own calls, with their reason as a message. A kernel without `prepare` has nothing to prepare. */
mla_status mla_kernel_prepare(const mla_kernel *kernel, const mla_launch *launch) MLA_CHECKED;
mla_status mla_kernel_run(const mla_kernel *kernel, const mla_launch *launch) MLA_CHECKED;

/* ---- split plan (plan.c) ----------------------------------------------------------------------------------------------------------- */

/* Consecutive rows (row = query token * heads + head) of one sequence against a range of its key positions. */
typedef struct mla_plan_item {
    int32_t sequence;
    int32_t rows; /* 1 .. row_tile */
    int64_t first_row;
    int32_t kv_begin, kv_end; /* key positions, kv_begin < kv_end */
    int32_t slot;             /* partial slot it writes, or -1: it writes the output itself */
    int32_t group;            /* index of its group */
} mla_plan_item;

/* The rows the items of one group share; combined from slots [first_slot, first_slot + splits). */
typedef struct mla_plan_group {
    int64_t first_row;
    int32_t rows;
    int32_t first_slot; /* -1 when splits < 2 */
    int32_t splits;     /* 0: no visible key, the combine writes an empty row; 1: the item wrote the output itself */
    int32_t sequence;   /* -1: padding rows */
} mla_plan_group;

typedef struct mla_plan {
    mla_plan_item *items;   /* [num_items]; those of one worker are consecutive */
    mla_plan_group *groups; /* [num_groups], covering every row of the output once, in row order */
    int32_t *worker_indptr; /* [num_workers + 1], items of a worker (a thread block) */
    int32_t num_items, num_groups, num_workers, num_slots;
    int32_t row_tile; /* rows of a slot */
} mla_plan;

typedef struct mla_plan_options {
    int32_t row_tile;        /* rows one item may hold, 16, 32, 64 or 128 */
    int32_t kv_tile;         /* tokens of the kernel's tile: BALANCED cuts at its multiples */
    int32_t resident_blocks; /* that the device runs at once, for ADAPTIVE and BALANCED */
} mla_plan_options;

/*
 * The plan of problem->split_policy:
 *   ADAPTIVE  N splits each, N the least of 1 .. 32 with the shortest estimated time: resident_blocks items run at once, an item takes a tile's time for
 *             each of its tiles and that of 3 more to begin and end, and no time is shorter than the longest item's
 *   FIXED     split_arg splits each
 *   SIZE      splits of split_arg tokens, aligned to the sequence's start: independent of the rest of the batch
 *   BALANCED  one worker a resident block, each with the same number of kv_tile tiles to within one, groups cut where a worker is full
 * A split with no key is left out. Key ranges are clipped to what any row of the item may see (causal, window).
 */
mla_status mla_plan_make(const mla_problem *host, const mla_plan_options *options, mla_plan *plan) MLA_CHECKED;
void mla_plan_free(mla_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
