#!/bin/bash
# The command line from end to end: cli.sh MLA_VERIFY  One line a check, and a total. Fails when a check fails, and when none ran.
set -uo pipefail
. "$(dirname "$0")/support_checks.sh"
plugin=$(dirname "$verify")/example_plugin.so
json=$folder/out/r.json
small='heads=2 batch=2 kv_len=17 seed=3'

# ---- a good run ------------------------------------------------------------------------------------------------------------------------
run run --kernel reference --case "$small" --json "$json"
check "a good run exits 0" exits 0
check "its case is PASSED" says "PASSED  $small"
check "its summary counts it" says "1 passed, 0 failed, 0 skipped, 0 error"
check "nothing on stderr in a pipe" stderr_empty
check "no colour, no progress bar in a pipe" plain
check "its JSON parses" json_parses "$json"
check "its JSON says PASSED" grep -q '"status":.*"PASSED"' "$json"
check "no temporary file is left" test "$(ls -A "$folder/out")" = r.json
rm -f "$json"

printed=$(sed -n 's/^PASSED  \(.*[^ ]\)  *reference$/\1/p' "$folder/stdout")
run run --kernel reference --case "$printed"
check "the printed case repeats itself" says "PASSED  $printed"

run run --kernel reference --case 'seed=3 kv_len=17 batch=2 heads=2'
check "keys in any order print canonically" says "PASSED  $small"

run run -q --kernel reference --case "$small"
check "quiet prints the summary alone" test "$(wc -l <"$folder/stdout")" = 1

run run --kernel reference --case "$small" --json -
check "JSON on stdout parses" json_parses "$folder/stdout"
check "and the text is on stderr" grep -q '^PASSED' "$folder/stderr"

printf '# two cases\n%s\n\nkv_len=5 heads=1\n' "$small" >"$folder/two.cases"
run run --kernel reference --cases "$folder/two.cases" --case 'kv_len=0 heads=1' --random 2 --seed 9 --json "$json"
check "files, lines and random cases mix" says "passed"
check "and all five are in the JSON" test "$(grep -c '"status":' "$json")" = 5
run run --kernel reference --random 2 --seed 9
cp "$folder/stdout" "$folder/first"
run run --kernel reference --random 2 --seed 9
check "random cases repeat from their seed" cmp -s "$folder/first" "$folder/stdout"
rm -f "$json"

engines=
for engine in cdna3 cdna4 mma; do
    run info --kernel splitk@host:$engine
    [ "$code" = 0 ] && engines="$engines --kernel splitk@host:$engine"
done
run run --kernel reference $engines --case 'heads=2 kv=mxfp4 kv_len=0,1,63,65,8191 page=16 input=needle'
check "mxfp4 in pages passes on all kernels" exits 0
check "and none is skipped" says " 0 failed, 0 skipped"
run run --kernel reference $engines --case 'heads=2 kv=fp8 kv_len=70 page=16 spread=100000'
check "a cache far larger than what is used passes" exits 0

run run --kernel reference --kernel "$plugin" --case "$small"
check "the example plug-in passes" exits 0
check "two kernels, two results" says "2 passed"

# ---- a mismatch ----------------------------------------------------------------------------------------------------------------------------
cat >"$folder/wrong.c" <<END
#define mla_plugin_kernel right_kernel
#include "$root/gpu/example_plugin.c"
#undef mla_plugin_kernel

/* One element wrong; with three heads, a failed launch; with four, a crash; with five, no end. */
static int run_wrong(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t size) {
    if (launch->host->heads == 3)
        return snprintf(reason, size, "three is a crowd");
    if (launch->host->heads == 4)
        abort();
    if (launch->host->heads == 5)
        for (puts("still here"), fflush(stdout);;)
            ;
    int failed = run(kernel, launch, reason, size);
    ((uint16_t *)launch->output->out)[513] ^= 0x4000;
    return failed;
}

