package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const (
	// How long to wait for a session ticket.
	ticketPatience = 5 * time.Second
	// Connections made before idle ones are counted.
	warmUp = 20
	// Time for what follows a handshake.
	settle = 3 * time.Second
)

type run struct {
	Peer         string  `json:"peer"`
	Bytes        int64   `json:"bytes"`
	Requests     int64   `json:"requests"`
	Handshakes   int64   `json:"handshakes"`
	Seconds      float64 `json:"seconds"`
	Gbps         float64 `json:"gbps"`
	Resumed      *bool   `json:"resumed"`
	ZeroRTT      *bool   `json:"zero_rtt_accepted"`
	Retried      *bool   `json:"retried"`
	KeyUpdates   *int64  `json:"key_updates"`
	TrailersSeen int64   `json:"trailers_seen"`
}

// client is a client of one server.
type client struct {
	options   getOptions
	transport *quic.Transport
	http      *http3.Transport
	address   *net.UDPAddr
	tls       *tls.Config
	config    *quic.Config
	tickets   *ticketCache
	witness   atomic.Pointer[witness]
	trailers  atomic.Int64
	sum       string
}

// ticketCache says when a ticket arrives.
type ticketCache struct {
	tls.ClientSessionCache
	arrived chan struct{}
}

func (c *ticketCache) Put(key string, state *tls.ClientSessionState) {
	c.ClientSessionCache.Put(key, state)
	select {
	case c.arrived <- struct{}{}:
	default:
	}
}

func newClient(o getOptions) (*client, error) {
	authority, err := os.ReadFile(o.ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("no certificate in %s", o.ca)
	}
	address, err := net.ResolveUDPAddr("udp", o.server)
	if err != nil {
		return nil, err
	}
	socket, err := o.tuning.listen(nil)
	if err != nil {
		return nil, err
	}
	c := &client{
		options:   o,
		transport: &quic.Transport{Conn: socket},
		http:      &http3.Transport{},
		address:   address,
		config:    o.tuning.config(),
		sum:       fmt.Sprint(patternSum(o.post)),
	}
	c.tls = &tls.Config{ServerName: o.name, RootCAs: roots, NextProtos: []string{alpnH3}}
	if o.raw {
		c.tls.NextProtos = []string{alpnRaw}
	}
	if o.resume || o.zeroRTT {
		c.tickets = &ticketCache{tls.NewLRUClientSessionCache(8), make(chan struct{}, 1)}
		c.tls.ClientSessionCache = c.tickets
	}
	// A client that is measured is measured as quic-go is.
	if o.seconds == 0 && o.idle == 0 {
		c.config.Tracer = tracer(func(w *witness) { c.witness.Store(w) })
	}
	return c, nil
}

func get(o getOptions) error {
	c, err := newClient(o)
	if err != nil {
		return err
	}
	var report run
	switch {
	case o.idle > 0:
		return c.idle()
	case o.handshakes:
		report, err = c.handshakes()
	default:
		report, err = c.visits()
	}
	if err != nil {
		return err
	}
	report.Peer = peer
	if report.Seconds > 0 {
		report.Gbps = float64(report.Bytes) * 8e-9 / report.Seconds
	}
	report.TrailersSeen = c.trailers.Load()
	_ = c.transport.Close()
	say(report)
	return nil
}

func (c *client) connect(early bool) (*quic.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if early {
		return c.transport.DialEarly(ctx, c.address, c.tls, c.config)
	}
	return c.transport.Dial(ctx, c.address, c.tls, c.config)
}

// visits makes all connections wanted.
func (c *client) visits() (run, error) {
	report, err := c.visit(false)
	if err != nil || c.tickets == nil {
		return report, err
	}
	second, err := c.visit(c.options.zeroRTT)
	second.Bytes += report.Bytes
	second.Requests += report.Requests
	second.Seconds += report.Seconds
	return second, err
}

// visit makes one connection and its requests.
func (c *client) visit(early bool) (run, error) {
	connection, err := c.connect(early)
	if err != nil {
		return run{}, err
	}
	t := newTransfer(c, connection, early)
	begun := time.Now()
	err = t.all()
	report := run{
		Bytes:    t.received.Load(),
		Requests: t.answered.Load(),
		Seconds:  time.Since(begun).Seconds(),
	}
	if err != nil {
		_ = connection.CloseWithError(0x10c, "")
		return report, err
	}
	<-connection.HandshakeComplete()
	state := connection.ConnectionState()
	if c.tickets != nil {
		report.Resumed = &state.TLS.DidResume
		if c.options.zeroRTT {
			report.ZeroRTT = &state.Used0RTT
		}
		select {
		case <-c.tickets.arrived:
		case <-time.After(ticketPatience):
			if !state.TLS.DidResume {
				err = errors.New("no session ticket arrived")
			}
		}
	}
	if w := c.witness.Load(); w != nil {
		retried, updates := w.retried.Load(), w.keyUpdates.Load()
		report.Retried, report.KeyUpdates = &retried, &updates
		if c.options.keyUpdate && updates == 0 {
			err = fmt.Errorf("%w: a key update when the caller wants it", errUnsupported)
		}
	}
	_ = connection.CloseWithError(0x100, "")
	return report, err
}

// handshakes makes connections, some at a time, for a while.
func (c *client) handshakes() (run, error) {
	begun := time.Now()
	until := begun.Add(time.Duration(c.options.seconds * float64(time.Second)))
	var made atomic.Int64
	err := abreast(c.options.parallel, func() error {
		for time.Now().Before(until) {
			connection, err := c.connect(false)
			if err != nil {
				return err
			}
			_ = connection.CloseWithError(0, "")
			made.Add(1)
		}
		return nil
	})
	return run{Handshakes: made.Load(), Seconds: time.Since(begun).Seconds()}, err
}

// idle makes connections and holds them for as long as whoever measures them wants.
func (c *client) idle() error {
	input := bufio.NewReader(os.Stdin)
	if err := c.hold(warmUp); err != nil {
		return err
	}
	time.Sleep(settle)
	say(map[string]any{"event": "ready"})
	_, _ = input.ReadString('\n')
	if err := c.hold(c.options.idle); err != nil {
		return err
	}
	time.Sleep(settle)
	say(map[string]any{"event": "idle", "connections": c.options.idle})
	_, _ = input.ReadString('\n')
	return nil
}

func (c *client) hold(count int64) error {
	var begun atomic.Int64
	return abreast(min(64, count), func() error {
		for begun.Add(1) <= count {
			if _, err := c.connect(false); err != nil {
				return err
			}
		}
		return nil
	})
}

// abreast runs a function so many times at once; the first error of any.
func abreast(lanes int64, act func() error) error {
	failures := make(chan error, lanes)
	var group sync.WaitGroup
	for range lanes {
		group.Go(func() {
			if err := act(); err != nil {
				failures <- err
			}
		})
	}
	group.Wait()
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}
