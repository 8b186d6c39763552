/* A plain kernel of a page, of every format, layout, mask and convention, that can be given one bug users have reported of real kernels. */
#ifndef SUPPORT_BUGGY_KERNEL_H
#define SUPPORT_BUGGY_KERNEL_H

#include "../gpu/mla_gpu.h"

typedef enum test_bug {
    TEST_NO_BUG,
    TEST_ONE_QUERY,        /* q_len no power of two: all queries of a sequence take the first one's row */
    TEST_EMPTY_SPLIT,      /* a split without keys leaves its partial as it was */
    TEST_MASKED_TILE,      /* a tile without visible keys, before any other: exp(-inf - -inf) */
    TEST_EMPTY_ROW,        /* a row without keys is divided by its sum of 0 */
    TEST_PAGE_TAIL,        /* the last page's tail is multiplied by weights of 0 */
    TEST_OFFSETS_31,       /* byte offsets modulo 2^31 */
    TEST_OFFSETS_32,       /* byte offsets modulo 2^32 */
    TEST_SCALE_OFFSETS_32, /* offsets of mxfp4's scale rows modulo 2^32 */
    TEST_WORK_LIST,        /* sequences from 16,384 on are not computed */
    TEST_BARE_EXP,         /* splits sum exp(x), not exp(x - max) */
    TEST_BATCH_SPLITS,     /* the number of splits depends on the batch */
    TEST_LAUNCH_ORDER,     /* the order of summation depends on what was launched before */
    TEST_MERGE_BASE,       /* partial lse in log2 units merged by exp */
    TEST_PADDING_ROWS,     /* rows past the last sequence are not written */
    TEST_TANH_BY_EXP,      /* tanh x = (exp 2x - 1) / (exp 2x + 1) */
    TEST_PAGE_IS_SLOT,     /* an entry of the page table is taken for the page's first slot */
    TEST_UNSCALED_V,       /* V without its scale */
    TEST_MERGE_EMPTY,      /* two empty partials merged without a thought: -inf - -inf */
    TEST_BUG_COUNT
} test_bug;

typedef struct test_buggy {
    test_bug bug;
    int launches;
} test_buggy;

/* In host memory, within its contract when it has no bug. `buggy` must outlive the kernel. */
mla_kernel test_buggy_kernel(test_buggy *buggy);

#endif
