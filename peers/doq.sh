#!/bin/sh
# DNS over QUIC between clearway and other stacks, both ways: dnspython and aioquic ask `clearway doq
# --serve` over a relay that loses 5 % of the packets, and plain DNS queries go through `clearway doq
# --listen` to a server on aioquic.
#
#   doq.sh [CLEARWAY]     the program [default: clearway's release build]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
clearway=${1:-${CLEARWAY:-${CARGO_TARGET_DIR:-$here/../target}/release/clearway}}
environment=${CLEARWAY_AIOQUIC:-$HOME/.cache/clearway/aioquic}
count=${QUERIES:-10000}
"$here/aioquic/setup.sh" > /dev/null
"$environment/bin/pip" install --quiet --disable-pip-version-check 'dnspython==2.8.0'
python=$environment/bin/python
folder=$(mktemp -d)
children=
end() {
    for child in $children; do
        kill "$child" 2> /dev/null || true
    done
    wait
    rm -rf "$folder"
}
trap end EXIT

# Starts a program in the background and waits for the address that it prints.
start() {
    name=$1
    shift
    : > "$folder/$name"
    "$@" > "$folder/$name" 2> "$folder/$name.log" &
    children="$children $!"
    address=
    for _ in $(seq 100); do
        address=$(cat "$folder/$name" "$folder/$name.log" | sed -n 's/.*listening on \([^ ,]*\).*/\1/p' | head -n 1)
        [ -z "$address" ] || return 0
        sleep 0.1
    done
    echo "doq: FAIL ($name did not start)"
    cat "$folder/$name" "$folder/$name.log"
    exit 1
}

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 10 \
    -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
    -addext basicConstraints=CA:FALSE \
    -keyout "$folder/key.pem" -out "$folder/cert.pem" 2> /dev/null
start upstream "$python" "$here/doq.py" upstream 127.0.0.1:0
start server "$clearway" doq --serve 127.0.0.1:0 --upstream "$address" \
    --cert "$folder/cert.pem" --key "$folder/key.pem"
server=$address
start relay "$clearway" relay --listen 127.0.0.1:0 --to "$server" --loss 5% --delay 5ms
relay=$address
lossy=$("$python" "$here/doq.py" queries "$relay" "$folder/cert.pem" "$count")
again=$("$python" "$here/doq.py" resume "$server" "$folder/cert.pem")
theirs=127.0.0.1:$("$python" -c 'import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
start aioquic "$python" "$here/doq.py" serve "$theirs" "$folder/cert.pem" "$folder/key.pem"
start stub "$clearway" doq --listen 127.0.0.1:0 --server "$theirs" --cacert "$folder/cert.pem"
plain=$("$python" "$here/doq.py" plain "$address" "$count")
echo "doq: pass (with 5 % loss: $lossy; again: $again; through the stub: $plain)"
