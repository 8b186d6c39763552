#!/bin/bash
# What the CPU's side may take: speed.sh MLA_VERIFY. Minutes, best on a quiet machine; with FAST=1 start-up alone.
set -uo pipefail
. "$(dirname "$0")/support_checks.sh"
cd "$root" || exit

milliseconds() { echo $(($(date +%s%N) / 1000000)); }

# least ARGUMENT...: the shortest of ten runs, in milliseconds, into $took: other programs only ever add to it
least() {
    took=1000000
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        local began=$(milliseconds)
        run "$@"
        local now=$(($(milliseconds) - began))
        [ "$now" -lt "$took" ] && took=$now
    done
}

# seconds COMMAND...: its time into $took, its exit status into $code
seconds() {
    SECONDS=0
    "$@" >"$folder/stdout" 2>"$folder/stderr"
    code=$?
    took=$SECONDS
}

for arguments in "--help" "run --help" "info --kernel reference --kernel splitk@host:cdna3" "run --kernel reference --case kv_len=0"; do
    least $arguments
    check "$arguments: $took ms, at most 50" test "$took" -le 50
done
[ -n "${FAST:-}" ] && { finish "start-up"; exit; }

sed -n '/^# its tests/,/^# its benchmarks/p' data/contest.cases >"$folder/tests.cases"
OMP_NUM_THREADS=2 seconds "$verify" run --quiet --kernel reference --cases "$folder/tests.cases"
check "the contest's tests, inputs, truth, reference and verdict on two threads: $took s, at most 60" test "$took" -le 60
check "and pass" exits 0

seconds ${MAKE:-make} check
check "make check: $took s, at most 60" test "$took" -le 60
check "and passes" exits 0

ratios=(bench --quiet --kernel reference --cases data/cpu.cases --require)
unset OMP_WAIT_POLICY
run "${ratios[@]}"
exits 3 && OMP_WAIT_POLICY=passive run "${ratios[@]}" # too busy for threads that wait by spinning
sed -n '/^limits/,$p' "$folder/stdout"
check "ratios within their limits" exits 0

finish speed
