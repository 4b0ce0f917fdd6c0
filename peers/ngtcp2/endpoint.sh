#!/bin/bash
# ngtcp2 as an endpoint of the public QUIC interop runner: the programs gtlsclient and gtlsserver
# of Debian's packages ngtcp2-client and ngtcp2-server. They speak HTTP/3 only, whatever the test:
# `interop run --with-http3 ngtcp2=…/endpoint.sh`. A test case that they do not support exits with 127:
# of version 2, ngtcp2 0.12.1 knows a draft only.
set -u

only_chacha20="NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+CHACHA20-POLY1305"
quiet=(-q --no-quic-dump --no-http-dump)

case "${TESTCASE:-}" in
    handshake | transfer | longrtt | chacha20 | multiplexing | retry | resumption | zerortt | http3) ;;
    blackhole | keyupdate | amplificationlimit | multiconnect | handshakeloss | transferloss) ;;
    handshakecorruption | transfercorruption | ipv6 | goodput | rebind-port | rebind-addr) ;;
    ecn | connectionmigration) ;;
    *)
        echo "endpoint-ngtcp2: unsupported test case \"${TESTCASE:-}\"" >&2
        exit 127
        ;;
esac

serve() {
    local options=(-d "${WWW:-/www}" "${quiet[@]}" --handshake-timeout=120s)
    [ -z "${QLOGDIR:-}" ] || options+=(--qlog-dir="$QLOGDIR")
    case "$TESTCASE" in
        retry) options+=(-V) ;;
        chacha20) options+=(--ciphers="$only_chacha20") ;;
        # It binds its preferred address by itself, which in `interop run` is the relay's.
        connectionmigration) exit 127 ;;
    esac
    local certs=${CERTS:-/certs}
    exec gtlsserver "${options[@]}" '*' "${PORT:-443}" "$certs/priv.key" "$certs/cert.pem"
}

# Downloads on one connection: options, then "--", then URLs.
download() {
    local options=()
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    local authority=${1#https://}
    authority=${authority%%/*}
    local host=${authority%:*} port=${authority##*:}
    host=${host#[}
    host=${host%]}
    # The qlog of a client that makes many connections says nothing that the others do not.
    gtlsclient "${quiet[@]}" --exit-on-all-streams-close --handshake-timeout=120s \
        --download="${DOWNLOADS:-/downloads}" "${options[@]}" "$host" "$port" "$@"
}

fetch() {
    # REQUESTS is a list.
    # shellcheck disable=SC2086
    set -- $REQUESTS
    local state=${DOWNLOADS:-/downloads}/..
    local remembered=(--session-file="$state/session" --tp-file="$state/parameters")
    case "$TESTCASE" in
        multiconnect | handshakeloss | handshakecorruption)
            for url in "$@"; do download -- "$url" || return; done
            ;;
        resumption | zerortt)
            local second=("${remembered[@]}")
            [ "$TESTCASE" = zerortt ] || second+=(--disable-early-data)
            download "${remembered[@]}" -- "$1" || return
            shift
            download "${second[@]}" -- "$@"
            ;;
        chacha20) download --ciphers="$only_chacha20" -- "$@" ;;
        keyupdate) download --key-update=100ms -- "$@" ;;
        *) download -- "$@" ;;
    esac
}

case "${ROLE:-}" in
    client) fetch ;;
    server) serve ;;
    *)
        echo "endpoint-ngtcp2: ROLE is \"${ROLE:-}\": expected client or server" >&2
        exit 1
        ;;
esac
