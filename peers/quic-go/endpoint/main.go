// Command endpoint-quic-go is quic-go as an endpoint of the public QUIC interop runner. It reads
// the environment variables of the runner's contract, as peers/endpoint does for Clearway, and
// exits with 127 for a test case that it does not support.
package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/interop/http09"
	"github.com/quic-go/quic-go/qlog"
)

const unsupported = 127

// errUnsupported is what quic-go cannot do, whoever its peer is.
var errUnsupported = errors.New("unsupported test case")

func main() {
	err := run()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "endpoint-quic-go:", err)
	if errors.Is(err, errUnsupported) {
		os.Exit(unsupported)
	}
	os.Exit(1)
}

func run() error {
	test := os.Getenv("TESTCASE")
	role := os.Getenv("ROLE")
	if !supported(test) {
		return fmt.Errorf("%w %q", errUnsupported, test)
	}
	keyLog, err := keyLog()
	if err != nil {
		return err
	}
	options := &tls.Config{KeyLogWriter: keyLog, NextProtos: []string{http09.NextProto}}
	if test == "chacha20" {
		onlyChaCha20()
	}
	config := &quic.Config{Tracer: qlog.DefaultConnectionTracer}
	switch role {
	case "client":
		return download(test, options, config)
	case "server":
		return serve(test, options, config)
	default:
		return fmt.Errorf("ROLE is %q: expected client or server", role)
	}
}

// supported returns whether quic-go supports a test case. It has no compatible version
// negotiation, so that it does not support v2, and its server announces no preferred address. A
// client updates its keys by itself after 100 packets.
func supported(test string) bool {
	switch test {
	case "handshake", "transfer", "longrtt", "chacha20", "multiplexing", "retry", "resumption",
		"zerortt", "http3", "blackhole", "keyupdate", "ecn", "amplificationlimit", "multiconnect",
		"handshakeloss", "transferloss", "handshakecorruption", "transfercorruption", "ipv6",
		"goodput", "crosstraffic", "rebind-port", "rebind-addr":
		return true
	default:
		return false
	}
}

// keyLog returns where secrets go: the file that SSLKEYLOGFILE names, or nowhere.
func keyLog() (io.Writer, error) {
	name := os.Getenv("SSLKEYLOGFILE")
	if name == "" {
		return nil, nil
	}
	return os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
}

// variable returns an environment variable, or `otherwise` if it is not set.
func variable(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}
