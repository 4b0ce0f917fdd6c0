// Command peer-quic-go speaks HTTP/3 and clearway-raw by quic-go, behind the command line that
// every peer of Clearway shares (see peers/README.md).
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"

	"github.com/quic-go/quic-go"
)

const (
	peer        = "quic-go"
	alpnH3      = "h3"
	alpnRaw     = "clearway-raw"
	rawHeader   = 8
	unsupported = 127
)

// errUnsupported is what quic-go cannot do, whoever its peer is.
var errUnsupported = errors.New("unsupported")

func main() {
	err := act(os.Args[1:])
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "peer-quic-go:", err)
	if errors.Is(err, errUnsupported) {
		os.Exit(unsupported)
	}
	os.Exit(1)
}

func act(args []string) error {
	switch {
	case len(args) >= 1 && args[0] == "serve":
		return serve(parseServe(args[1:]))
	case len(args) >= 2 && args[0] == "get":
		return get(parseGet(args[1], args[2:]))
	default:
		return errors.New("usage: serve --listen ADDR --cert FILE --key FILE … | get ADDR …")
	}
}

// tuning is what quic-go is given instead of its defaults.
type tuning struct {
	window       uint64
	socketBuffer int
}

func (t *tuning) flags(flags *flag.FlagSet) {
	flags.Uint64Var(&t.window, "window", 0, "all flow-control windows, in bytes")
	flags.IntVar(&t.socketBuffer, "socket-buffer", 0, "buffers of the socket, in bytes")
}

// listen opens a socket; quic-go then asks for larger buffers if these are small.
func (t tuning) listen(address *net.UDPAddr) (*net.UDPConn, error) {
	socket, err := net.ListenUDP("udp", address)
	if err == nil && t.socketBuffer > 0 {
		err = errors.Join(socket.SetReadBuffer(t.socketBuffer), socket.SetWriteBuffer(t.socketBuffer))
	}
	return socket, err
}

// config is that of a connection.
func (t tuning) config() *quic.Config {
	return &quic.Config{
		InitialStreamReceiveWindow:     t.window,
		MaxStreamReceiveWindow:         t.window,
		InitialConnectionReceiveWindow: t.window,
		MaxConnectionReceiveWindow:     t.window,
	}
}

type serveOptions struct {
	listen, cert, key          string
	retry, zeroRTT, raw, tells bool
	tuning                     tuning
}

func parseServe(args []string) serveOptions {
	var o serveOptions
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	flags.StringVar(&o.listen, "listen", "", "address to listen on")
	flags.StringVar(&o.cert, "cert", "", "certificate chain, PEM")
	flags.StringVar(&o.key, "key", "", "private key, PEM")
	flags.BoolVar(&o.retry, "retry", false, "make every client prove its address")
	flags.BoolVar(&o.zeroRTT, "zero-rtt", false, "accept early data")
	flags.BoolVar(&o.raw, "raw", false, "speak clearway-raw instead of HTTP/3")
	flags.BoolVar(&o.tells, "json", false, "print one JSON object per closed connection")
	o.tuning.flags(flags)
	_ = flags.Parse(args)
	return o
}

type getOptions struct {
	server, name, ca                                   string
	raw, resume, zeroRTT, keyUpdate, handshakes, tells bool
	bytes                                              int64
	requests, parallel, post, idle                     int64
	seconds                                            float64
	tuning                                             tuning
}

func parseGet(server string, args []string) getOptions {
	o := getOptions{server: server}
	flags := flag.NewFlagSet("get", flag.ExitOnError)
	flags.StringVar(&o.name, "server-name", "", "name the certificate must be good for")
	flags.StringVar(&o.ca, "ca", "", "authorities to trust, PEM")
	flags.BoolVar(&o.raw, "raw", false, "speak clearway-raw instead of HTTP/3")
	flags.Int64Var(&o.bytes, "bytes", -1, "bytes to download per request")
	flags.Int64Var(&o.requests, "requests", 1, "requests to make")
	flags.Int64Var(&o.parallel, "parallel", 0, "requests or connections under way at once")
	flags.Int64Var(&o.post, "post", 0, "bytes to upload per request")
	flags.BoolVar(&o.resume, "resume", false, "connect a second time")
	flags.BoolVar(&o.zeroRTT, "zero-rtt", false, "connect a second time, with early data")
	flags.BoolVar(&o.keyUpdate, "key-update", false, "see a key update")
	flags.Float64Var(&o.seconds, "seconds", 0, "repeat until so many seconds are over")
	flags.BoolVar(&o.handshakes, "handshakes", false, "make connections instead of requests")
	flags.Int64Var(&o.idle, "idle", 0, "hold so many idle connections")
	flags.BoolVar(&o.tells, "json", false, "print the result as one JSON object")
	o.tuning.flags(flags)
	_ = flags.Parse(args)
	switch {
	case o.post > 0 && !o.raw:
		o.bytes = o.post
	case o.bytes >= 0:
	case o.seconds > 0:
		o.bytes = 1 << 60
	default:
		o.bytes = 1 << 20
	}
	if o.parallel <= 0 {
		o.parallel = o.requests
		if o.seconds > 0 {
			o.parallel = 1
		}
	}
	return o
}

// say prints one line of JSON.
func say(object any) {
	line, err := json.Marshal(object)
	if err == nil {
		fmt.Println(string(line))
	}
}
