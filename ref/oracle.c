/*
 * Truth in fp64, block by block. Blocks follow from the problem alone and every product runs on one thread: the same bits for any number of threads.
 */
#include "blas_serial.h"
#include "oracle_block.h"
#include "try.h"

#include <stdlib.h>

static int64_t blocks_per_token(const mla_problem *problem, int64_t positions) {
    const int32_t heads = mla_oracle_block_heads(problem, positions);
    return (problem->heads + heads - 1) / heads;
}

static mla_oracle_sizes largest_sizes(const mla_problem *problem, const mla_truth *truth, int64_t *blocks) {
    mla_oracle_sizes sizes = {0};
    *blocks = 0;
    for (int64_t token = truth->first_token; token < truth->first_token + truth->tokens; token++) {
        const int64_t positions = mla_oracle_positions(problem, token);
        const int64_t scores = positions * mla_oracle_block_heads(problem, positions), here = blocks_per_token(problem, positions);
        sizes.positions = positions > sizes.positions ? positions : sizes.positions;
        sizes.scores = scores > sizes.scores ? scores : sizes.scores;
        *blocks = here > *blocks ? here : *blocks;
    }
    return sizes;
}

mla_status mla_truth_make(int64_t first_token, int64_t tokens, int64_t rows, mla_truth *truth) {
    *truth = (mla_truth){.first_token = first_token, .tokens = tokens, .rows = rows};
    const size_t count = rows > 0 ? (size_t)rows : 1, elements = count * MLA_HEAD_DIM_V;
    truth->out = calloc(elements, sizeof(double));
    truth->abs = calloc(elements, sizeof(double));
    truth->square = calloc(elements, sizeof(double));
    truth->bound = calloc(elements, sizeof(double));
    truth->sigma = calloc(elements, sizeof(double));
    truth->lse = calloc(count, sizeof(double));
    truth->lse_bound = calloc(count, sizeof(double));
    truth->kind = calloc(count, sizeof(uint8_t));
    truth->doubts = calloc(count, sizeof(uint8_t));
    if (truth->out && truth->abs && truth->square && truth->bound && truth->sigma && truth->lse && truth->lse_bound && truth->kind &&
        truth->doubts)
        return mla_ok();
    mla_truth_free(truth);
    return mla_error(MLA_ENOMEM, "oracle: no memory for %lld rows", (long long)rows);
}

void mla_truth_free(mla_truth *truth) {
    free(truth->out);
    free(truth->abs);
    free(truth->square);
    free(truth->bound);
    free(truth->sigma);
    free(truth->lse);
    free(truth->lse_bound);
    free(truth->kind);
    free(truth->doubts);
    *truth = (mla_truth){0};
}

/* Block `index` of the token, if it has that many. */
static void run_token_block(const mla_oracle_block *run, int64_t token, int64_t index, mla_oracle_scratch *scratch) {
    const mla_problem *problem = run->problem;
    const int32_t most = mla_oracle_block_heads(problem, mla_oracle_positions(problem, token));
    const int64_t head = index * most;
    if (head >= problem->heads)
        return;
    mla_oracle_block block = *run;
    block.token = token;
    block.head = (int32_t)head;
    block.heads = problem->heads - block.head < most ? problem->heads - block.head : most;
    block.first_row = (token - run->truth->first_token) * problem->heads + head;
    mla_oracle_block_run(&block, scratch);
}

static bool run_blocks(const mla_oracle_block *run) {
    int64_t blocks;
    const mla_truth *truth = run->truth;
    const mla_oracle_sizes sizes = largest_sizes(run->problem, truth, &blocks);
    const mla_blas_serial blas = mla_blas_serial_begin();
    bool failed = false;
#pragma omp parallel num_threads(blas.threads) reduction(|| : failed)
    {
        mla_oracle_scratch scratch;
        const bool ready = mla_oracle_scratch_make(&scratch, &sizes);
        failed = !ready;
#pragma omp for collapse(2) schedule(dynamic)
        for (int64_t token = 0; token < truth->tokens; token++)
            for (int64_t index = 0; index < blocks; index++)
                if (ready)
                    run_token_block(run, truth->first_token + token, index, &scratch);
        if (ready)
            free(scratch.memory);
    }
    mla_blas_serial_end(blas);
    return !failed;
}

mla_status mla_oracle_run_with(const mla_arithmetic *math, const mla_problem *problem, const mla_contract *contract, int64_t first_token,
                               int64_t tokens, mla_truth *truth) {
    *truth = (mla_truth){0};
    TRY(mla_problem_check(problem));
    TRY(mla_contract_check(contract));
    if (first_token < 0 || tokens < 0 || first_token > problem->total_q - tokens)
        return mla_error(MLA_EINVAL, "oracle: tokens [%lld, +%lld) are not within total_q = %lld", (long long)first_token,
                         (long long)tokens, (long long)problem->total_q);
    TRY(mla_truth_make(first_token, tokens, tokens * problem->heads, truth));
    const mla_oracle_block run = {.math = math, .problem = problem, .contract = contract, .truth = truth};
    if (run_blocks(&run))
        return mla_ok();
    mla_truth_free(truth);
    return mla_error(MLA_ENOMEM, "oracle: no memory for the scores of a block");
}

mla_status mla_oracle_run(const mla_problem *problem, const mla_contract *contract, int64_t first_token, int64_t tokens, mla_truth *truth) {
    return mla_oracle_run_with(&mla_arithmetic_fast, problem, contract, first_token, tokens, truth);
}
