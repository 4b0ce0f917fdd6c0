#!/bin/sh
# Builds peer-quic-go into the folder where `interop --http3` and `bench` look for programs that
# cargo does not build.
set -eu
cd "$(dirname "$0")"
programs=${CLEARWAY_PEERS:-$HOME/.cache/clearway/bin}
mkdir -p "$programs"
go build -o "$programs/peer-quic-go" .
echo "$programs/peer-quic-go"
