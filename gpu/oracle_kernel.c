#include "oracle_kernel.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SLAB_ROWS 8192 /* of truth at a time: it takes 16 KiB a row */

static void write_row(const mla_problem *p, const mla_truth *truth, int64_t row, const mla_output *output) {
    const size_t bytes = mla_format_bytes(p->out_format);
    const int64_t to = truth->first_token * p->heads + row;
    uint8_t *out = (uint8_t *)output->out + (size_t)to * MLA_HEAD_DIM_V * bytes;
    for (int64_t c = 0; c < MLA_HEAD_DIM_V; c++) {
        const uint32_t code = mla_encode(p->out_format, truth->out[row * MLA_HEAD_DIM_V + c], MLA_RNE);
        memcpy(out + (size_t)c * bytes, &code, bytes); /* little-endian, as the formats are */
    }
    if (truth->kind[row] == MLA_ROW_EMPTY)
        output->lse[to] = p->lse_empty_positive ? INFINITY : -INFINITY;
    else
        output->lse[to] = (float)(p->lse_base == MLA_LSE_2 ? truth->lse[row] / 0x1.62e42fefa39efp-1 : truth->lse[row]);
}

static mla_status run_slab(const mla_problem *p, const mla_contract *contract, int64_t token, int64_t tokens, const mla_output *output) {
    mla_truth truth = {0};
    const mla_status status = mla_oracle_run(p, contract, token, tokens, &truth);
    if (status.code == MLA_OK) {
#pragma omp parallel for
        for (int64_t row = 0; row < truth.rows; row++)
            write_row(p, &truth, row, output);
    }
    mla_truth_free(&truth);
    return status;
}

static int run(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t reason_size) {
    const mla_problem *p = launch->problem;
    const int64_t slab = p->heads < SLAB_ROWS ? SLAB_ROWS / p->heads : 1;
    mla_status status = mla_ok();
    for (int64_t token = 0; token < p->total_q && status.code == MLA_OK; token += slab)
        status = run_slab(p, &kernel->contract, token, p->total_q - token < slab ? p->total_q - token : slab, launch->output);
    snprintf(reason, reason_size, "%s", status.message);
    return status.code != MLA_OK;
}

const mla_kernel *mla_oracle_kernel(void) {
    static mla_kernel oracle = {.abi_version = MLA_KERNEL_ABI, .name = "oracle", .space = MLA_SPACE_HOST, .run = run};
    oracle.contract = mla_contract_default();
    return &oracle;
}
