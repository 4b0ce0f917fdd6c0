package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

type closed struct {
	Peer           string `json:"peer"`
	Event          string `json:"event"`
	Retried        *bool  `json:"retried"`
	Resumed        bool   `json:"resumed"`
	ZeroRTT        bool   `json:"zero_rtt_accepted"`
	KeyUpdates     *int64 `json:"key_updates"`
	PeerKeyUpdates *int64 `json:"peer_key_updates"`
	Cause          string `json:"cause"`
}

func serve(o serveOptions) error {
	certificate, err := tls.LoadX509KeyPair(o.cert, o.key)
	if err != nil {
		return err
	}
	address, err := net.ResolveUDPAddr("udp", o.listen)
	if err != nil {
		return err
	}
	socket, err := o.tuning.listen(address)
	if err != nil {
		return err
	}
	alpn := alpnH3
	if o.raw {
		alpn = alpnRaw
	}
	transport := &quic.Transport{Conn: socket}
	config := o.tuning.config()
	config.Allow0RTT = o.zeroRTT
	if o.retry {
		transport.VerifySourceAddress = func(net.Addr) bool { return true }
	}
	listener, err := transport.ListenEarly(&tls.Config{
		Certificates: []tls.Certificate{certificate},
		NextProtos:   []string{alpn},
		MinVersion:   tls.VersionTLS13,
	}, config)
	if err != nil {
		return err
	}
	fmt.Println("listening on", socket.LocalAddr())
	pages := &http3.Server{Handler: http.HandlerFunc(page)}
	for {
		connection, err := listener.Accept(context.Background())
		if err != nil {
			return err
		}
		if o.tells {
			go tell(connection, o.retry)
		}
		if o.raw {
			go serveRaw(connection)
		} else {
			go func() { _ = pages.ServeQUICConn(connection) }()
		}
	}
}

// tell prints what a connection was once it has ended. Whoever gets here where every address must
// be proven has been through a Retry, or came with a token of an earlier connection.
func tell(connection *quic.Conn, retry bool) {
	<-connection.Context().Done()
	state := connection.ConnectionState()
	report := closed{
		Peer:    peer,
		Event:   "closed",
		Resumed: state.TLS.DidResume,
		ZeroRTT: state.Used0RTT,
		Cause:   fmt.Sprint(context.Cause(connection.Context())),
	}
	if retry {
		report.Retried = &retry
	}
	say(report)
}

func page(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		echo(w, r)
		return
	}
	wanted, err := strconv.ParseInt(strings.TrimPrefix(r.URL.Path, "/"), 10, 64)
	if err != nil || wanted < 0 {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Length", strconv.FormatInt(wanted, 10))
	for offset := int64(0); offset < wanted; {
		n, err := w.Write(pattern(offset, wanted-offset))
		if err != nil {
			return
		}
		offset += int64(n)
	}
}

// echo sends a body back as it arrives, then its sum.
func echo(w http.ResponseWriter, r *http.Request) {
	var sum uint64
	buffer := make([]byte, 1<<16)
	for {
		n, err := r.Body.Read(buffer)
		sum += byteSum(buffer[:n])
		if _, err := w.Write(buffer[:n]); err != nil {
			return
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	text := strconv.FormatUint(sum, 10)
	if told := r.Trailer.Get("X-Sum"); told != "" && told != text {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set(http.TrailerPrefix+"X-Sum", text)
}

func serveRaw(connection *quic.Conn) {
	for {
		stream, err := connection.AcceptStream(context.Background())
		if err != nil {
			return
		}
		go answerRaw(stream)
	}
}

// answerRaw reads one request to its FIN, then answers it.
func answerRaw(stream *quic.Stream) {
	var header [rawHeader]byte
	if _, err := io.ReadFull(stream, header[:]); err != nil {
		stream.CancelWrite(1)
		return
	}
	if _, err := io.Copy(io.Discard, stream); err != nil {
		stream.CancelWrite(1)
		return
	}
	wanted := int64(binary.BigEndian.Uint64(header[:]))
	for offset := int64(0); offset < wanted; {
		n, err := stream.Write(pattern(offset, wanted-offset))
		if err != nil {
			return
		}
		offset += int64(n)
	}
	_ = stream.Close()
}
