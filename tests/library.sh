#!/bin/bash
# The library as others use it: library.sh MLA_VERIFY  Installed, found by pkg-config, linked to from C, opened from Python.
set -uo pipefail
. "$(dirname "$0")/support_checks.sh"
prefix=$folder/there
symbols() { nm -D --defined-only "$prefix/lib/libmlaverify.so" | sed 's/.* //' | sort | tr '\n' ' '; }

${MAKE:-make} -s -C "$root" install PREFIX="$prefix" >"$folder/stdout" 2>"$folder/stderr"
code=$?
check "make install" exits 0
check "mla-verify runs from there" "$prefix/bin/mla-verify" run -q --kernel reference --case heads=1
check "the library shows what its header declares" test "$(symbols)" = "mlaverify_abi mlaverify_grade_free mlaverify_grade_output mlaverify_problem_bytes "

cat >"$folder/use.c" <<END
#include <mlaverify.h>
#include <stdio.h>
#include <string.h>

/* One key, one head: out is the value, lse the score. */
int main(void) {
    static uint16_t q[576], kv[576];
    static float out[512];
    float lse = 0;
    int32_t indptr[] = {0, 1};
    mla_problem p = {.batch = 1, .heads = 1, .q_format = MLA_BF16, .q_scale = 1, .q = q, .total_q = 1, .qo_indptr = indptr, .kv_format = MLA_KV_BF16,
                     .kv_scale = 1, .kv = kv, .total_kv = 1, .kv_indptr = indptr, .sm_scale = 1, .out_format = MLA_FP32};
    mlaverify_grade grade;
    q[0] = 0x3F80; /* 1 */
    kv[0] = 0x4000; /* 2 */
    out[0] = 2, lse = 2;
    mla_status status = mlaverify_grade_output(&p, &(mla_output){out, &lse}, MLA_SPACE_HOST, NULL, &grade);
    if (status.code != MLA_OK || !grade.passed)
        return printf("%s\n%s", status.message, grade.text ? grade.text : ""), 1;
    mlaverify_grade_free(&grade);
    out[1] = 1;
    status = mlaverify_grade_output(&p, &(mla_output){out, &lse}, MLA_SPACE_HOST, NULL, &grade);
    printf("%s", grade.text);
    return status.code != MLA_OK || grade.passed || grade.wrong_elements != 1 || grade.worst.column != 1;
}
END
if command -v pkg-config >/dev/null; then
    flags=$(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs mlaverify)
else
    echo "SKIPPED pkg-config: there is none"
    flags="-I$prefix/include/mlaverify/verify -L$prefix/lib -Wl,-rpath,$prefix/lib -lmlaverify"
fi
${CC:-cc} -std=c11 -Wall -Wextra -Werror -o "$folder/use" "$folder/use.c" $flags >"$folder/stdout" 2>"$folder/stderr"
code=$?
check "a program compiles and links" exits 0
"$folder/use" >"$folder/stdout" 2>"$folder/stderr"
code=$?
check "and grades" exits 0
check "with a report" says "FAILED  heads=1 kv_len=1 scale=1 out=fp32"

if command -v python3 >/dev/null; then
    for program in test_grade_tensors.py test_jax_attention.py; do
        MLAVERIFY=$prefix/lib/libmlaverify.so python3 "$root/tests/$program" >"$folder/stdout" 2>"$folder/stderr"
        code=$?
        cat "$folder/stdout"
        says "SKIPPED $program" || check "from Python: $program" exits 0
    done
else
    echo "SKIPPED python3: there is none"
fi
finish "library"
