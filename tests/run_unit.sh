#!/bin/bash
# Runs Criterion binaries. Criterion exits 0 when it ran nothing: here that is a failure.
set -uo pipefail
export OMP_WAIT_POLICY=passive
total=0
failed=""
for binary in "$@"; do
    name=$(basename "$binary")
    log=$(mktemp)
    start=$SECONDS
    if ! "$binary" >"$log" 2>&1; then failed="$failed $name"; fi
    tested=$(sed -n 's/.*Tested: \(\x1b\[[0-9;]*m\)*\([0-9]*\).*/\2/p' "$log" | tail -n 1)
    if [ "${tested:-0}" = 0 ]; then failed="$failed $name(no-tests)"; fi
    case "$failed" in *"$name"*) cat "$log" ;; esac
    printf '%-24s %4s tests %4d s\n' "$name" "${tested:-0}" $((SECONDS - start))
    total=$((total + ${tested:-0}))
    rm -f "$log"
done
echo "unit tests: $total"
if [ "$total" = 0 ]; then echo "no test ran" >&2; exit 1; fi
if [ -n "$failed" ]; then echo "failed:$failed" >&2; exit 1; fi
