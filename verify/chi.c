/*
 * chi^2 of a row is a quadratic form in its rounding errors, which all 512 columns share: it may rest on one or two of them. For sub-Gaussian errors
 * with proxy matrix K it exceeds
 *     (tr K + 2 sqrt(t) |K|_F + 2 t |K|_2) / 512
 * with a chance below exp(-t) (Hsu, Kakade and Zhang, A tail inequality for quadratic forms of subgaussian random vectors, 2012). tr K takes every
 * mantissa for the worst one. Mantissas being spread over the binade, the mean is 1 instead, and a rounding's part of it lies between 0.46 and 1.85 times
 * its share w_j of the variance: by Hoeffding's inequality the mean strays from 1 by at most 1.39 sqrt(t / 2 sum w_j^2), and sum (1.85 * 512 w_j)^2
 * is part of |K|_F^2, which makes it 0.54 sqrt(t) |K|_F / 512. The smaller of the two counts. Over R independent rows, |K|_F^2 and |K|_2 are those of
 * the rows' mean: divided by R.
 */
#include "chi.h"

#include <math.h>

#include "../ref/try.h"

static const double T = 13.8; /* a chance of 1e-6 */
static const double MANTISSAS = 0.54;
enum { SAMPLE = 16, TRIES = 4 * SAMPLE }; /* rows whose K stands for the case's; rows looked at to find them */

double mla_chi_limit(const mla_row_spread *spread, double rows) {
    const double walk = sqrt(T / rows) * spread->frobenius / MLA_HEAD_DIM_V;
    const double mean = fmin(spread->trace / MLA_HEAD_DIM_V, 1 + MANTISSAS * walk);
    return sqrt(mean + 2 * walk + 2 * T * spread->spectral / (rows * MLA_HEAD_DIM_V)) + spread->shift;
}

static mla_status settle_suspects(const mla_problem *problem, const mla_contract *contract, mla_chi *chi) {
    for (int i = 0; i < MLA_CHI_SUSPECTS && chi->suspects[i].chi > 0; i++) {
        mla_row_spread spread;
        TRY(mla_oracle_row_spread(problem, contract, chi->suspects[i].row, &spread));
        chi->suspects[i].limit = fmax(mla_chi_limit(&spread, 1), MLA_CHI_ROW);
    }
    return mla_ok();
}

/* Means over gating rows at equal steps; the largest spectral norm. */
static mla_status sample_spreads(const mla_problem *problem, const mla_contract *contract, mla_row_spread *mean) {
    const int64_t rows = problem->total_q * problem->heads, tries = rows < TRIES ? rows : TRIES;
    double trace = 0, square = 0, shift2 = 0;
    int taken = 0;
    *mean = (mla_row_spread){0};
    for (int64_t i = 0; i < tries && taken < SAMPLE; i++) {
        mla_row_spread spread;
        TRY(mla_oracle_row_spread(problem, contract, (i * rows + rows / 2) / tries, &spread));
        if (!spread.gates)
            continue;
        taken++;
        trace += spread.trace;
        square += spread.frobenius * spread.frobenius;
        shift2 += spread.shift * spread.shift;
        mean->spectral = fmax(mean->spectral, spread.spectral);
    }
    if (taken > 0)
        *mean = (mla_row_spread){trace / taken, sqrt(square / taken), mean->spectral, sqrt(shift2 / taken), true};
    return mla_ok();
}

/* Rows share the roundings of the keys they share, and the sizes of partials, by which keys lie in one split. */
static double independent_rows(const mla_problem *problem, const mla_contract *contract, const mla_chi *chi) {
    const double rows = (double)chi->rows;
    return contract->kv_dequant == MLA_NONE && contract->partial == MLA_FP32 ? rows : fmin(rows, problem->batch);
}

mla_status mla_chi_settle(const mla_problem *problem, const mla_contract *contract, mla_measure *measure) {
    mla_chi *chi = &measure->chi;
    mla_row_spread mean;
    if (mla_counts_wrong(&measure->out) > 0)
        return mla_ok();
    TRY(settle_suspects(problem, contract, chi));
    chi->limit = MLA_CHI_CASE;
    if (!(mla_chi_gating(chi) > MLA_CHI_CASE))
        return mla_ok();
    TRY(sample_spreads(problem, contract, &mean));
    const double rows = mean.gates ? independent_rows(problem, contract, chi) : 1;
    if (!mean.gates) /* gating rows are too few to be met: the worst one's own limit is the case's */
        TRY(mla_oracle_row_spread(problem, contract, chi->worst.row, &mean));
    chi->limit = fmax(mla_chi_limit(&mean, rows), MLA_CHI_CASE);
    return mla_ok();
}
