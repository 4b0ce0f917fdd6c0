#!/bin/sh
# Runs the tests of `clearway balance` in which everything changes during 200 downloads (rebinding,
# migration, rotation of keys and connection IDs, a drained, a killed and an added server, a replaced
# balancer) with servers on quinn, in NAT mode on loopback and in transparent mode in network namespaces.
# The latter needs root.
#
#   balance.sh      builds what is missing; CARGO_TARGET_DIR is that of clearway, PEERS_TARGET_DIR that of
#                   the peers [default: target in each workspace]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
target=${PEERS_TARGET_DIR:-$here/target}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
CARGO_TARGET_DIR=$target ${CARGO:-cargo} build -q --manifest-path "$here/Cargo.toml" -p peer-quinn -p peer-h3-quinn
"$target/debug/peer-quinn" cert --out "$folder"
PEER_H3_QUINN=$target/debug/peer-h3-quinn PEER_CERTIFICATE=$folder \
    ${CARGO:-cargo} test -q --manifest-path "$here/../Cargo.toml" -p clearway-cli --test it \
    -- --nocapture --test-threads 1 balance::everything::downloads_from_quinn \
    balance::everything::transparent_downloads_from_quinn
