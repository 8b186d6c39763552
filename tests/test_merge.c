#include <criterion/criterion.h>
#include <math.h>

#include "../ref/mla.h"

#define KEYS 37
#define LN_2 0.69314718055994530942

typedef struct partial {
    float out[MLA_HEAD_DIM_V];
    float lse;
} partial;

static double score(int key) {
    return 30 * sin(1.7 * key);
}
static double value(int key, int column) {
    return cos(0.3 * key + 0.01 * column);
}

static partial empty(bool positive) {
    return (partial){.lse = positive ? INFINITY : -INFINITY};
}

/* Softmax over keys [begin, end) in double, rounded to float. */
static partial attend(int begin, int end, mla_lse_base base) {
    if (begin == end)
        return empty(false);
    double top = -INFINITY, sum = 0, out[MLA_HEAD_DIM_V] = {0};
    for (int key = begin; key < end; key++)
        top = fmax(top, score(key));
    for (int key = begin; key < end; key++) {
        const double weight = exp(score(key) - top);
        sum += weight;
        for (int c = 0; c < MLA_HEAD_DIM_V; c++)
            out[c] += weight * value(key, c);
    }
    partial result;
    result.lse = (float)((top + log(sum)) / (base == MLA_LSE_2 ? LN_2 : 1));
    for (int c = 0; c < MLA_HEAD_DIM_V; c++)
        result.out[c] = (float)(out[c] / sum);
    return result;
}

static void merge(partial *first, const partial *second, mla_lse_base base, bool positive) {
    mla_merge(1, first->out, &first->lse, second->out, &second->lse, base, positive);
}

Test(merge, split_anywhere_equals_the_whole) {
    for (int base = MLA_LSE_E; base <= MLA_LSE_2; base++) {
        const partial whole = attend(0, KEYS, (mla_lse_base)base);
        for (int cut = 0; cut <= KEYS; cut++) {
            partial merged = attend(0, cut, (mla_lse_base)base);
            const partial rest = attend(cut, KEYS, (mla_lse_base)base);
            merge(&merged, &rest, (mla_lse_base)base, false);
            cr_assert_float_eq(merged.lse, whole.lse, 1e-5, "base %d cut %d", base, cut);
            /* an lse near 45 is known to 2^-19, and so are the weights */
            for (int c = 0; c < MLA_HEAD_DIM_V; c++)
                cr_assert_float_eq(merged.out[c], whole.out[c], 1e-5, "base %d cut %d", base, cut);
        }
    }
}

Test(merge, by_hand) {
    /* weights e^0 : e^ln 3 = 1 : 3 */
    partial first = {.out = {4}, .lse = 0}, second = {.out = {8, 4}, .lse = logf(3)};
    merge(&first, &second, MLA_LSE_E, false);
    cr_assert_float_eq(first.out[0], 7, 1e-6);
    cr_assert_float_eq(first.out[1], 3, 1e-6);
    cr_assert_float_eq(first.lse, log(4), 1e-6);
    /* base 2: weights 2^0 : 2^2 = 1 : 4, where base e would give 1 : 7.4 */
    first = (partial){.out = {5}, .lse = 0};
    second = (partial){.out = {10}, .lse = 2};
    merge(&first, &second, MLA_LSE_2, false);
    cr_assert_float_eq(first.out[0], 9, 1e-6);
    cr_assert_float_eq(first.lse, log2(5), 1e-6);
}

Test(merge, an_empty_partial_changes_no_bit) {
    for (int positive = 0; positive <= 1; positive++) {
        const partial some = attend(3, 20, MLA_LSE_E), none = empty(positive);
        partial merged = some;
        merge(&merged, &none, MLA_LSE_E, positive);
        cr_assert_arr_eq(merged.out, some.out, sizeof some.out);
        cr_assert_eq(merged.lse, some.lse);
        merged = none;
        merge(&merged, &some, MLA_LSE_E, positive);
        cr_assert_arr_eq(merged.out, some.out, sizeof some.out);
        cr_assert_eq(merged.lse, some.lse);
    }
}

