#!/bin/bash
# The page of run --html in a browser: html.sh MLA_VERIFY  Without a headless Chromium it says SKIPPED.
set -uo pipefail
. "$(dirname "$0")/support_checks.sh"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [ -z "$browser" ]; then
    echo "html: SKIPPED: there is no Chromium"
    exit 0
fi
cd "$folder" || exit 1

# open FRAGMENT: what the page has become in the browser, without its program; hidden parts as the browser marks them
open() {
    timeout 60 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$folder/profile" --virtual-time-budget=2000 \
        --dump-dom "file://$folder/page.html$1" 2>stderr | sed '/<script>/,$d' >stdout
}
count() { grep -oE -- "$1" stdout | wc -l; }
counts() { [ "$(count "$1")" = "$2" ] || { echo "  $1: $(count "$1"), not $2"; false; }; }

# The example, wrong in its second sequence, under a name that is not plain.
sed 's/        int64_t n = 0, first = 0;/        if (b == 1) continue;\n&/' "$root/gpu/example_plugin.c" >wrong.c
${CC:-cc} -std=c11 -D_GNU_SOURCE -O1 -I"$root/gpu" -shared -fPIC -o "<i>wrong&.so" wrong.c -lm || exit 1
run run --kernel reference --kernel "./<i>wrong&.so" --case 'batch=2 kv_len=20' --case 'heads=5 kv_len=30' --case 'heads=3 kv=mxfp4' --html page.html
check "a page is written beside a failure" exits 1
open ""
if [ ! -s stdout ]; then
    echo "html: SKIPPED: $browser does not start here"
    exit 0
fi
check "its program has run" counts '<html lang="en" class="js">' 1
check "every result is in the table" counts '<tbody ' 6
check "and shown" counts '6 of 6 shown' 1
check "the failure alone is open" counts '<tbody [^>]*class="open"' 1
check "every measured result has its histogram" counts '<figure class="histogram">' 5
check "its density" counts '<figure class="density">' 5
check "and its map" counts '<figure class="map">' 5
check "and its error along the KV, where its worst row has numbers" counts '<figure class="profile">' 4
check "a name is text, not markup" counts '<i>wrong' 0
open "#status=FAILED"
check "a filter by status" counts '1 of 6 shown' 1
check "hides the others" counts '<tbody [^>]*hidden' 5
open "#kernel=reference&text=heads%3D5+kv"
check "filters by kernel and by words" counts '1 of 6 shown' 1
open "#status=bad&kernel=reference"
check "a filter may leave nothing" counts '0 of 6 shown' 1

run bench --kernel reference --case 'heads=16 kv_len=64' --case 'heads=1 kv_len=64' --seconds 0.01 --html page.html
check "bench writes a page" exits 0
open "#text=heads%3D1"
check "with its cases in the table" counts '1 of 2 shown' 1
check "a roofline of the device" counts '<figure class="roofline">' 1
check "and a point for each case" counts '<circle class="dot cold"' 2

run drift sweep --kernel reference --kernel "./<i>wrong&.so" --over kv_len --to 256 --case heads=2 --html page.html
check "a sweep writes a page" exits 0
open ""
check "with two pictures a kernel" counts '<figure class="sweep">' 4
check "a point for each value, and theory's" counts '<circle class="dot ' 24
check "and text that is not markup" counts '<i>wrong' 0
finish html
