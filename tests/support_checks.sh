# Checks of the command line, one line each; sourced by scripts that are given MLA_VERIFY and end with `finish NAME`.
verify=$(realpath "${1:?usage: $0 MLA_VERIFY}")
root=$(realpath "$(dirname "$0")/..")
folder=$(mktemp -d)
code=none
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/out"
export OMP_WAIT_POLICY=passive
ran=0 failed=0

# check NAME COMMAND...: the command says whether it holds
check() {
    local name=$1 verdict=ok
    shift
    ran=$((ran + 1))
    if ! "$@"; then
        verdict=FAILED
        failed=$((failed + 1))
        printf '  exit %s\n' "$code"
        sed 's/^/  stdout: /' "$folder/stdout" 2>/dev/null
        sed 's/^/  stderr: /' "$folder/stderr" 2>/dev/null
    fi
    printf '%-6s %s\n' "$verdict" "$name"
}

# run ARGUMENT...: leaves the exit status in $code, the streams in files
run() {
    "$verify" "$@" >"$folder/stdout" 2>"$folder/stderr" </dev/null
    code=$?
}

exits() { [ "$code" = "$1" ]; }
says() { grep -qF -- "$1" "$folder/stdout"; }
stdout_empty() { [ ! -s "$folder/stdout" ]; }
stderr_empty() { [ ! -s "$folder/stderr" ]; }
one_line_on_stderr() { [ "$(wc -l <"$folder/stderr")" = 1 ]; }
no_file_written() { [ -z "$(ls -A "$folder/out")" ]; }
refused() { exits 2 && one_line_on_stderr && stdout_empty && no_file_written; }
json_parses() { if command -v python3 >/dev/null; then python3 -m json.tool <"$1" >/dev/null; else grep -q '"summary"' "$1"; fi; }
plain() { ! grep -q $'[\033\r]' "$folder/stdout" "$folder/stderr"; }

# refuse NAME ARGUMENT...: bad usage is exit 2, one line on stderr, and nothing else
refuse() {
    local name=$1
    shift
    run "$@"
    check "$name is refused" refused
}

# finish NAME: the total; fails when a check failed, and when none ran
finish() {
    echo "$1: $ran checks, $failed failed"
    [ "$ran" -gt 0 ] && [ "$failed" = 0 ]
}
