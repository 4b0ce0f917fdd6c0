// Command peer-masque-go is UDP through HTTP/3 (CONNECT-UDP, RFC 9298) by quic-go: a proxy, and a client
// that forwards a local port (see peers/README.md). masque-go is not used, so that both ends are
// independent of Clearway's and of each other.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const (
	protocol = "connect-udp"
	// datagramCapsule is the type of DATAGRAM capsules (RFC 9297 §3.5).
	datagramCapsule = 0
	// udpContext is the context ID of UDP payloads, one byte (RFC 9298 §4).
	udpContext = 0
	maxPayload = 65527
)

func main() {
	if err := act(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peer-masque-go:", err)
		os.Exit(1)
	}
}

func act(args []string) error {
	if len(args) < 1 {
		return errors.New("usage: proxy --listen ADDR --cert FILE --key FILE --token TOKEN | " +
			"tunnel --proxy HOST:PORT --local ADDR --to HOST:PORT --cert FILE --token TOKEN")
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	listen := flags.String("listen", "", "address to listen on")
	cert := flags.String("cert", "", "certificate, PEM")
	key := flags.String("key", "", "private key, PEM")
	token := flags.String("token", "", "token of the proxy's clients")
	capsules := flags.Bool("capsules", false, "send packets in capsules")
	proxy := flags.String("proxy", "", "proxy")
	local := flags.String("local", "", "local address")
	to := flags.String("to", "", "target")
	_ = flags.Parse(args[1:])
	switch args[0] {
	case "proxy":
		return serve(*listen, *cert, *key, *token, *capsules)
	case "tunnel":
		return tunnel(*proxy, *local, *to, *cert, *token, *capsules)
	default:
		return fmt.Errorf("unknown command %q: expected proxy or tunnel", args[0])
	}
}

func config() *quic.Config {
	// A QUIC connection inside needs datagrams of 1,200 bytes.
	return &quic.Config{EnableDatagrams: true, InitialPacketSize: 1350}
}

// stream is what both ends of a tunnel have.
type stream interface {
	io.ReadWriter
	SendDatagram([]byte) error
	ReceiveDatagram(context.Context) ([]byte, error)
}

// carrier sends and receives UDP payloads in a tunnel.
type carrier struct {
	stream   stream
	capsules bool
	writing  sync.Mutex
}

func (c *carrier) send(payload []byte) error {
	datagram := append([]byte{udpContext}, payload...)
	if !c.capsules {
		err := c.stream.SendDatagram(datagram)
		var tooLarge *quic.DatagramTooLargeError
		if errors.As(err, &tooLarge) {
			return nil
		}
		return err
	}
	var capsule bytes.Buffer
	if err := http3.WriteCapsule(&capsule, datagramCapsule, datagram); err != nil {
		return err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.stream.Write(capsule.Bytes())
	return err
}

// receive passes on what arrives in either form, until the tunnel ends.
func (c *carrier) receive(deliver func([]byte)) {
	ctx, cancel := context.WithCancel(context.Background())
	pass := func(datagram []byte) {
		if len(datagram) > 0 && datagram[0] == udpContext {
			deliver(datagram[1:])
		}
	}
	go func() {
		defer cancel()
		parser := http3.NewCapsuleParser(c.stream)
		for {
			kind, value, err := parser.Next()
			if err != nil {
				return
			}
			content, err := io.ReadAll(value)
			if err != nil {
				return
			}
			if kind == datagramCapsule {
				pass(content)
			}
		}
	}()
	for {
		datagram, err := c.stream.ReceiveDatagram(ctx)
		if err != nil {
			break
		}
		pass(datagram)
	}
	<-ctx.Done()
}

func serve(listen, cert, key, token string, capsules bool) error {
	certificate, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return err
	}
	address, err := net.ResolveUDPAddr("udp", listen)
	if err != nil {
		return err
	}
	socket, err := net.ListenUDP("udp", address)
	if err != nil {
		return err
	}
	server := http3.Server{
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{certificate},
			NextProtos:   []string{http3.NextProtoH3},
		},
		QUICConfig:      config(),
		EnableDatagrams: true,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if status := forward(w, r, token, capsules); status != 0 {
				w.WriteHeader(status)
			}
		}),
	}
	fmt.Println("listening on", socket.LocalAddr())
	return server.Serve(socket)
}

