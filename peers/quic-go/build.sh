#!/bin/sh
# Builds peer-quic-go and endpoint-quic-go into the folder where `interop` and `bench` look for
# programs that cargo does not build.
set -eu
cd "$(dirname "$0")"
programs=${CLEARWAY_PEERS:-$HOME/.cache/clearway/bin}
mkdir -p "$programs"
go build -o "$programs/peer-quic-go" .
# -checklinkname=0: see endpoint/cipher.go.
go build -ldflags=-checklinkname=0 -o "$programs/endpoint-quic-go" ./endpoint
echo "$programs/peer-quic-go"
echo "$programs/endpoint-quic-go"
