#!/bin/bash
# The entry point of the image for the public QUIC interop runner. The runner's base image sets
# up routes with /setup.sh and, for clients, says when the simulator is ready; outside of it,
# neither exists, and the endpoint starts at once.
set -eu

[ ! -x /setup.sh ] || /setup.sh

if [ "${ROLE:-}" = client ] && [ -x /wait-for-it.sh ]; then
    /wait-for-it.sh sim:57832 -s -t 30
fi

exec "${INTEROP_ENDPOINT:-/usr/local/bin/interop-endpoint}"
