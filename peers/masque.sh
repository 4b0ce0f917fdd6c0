#!/bin/sh
# UDP through HTTP/3 (CONNECT-UDP) between clearway, quic-go and aioquic, as a table: each as client and as
# proxy of clearway, in datagrams and in capsules, and quic-go with itself. A QUIC download by `clearway get` passes through the tunnel, and so do
# DNS queries. The last row is the download without a tunnel.
#
#   masque.sh [CLEARWAY]     the program [default: clearway's release build]
#   BYTES=… QUERIES=… ROUNDS=…     size of the download, number of queries, downloads of which the
#                                  fastest counts
set -eu
here=$(cd "$(dirname "$0")" && pwd)
clearway=${1:-${CLEARWAY:-${CARGO_TARGET_DIR:-$here/../target}/release/clearway}}
peer=${CLEARWAY_PEERS:-$HOME/.cache/clearway/bin}/peer-masque-go
environment=${CLEARWAY_AIOQUIC:-$HOME/.cache/clearway/aioquic}
bytes=${BYTES:-50000000}
queries=${QUERIES:-1000}
rounds=${ROUNDS:-3}
"$here/aioquic/setup.sh" > /dev/null
"$environment/bin/pip" install --quiet --disable-pip-version-check 'dnspython==2.8.0'
python=$environment/bin/python
folder=$(mktemp -d)
children=
failed=
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
    started=$!
    children="$children $started"
    address=
    for _ in $(seq 100); do
        address=$(sed -n 's/.*listening on \(https:\/\/\)\{0,1\}\([^ ]*\).*/\2/p' "$folder/$name" | head -n 1)
        [ -z "$address" ] || return 0
        sleep 0.1
    done
    echo "masque: $name did not start" >&2
    cat "$folder/$name" "$folder/$name.log" >&2
    exit 1
}

# Downloads; prints the bytes per second of the fastest download.
download() {
    best=0
    for _ in $(seq "$rounds"); do
        rm -f "$folder/out"
        begin=$(date +%s%N)
        "$clearway" get -s -k -o "$folder/out" "https://$1/file" > /dev/null 2> "$folder/get.log" || return 1
        end=$(date +%s%N)
        cmp -s "$folder/out" "$folder/site/file" || return 1
        rate=$((bytes * 1000000000 / (end - begin)))
        [ "$rate" -le "$best" ] || best=$rate
    done
    echo "$best"
}

row() {
    case $5 in
    0) download="FAIL" share="FAIL" ;;
    *) download="$(($5 / 125000)) Mbit/s" share="$(($5 * 100 / direct)) %" ;;
    esac
    printf '| %s | %s | %s | %s | %s | %s |\n' "$1" "$2" "$3" "$download" "$share" "$4"
}

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 10 \
    -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
    -addext basicConstraints=CA:FALSE \
    -keyout "$folder/key.pem" -out "$folder/cert.pem" 2> /dev/null
token=a-token-for-this-test-only
echo "$token" > "$folder/token"
mkdir "$folder/site" "$folder/none"
head -c "$bytes" /dev/urandom > "$folder/site/file"
start origin "$clearway" serve "$folder/site" --listen 127.0.0.1:0
origin=127.0.0.1:${address##*:}
start dns "$python" "$here/doq.py" upstream 127.0.0.1:0
dns=$address
start proxy-clearway "$clearway" serve "$folder/none" --listen 127.0.0.1:0 --connect-udp \
    --proxy-token "$folder/token" --proxy-allow 127.0.0.0/8 \
    --proxy-port "${origin##*:}" --proxy-port "${dns##*:}" \
    --cert "$folder/cert.pem" --key "$folder/key.pem"
ours=127.0.0.1:${address##*:}
if [ -x "$peer" ]; then
    start proxy-go "$peer" proxy --listen 127.0.0.1:0 --token "$token" \
        --cert "$folder/cert.pem" --key "$folder/key.pem"
    theirs=$address
    start proxy-go-capsules "$peer" proxy --listen 127.0.0.1:0 --token "$token" --capsules \
        --cert "$folder/cert.pem" --key "$folder/key.pem"
    theirs_capsules=$address
fi
start proxy-aioquic "$python" "$here/masque.py" proxy --listen 127.0.0.1:0 --token "$token" \
    --cert "$folder/cert.pem" --key "$folder/key.pem"
aioquic=$address
start proxy-aioquic-capsules "$python" "$here/masque.py" proxy --listen 127.0.0.1:0 --token "$token" \
    --capsules --cert "$folder/cert.pem" --key "$folder/key.pem"
aioquic_capsules=$address
direct=$(download "$origin")

# Starts a tunnel: client, proxy's address, target, mode.
tunnel() {
    case $1 in
    Clearway)
        start tunnel "$clearway" tunnel --proxy "https://$2" --proxy-token "$folder/token" \
            --cacert "$folder/cert.pem" --local 127.0.0.1:0 --to "$3" $4
        ;;
    quic-go)
        start tunnel "$peer" tunnel --proxy "$2" --token "$token" --cert "$folder/cert.pem" \
            --local 127.0.0.1:0 --to "$3" $4
        ;;
    aioquic)
        start tunnel "$python" "$here/masque.py" tunnel --proxy "$2" --token "$token" \
            --cert "$folder/cert.pem" --local 127.0.0.1:0 --to "$3" $4
        ;;
    esac
}

echo "| client | proxy | mode | download | share of direct | DNS queries answered |"
echo "|---|---|---|---|---|---|"
for pair in "Clearway Clearway" "Clearway quic-go" "Clearway aioquic" "quic-go Clearway" "aioquic Clearway" \
    "quic-go quic-go"; do
    client=${pair% *}
    proxy=${pair#* }
    case $pair in
    *quic-go*)
        if [ ! -x "$peer" ]; then
            echo "| $client | $proxy | not run (peers/masque-go/build.sh) | | | |"
            continue
        fi
        ;;
    esac
    for mode in datagrams capsules; do
        option=
        [ "$mode" = datagrams ] || option=--capsules
        case $proxy-$mode in
        Clearway-*) to=$ours ;;
        quic-go-datagrams) to=$theirs ;;
        quic-go-capsules) to=$theirs_capsules ;;
        aioquic-datagrams) to=$aioquic ;;
        aioquic-capsules) to=$aioquic_capsules ;;
        esac
        tunnel "$client" "$to" "$origin" "$option"
        rate=$(download "$address") || rate=0
        kill "$started"
        tunnel "$client" "$to" "$dns" "$option"
        answered=$(timeout 120 "$python" "$here/doq.py" plain "$address" "$queries" 2> "$folder/plain.log" \
            | sed -n 's/answered=//p')
        kill "$started"
        if [ "$rate" = 0 ] || [ "$answered" != "$queries" ]; then
            failed=yes
            cat "$folder/tunnel.log" "$folder/get.log" "$folder/plain.log" >&2
        fi
        row "$client" "$proxy" "$mode" "${answered:-0} of $queries" "$rate"
    done
done
row - - direct - "$direct"
[ -z "$failed" ] || exit 1