// forward serves a tunnel. It returns a status if there is none.
func forward(w http.ResponseWriter, r *http.Request, token string, capsules bool) int {
	if r.Method != http.MethodConnect || r.Proto != protocol {
		return http.StatusNotFound
	}
	if r.Header.Get("Proxy-Authorization") != "Bearer "+token {
		return http.StatusProxyAuthRequired
	}
	parts := strings.Split(strings.Trim(r.URL.EscapedPath(), "/"), "/")
	if len(parts) != 5 {
		return http.StatusBadRequest
	}
	host, err := url.PathUnescape(parts[3])
	if err != nil {
		return http.StatusBadRequest
	}
	target, err := net.Dial("udp", net.JoinHostPort(host, parts[4]))
	if err != nil {
		return http.StatusBadGateway
	}
	defer target.Close()
	w.Header().Set(http3.CapsuleProtocolHeader, "?1")
	w.WriteHeader(http.StatusOK)
	str, err := w.(http3.HTTPStreamer).HTTPStream()
	if err != nil {
		return http.StatusInternalServerError
	}
	c := &carrier{stream: str, capsules: capsules}
	go func() {
		buffer := make([]byte, maxPayload)
		for {
			n, err := target.Read(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil && c.send(buffer[:n]) != nil {
				return
			}
		}
	}()
	c.receive(func(payload []byte) { _, _ = target.Write(payload) })
	return 0
}

// tunnel forwards a local port; each program that sends to it has a tunnel of its own.
func tunnel(proxy, local, to, cert, token string, capsules bool) error {
	pem, err := os.ReadFile(cert)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return errors.New("no certificate in " + cert)
	}
	ctx := context.Background()
	connection, err := quic.DialAddr(ctx, proxy,
		&tls.Config{RootCAs: roots, NextProtos: []string{http3.NextProtoH3}}, config())
	if err != nil {
		return err
	}
	client := (&http3.Transport{EnableDatagrams: true}).NewClientConn(connection)
	<-client.ReceivedSettings()
	if s := client.Settings(); !s.EnableExtendedConnect || !s.EnableDatagrams {
		return errors.New("the proxy has no extended CONNECT or no datagrams")
	}
	address, err := net.ResolveUDPAddr("udp", local)
	if err != nil {
		return err
	}
	socket, err := net.ListenUDP("udp", address)
	if err != nil {
		return err
	}
	fmt.Println("listening on", socket.LocalAddr())
	flows := map[string]*carrier{}
	buffer := make([]byte, maxPayload)
	for {
		n, program, err := socket.ReadFromUDP(buffer)
		if err != nil {
			return err
		}
		flow := flows[program.String()]
		if flow == nil {
			if flow, err = open(ctx, client, proxy, to, token, capsules); err != nil {
				fmt.Fprintln(os.Stderr, err)
				continue
			}
			flows[program.String()] = flow
			go flow.receive(func(payload []byte) { _, _ = socket.WriteToUDP(payload, program) })
		}
		if err := flow.send(buffer[:n]); err != nil {
			delete(flows, program.String())
		}
	}
}

func open(ctx context.Context, client *http3.ClientConn, proxy, to, token string, capsules bool) (*carrier, error) {
	host, port, err := net.SplitHostPort(to)
	if err != nil {
		return nil, err
	}
	path := "/.well-known/masque/udp/" + url.PathEscape(host) + "/" + port + "/"
	target, err := url.Parse("https://" + proxy + path)
	if err != nil {
		return nil, err
	}
	request := (&http.Request{
		Method: http.MethodConnect,
		Proto:  protocol,
		Host:   proxy,
		URL:    target,
		Header: http.Header{
			http3.CapsuleProtocolHeader: {"?1"},
			"Proxy-Authorization":       {"Bearer " + token},
		},
	}).WithContext(ctx)
	str, err := client.OpenRequestStream(ctx)
	if err != nil {
		return nil, err
	}
	if err := str.SendRequestHeader(request); err != nil {
		return nil, err
	}
	response, err := str.ReadResponse()
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the proxy answered %d", response.StatusCode)
	}
	return &carrier{stream: str, capsules: capsules}, nil
}