__attribute__((visibility("default"))) const mla_kernel *mla_plugin_kernel(void);
const mla_kernel *mla_plugin_kernel(void) {
    static mla_kernel wrong;
    wrong = *right_kernel();
    wrong.run = run_wrong;
    return &wrong;
}
END
if ${CC:-cc} -std=c11 -O1 -include stdio.h -include stdlib.h -shared -fPIC -o "$folder/it's wrong.so" "$folder/wrong.c" -lm; then
    run run --kernel "$folder/it's wrong.so" --kernel reference --case "$small" --json "$json"
    check "a wrong element exits 1" exits 1
    check "its case is FAILED" says "FAILED  $small"
    check "and says how many" says "1 of 2048 elements outside the bound"
    check "and where" says "worst: seq 0 q 0 head 1 col 1  got 0x"
    check "its JSON parses" json_parses "$json"
    check "its JSON says FAILED" grep -q '"status":.*"FAILED"' "$json"
    rm -f "$json"
    repeat=$(sed -n 's/^ *repeat: mla-verify //p' "$folder/stdout")
    eval "run $repeat"
    check "the repeat line, given to a shell, fails again" exits 1
    check "with the same element" says "worst: seq 0 q 0 head 1 col 1  got 0x"
    run run --kernel "$folder/it's wrong.so" --case 'heads=3 kv_len=5'
    check "a launch that fails exits 1" exits 1
    check "is an ERROR" says "ERROR   heads=3 kv_len=5"
    check "and gives the kernel's reason" says "three is a crowd"
    run run --kernel "$folder/it's wrong.so" --kernel reference --timeout 2 --case 'heads=4 kv_len=5' --case 'heads=5 kv_len=5' --json "$json" --junit "$folder/out/r.xml" -q
    check "a crash and a hang exit 1" exits 1
    check "its JUnit XML counts the errors" grep -q '<testsuites .* failures="0" errors="2" skipped="0"' "$folder/out/r.xml"
    rm -f "$folder/out/r.xml"
    check "one is CRASHED" says "CRASHED heads=4 kv_len=5"
    check "by a signal" says "killed by SIGABRT"
    check "the other a TIMEOUT" says "TIMEOUT heads=5 kv_len=5"
    check "what else there is goes on" says "2 passed, 0 failed, 0 skipped, 0 error, 1 crashed, 1 timeout"
    check "and what the kernel printed is in no report" eval '! says "still here"'
    check "the JSON counts them" eval 'grep -q "\"crashed\":.*1" "$json" && grep -q "\"status\":.*\"TIMEOUT\"" "$json"'
    rm -f "$json"
    mkdir "$folder/kept"
    run run --kernel "$folder/it's wrong.so" --shrink --save-failing "$folder/kept" --case 'heads=9 batch=3 q_len=2 kv_len=90' --case 'heads=4' --case 'heads=3' --json "$json"
    check "a failing case is shrunk" says "smallest: mla-verify run --kernel '$folder/it'\\''s wrong.so' --case 'heads=1 kv_len=0'"
    check "so is a crashing one" says "--case 'heads=4 kv_len=0'"
    check "and a launch that fails" says "--case 'heads=3 kv_len=0'"
    check "the JSON has the smallest" grep -q '"smallest":.*"heads=1 kv_len=0"' "$json"
    rm -f "$json"
    check "three golden files and the outputs of one are kept" test "$(ls "$folder/kept" | wc -l)" = 4
    repeat=$(sed -n 's/^ *kept: mla-verify check //p' "$folder/stdout")
    eval "run check $repeat"
    check "what was kept is graded the same" says "worst: seq 0 q 0 head 1 col 1  got 0x"
    { run run --in-process --kernel "$folder/it's wrong.so" --case 'heads=4 kv_len=5'; } 2>/dev/null
    check "in the process itself a crash ends everything" exits 134
    run run -q --kernel "$folder/it's wrong.so" --kernel reference --case "$small"
    check "quiet still shows a failure" says "FAILED  $small"
    run bench --repeat 2 --kernel "$folder/it's wrong.so" --kernel reference --case "$small" --json "$json"
    check "bench grades: a wrong kernel exits 1" exits 1
    check "and is not timed" says "FAILED, not timed: 1 of 2048 elements outside the bound"
    check "the right one beside it is" grep -q '^  reference  *cold  *2  *[0-9.]* [um]s' "$folder/stdout"
    check "the JSON has times of that one alone" test "$(grep -c '"cold":' "$json")" = 1
    rm -f "$json"
else
    check "the wrong plug-in compiles" false
fi

# ---- bench -----------------------------------------------------------------------------------------------------------------------------
run bench --repeat 3 --kernel reference --kernel splitk@host:mma --case "$small" --json "$json"
check "bench exits 0" exits 0
check "says what the device reaches" grep -q '^host.*: copies [0-9.]* GB/s, sgemm of [0-9]*^3, [0-9]* threads [0-9.]* TFLOP/s$' "$folder/stdout"
check "has its columns" grep -q '^  kernel  *launches  *median  *min  *p90-p10  *GB/s  *TFLOP/s  *of floor  *to first$' "$folder/stdout"
check "the first kernel is its own measure" grep -q '^  reference  *cold  *3 .* 1$' "$folder/stdout"
check "times a kernel without its plan" grep -q '^  splitk@host:mma  *cold  *3 ' "$folder/stdout"
check "and with it" grep -q '^  *cold+plan  *3 ' "$folder/stdout"
check "its JSON parses" json_parses "$json"
rm -f "$json"
run bench --repeat 1 --kernel reference --case "$small" --require
check "a limit that does not apply is no pass" exits 3
refuse "a bench of no time" bench --kernel reference --case "$small" --seconds 0
refuse "a bench of no launches" bench --kernel reference --case "$small" --repeat 0
refuse "a bench of nothing" bench --kernel reference

