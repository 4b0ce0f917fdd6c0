package main

import (
	"crypto/tls"
	_ "unsafe" // for go:linkname
)

// crypto/tls has no setting for the cipher suites of TLS 1.3; quic-go's own endpoint changes its
// defaults in the same way.

//go:linkname defaultCipherSuitesTLS13 crypto/tls.defaultCipherSuitesTLS13
var defaultCipherSuitesTLS13 []uint16

//go:linkname defaultCipherSuitesTLS13NoAES crypto/tls.defaultCipherSuitesTLS13NoAES
var defaultCipherSuitesTLS13NoAES []uint16

// onlyChaCha20 disables the other cipher suites of this process.
func onlyChaCha20() {
	defaultCipherSuitesTLS13 = []uint16{tls.TLS_CHACHA20_POLY1305_SHA256}
	defaultCipherSuitesTLS13NoAES = defaultCipherSuitesTLS13
}
