#!/bin/sh
# Builds every peer that this machine can build, and says which it cannot.
set -eu
cd "$(dirname "$0")"
${CARGO:-cargo} build --release
if command -v go > /dev/null; then ./quic-go/build.sh; else echo "quic-go: no Go here"; fi
if command -v python3 > /dev/null; then
    ./aioquic/setup.sh || echo "aioquic: its package cannot be installed here"
else
    echo "aioquic: no Python here"
fi
