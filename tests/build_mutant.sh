#!/bin/bash
# build_mutant.sh PATCH ARCHIVE PLUGIN: a plug-in of the split-K kernel with a patch applied, named KERNEL+PATCH, from a copy of its sources; everything it does not
# touch comes from the archive. The patch's first line says `engine=ENGINE`, what is seen to kill it, and what it is; without a hunk it is the
# kernel as it is. Fails when the patch does not apply. CC and CXX are taken from the environment.
set -euo pipefail
patch=$(realpath "$1") archive=$2 plugin=$3
root=$(realpath "$(dirname "$0")/..")
name=$(basename "$plugin" .so)
engine=$(sed -n '1s/.*engine=\([a-z0-9]*\).*/\1/p' "$patch")
[ -n "$engine" ] || { echo "$patch: the first line says no engine=" >&2; exit 1; }
work=$(dirname "$plugin")/source/$name
rm -rf "$work" && mkdir -p "$work/gpu" "$work/ref"
cp "$root"/gpu/*.[ch] "$root"/gpu/*.hip "$work/gpu" && cp "$root"/ref/*.h "$work/ref"
if grep -q '^--- ' "$patch"; then
    patch -d "$work" -p1 -s --no-backup-if-mismatch <"$patch" || { echo "$patch no longer applies" >&2; exit 1; }
fi
flags="-fopenmp -fPIC -fvisibility=hidden -ffp-contract=off -w"
$CXX -std=c++17 -O1 $flags -x c++ -DMLA_HOST_EXEC -DMLA_ENGINE_"$(echo "$engine" | tr a-z A-Z)" -c -o "$work/kernels.o" "$work/gpu/kernels.hip"
for source in plan splitk; do
    $CC -std=c11 -D_GNU_SOURCE -O1 $flags -c -o "$work/$source.o" "$work/gpu/$source.c"
done
$CC -std=c11 -D_GNU_SOURCE -O1 $flags -I"$root/gpu" -DMUTANT_NAME="\"splitk@host:$engine+$name\"" -DMUTANT_ENGINE="\"$engine\"" -c -o "$work/plugin.o" "$root/tests/mutant_plugin.c"
$CXX -shared -fopenmp -Wl,-Bsymbolic -Wl,--no-undefined -o "$plugin" "$work"/*.o "$archive" -lboost_context -ldl -lm
rm -rf "$work"
