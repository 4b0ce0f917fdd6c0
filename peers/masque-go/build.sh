#!/bin/sh
# Builds peer-masque-go into the folder where `masque.sh` looks for it.
set -eu
cd "$(dirname "$0")"
programs=${CLEARWAY_PEERS:-$HOME/.cache/clearway/bin}
mkdir -p "$programs"
go build -o "$programs/peer-masque-go" .
echo "$programs/peer-masque-go"
