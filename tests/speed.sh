#!/bin/bash
# What the CPU's side may take: speed.sh MLA_VERIFY. Minutes; with FAST=1 start-up alone. Where other programs have the processors it says BUSY, which
# is neither kept nor missed.
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

# seconds COMMAND...: its time and its processor time into $took and $used, its exit status into $code
seconds() {
    local TIMEFORMAT='%0R %U %S' times
    times=$({ time "$@" >"$folder/stdout" 2>"$folder/stderr"; } 2>&1)
    code=$?
    read -r took used <<<"$(awk '{ print $1, int($2 + $3) }' <<<"$times")"
}

# More programs want to run than there are processors, this script's own two threads aside.
busy() { awk -v n="$(nproc)" '{ exit !($1 > n + 1) }' /proc/loadavg; }

# within NAME LIMIT: the last `seconds`
within() {
    local what="$1: $took s, at most $2 ($used s of processor time)"
    if [ "$took" -gt "$2" ] && busy; then
        printf '%-6s %s\n' BUSY "$what"
    else
        check "$what" test "$took" -le "$2"
    fi
}

for arguments in "--help" "run --help" "info --kernel reference --kernel splitk@host:cdna3" "run --kernel reference --case kv_len=0"; do
    least $arguments
    check "$arguments: $took ms, at most 50" test "$took" -le 50
done
[ -n "${FAST:-}" ] && { finish "start-up"; exit; }

sed -n '/^# its tests/,/^# its benchmarks/p' data/contest.cases >"$folder/tests.cases"
OMP_NUM_THREADS=2 seconds "$verify" run --quiet --kernel reference --cases "$folder/tests.cases"
check "the contest's tests pass" exits 0
within "their inputs, truth, reference and verdict on two threads" 60

seconds ${MAKE:-make} check
check "make check passes" exits 0
within "make check" 60

ratios=(bench --quiet --kernel reference --cases data/cpu.cases --require)
unset OMP_WAIT_POLICY
run "${ratios[@]}"
exits 3 && OMP_WAIT_POLICY=passive run "${ratios[@]}" # too busy for threads that wait by spinning
sed -n '/^limits/,$p' "$folder/stdout"
exits 3 || check "ratios within their limits" exits 0

finish speed
