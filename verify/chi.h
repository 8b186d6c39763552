/* How large the errors of a correct kernel may be by chance: limits of chi for single rows and for a whole case. */
#ifndef MLA_CHI_H
#define MLA_CHI_H

#include "compare.h"

#define MLA_CHI_CASE 1.10 /* a case up to here passes; beyond, it has a limit of its own */

/* The limit of the rms of error / sigma over `rows` independent rows like those of `spread`: means of trace, frobenius^2 and shift^2, largest spectral. */
double mla_chi_limit(const mla_row_spread *spread, double rows);

/* Sets the limits in the measure: of the suspects, and of the case. Where elements are wrong, chi decides nothing, and nothing is done. */
mla_status mla_chi_settle(const mla_problem *problem, const mla_contract *contract, mla_measure *measure) MLA_CHECKED;

#endif
