// Command peer-webtransport-go is WebTransport by webtransport-go: an echo server, and a client that
// checks one (see peers/README.md).
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/webtransport-go"
)

const (
	patience        = 20 * time.Second
	streams         = 10
	bidiBytes       = 200_000
	uniBytes        = 50_000
	datagrams       = 100
	datagramBytes   = 1_000
	datagramsNeeded = 90
)

func main() {
	if err := act(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peer-webtransport-go:", err)
		os.Exit(1)
	}
}

func act(args []string) error {
	if len(args) < 1 {
		return errors.New("usage: serve --listen ADDR --cert FILE --key FILE | check URL --cert FILE [--only CHECK]")
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	listen := flags.String("listen", "", "address to listen on")
	cert := flags.String("cert", "", "certificate, PEM")
	key := flags.String("key", "", "private key, PEM")
	only := flags.String("only", "", "make this check only")
	switch {
	case args[0] == "serve":
		_ = flags.Parse(args[1:])
		return serve(*listen, *cert, *key)
	case args[0] == "check" && len(args) >= 2:
		_ = flags.Parse(args[2:])
		return check(args[1], *cert, *only)
	default:
		return fmt.Errorf("unknown command %q: expected serve or check", args[0])
	}
}

func config() *quic.Config {
	return &quic.Config{
		EnableDatagrams:                  true,
		EnableStreamResetPartialDelivery: true,
		// Traces of both ends, in the directory QLOGDIR if that is set.
		Tracer: qlog.DefaultConnectionTracer,
	}
}

// serve is the echo of `clearway serve --webtransport`.
func serve(listen, cert, key string) error {
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
	server := webtransport.Server{
		H3: &http3.Server{
			TLSConfig: &tls.Config{
				Certificates: []tls.Certificate{certificate},
				NextProtos:   []string{http3.NextProtoH3},
			},
			QUICConfig: config(),
		},
		CheckOrigin: func(*http.Request) bool { return true },
	}
	server.H3.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		session, err := server.Upgrade(w, r)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		go echo(session)
	})
	fmt.Println("listening on", socket.LocalAddr())
	return server.Serve(socket)
}

func echo(session *webtransport.Session) {
	ctx := session.Context()
	go func() {
		for {
			stream, err := session.AcceptStream(ctx)
			if err != nil {
				return
			}
			go bidirectional(session, stream)
		}
	}()
	go func() {
		for {
			recv, err := session.AcceptUniStream(ctx)
			if err != nil {
				return
			}
			go func() {
				if send, err := session.OpenUniStreamSync(ctx); err == nil {
					sendBack(nil, send, recv)
				}
			}()
		}
	}()
	for {
		data, err := session.ReceiveDatagram(ctx)
		if err != nil {
			break
		}
		_ = session.SendDatagram(data)
	}
	<-ctx.Done()
	_, err := session.AcceptStream(context.Background())
	var closed *webtransport.SessionError
	if errors.As(err, &closed) {
		fmt.Printf("session ended: code %d: %q\n", closed.ErrorCode, closed.Message)
	} else {
		fmt.Println("session ended:", err)
	}
}

func bidirectional(session *webtransport.Session, stream *webtransport.Stream) {
	first := make([]byte, 65536)
	n, err := stream.Read(first)
	first = first[:n]
	var reset *webtransport.StreamError
	if errors.As(err, &reset) {
		stream.CancelWrite(reset.ErrorCode)
		return
	}
	words := strings.SplitN(string(first), " ", 3)
	switch {
	case words[0] == "close" && len(words) == 3:
		code, _ := strconv.ParseUint(words[1], 10, 32)
		_ = session.CloseWithError(webtransport.SessionErrorCode(code), words[2])
	case words[0] == "reset" && len(words) == 2:
		code, _ := strconv.ParseUint(words[1], 10, 32)
		stream.CancelWrite(webtransport.StreamErrorCode(code))
	case words[0] == "open" && len(words) == 1:
		if own, err := session.OpenStreamSync(session.Context()); err == nil {
			sendBack(nil, own, own)
		}
	default:
		sendBack(first, stream, stream)
	}
}

type sender interface {
	io.WriteCloser
	CancelWrite(webtransport.StreamErrorCode)
}

// sendBack sends what arrives; a reset is passed on.
func sendBack(first []byte, send sender, recv io.Reader) {
	if _, err := send.Write(first); err != nil {
		return
	}
	_, err := io.Copy(send, recv)
	var reset *webtransport.StreamError
	switch {
	case err == nil:
		_ = send.Close()
	case errors.As(err, &reset) && reset.Remote:
		send.CancelWrite(reset.ErrorCode)
	}
}

func pattern(length, seed int) []byte {
	data := make([]byte, length)
	for at := range data {
		data[at] = byte(at*31 + seed + (at >> 8))
	}
	return data
}

// check makes the checks of peer-webtransport, or only this one, each in a session of its own.
func check(server, cert, only string) error {
	pem, err := os.ReadFile(cert)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return errors.New("no certificate in " + cert)
	}
	checks := []struct {
		name string
		run  func(context.Context, *webtransport.Session) error
	}{
		{"bidirectional", checkBidirectional},
		{"unidirectional", checkUnidirectional},
		{"opened_by_server", checkOpenedByServer},
		{"datagrams", checkDatagrams},
		{"reset_by_server", checkResetByServer},
		{"reset_by_client", checkResetByClient},
		{"close_by_server", checkCloseByServer},
		{"close_by_client", checkCloseByClient},
	}
	report := map[string]string{}
	failed := false
	for _, each := range checks {
		if only != "" && only != each.name {
			continue
		}
		transport := webtransport.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, NextProtos: []string{http3.NextProtoH3}},
			QUICConfig:      config(),
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		conn, session, err := dial(ctx, &transport, server)
		if err == nil {
			err = each.run(ctx, session)
			_ = conn.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "")
		}
		report[each.name] = "pass"
		if err != nil {
			report[each.name] = "FAIL: " + err.Error()
			failed = true
		}
		cancel()
		_ = transport.Close()
	}
	line, err := json.Marshal(report)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	if failed {
		return errors.New("checks failed")
	}
	return nil
}

