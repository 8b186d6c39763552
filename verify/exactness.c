#include "exactness.h"

#include <math.h>

static bool is_short(mla_format format) {
    return format != MLA_FP32 && format != MLA_NONE;
}

static bool is_power_of_two(double x) {
    int exponent;
    return frexp(x, &exponent) == 0.5;
}

bool mla_is_bitwise(const mla_case *test, const mla_contract *contract) {
    const bool weights = is_short(contract->p) && contract->p_rounding == MLA_RNE && is_power_of_two(contract->p_scale);
    const bool sums = !contract->lazy_max && contract->partial == MLA_FP32 && !contract->combine_lse;
    return test->input == MLA_INPUT_EXACT && is_short(test->out) && contract->out_rounding == MLA_RNE && weights && sums;
}
