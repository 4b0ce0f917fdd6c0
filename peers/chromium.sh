#!/bin/sh
# Loads a page of 100 objects from `clearway serve` with Chromium and checks that the page and all
# of them came over HTTP/3 (`nextHopProtocol`), every byte of them.
#
#   chromium.sh [CLEARWAY]     the program [default: clearway's release build]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
clearway=${1:-${CLEARWAY:-${CARGO_TARGET_DIR:-$here/../target}/release/clearway}}
chromium=${CHROMIUM:-$(command -v chromium || true)}
if [ -z "$chromium" ]; then
    echo "chromium: not run (Chromium is not installed; Debian's package is chromium)"
    exit 0
fi
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2> /dev/null || true; rm -rf "$folder"' EXIT

# The page and its objects, of 1,000 to 1,099 bytes.
mkdir "$folder/site"
cp "$here/page.html" "$folder/site/index.html"
for n in $(seq 0 99); do
    head -c $((1000 + n)) /dev/zero | tr '\0' / > "$folder/site/$n.js"
done

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 10 \
    -subj /CN=localhost -addext subjectAltName=DNS:localhost -addext basicConstraints=CA:FALSE \
    -keyout "$folder/key.pem" -out "$folder/cert.pem" 2> /dev/null
: > "$folder/server"
"$clearway" serve "$folder/site" --listen 127.0.0.1:0 \
    --cert "$folder/cert.pem" --key "$folder/key.pem" > "$folder/server" 2> "$folder/log" &
server=$!
port=
for _ in $(seq 30); do
    port=$(sed -n 's/^listening on .*://p' "$folder/server")
    [ -z "$port" ] || break
    sleep 0.1
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
    --dump-dom "https://localhost:$port/" > "$folder/page" 2> "$folder/chromium.log" || true
if grep -q 'objects=100 others=0 bytes=104950' "$folder/page"; then
    echo "chromium: pass ($(grep -o 'objects=.*[0-9]' "$folder/page"))"
else
    echo "chromium: FAIL"
    tail -n 5 "$folder/page" "$folder/chromium.log" "$folder/server" "$folder/log"
    [ -z "${KEEP:-}" ] || cp -r "$folder" "$KEEP"
    exit 1
fi