Test(merge, two_empties_are_empty) {
    for (int positive = 0; positive <= 1; positive++) {
        partial merged = empty(positive);
        const partial other = empty(positive);
        merge(&merged, &other, MLA_LSE_2, positive);
        cr_assert_eq(merged.lse, other.lse);
        for (int c = 0; c < MLA_HEAD_DIM_V; c++)
            cr_assert_eq(merged.out[c], 0);
    }
}

Test(merge, extreme_lse_neither_overflows_nor_vanishes) {
    partial first = {.out = {1}, .lse = 3e4f}, second = {.out = {3}, .lse = 3e4f};
    merge(&first, &second, MLA_LSE_E, false);
    cr_assert_eq(first.out[0], 2);
    second = (partial){.out = {1e30f}, .lse = -3e4f};
    merge(&first, &second, MLA_LSE_E, false);
    cr_assert_eq(first.out[0], 2);
    first = (partial){.out = {1}, .lse = -3e4f};
    second = (partial){.out = {3}, .lse = -3e4f};
    merge(&first, &second, MLA_LSE_2, false);
    cr_assert_eq(first.out[0], 2);
    cr_assert_eq(first.lse, -3e4f + 1);
}

Test(merge, nan_is_not_lost) {
    partial first = {.out = {1}, .lse = NAN}, second = {.out = {3}, .lse = 0};
    merge(&first, &second, MLA_LSE_E, false);
    cr_assert(isnan(first.lse) && isnan(first.out[0]));
    first = (partial){.out = {1}, .lse = 0};
    second.lse = INFINITY; /* not the convention's empty row, so an overflow */
    merge(&first, &second, MLA_LSE_E, false);
    cr_assert(isnan(first.out[0]));
}

Test(merge, rows_are_independent) {
    static float out[3 * MLA_HEAD_DIM_V], other_out[3 * MLA_HEAD_DIM_V];
    float lse[3] = {0, -INFINITY, 1}, other_lse[3] = {0, 5, -INFINITY};
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < MLA_HEAD_DIM_V; c++) {
            out[r * MLA_HEAD_DIM_V + c] = (float)r;
            other_out[r * MLA_HEAD_DIM_V + c] = (float)(10 * r + 4);
        }
    mla_merge(3, out, lse, other_out, other_lse, MLA_LSE_E, false);
    const float expected[3] = {2, 14, 2};
    for (int i = 0; i < 3 * MLA_HEAD_DIM_V; i++)
        cr_assert_eq(out[i], expected[i / MLA_HEAD_DIM_V]);
    cr_assert_float_eq(lse[0], LN_2, 1e-6);
    cr_assert_eq(lse[1], 5);
    cr_assert_eq(lse[2], 1);
}

Test(merge, lse_conversion) {
    cr_assert_eq(mla_lse_convert(3, MLA_LSE_2, false, MLA_LSE_2, true), 3);
    cr_assert_eq(mla_lse_convert(1, MLA_LSE_2, false, MLA_LSE_E, false), (float)LN_2);
    cr_assert_eq(mla_lse_convert(-7, MLA_LSE_E, false, MLA_LSE_2, false), (float)(-7 / LN_2));
    for (int from = 0; from <= 1; from++)
        for (int to = 0; to <= 1; to++) {
            const float lse = from ? INFINITY : -INFINITY, expected = to ? INFINITY : -INFINITY;
            cr_assert_eq(mla_lse_convert(lse, MLA_LSE_E, from, MLA_LSE_2, to), expected, "from %d to %d", from, to);
        }
    cr_assert(isnan(mla_lse_convert(NAN, MLA_LSE_E, false, MLA_LSE_2, true)));
    cr_assert_eq(mla_lse_convert(INFINITY, MLA_LSE_E, false, MLA_LSE_2, false), INFINITY, "an overflow stays one");
}
