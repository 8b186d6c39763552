#include "slabs.h"

#define SLAB_ROWS 8192

int64_t mla_slab_tokens(const mla_problem *problem) {
    return problem->heads < SLAB_ROWS ? SLAB_ROWS / problem->heads : 1;
}

mla_status mla_slabs_visit(const mla_problem *problem, const mla_contract *contract, mla_progress *progress, mla_slab_visitor visit,
                           void *context) {
    const int64_t slab = mla_slab_tokens(problem), total = problem->total_q;
    mla_status status = mla_ok();
    for (int64_t token = 0; token < total && status.code == MLA_OK; token += slab) {
        mla_progress_update(progress, (double)token / (double)total);
        mla_truth truth = {0};
        status = mla_oracle_run(problem, contract, token, total - token < slab ? total - token : slab, &truth);
        if (status.code == MLA_OK)
            status = visit(context, &truth);
        mla_truth_free(&truth);
    }
    return status;
}
