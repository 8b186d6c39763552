#!/bin/bash
# Installs what the suite builds and tests with, on Debian 12 and Ubuntu 22.04 / 24.04. Says what is missing; uses sudo only when needed.
set -euo pipefail

product="gcc make libc6-dev pkg-config libopenblas-openmp-dev libmpfr-dev librandom123-dev libcjson-dev"
host_execution="g++ libboost-context-dev"
tests="libcriterion-dev patch"
checks="clang libclang-rt-14-dev clang-tidy clang-format"
amd_objects="clang-22 lld-22 llvm-22"

command -v apt-get >/dev/null || { echo "no apt-get here; install by hand: $product $host_execution $tests $checks $amd_objects" >&2; exit 1; }
installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q '^install ok installed'; }
missing() { for package in "$@"; do installed "$package" || echo "$package"; done; }

wanted=$(missing $product $host_execution $tests $checks $amd_objects)
[ -n "$wanted" ] || { echo "all packages are installed"; exit 0; }

as_root=""
[ "$(id -u)" = 0 ] || as_root="sudo"
$as_root apt-get update -qq
available=""
for package in $wanted; do
    if apt-cache show "$package" >/dev/null 2>&1; then
        available="$available $package"
    else
        echo "not in this system's archive, left out: $package"
    fi
done
echo "installing:$available"
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $available >/dev/null
