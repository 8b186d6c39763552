/* Inputs whose result every order of summation gives, bit for bit. */
#ifndef MLA_EXACTNESS_H
#define MLA_EXACTNESS_H

#include "case.h"

/*
 * Must a right kernel of this contract write the truth, rounded once? On inputs of the family `exact` scores equal the row's maximum or lie more than 200
 * below it, the former a power of two in number, and V holds integers of which no sum reaches 256. Operands that are rounded first keep their values:
 * powers of two and integers up to 6. So a right kernel must where
 *   P is rounded to nearest in a format of few bits, at a scale that is a power of two: weights are then 1 and 0, whatever error exp2 makes next to 0,
 *   the maximum is the exact one: weights relative to another are no powers of two, and rescaling by exp2(0) = 1 (ref/sigma.h takes it so, too) changes nothing,
 *   partials are fp32, weighed by (m, l): sums of integers below 256, which accumulators of 8 bits hold, rounding as they may,
 *   out is rounded to nearest in bf16 or fp16: that holds the truth, and l alone is left to err, by far less than half a unit of its last place.
 * Elements that cancel are not asked for: errors next to 0 may differ from split to split, and leave of 0 what the bound allows.
 */
bool mla_is_bitwise(const mla_case *test, const mla_contract *contract);

#endif
