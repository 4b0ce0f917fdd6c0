#!/usr/bin/env bash
# The same scenario three times: in virtual time, through the relay on loopback,
# and between three network namespaces (client, relay and server, joined by veth
# pairs). Prints one table: goodput and packets dropped on the way to the client,
# means over the seeds, and how far the real ones are from the virtual one.
#
#   CLEARWAY=target/release/clearway crates/lab/fidelity.sh [CONTROLLER [SCENARIO…]]
#
# Runs are compared in pairs: under one seed the n-th packet of a direction meets
# the same random decision in all three places, so that what is compared is the
# clock and not the luck. The table has the mean difference over the seeds and
# twice its standard error. Exits with 1 if a goodput is off by more than 5 % or
# a count by more than 10 %, or if twice the standard error is more than half of
# that: then more seeds are needed to say anything.
#
# Needs root, iproute2 and jq. RUNS is the number of seeds of the two scenarios
# whose drops follow from their queue (5); the one with random loss takes sixteen
# times as many, since one early loss decides whether slow start overflows the
# queue, which is 60 packets more or less. PARALLEL runs go on at once (4). A relay
# that was late by more than 2 ms at its 99th percentile marks a disturbed run,
# which is made again, up to three times: jitter of 3 ms alone changes the count of
# shallow_25 by half. On a busy machine run the script itself under
# `chrt --fifo 10`.
set -euo pipefail

controller=${1:-cubic}
shift || true
only=" $* "
runs=${RUNS:-5}
parallel=${PARALLEL:-4}
lateness=2048
clearway=${CLEARWAY:-clearway}
work=$(mktemp -d)
id=cwf$$
scenarios=("transfer_loss 2MB $((16 * runs))" "shallow_25 10MB $runs" "blackhole_2s 4MB $runs")

spaces() {
  local space
  for space in client relay server; do
    ip netns add "$id-$space"
    # Without it a socket cannot find out what segmentation offload takes, and
    # sends datagrams one by one.
    ip -n "$id-$space" link set lo up
  done
  join client relay 1
  join relay server 2
}

# Two namespaces and the subnet between them: the left end is .1, the right one .2.
join() {
  ip link add "$id-$3l" type veth peer name "$id-$3r"
  local end space address
  for end in l r; do
    if [ $end = l ]; then space=$id-$1 address=10.96.$3.1; else space=$id-$2 address=10.96.$3.2; fi
    ip link set "$id-$3$end" netns "$space"
    ip -n "$space" address add "$address/24" dev "$id-$3$end"
    ip -n "$space" link set "$id-$3$end" up
  done
}

clean() {
  local space
  for space in client relay server; do ip netns delete "$id-$space" 2>/dev/null || true; done
  rm -rf "$work"
}
trap clean EXIT

# within PLACE SPACE COMMAND…: runs it where PLACE has it.
within() {
  local place=$1 space=$2
  shift 2
  if [ "$place" = netns ]; then exec ip netns exec "$id-$space" "$@"; else exec "$@"; fi
}

# Waits until a program has said where it listens.
listening() {
  local _
  for _ in $(seq 200); do
    grep -q listening "$1" 2>/dev/null && return
    sleep 0.05
  done
  echo "no line that says where it listens: $1" >&2
  return 1
}

# once PLACE SCENARIO BYTES SEED PORT: one transfer, its figures in a file.
once() {
  local place=$1 scenario=$2 bytes=$3 seed=$4 port=$5
  local own=$work/$place-$scenario-$seed to=127.0.0.1:$((port + 1)) via=127.0.0.1:$port
  if [ "$place" = netns ]; then to=10.96.2.2:$((port + 1)) via=10.96.1.2:$port; fi
  within "$place" server "$clearway" raw serve --listen "$to" --controller "$controller" \
    --json >"$own.server" 2>"$own.server.err" &
  local server=$!
  listening "$own.server"
  within "$place" relay "$clearway" relay --listen "$via" --to "$to" --seed "$seed" --json \
    "$scenario" >"$own.relay" 2>"$own.relay.err" &
  local relay=$!
  listening "$own.relay.err"
  (within "$place" client "$clearway" raw get "$via" --insecure --bytes "$bytes" --json) \
    >"$own.client" 2>"$own.client.err" || true
  kill -INT "$relay" "$server"
  wait "$relay" "$server" || true
  jq -n --slurpfile client "$own.client" --slurpfile relay "$own.relay" '{
      seed: $relay[0].seed,
      goodput: ($client[0].bytes * 8 / ($client[0].seconds + $client[0].handshake_ms / 1000)),
      dropped: ([$relay[0].down | to_entries[] | select(.key | startswith("dropped_")).value] | add),
      late: $relay[0].lateness_us.p99,
      lost: ($relay[0].own_losses | add)
    }' >"$own.json"
}

