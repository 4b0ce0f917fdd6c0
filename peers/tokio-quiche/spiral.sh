#!/bin/sh
# The death spiral in real time: quiche's CUBIC with its `enable_cubic_idle_restart_fix` off and
# on, and Clearway's, each sending 10 MB to the same client through `clearway relay`. The relay
# loses 30 % for two seconds and then nothing; it releases datagrams on ticks of 1 ms, so that a
# burst of two arrives together and is acknowledged at once, as the fault needs.
#
#     spiral.sh [RUNS [FOLDER]]
#
# Every setting is run RUNS times (20), in turns; a run that takes more than LIMIT seconds (10) is
# cancelled. RELAY has options for the relay, by default 1 Gbit/s; SETTINGS names the senders. With
# QLOG=1, FOLDER keeps quiche's qlog of the cancelled runs, and `clearway diagnose` explains them;
# with QLOG=all, of all runs.
set -eu
runs=${1:-20}
folder=${2:-$(mktemp -d)}
limit=${LIMIT:-10}
profile=${PROFILE:-death_spiral_ticks}
bytes=${BYTES:-10000000}
settings=${SETTINGS:-fix-off fix-on clearway}
relay_options=${RELAY---rate 1G}
traced=${QLOG:+--qlog}
kept=${QLOG:-}
here=$(cd "$(dirname "$0")" && pwd)
programs=${CLEARWAY_PEERS:-$HOME/.cache/clearway/bin}
ours=${CLEARWAY_RUST_PEERS:-$here/../target/release}
clearway=${CLEARWAY:-$here/../../target/release/clearway}
quiche=$programs/peer-tokio-quiche
for program in "$clearway" "$quiche" "$ours/peer-clearway" "$ours/peer-quinn"; do
    [ -x "$program" ] || { echo "spiral: $program does not exist"; exit 1; }
done
mkdir -p "$folder"
"$ours/peer-quinn" cert --out "$folder"
children=
trap 'kill $children 2> /dev/null || true' EXIT

# Waits for the address that a server or a relay writes to a file.
address() {
    for _ in $(seq 100); do
        grep -oE '127\.0\.0\.1:[0-9]+' "$1" | head -n 1 | grep . && return
        sleep 0.05
    done
    echo "spiral: no server is listening: $(cat "$1")" >&2
    return 1
}

# One download; its seconds, or "-" if it was cancelled.
run() {
    setting=$1 seed=$2
    place=$folder/$setting-$seed
    mkdir -p "$place"
    : > "$place/server"
    : > "$place/relay"
    case $setting in
        clearway) set -- "$ours/peer-clearway" serve ;;
        fix-on) set -- "$quiche" serve ;;
        fix-off) set -- "$quiche" serve --without-idle-restart-fix ;;
    esac
    [ -z "$traced" ] || [ "$setting" = clearway ] || set -- "$@" --qlog "$place"
    "$@" --listen 127.0.0.1:0 --cert "$folder/cert.pem" --key "$folder/key.pem" \
        > "$place/server" 2>&1 &
    server=$!
    children=$server
    "$clearway" relay --listen 127.0.0.1:0 --to "$(address "$place/server")" \
        --profile "$profile" $relay_options --seed "$seed" > "$place/relay" 2>&1 &
    relay=$!
    children="$server $relay"
    to=$(address "$place/relay")
    begun=$(date +%s%N)
    if timeout "$limit" "$quiche" get "$to" --server-name localhost --ca "$folder/ca.pem" \
        --bytes "$bytes" --json > "$place/client" 2>&1; then
        echo "$setting $seed $((($(date +%s%N) - begun) / 1000000))" >> "$folder/runs"
    else
        echo "$setting $seed -" >> "$folder/runs"
    fi
    kill "$server" "$relay"
    wait "$server" "$relay" 2> /dev/null || true
    children=
    [ "$kept" = all ] || tail -n 1 "$folder/runs" | grep -q -- '-$' || rm -f "$place"/*.sqlog
}

: > "$folder/runs"
for seed in $(seq "$runs"); do
    for setting in $settings; do
        run "$setting" "$seed"
    done
done

printf '%-10s %-12s %-10s %s\n' sender "within ${limit} s" 'median s' 'longest s'
for setting in $settings; do
    grep "^$setting " "$folder/runs" | cut -d ' ' -f 3 | sed 's/^-$/999999999/' | sort -n \
        | awk -v name="$setting" '
        function seconds(ms) { return ms == 999999999 ? "given up" : sprintf("%.2f", ms / 1000) }
        { all[NR] = $1; done += $1 != 999999999 }
        END { printf "%-10s %-12s %-10s %s\n", name, done "/" NR,
              seconds(all[int((NR + 1) / 2)]), seconds(all[NR]) }'
done
for log in "$folder"/*/*.sqlog; do
    [ -f "$log" ] || continue
    echo "$log:"
    "$clearway" diagnose "$log" 2>&1 | tee "$log.diagnosis"
done
