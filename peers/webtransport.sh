#!/bin/sh
# WebTransport between clearway and others, as a table: a page in Debian's Chromium, webtransport-go and
# wtransport as clients of `clearway serve --webtransport`, and Clearway's client against servers on the
# latter two. Each cell is a check of its own, with its own session. Chromium accepts the certificate by
# its hash. Programs that are missing are not run.
#
#   webtransport.sh [CLEARWAY]     the program [default: clearway's release build]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
clearway=${1:-${CLEARWAY:-${CARGO_TARGET_DIR:-$here/../target}/release/clearway}}
peer=${PEER_WEBTRANSPORT:-${CARGO_TARGET_DIR:-$here/target}/release/peer-webtransport}
peer_go=${CLEARWAY_PEERS:-$HOME/.cache/clearway/bin}/peer-webtransport-go
chromium=${CHROMIUM:-$(command -v chromium || true)}
folder=$(mktemp -d)
children=
failed=
end() {
    for child in $children; do
        kill "$child" 2> /dev/null || true
    done
    wait
    [ -z "${KEEP:-}" ] || cp -r "$folder" "$KEEP"
    rm -rf "$folder"
}
trap end EXIT

# Starts a program in the background, and waits for what it prints first.
start() {
    name=$1
    shift
    : > "$folder/$name"
    "$@" > "$folder/$name" 2> "$folder/$name.log" &
    child=$!
    children="$children $child"
    for _ in $(seq 100); do
        [ ! -s "$folder/$name" ] || return 0
        sleep 0.1
    done
    echo "webtransport: $name did not start" >&2
    cat "$folder/$name.log" >&2
    exit 1
}

columns="bidirectional unidirectional opened_by_server datagrams \
    reset_by_server reset_by_client close_by_server close_by_client"

# Prints a row: client, server, the server's name here, and the file with the client's report.
row() {
    printf '| %s | %s |' "$1" "$2"
    python3 - "$4" "$folder/$3" "$folder/$3.log" $columns > "$folder/row" <<'PY'
import json, sys
report, out, log, *columns = sys.argv[1:]
text = open(report).read().strip()
cells = json.loads(text) if text else {}
# The code and the reason of the client's close have to have arrived.
told = open(out).read() + open(log).read()
if cells.get("close_by_client") == "pass" and "from the client" not in told:
    cells["close_by_client"] = "FAIL: the server did not see it"
print("".join(" %s |" % cells.get(column, "FAIL: no report") for column in columns))
PY
    cat "$folder/row"
    if grep -q FAIL "$folder/row"; then failed=yes; fi
}

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 10 \
    -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
    -addext basicConstraints=CA:FALSE \
    -keyout "$folder/key.pem" -out "$folder/cert.pem" 2> /dev/null
mkdir "$folder/site"
echo "| client | server | $(echo $columns | sed 's/ / | /g; s/_/ /g') |"
echo "|---|---|---|---|---|---|---|---|---|---|"

# Its own certificate, which browsers accept by its hash.
if [ -n "$chromium" ]; then
    CLEARWAY_LOG=clearway=debug start ours-chromium "$clearway" serve "$folder/site" \
        --listen 127.0.0.1:0 --webtransport --json
    address=$(sed -n 's/.*"listening","address":"\([^"]*\)".*/\1/p' "$folder/ours-chromium")
    hash=$(sed -n 's/.*"fingerprint":"\([0-9a-f]*\)".*/\1/p' "$folder/ours-chromium")
    # The page needs an origin that browsers consider secure: http://localhost is one. This server
    # writes what the page posts to a file.
    cat > "$folder/pages.py" <<'PY'
import http.server, sys

class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        page = open(sys.argv[1], "rb").read()
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        with open(sys.argv[2], "wb") as file:
            file.write(body + b"\n")
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
print(server.server_port, flush=True)
server.serve_forever()
PY
    : > "$folder/result"
    start pages python3 "$folder/pages.py" "$here/webtransport.html" "$folder/result"
    page="http://localhost:$(cat "$folder/pages")/?hash=$hash&url=https://$address/echo"
    timeout 200 "$chromium" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --no-first-run --disable-background-networking --disable-component-update --disable-sync \
        --user-data-dir="$folder/profile" --remote-debugging-port=0 \
        "$page" > "$folder/chromium" 2> "$folder/chromium.log" &
    browser=$!
    for _ in $(seq 1800); do
        [ ! -s "$folder/result" ] || break
        sleep 0.1
    done
    kill "$browser" 2> /dev/null || true
    wait "$browser" 2> /dev/null || true
    version=$("$chromium" --version 2> /dev/null | cut -d ' ' -f 2)
    row "Chromium $version" Clearway ours-chromium "$folder/result"
else
    echo "| Chromium | Clearway | not run (Debian's package is chromium) | | | | | | | |"
fi

CLEARWAY_LOG=clearway=debug start ours "$clearway" serve "$folder/site" --listen 127.0.0.1:0 \
    --webtransport --json --cert "$folder/cert.pem" --key "$folder/key.pem"
ours=$(sed -n 's/.*"listening","address":"\([^"]*\)".*/\1/p' "$folder/ours")

# Lets a program check a server: client, server, the server's name here, its address, the program.
check() {
    client=$1 server=$2 name=$3 address=$4
    shift 4
    "$@" "https://$address/echo" --cert "$folder/cert.pem" \
        > "$folder/report" 2> "$folder/check-$name.log" || true
    # A close may still be on its way.
    sleep 0.5
    row "$client" "$server" "$name" "$folder/report"
}

if [ -x "$peer" ]; then
    check Clearway Clearway ours "$ours" "$peer" check clearway
    : > "$folder/ours.log"
    check "wtransport 0.7" Clearway ours "$ours" "$peer" check wtransport
    : > "$folder/ours.log"
    start wtransport "$peer" serve --listen 127.0.0.1:0 --cert "$folder/cert.pem" --key "$folder/key.pem"
    theirs=$(sed -n 's/listening on //p' "$folder/wtransport")
    check Clearway "wtransport 0.7" wtransport "$theirs" "$peer" check clearway
else
    echo "| Clearway | wtransport 0.7 | not run (build peers/webtransport) | | | | | | | |"
fi
if [ -x "$peer_go" ]; then
    check "webtransport-go 0.13" Clearway ours "$ours" "$peer_go" check
    start go "$peer_go" serve --listen 127.0.0.1:0 --cert "$folder/cert.pem" --key "$folder/key.pem"
    theirs=$(sed -n 's/listening on //p' "$folder/go")
    [ ! -x "$peer" ] || check Clearway "webtransport-go 0.13" go "$theirs" "$peer" check clearway
else
    echo "| webtransport-go 0.13 | Clearway | not run (peers/webtransport-go/build.sh) | | | | | | | |"
fi
[ -z "$failed" ] || exit 1
