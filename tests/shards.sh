#!/bin/bash
# A run shared by several processes, and one broken off: shards.sh MLA_VERIFY  With Open MPI where there is one, and without.
set -uo pipefail
. "$(dirname "$0")/support_checks.sh"
export OMP_NUM_THREADS=1
unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE SLURM_PROCID JOB_COMPLETION_INDEX MLA_SHARDS
cd "$folder" || exit 1

# The example; where there is a file `fatal`, the verifier of rank 3 is killed at heads=5, when the other ranks have finished.
cat >mortal.c <<END
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#define mla_plugin_kernel right_kernel
#include "$root/gpu/example_plugin.c"
#undef mla_plugin_kernel
static int run_mortal(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t size) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (launch->host->heads == 5 && rank && *rank == '3' && access("$folder/fatal", F_OK) == 0) {
        sleep(2);
        kill(getppid(), SIGKILL);
    }
    return run(kernel, launch, reason, size);
}
__attribute__((visibility("default"))) const mla_kernel *mla_plugin_kernel(void);
const mla_kernel *mla_plugin_kernel(void) {
    static mla_kernel mortal;
    mortal = *right_kernel();
    mortal.run = run_mortal;
    return &mortal;
}
END
${CC:-cc} -std=c11 -D_GNU_SOURCE -O1 -include stdio.h -shared -fPIC -o mortal.so mortal.c -lm || exit 1
for heads in 1 2 3 4 5 6 7 8; do echo "heads=$heads kv_len=$((9 * heads))"; done >eight.cases
work=(run --kernel ./mortal.so --kernel reference --cases eight.cases)

# same A B: but for timings
same() { diff <(grep -v '"seconds"' "$1") <(grep -v '"seconds"' "$2"); }
missing() { grep -c '^MISSING' stdout; }

run "${work[@]}" --json whole.json
check "one process runs all" exits 0

# ---- parts ---------------------------------------------------------------------------------------------------------------------------------
for i in 2 0 1; do run "${work[@]}" --shard $i/3 --json part.$i.json; done
check "a part says what it is" says "shard 1 of 3: "
run merge merged.json part.*.json
check "three parts are merged" exits 0
check "into the report of one process" same whole.json merged.json
rm part.1.json
run merge merged.json part.*.json
check "a missing part is no pass" exits 1
check "it is named" says "no report of shard 1 of 3"
check "so are its cases" test "$(missing)" -gt 0
check "and counted" says "$(missing) results are missing"
JOB_COMPLETION_INDEX=1 MLA_SHARDS=3 run "${work[@]}" --json part.%r.json
check "an indexed job takes its part by itself" exits 0
run merge merged.json part.*.json
check "and completes the whole" same whole.json merged.json
run merge - part.*.json
check "merge writes to standard output" same whole.json stdout
run run --kernel reference --case heads=1 --shard 1/2
check "a part without a case is no failure" exits 0

# ---- journals ------------------------------------------------------------------------------------------------------------------------------
run "${work[@]}" --resume journal --json first.json
check "a run keeps a journal" test "$(wc -l <journal)" = 17
head -n 9 journal >cut && printf '{"index": 4, "ker' >>cut
run "${work[@]}" --resume cut --json resumed.json
check "a run that was broken off goes on" exits 0
check "from what is finished" says "8 results are in cut already"
check "and its report is that of a whole run" same whole.json resumed.json
check "the journal is whole again" test "$(wc -l <cut)" = 17
cp cut before
run "${work[@]}" --resume cut --json resumed.json
check "a finished run repeats nothing" cmp -s before cut
check "and still reports all" same whole.json resumed.json

# ---- what is refused -----------------------------------------------------------------------------------------------------------------------
out=$folder/out/o.json
refuse "a part beyond the last" "${work[@]}" --shard 3/3 --json "$out"
refuse "half a part" "${work[@]}" --shard 1 --json "$out"
refuse "the journal of other cases" run --kernel reference --cases eight.cases --resume journal --json "$out"
refuse "the journal of another part" "${work[@]}" --shard 0/2 --resume journal --json "$out"
refuse "a file that is no journal" "${work[@]}" --resume eight.cases --json "$out"
refuse "a part that is there twice" merge "$out" part.0.json part.0.json
refuse "parts of different runs" merge "$out" part.0.json whole.json
refuse "a file that is no report" merge "$out" eight.cases
refuse "merging nothing" merge "$out"
export OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2
refuse "one file for two ranks" "${work[@]}" --json "$out"
refuse "one journal for two ranks" "${work[@]}" --json "$folder/out/%r.json" --resume "$folder/out/journal"
unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE

# ---- Open MPI ------------------------------------------------------------------------------------------------------------------------------
if ! command -v mpirun >/dev/null; then
    echo "SKIPPED with mpirun: there is none (openmpi-bin)"
    finish "shards"
    exit
fi
# mpi RANKS ARGUMENT...
mpi() {
    local ranks=$1
    shift
    mpirun --oversubscribe --allow-run-as-root -n "$ranks" "$verify" "$@" >stdout 2>stderr </dev/null
    code=$?
}
for ranks in 1 2 4; do
    rm -f part.*.json
    mpi $ranks "${work[@]}" --json part.%r.json
    check "$ranks ranks exit 0" exits 0
    run merge merged.json part.*.json
    check "the reports of $ranks ranks make that of one process" same whole.json merged.json
done

rm -f part.*.json
touch fatal
resumable=("${work[@]}" --resume journal.%r --json part.%r.json)
mpi 4 "${resumable[@]}"
check "a killed rank is no pass" eval '[ $code != 0 ]'
check "and leaves no report" test ! -e part.3.json
run merge merged.json part.*.json
check "merge says so" exits 1
check "names the rank" says "no report of shard 3 of 4"
check "names the case it died of" grep -q '^MISSING heads=5 .*mortal.so' stdout
rm fatal
mpi 4 "${resumable[@]}"
check "the same command goes on" exits 0
check "from what is finished" says "results are in journal.0 already"
run merge merged.json part.*.json
check "and makes the report of one process" same whole.json merged.json
finish "shards"
