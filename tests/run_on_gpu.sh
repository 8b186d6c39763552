#!/bin/bash
# Runs the GPU kernels on whatever GPU this machine has: run_on_gpu.sh MLA_VERIFY ARGUMENT...  No GPU is no failure, but it is said.
set -uo pipefail
verifier=$1
shift
ran=0
for kernel in splitk@nvidia splitk@amd bmm@nvidia bmm@amd; do
    if "$verifier" info --kernel "$kernel" >/dev/null 2>&1; then
        echo "+ $verifier run --kernel $kernel $*"
        "$verifier" run --kernel "$kernel" "$@" || exit $?
        ran=1
    fi
done
[ "$ran" = 1 ] || echo "no GPU here: the kernels ran on the host alone"
