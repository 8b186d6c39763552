/*
 * Where along the KV does a row's error come from? If a kernel gives the keys of part b of the KV 1 + x_b times the weights p_j that they should have,
 * and x_b is one number a part, then
 *     out - O = sum over b of c_b g_b        g_b = sum over j in b of p_j (v_j - O)        c_b = x_b / (1 + sum over b of s_b x_b)
 * with s_b = sum of p_j, an exact identity. The c_b are fitted to the 512 columns by least squares in units of sigma (its rms over the row), with a
 * standard normal prior that keeps at 0 what the row's weights do not tell. A common factor of all weights does not show in `out` (c_b + t is as good as c_b): the median part's
 * c is set to 0.
 * Parts are blocks of 2^n tokens, at most 64 where positions begin with a block, and then the tokens of the block that stands out most.
 */
#ifndef MLA_KV_PROFILE_H
#define MLA_KV_PROFILE_H

#include "compare.h"

/*
 * Fills measure->pictures->profile for the row of the worst element by |e| / B. There is none for a row of padding, of less than two keys or more than 16384,
 * without error or with outputs that are not finite.
 */
mla_status mla_kv_profile_make(const mla_problem *problem, const mla_contract *contract, const mla_output *output,
                               mla_measure *measure) MLA_CHECKED;

#endif