# ---- mutants ---------------------------------------------------------------------------------------------------------------------------
run mutants --kernel reference --case 'kv_len=65,3' --only drop_last --only all_zero --only reversed --tolerance 10,10 --json "$folder/mutants.json"
check "planted bugs are noticed: exit 0" exits 0
check "the summary counts them" says "2 of 2 mutants killed, 0 not shown; 2 of 2 benign variants passed"
check "a wide tolerance of one's own catches none" grep -q '^yours  *0 of 2 ' "$folder/stdout"
check "the JSON counts them too" grep -q '"killed":	2' "$folder/mutants.json"
check "and the causes that were named" grep -q '"diagnosed":	2' "$folder/mutants.json"
check "and what each part of the gate noticed" grep -q '"killers":' "$folder/mutants.json"
run mutants --kernel splitk@host:mma --case 'heads=2 kv_len=130 input=exact' --only next_code
check "where inputs are exact, bits alone notice the next code" grep -q '^bits  *1  *1  *1$' "$folder/stdout"
run mutants --kernel reference --case 'kv_len=65 input=flat' --only equal_weights
check "nothing that shows is no pass" exits 1
check "and says so" says "0 of 0 mutants killed, 1 not shown"
run mutants --kernel splitk@nvidia --case "$small"
[ "$code" = 3 ] || run mutants --help
check "a kernel that cannot run here is no pass" eval 'exits 3 || exits 0'

# ---- invariance ------------------------------------------------------------------------------------------------------------------------
run invariance --kernel reference --case 'heads=2 kv_len=40,3 seed=1' --json "$folder/invariance.json"
check "invariance exits 0" exits 0
check "says which bits were compared" says "INVARIANT  neighbour  every other sequence's KV was NaN"
check "and its JSON parses" json_parses "$folder/invariance.json"

# ---- drift -----------------------------------------------------------------------------------------------------------------------------------
truncating=$folder/truncating.so nearest=$folder/nearest.so
source=$root/tests/plugin_truncating.c
if ${CC:-cc} -std=c11 -O2 -DTRUNCATE_P -shared -fPIC -o "$truncating" "$source" -lm &&
    ${CC:-cc} -std=c11 -O2 -shared -fPIC -o "$nearest" "$source" -lm; then
    drifting='heads=2 kv_len=300'
    run drift stages --kernel "$truncating" --case "$drifting" --json "$json"
    check "a kernel that truncates P against its word exits 1" exits 1
    check "P is named" says "bf16 rz, where bf16 rne was declared"
    check "its JSON parses" json_parses "$json"
    check "its JSON names P first" grep -q '"stage":.*"P"' "$json"
    run drift stages --kernel "$nearest" --case "$drifting"
    check "one that keeps its word exits 0" exits 0
    run drift order --kernel "$truncating" --case "$drifting" --json "$json"
    check "its order exits 0" exits 0
    check "its tile is found" grep -q '"tile":.*64' "$json"
    check "its one split is found" says "1 of 300 tokens"
    run drift diff "$truncating" "$nearest" --case "$drifting" --json "$json"
    check "two kernels of different bits exit 1" exits 1
    check "the farther one is named" says "$truncating is farther"
    check "their JSON parses" json_parses "$json"
    run drift diff "$nearest" "$nearest" --case "$drifting"
    check "the same bits exit 0" exits 0
    rm -f "$json"
    run drift sweep --kernel "$truncating" --over kv_len --to 256 --csv "$json" --html "$folder/sweep.html"
    check "a sweep exits 0" exits 0
    check "its law is printed beside the theory's" says "sigma, by theory,    ~ kv_len^-"
    check "its page is one" grep -q "</html>" "$folder/sweep.html"
    check "its CSV has a line a point" test "$(wc -l <"$json")" = 4
    rm -f "$json"
    for over in splits heads spread; do
        run drift sweep --kernel "$nearest" --over $over --to 2 --case "$([ $over = heads ] || echo heads=2) kv_len=64"
        check "a sweep over $over exits 0" exits 0
    done
