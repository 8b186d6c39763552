#!/bin/bash
# Prints what the device compilers made of the kernels, a line each, and exits 1 when one goes beyond the limits below.
#   inspect.sh IMAGE...     *.co (AMD code objects), *.fatbin (NVIDIA)     LLVM_BIN, CUDA_BIN: where the tools are
#
# Limits: no spills, no scratch, matrix instructions, 16-byte loads. On AMD also: 256 registers (two waves a SIMD), the LDS of a compute unit, and in split-K kernels the
# matrix instructions of one tile and no more: tokens * rows * (576 + 512) products, of the widest instruction the machine has; the next tile is under way while they run.
#
# AMD, columns: min: that many matrix instructions suffice. waves: that run on a SIMD at once, by registers and by LDS. memory, matrix: microseconds that 64 sequences of 8192 keys
# take at least, with 16 heads (tall: 128), at the peaks of MI300X (gfx942: 5.3 TB/s; 304 compute units x 2048 FLOP x 2.1 GHz = 1307 TFLOP/s) and MI355X (gfx950: 8 TB/s;
# 256 x 4096 x 2.4 GHz = 2517 TFLOP/s), when each key is read from memory once.
set -uo pipefail
status=0

row() { printf '%-11s %-24s %5s %6s %7s %7s %7s %7s\n' "$@"; }
amd_row() { printf '%-11s %-24s %5s %6s %7s %7s %7s %4s %7s %6s %7s %7s\n' "$@"; }
beyond() { echo "$1: $2" >&2; status=1; }

limit_of() { sed -n "s/^#define MLA_$1 \([0-9]*\).*/\1/p" "$(dirname "$0")/engine_limits.h"; }

bytes_a_token() {
    case "$1" in
    *_bf16 | *_fp16) echo 1152 ;;
    *_fp8 | *_fp8fnuz) echo 576 ;;
    *_fp8b656) echo 656 ;;
    *_mxfp4) echo 306 ;;
    esac
}

# Bytes / (TB/s) and FLOP / (TFLOP/s), in microseconds.
floors() {
    local heads=16 tokens=$((64 * 8192)) tbs tflops
    case "$1" in gfx942*) tbs=5.3 tflops=1307 ;; gfx950*) tbs=8 tflops=2517 ;; *) echo "- -" && return ;; esac
    case "$1" in *_tall) heads=128 ;; esac
    awk -v t=$tokens -v b="$(bytes_a_token "$2")" -v h=$heads -v tbs=$tbs -v tf=$tflops 'BEGIN { printf "%.0f %.0f\n", t * b / tbs / 1e6, t * h * 2 * 1088 / tf / 1e6 }'
}

# Is the next tile still under way when the first product begins, or waited for? AMD's loads are waited for in order: one wait for something asked for later is one for all.
at_first_product() { awk '/global_load/ { last = "load" } /s_waitcnt.*vmcnt/ { last = "wait" } /v_mfma/ { print last; exit }'; }

# AMD: the code object's own notes, and its disassembly.
inspect_amd() {
    local arch=$(basename "$1" .co) name vgpr spill scratch lds threads body matrix wide engine depth unit_lds least waves
    case "$arch" in gfx950*) engine=CDNA4 depth=32 unit_lds=163840 ;; *) engine=CDNA3 depth=16 unit_lds=65536 ;; esac
    case "$arch" in *_tall) engine+=TALL ;; esac
    while read -r name vgpr spill scratch lds threads; do
        body=$("$LLVM_BIN/llvm-objdump" -d --no-show-raw-insn --disassemble-symbols="$name" "$1")
        matrix=$(grep -c "v_mfma_f32_16x16x${depth}" <<<"$body")
        wide=$(grep -cE 'global_load_(lds_)?dwordx4' <<<"$body")
        [ "$spill" = 0 ] && [ "$scratch" = 0 ] || beyond "$arch $name" "spills or uses scratch"
        [ "$lds" -le $unit_lds ] || beyond "$arch $name" "$lds bytes of LDS, of $unit_lds"
        least=- waves=$(awk -v r="$vgpr" -v l="$lds" -v t="$threads" -v max=$unit_lds 'BEGIN {
            blocks = int(int(512 / (int((r + 7) / 8) * 8)) * 4 / (t / 64))
            if (l && blocks > int(max / l)) blocks = int(max / l)
            waves = blocks * t / 256
            print (waves > 8 ? 8 : waves) }')
        case "$name" in mla_splitk_*)
            least=$(($(limit_of ${engine}_TOKENS) * $(limit_of ${engine}_ROWS) * 1088 / (256 * depth) / (threads / 64)))
            [ "$matrix" = "$least" ] || beyond "$arch $name" "$matrix matrix instructions a tile, $least suffice"
            [ "$wide" != 0 ] || beyond "$arch $name" "no 16-byte loads"
            [ "$(at_first_product <<<"$body")" = load ] || beyond "$arch $name" "waits for the next tile before it multiplies"
            [ "$vgpr" -le 256 ] || beyond "$arch $name" "$vgpr registers, of 256"
            amd_row "$arch" "$name" "$vgpr" "$spill" "$scratch" "$lds" "$matrix" "$least" "$wide" "$waves" $(floors "$arch" "$name")
            ;;
        *) amd_row "$arch" "$name" "$vgpr" "$spill" "$scratch" "$lds" "$matrix" "$least" "$wide" "$waves" - - ;;
        esac
    done < <("$LLVM_BIN/llvm-readelf" --notes "$1" | awk '
        $1 == ".name:" && $2 ~ /^mla_/ { name = $2 }
        $1 == ".vgpr_count:" { vgpr = $2 }
        $1 == ".vgpr_spill_count:" { spill = $2 }
        $1 == ".private_segment_fixed_size:" { scratch = $2 }
        $1 == ".group_segment_fixed_size:" { lds = $2 }
        $1 == ".max_flat_workgroup_size:" { threads = $2 }
        $1 == ".wavefront_size:" { print name, vgpr, spill, scratch, lds, threads }')
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
            [ "$stack" = 0 ] || beyond "$arch $name" "uses scratch"
            case "$name" in mla_splitk_*) { [ "$matrix" != 0 ] && [ "$wide" != 0 ]; } || beyond "$arch $name" "lacks matrix instructions or 16-byte loads" ;; esac
        done < <("$CUDA_BIN/cuobjdump" --dump-resource-usage --gpu-architecture "$arch" "$1" 2>/dev/null | awk '
            $1 == "Function" { name = $2; sub(/:$/, "", name) }
            /REG:/ { reg = stack = shared = 0
                     for (i = 1; i <= NF; i++) { split($i, f, ":"); if (f[1] == "REG") reg = f[2]; if (f[1] == "STACK") stack = f[2]; if (f[1] == "SHARED") shared = f[2] }
                     print name, reg, stack, shared }')
    done
}

heading() {
    [ "$1" != "${headed:-}" ] || return 0
    headed=$1
    case "$1" in
    amd) amd_row machine kernel regs spills scratch LDS matrix min wide-ld waves memory matrix ;;
    nvidia) row machine kernel regs spills scratch LDS matrix wide-ld ;;
    esac
}

for image in "$@"; do
    case "$image" in
    *.co) heading amd && inspect_amd "$image" ;;
    *.fatbin) heading nvidia && inspect_nvidia "$image" ;;
    esac
done
exit $status
