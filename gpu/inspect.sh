#!/bin/bash
# Prints what the device compilers made of the kernels, a line each, and exits 1 when one spills, uses scratch or lacks the matrix unit.
#   inspect.sh IMAGE...     *.co (AMD code objects), *.fatbin (NVIDIA)     LLVM_BIN, CUDA_BIN: where the tools are
set -uo pipefail
status=0

row() { printf '%-8s %-22s %5s %6s %7s %7s %7s %7s\n' "$@"; }

# AMD: the code object's own notes, and its disassembly.
inspect_amd() {
    local arch=$(basename "$1" .co) name vgpr spill scratch lds body matrix wide
    while read -r name vgpr spill scratch lds; do
        body=$("$LLVM_BIN/llvm-objdump" -d --no-show-raw-insn --disassemble-symbols="$name" "$1")
        matrix=$(grep -c 'v_mfma' <<<"$body")
        wide=$(grep -cE 'global_load_(lds_)?dwordx4' <<<"$body")
        row "$arch" "$name" "$vgpr" "$spill" "$scratch" "$lds" "$matrix" "$wide"
        if [ "$spill" != 0 ] || [ "$scratch" != 0 ]; then status=1; fi
        case "$name" in mla_splitk_*) if [ "$matrix" = 0 ] || [ "$wide" = 0 ]; then status=1; fi ;; esac
    done < <("$LLVM_BIN/llvm-readelf" --notes "$1" | awk '
        $1 == ".name:" && $2 ~ /^mla_/ { name = $2 }
        $1 == ".vgpr_count:" { vgpr = $2 }
        $1 == ".vgpr_spill_count:" { spill = $2 }
        $1 == ".private_segment_fixed_size:" { scratch = $2 }
        $1 == ".group_segment_fixed_size:" { lds = $2 }
        $1 == ".wavefront_size:" { print name, vgpr, spill, scratch, lds }')
}

# NVIDIA: ptxas' own figures, and the SASS.
inspect_nvidia() {
    local arch name registers stack lds body matrix wide
    [ -x "$CUDA_BIN/cuobjdump" ] || { echo "$1: not inspected (no cuobjdump beside nvcc)"; return; }
    for arch in $("$CUDA_BIN/cuobjdump" --list-elf "$1" | sed -n 's/.*\.\(sm_[0-9a-z]*\)\.cubin/\1/p'); do
        while read -r name registers stack lds; do
            body=$("$CUDA_BIN/cuobjdump" --dump-sass --gpu-architecture "$arch" --function "$name" "$1")
            matrix=$(grep -cE 'HMMA|HGMMA|QGMMA' <<<"$body")
            wide=$(grep -cE 'LDGSTS.*128|LDG.*128|UBLKCP|UTMALDG' <<<"$body")
            row "$arch" "$name" "$registers" "$(grep -cE 'STL|LDL' <<<"$body")" "$stack" "$lds" "$matrix" "$wide"
            if [ "$stack" != 0 ]; then status=1; fi
            case "$name" in mla_splitk_*) if [ "$matrix" = 0 ] || [ "$wide" = 0 ]; then status=1; fi ;; esac
        done < <("$CUDA_BIN/cuobjdump" --dump-resource-usage --gpu-architecture "$arch" "$1" 2>/dev/null | awk '
            $1 == "Function" { name = $2; sub(/:$/, "", name) }
            /REG:/ { reg = stack = shared = 0
                     for (i = 1; i <= NF; i++) { split($i, f, ":"); if (f[1] == "REG") reg = f[2]; if (f[1] == "STACK") stack = f[2]; if (f[1] == "SHARED") shared = f[2] }
                     print name, reg, stack, shared }')
    done
}

row machine kernel regs spills scratch LDS matrix wide-ld
for image in "$@"; do
    case "$image" in
    *.co) inspect_amd "$image" ;;
    *.fatbin) inspect_nvidia "$image" ;;
    esac
done
[ "$status" = 0 ] || echo "a kernel spills, uses scratch, or lacks matrix instructions or 16-byte loads" >&2
exit $status
