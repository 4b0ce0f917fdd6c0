#!/bin/sh
# Loads a page of 100 objects from peer-clearway with Chromium and checks that the page and all
# of them came over HTTP/3.
#
#   chromium.sh [FOLDER]     the folder of peer-clearway and peer-quinn [default: target/release]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
programs=${1:-${CARGO_TARGET_DIR:-$here/target}/release}
chromium=${CHROMIUM:-$(command -v chromium || true)}
if [ -z "$chromium" ]; then
    echo "chromium: not run (no chromium; Debian's package has it)"
    exit 0
fi
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2> /dev/null || true; rm -rf "$folder"' EXIT
"$programs/peer-quinn" cert --out "$folder"
"$programs/peer-clearway" serve --listen 127.0.0.1:0 --json \
    --cert "$folder/cert.pem" --key "$folder/key.pem" > "$folder/server" 2>&1 &
server=$!
port=
for _ in 1 2 3 4 5 6 7 8 9 10; do
    port=$(sed -n 's/^listening on .*://p' "$folder/server")
    [ -z "$port" ] || break
    sleep 0.3
done
spki=$(openssl x509 -in "$folder/cert.pem" -pubkey -noout \
    | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | openssl base64)
timeout 90 "$chromium" --headless --no-sandbox --disable-gpu --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync \
    --user-data-dir="$folder/profile" \
    --host-resolver-rules="MAP localhost 127.0.0.1" \
    --origin-to-force-quic-on="localhost:$port" \
    --ignore-certificate-errors-spki-list="$spki" \
    --log-net-log="$folder/netlog.json" \
    --dump-dom "https://localhost:$port/page" > "$folder/page" 2> "$folder/chromium.log" || true
# The objects are of 1,000 to 1,099 bytes.
if grep -q 'objects=100 others=0 bytes=104950' "$folder/page"; then
    echo "chromium: pass ($(grep -o 'objects=.*[0-9]' "$folder/page"))"
else
    echo "chromium: FAIL"
    tail -n 5 "$folder/page" "$folder/chromium.log" "$folder/server"
    [ -z "${KEEP:-}" ] || cp -r "$folder" "$KEEP"
    exit 1
fi
