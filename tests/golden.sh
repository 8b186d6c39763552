#!/bin/bash
# Golden files from end to end: golden.sh MLA_VERIFY  They are the same bytes however they are made, and check grades against them.
set -uo pipefail
. "$(dirname "$0")/support_checks.sh"
golden=$root/data/golden
made=$folder/made
mkdir "$folder/large"

same_files() { (cd "$1" && for f in *.safetensors; do cmp "$f" "$2/$f" || exit 1; done); }
# bytes OFFSET FILE HEX...: overwrites bytes of a file
bytes() {
    local offset=$1 file=$2
    shift 2
    printf "$(printf '\\x%s' "$@")" | dd of="$file" bs=1 seek="$offset" conv=notrunc status=none
}

# ---- the same bytes ------------------------------------------------------------------------------------------------------------------------
run gen --cases "$golden/small.cases" --out "$made"
check "gen exits 0" exits 0
check "gen says which rows MPFR rounded" says "2 rows rounded by MPFR"
check "the golden files kept here are made again" same_files "$golden" "$made"
OMP_NUM_THREADS=1 run gen --cases "$golden/small.cases" --out "$folder/threads"
check "one thread makes the same" same_files "$made" "$folder/threads"
OMP_NUM_THREADS=2 OPENBLAS_CORETYPE=Nehalem run gen --cases "$golden/small.cases" --out "$folder/core"
check "two threads and another BLAS kernel make the same" same_files "$made" "$folder/core"
# sums: large.sums as it must be
sums() {
    head -n 1 "$golden/large.sums"
    sed -n 's/^# case //p' "$golden/large.sums" | while read -r line; do
        rm -f "$folder"/large/*
        run gen --case "$line" --out "$folder/large"
        echo "# case $line"
        (cd "$folder/large" && sha256sum -- *)
    done
}
sums >"$folder/large.sums"
check "large ones have the sums kept here" diff "$golden/large.sums" "$folder/large.sums"

# ---- whole or not at all -------------------------------------------------------------------------------------------------------------------
one=$(cd "$made" && ls | head -n 1)
stamp() { stat -c '%n %Y %i' "$made"/*; }
stamp >"$folder/before"
run gen --resume --cases "$golden/small.cases" --out "$made"
check "resume keeps what is there" eval '[ "$(stamp)" = "$(cat "$folder/before")" ]'
check "and says so" says "kept    $made/$one"
truncate -s -1 "$made/$one"
run gen --resume --cases "$golden/small.cases" --out "$made"
check "resume makes a damaged file again" cmp -s "$made/$one" "$golden/$one"
mkdir "$folder/killed"
"$verify" gen --case 'heads=16 batch=16 kv_len=2048' --out "$folder/killed" >/dev/null 2>&1 &
sleep 0.2
kill -9 $! 2>/dev/null
wait $! 2>/dev/null
check "a killed gen leaves no file under its name" eval '! ls "$folder/killed" | grep -q "safetensors$"'

# ---- check ---------------------------------------------------------------------------------------------------------------------------------
case='heads=2 kv_len=40,9 seed=3'
run gen --case "$case" --out "$folder/out"
run run --kernel splitk@host:mma --kernel reference --case "$case" --save-outputs "$folder/out"
truth=$(ls "$folder"/out/*-??????????.safetensors)
ours=${truth%.safetensors}.splitk-host-mma.safetensors
run check "$truth" "$ours"
check "a kernel's own output passes" exits 0
check "and is PASSED" says "PASSED  $case"
run check "$truth" "${truth%.safetensors}.reference.safetensors" --quiet --json "$folder/r.json"
check "so does another's" exits 0
check "the JSON report parses" json_parses "$folder/r.json"
run check "$truth" "$truth"
check "the truth itself passes, as fp32" says "PASSED  heads=2 kv_len=40,9 out=fp32 seed=3"
run drift diff "$ours" "${truth%.safetensors}.reference.safetensors" --golden "$truth" --json "$folder/diff.json"
check "two results of different bits are told apart" exits 1
check "and the farther one is named" says "$ours is farther"
check "in JSON too" json_parses "$folder/diff.json"
run drift diff "$ours" splitk@host:mma --golden "$truth"
check "a result has the bits of its kernel" exits 0
run drift diff "$truth" --kernel reference --golden "$truth"
check "a kernel writes the type of the file beside it" says "$truth and reference  heads=2 kv_len=40,9 out=fp32 seed=3"
run drift diff "$ours" "$ours"
check "a difference of results without their inputs is refused" exits 2
run drift diff "$ours" "$truth" --golden "$truth"
check "a difference of two types is refused" exits 2
run drift diff "$ours" "$ours" --golden "$truth" --case heads=2
check "a difference in two cases is refused" exits 2
bad=$folder/bad.safetensors
cp "$ours" "$bad"
end=$(stat -c %s "$bad")
bytes $((end - 2 * 512 * 2 * 2 + 2 * 512 + 2 * 17)) "$bad" 00 43
run check "$truth" "$bad"
check "a tampered one fails" exits 1
check "naming the place" says "worst: seq 0 q 0 head 1 col 17  got 0x4300 = 128"
check "and how to repeat it" says "repeat: mla-verify check $truth $bad"
run check "$truth" "$ours" --contract 'acc_bits=53 p=fp32 exp_error=0 tile=1000000'
check "a contract that promises more is held to it" exits 1

# ---- bad usage and bad files -----------------------------------------------------------------------------------------------------------------
rm -f "$folder"/out/*
refuse "gen without a folder" gen --case "$case"
refuse "gen without a case" gen --out "$folder/out"
refuse "gen into a folder of a missing one" gen --case "$case" --out "$folder/none/in"
refuse "gen with a kernel" gen --case "$case" --out "$folder/out" --kernel reference
refuse "saved outputs in a folder of a missing one" run --kernel reference --case "$case" --save-outputs "$folder/none/in"
truth=$made/$one
ours=$truth
refuse "check of one file" check "$truth"
refuse "check of three files" check "$truth" "$ours" "$ours"
refuse "check of a missing golden file" check "$folder/none" "$ours"
refuse "check of a missing result" check "$truth" "$folder/none"
refuse "check of a folder" check "$truth" "$folder"
refuse "check with an unknown contract" check "$truth" "$ours" --contract 'speed=1'
refuse "a result of another case" check "$truth" "$made/$(ls "$made" | grep safetensors | tail -n 1)"
# damaged NAME REASON: $bad is neither golden file nor result
damaged() {
    refuse "$1 as golden file" check "$bad" "$ours"
    check "and the reason given" grep -q "$2" "$folder/stderr"
    refuse "$1 as result" check "$truth" "$bad"
}
printf 'hello, world: no tensors here' >"$bad"
damaged "text" "header's length"
: >"$bad"
damaged "an empty file" "too few"
head -c 5000 "$truth" >"$bad"
damaged "a truncated file" "do not lie in"
cp "$truth" "$bad"
bytes 0 "$bad" 00 00 00 00 00 00 00 80
damaged "a header of 2^63 bytes" "reaches beyond the file"
cp "$truth" "$bad"
bytes 0 "$bad" 01 00 00 00 00 00 00 00
damaged "a header of one byte" "no valid JSON"
sed 's/"data_offsets":\[0,/"data_offsets":[4,/' "$truth" >"$bad"
damaged "a hole" "data_offsets"
{ cat "$truth"; printf 'more'; } >"$bad"
damaged "a file with a tail" "belong to no tensor"

for arguments in "gen --help" "check --help"; do
    run $arguments
    check "$arguments is on stdout and exits 0" eval 'exits 0 && says "usage: mla-verify" && stderr_empty'
done

python3 "$root/tests/golden_interop.py" "$verify" >"$folder/stdout" 2>"$folder/stderr"
code=$?
if says SKIPPED; then cat "$folder/stdout"; else check "Python reads golden files and writes results" exits 0; fi
finish "golden files"