else
    check "the truncating plug-in compiles" false
fi
run drift order --kernel splitk@host:cdna4 --case 'heads=1 kv_len=130 plan=fixed:2'
check "splits of our own kernel are found" says "2 of 65 tokens"
check "and are those of its plan" says "plan     the same splits, tile and combine"
check "and its order within a step" says "one by one: 0-3 16-19 4-7 20-23"
refuse "drift without a command" drift
refuse "an unknown command of drift" drift away
refuse "an order of two kernels" drift order --kernel reference --kernel oracle --json "$json"
refuse "a sequence beyond the batch" drift order --kernel reference --sequence 1 --json "$json"
refuse "a difference of one kernel" drift diff reference --json "$json"
refuse "a sweep over nothing" drift sweep --kernel reference --json "$json"
refuse "a sweep over an unknown thing" drift sweep --kernel reference --over time --json "$json"
refuse "a sweep of two files to one standard output" drift sweep --kernel reference --over kv_len --csv - --html -
refuse "a sweep over what its case has" drift sweep --kernel reference --over kv_len --case "$small" --json "$json"

# ---- bad usage and bad input ---------------------------------------------------------------------------------------------------------------
refuse "no command"
refuse "an unknown command" fly
refuse "no kernel" run --case "$small" --json "$json"
refuse "no case" run --kernel reference --json "$json"
refuse "an unknown option" run --kernel reference --case "$small" --json "$json" --fast
refuse "an option without its value" run --kernel reference --json "$json" --case
refuse "a stray argument" run --kernel reference --case "$small" --json "$json" stray
refuse "an unknown kernel" run --kernel nosuchkernel --case "$small" --json "$json"
refuse "an unknown machine" run --kernel splitk@toaster --case "$small" --json "$json"
refuse "a missing plug-in" run --kernel "$folder/none.so" --case "$small" --json "$json"
refuse "/bin/ls as a plug-in" run --kernel /bin/ls --case "$small" --json "$json"
refuse "a library that is no plug-in" run --kernel "$(ldd "$verify" | sed -n 's/.*=> \(.*libcjson[^ ]*\).*/\1/p')" --case "$small" --json "$json"
refuse "a negative length" run --kernel reference --case 'kv_len=-3' --json "$json"
refuse "a scale stride below a row of scales" run --kernel reference --case 'kv=mxfp4 scale_stride=3' --json "$json"
check "the error says what is allowed" grep -q "scale_stride=3: 3 is not in 18" "$folder/stderr"
refuse "a spread below the tokens" run --kernel reference --case 'kv_len=70 spread=69' --json "$json"
refuse "an unknown key" run --kernel reference --case 'nosuchkey=1' --json "$json"
refuse "a bad case after a good one" run --kernel reference --case "$small" --case 'heads=0' --json "$json"
refuse "a bad kernel after a good one" run --kernel reference --kernel nosuchkernel --case "$small" --json "$json"
refuse "a missing cases file" run --kernel reference --cases "$folder/none.cases" --json "$json"
refuse "a folder as cases file" run --kernel reference --cases "$folder" --json "$json"
refuse "zero random cases" run --kernel reference --random 0 --json "$json"
refuse "a random count with a tail" run --kernel reference --random 3x --json "$json"
refuse "a negative seed" run --kernel reference --random 3 --seed -1 --json "$json"
refuse "a seed of nothing" run --kernel reference --case "$small" --seed 1 --json "$json"
refuse "a JSON file in a missing folder" run --kernel reference --case "$small" --json "$folder/none/r.json"
refuse "two reports on standard output" run --kernel reference --case "$small" --json - --junit -
refuse "a JUnit file in a missing folder" run --kernel reference --case "$small" --junit "$folder/none/r.xml"
refuse "outputs to two folders" run --kernel reference --case "$small" --save-outputs "$folder" --save-failing "$folder"
refuse "failing cases in a folder of a missing one" run --kernel reference --case "$small" --save-failing "$folder/none/in"
refuse "a time limit that is no number" run --kernel reference --case "$small" --timeout soon
refuse "a folder as JSON file" run --kernel reference --case "$small" --json "$folder/out"
refuse "an unknown kernel in info" info --kernel nosuchkernel
refuse "two kernels of mutants" mutants --kernel reference --kernel reference --case "$small" --json "$json"
refuse "an unknown mutant" mutants --kernel reference --case "$small" --only nosuchmutant --json "$json"
refuse "a tolerance of one number" mutants --kernel reference --case "$small" --tolerance 0.1 --json "$json"
refuse "a negative tolerance" mutants --kernel reference --case "$small" --tolerance 0.1,-1 --json "$json"
refuse "a folder without plug-ins" mutants --kernel reference --case "$small" --dir "$folder/out" --json "$json"

