#include "inputs_topk.h"

#include "random.h"

/* Words below this index choose a list's kind, those above it scatter holes. */
#define SCATTER (UINT64_C(1) << 62)

bool mla_topk_hole(const mla_case *test, int64_t q_token, int32_t position) {
    if (q_token % 8 == 5)
        return true;
    switch (mla_random_below(test->seed, MLA_STREAM_TOPK_HOLES, (uint64_t)q_token, 8)) {
    case 0:
        return position < 16 && position < test->topk / 2;
    case 1:
        return position < 130 && position < test->topk / 2;
    case 2:
        return mla_random_below(test->seed, MLA_STREAM_TOPK_HOLES, SCATTER + (uint64_t)(q_token * test->topk + position), 4) == 0;
    default:
        return false;
    }
}

int32_t mla_topk_listed(const mla_case *test, int64_t q_token, int64_t kv_len) {
    int32_t listed = 0;
    for (int32_t i = 0; i < test->topk && listed < kv_len; i++)
        listed += !mla_topk_hole(test, q_token, i);
    return listed;
}