# The same, again if the machine was too busy for it.
undisturbed() {
  local own=$work/$1-$2-$4 attempt
  for attempt in 1 2 3 4; do
    once "$@"
    [ "$(jq ".late <= $lateness and .lost == 0" "$own.json")" = true ] && break
    echo "disturbed ($attempt): $1 $2 seed $4: $(jq -c . "$own.json")" >&2
  done
}

# The runs of a place, one JSON object a line.
real() {
  local place=$1 scenario=$2 bytes=$3 count=$4 seed
  for seed in $(seq "$count"); do
    undisturbed "$place" "$scenario" "$bytes" "$seed" $((20000 + 2 * seed)) &
    if [ $((seed % parallel)) = 0 ]; then wait; fi
  done
  wait
  cat "$work/$place-$scenario"-*.json
}

virtual() {
  # Missed bars are not the question.
  { "$clearway" lab run "$1" --controller "$controller" --seeds "$2" --json 2>/dev/null || true; } |
    jq -c '{seed, goodput: .metrics.goodput, dropped: .metrics.dropped}'
}

# row NAME PLACE VIRTUAL REAL: a line of the table from two files of runs.
row() {
  jq -n -r --arg name "$1" --arg place "$2" --slurpfile virtual "$3" --slurpfile is "$4" '
    def fixed(n): . * pow(10; n) | round / pow(10; n);
    def mean: add / length;
    # Mean difference of the pairs and twice its standard error, in per cent of
    # the virtual mean.
    def off(f):
      ($virtual | map({key: (.seed | tostring), value: f}) | from_entries) as $v |
      ($virtual | map(f) | mean) as $base |
      [$is[] | f - $v[.seed | tostring]] as $d | ($d | mean) as $m |
      ($d | map(. - $m | . * .) | add / ([length - 1, 1] | max) / length | sqrt) as $error |
      {by: (100 * $m / $base), sure: (200 * $error / $base)};
    def agrees(bar): (.by | fabs) <= bar and .sure <= bar / 2;
    def shown: "\(.by | fixed(1)) ± \(.sure | fixed(1))";
    off(.goodput) as $g | off(.dropped) as $d |
    [$name, $place, ($is | length), ($is | map(.goodput) | mean / 1e6 | fixed(3)), ($g | shown),
     ($is | map(.dropped) | mean | fixed(1)), ($d | shown), ($is | map(.late // 0) | max),
     (if ($g | agrees(5)) and ($d | agrees(10)) then "agrees" else "DIFFERS" end)] | @tsv'
}

spaces
"$clearway" --version >/dev/null || { echo "CLEARWAY=$clearway cannot be run" >&2; exit 2; }
table=$work/table
printf 'scenario\tplace\tseeds\tMbit/s\t%%\tdropped\t%%\tlate µs\t\n' >"$table"
for line in "${scenarios[@]}"; do
  read -r name bytes count <<<"$line"
  case "$only" in "  " | *" $name "*) ;; *) continue ;; esac
  virtual "$name" "$count" >"$work/virtual"
  row "$name" virtual "$work/virtual" "$work/virtual" >>"$table"
  for place in loopback netns; do
    real "$place" "$name" "$bytes" "$count" >"$work/real"
    row "$name" "$place" "$work/virtual" "$work/real" >>"$table"
  done
done
column -t -s $'\t' "$table"
! grep -q DIFFERS "$table"