// dial opens a session on a connection of its own. That of Transport.Dial ends in the same instant as
// the session, mostly before WT_CLOSE_SESSION is sent.
func dial(ctx context.Context, transport *webtransport.Transport, to string) (*quic.Conn, *webtransport.Session, error) {
	target, err := url.Parse(to)
	if err != nil {
		return nil, nil, err
	}
	conn, err := quic.DialAddrEarly(ctx, target.Host, transport.TLSClientConfig, transport.QUICConfig)
	if err != nil {
		return nil, nil, err
	}
	client, err := transport.NewClientConn(conn)
	if err != nil {
		return nil, nil, err
	}
	_, session, err := client.Dial(ctx, to, nil)
	return conn, session, err
}

// exchange writes, ends, and expects the same bytes.
func exchange(send io.WriteCloser, recv io.Reader, data []byte) error {
	written := make(chan error, 1)
	go func() {
		_, err := send.Write(data)
		written <- errors.Join(err, send.Close())
	}()
	received, err := io.ReadAll(recv)
	if err := errors.Join(err, <-written); err != nil {
		return err
	}
	if !bytes.Equal(received, data) {
		return errors.New("the stream came back different")
	}
	return nil
}

func checkBidirectional(ctx context.Context, session *webtransport.Session) error {
	for round := range streams {
		stream, err := session.OpenStreamSync(ctx)
		if err != nil {
			return err
		}
		if err := exchange(stream, stream, pattern(bidiBytes, round)); err != nil {
			return err
		}
	}
	return nil
}

func checkUnidirectional(ctx context.Context, session *webtransport.Session) error {
	for round := range streams {
		send, err := session.OpenUniStreamSync(ctx)
		if err != nil {
			return err
		}
		data := pattern(uniBytes, round)
		if _, err := send.Write(data); err != nil {
			return err
		}
		if err := send.Close(); err != nil {
			return err
		}
		recv, err := session.AcceptUniStream(ctx)
		if err != nil {
			return err
		}
		received, err := io.ReadAll(recv)
		if err != nil {
			return err
		}
		if !bytes.Equal(received, data) {
			return fmt.Errorf("stream %d came back different", round)
		}
	}
	return nil
}

// ask opens a stream and writes a command.
func ask(ctx context.Context, session *webtransport.Session, command string) (*webtransport.Stream, error) {
	stream, err := session.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	_, err = stream.Write([]byte(command))
	return stream, err
}

func checkOpenedByServer(ctx context.Context, session *webtransport.Session) error {
	if _, err := ask(ctx, session, "open"); err != nil {
		return err
	}
	stream, err := session.AcceptStream(ctx)
	if err != nil {
		return err
	}
	return exchange(stream, stream, pattern(uniBytes, 1))
}

func checkDatagrams(ctx context.Context, session *webtransport.Session) error {
	echoed := 0
	for round := range datagrams {
		data := pattern(datagramBytes, round)
		if err := session.SendDatagram(data); err != nil {
			return err
		}
		wait, cancel := context.WithTimeout(ctx, time.Second)
		received, err := session.ReceiveDatagram(wait)
		cancel()
		if err == nil && bytes.Equal(received, data) {
			echoed++
		}
	}
	if echoed < datagramsNeeded {
		return fmt.Errorf("%d of %d datagrams came back", echoed, datagrams)
	}
	return nil
}

func expectReset(recv io.Reader, code webtransport.StreamErrorCode) error {
	_, err := io.ReadAll(recv)
	var reset *webtransport.StreamError
	if !errors.As(err, &reset) || !reset.Remote || reset.ErrorCode != code {
		return fmt.Errorf("expected a reset with code %d, found %w", code, err)
	}
	return nil
}

func checkResetByServer(ctx context.Context, session *webtransport.Session) error {
	stream, err := ask(ctx, session, "reset 4711")
	if err != nil {
		return err
	}
	return expectReset(stream, 4711)
}

func checkResetByClient(ctx context.Context, session *webtransport.Session) error {
	stream, err := ask(ctx, session, "hello")
	if err != nil {
		return err
	}
	stream.CancelWrite(1<<32 - 1)
	return expectReset(stream, 1<<32-1)
}

func checkCloseByServer(ctx context.Context, session *webtransport.Session) error {
	if _, err := ask(ctx, session, "close 42 done here"); err != nil {
		return err
	}
	_, err := session.AcceptStream(ctx)
	var closed *webtransport.SessionError
	if !errors.As(err, &closed) || closed.ErrorCode != 42 || closed.Message != "done here" {
		return fmt.Errorf("expected a close with code 42, found %w", err)
	}
	return nil
}

// What the server saw is for the script to check.
func checkCloseByClient(_ context.Context, session *webtransport.Session) error {
	err := session.CloseWithError(7, "from the client")
	// The connection is closed next: the capsule has to have been sent by then.
	time.Sleep(200 * time.Millisecond)
	return err
}
