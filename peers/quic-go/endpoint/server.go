package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/interop/http09"
)

func serve(test string, options *tls.Config, config *quic.Config) error {
	certs := variable("CERTS", "/certs")
	certificate, err := tls.LoadX509KeyPair(
		filepath.Join(certs, "cert.pem"), filepath.Join(certs, "priv.key"))
	if err != nil {
		return err
	}
	options.Certificates = []tls.Certificate{certificate}
	config.Allow0RTT = true
	config.HandshakeIdleTimeout = handshakePatience
	port, err := strconv.Atoi(variable("PORT", "443"))
	if err != nil {
		return fmt.Errorf("PORT: %w", err)
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
	if err != nil {
		return err
	}
	files := http.NewServeMux()
	files.Handle("/", http.FileServer(http.Dir(variable("WWW", "/www"))))
	if test == "http3" {
		server := http3.Server{Handler: files, TLSConfig: options, QUICConfig: config}
		return server.Serve(socket)
	}
	transport := &quic.Transport{
		Conn:                socket,
		VerifySourceAddress: func(net.Addr) bool { return test == "retry" },
	}
	listener, err := transport.ListenEarly(options, config)
	if err != nil {
		return err
	}
	server := http09.Server{Handler: files}
	return server.ServeListener(listener)
}