printf '%s\nkv_len=x\n' "$small" >"$folder/bad.cases"
refuse "a malformed line in a file" run --kernel reference --cases "$folder/bad.cases" --json "$json"
check "the error names file and line" grep -q "bad.cases:2" "$folder/stderr"
printf '# nothing\n' >"$folder/empty.cases"
refuse "a cases file without cases" run --kernel reference --cases "$folder/empty.cases" --json "$json"

"$verify" run --kernel reference --case "$small" >/dev/full 2>"$folder/stderr"
code=$?
: >"$folder/stdout"
check "a full disk behind stdout is no pass" refused

# ---- nothing could run ---------------------------------------------------------------------------------------------------------------------
for kernel in splitk@nvidia splitk@amd bmm@nvidia bmm@amd; do
    run info --kernel $kernel
    [ "$code" = 0 ] && continue
    check "info says that $kernel is off" exits 3
    run run --kernel $kernel --case "$small"
    check "$kernel without its device exits 3" exits 3
    check "and says SKIPPED" says "SKIPPED $small"
    check "and that it is not a pass" says "this is not a pass"
    run run --kernel $kernel --kernel reference --case "$small"
    check "a skipped kernel beside one that passes exits 0" exits 0
    check "and the summary shows it" says "1 passed, 0 failed, 1 skipped, 0 error"
done

# ---- info and help ---------------------------------------------------------------------------------------------------------------------------
run info
check "info exits 0" exits 0
check "info lists the kernels" says "splitk@host:cdna3"
run info --kernel reference
check "info on one kernel exits 0" exits 0
for arguments in --help "run --help" "info --help" "bench --help" "mutants --help" "invariance --help" "drift --help" "drift stages --help" "drift order --help" "drift sweep --help" "drift diff --help" "contract --help" "run -h"; do
    run $arguments
    check "$arguments is on stdout and exits 0" eval 'exits 0 && says "usage: mla-verify" && stderr_empty'
done

# ---- contracts ------------------------------------------------------------------------------------------------------------------------------------
run contract
check "contract lists the presets" says "flashmla      acc_rounding=rz"
run contract 'torch-bf16 tile=8'
check "contract prints one in full" grep -q "scores=bf16 n_scores=2 .* tile=8 " "$folder/stdout"
run contract flash
check "an unknown preset exits 2" exits 2
run contract --kernel reference
check "contract prints what a kernel declares" says "p=fp32"
run contract --infer
check "inference without a kernel exits 2" exits 2
run run --kernel splitk@host:mma --case "$small" --contract p=fp32
check "a contract that is too strict fails a right kernel" exits 1
check "and the command that repeats it says so" grep -q -- "--contract .p=fp32" "$folder/stdout"
run run --kernel splitk@host:mma --case "$small" --contract 'flashmla p=fp16' --in-process
check "without a worker, too" exits 1
run run --kernel splitk@host:mma --case "$small" --contract flashmla
check "one that is met passes" exits 0
run run --kernel splitk@host:mma --case "$small" --contract 'p=fp8 p_scale=256 scores=bf16'
check "one that is far too loose passes, and says so" says "times smaller than this contract explains"
run run --kernel reference --case 'heads=2 kv_len=200 scale=40' --contract scores=bf16
check "one that gates nothing says so" says "this contract gates nothing here"
run run --kernel reference --case "$small" --contract p=int8
check "a malformed contract exits 2" exits 2

# ---- on a terminal -------------------------------------------------------------------------------------------------------------------------------
if command -v script >/dev/null; then
    # terminal [VARIABLE=VALUE]: a run with stdout and stderr on a terminal
    terminal() {
        TERM=xterm env "$@" script -qec "'$verify' run --kernel reference --case '$small'" /dev/null >"$folder/stdout" 2>"$folder/stderr" </dev/null
        code=$?
    }
    terminal NO_COLOR=
    check "a terminal gets colour" grep -q $'\033\\[32mPASSED' "$folder/stdout"
    check "and a progress bar, wiped before each result" grep -q $'\r\\[[# ]*\\] 0/1\r\033\\[K' "$folder/stdout"
    terminal NO_COLOR=1
    check "unless NO_COLOR is set" eval '! grep -q $'"'"'\033\\[32m'"'"' "$folder/stdout"'
fi

finish "command line"
