#!/bin/sh
# Builds every peer that can be built on this machine, and prints which cannot.
set -eu
cd "$(dirname "$0")"
${CARGO:-cargo} build --release
if command -v go > /dev/null; then ./quic-go/build.sh; else echo "quic-go: not built, because Go is not installed"; fi
if command -v python3 > /dev/null; then
    ./aioquic/setup.sh || echo "aioquic: not built, because its package cannot be installed"
else
    echo "aioquic: not built, because Python is not installed"
fi
