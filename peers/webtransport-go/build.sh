#!/bin/sh
# Builds peer-webtransport-go into the folder where `webtransport.sh` looks for it.
set -eu
cd "$(dirname "$0")"
programs=${CLEARWAY_PEERS:-$HOME/.cache/clearway/bin}
mkdir -p "$programs"
go build -o "$programs/peer-webtransport-go" .
echo "$programs/peer-webtransport-go"
