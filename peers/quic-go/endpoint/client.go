package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/interop/http09"
)

// How long to wait for a session ticket.
const ticketPatience = 5 * time.Second

// How long a handshake may take: with 30 % loss, some need more than the default.
const handshakePatience = 120 * time.Second

func download(test string, options *tls.Config, config *quic.Config) error {
	urls := strings.Fields(os.Getenv("REQUESTS"))
	if len(urls) == 0 {
		return errors.New("REQUESTS is empty")
	}
	// The runner makes certificates for each run, for names of its own.
	options.InsecureSkipVerify = true
	config.HandshakeIdleTimeout = handshakePatience
	config.MaxIdleTimeout = handshakePatience
	if test == "http3" {
		options.NextProtos = []string{http3.NextProtoH3}
		client := &http3.Transport{TLSClientConfig: options, QUICConfig: config}
		defer client.Close()
		return all(client, http.MethodGet, urls)
	}
	switch test {
	case "multiconnect", "handshakeloss", "handshakecorruption":
		for _, url := range urls {
			if err := onConnection(options, config, http.MethodGet, []string{url}); err != nil {
				return err
			}
		}
		return nil
	case "resumption":
		return twice(options, config, http.MethodGet, urls)
	case "zerortt":
		return twice(options, config, http09.MethodGet0RTT, urls)
	default:
		return onConnection(options, config, http.MethodGet, urls)
	}
}

// onConnection downloads over a new connection.
func onConnection(options *tls.Config, config *quic.Config, method string, urls []string) error {
	client := &http09.RoundTripper{TLSClientConfig: options, QuicConfig: config}
	err := all(client, method, urls)
	return errors.Join(err, client.Close())
}

// twice downloads the first file on one connection, and the others, by `method`, on a second one
// that resumes its session.
func twice(options *tls.Config, config *quic.Config, method string, urls []string) error {
	tickets := &ticketCache{tls.NewLRUClientSessionCache(1), make(chan struct{}, 1)}
	options.ClientSessionCache = tickets
	client := &http09.RoundTripper{TLSClientConfig: options, QuicConfig: config}
	if err := all(client, http.MethodGet, urls[:1]); err != nil {
		return err
	}
	select {
	case <-tickets.arrived:
	case <-time.After(ticketPatience):
		return errors.New("the server sent no session ticket")
	}
	if err := client.Close(); err != nil {
		return err
	}
	return onConnection(options, config, method, urls[1:])
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

// all downloads everything at once.
func all(client http.RoundTripper, method string, urls []string) error {
	done := make(chan error, len(urls))
	for _, url := range urls {
		go func() { done <- one(client, method, url) }()
	}
	var failed error
	for range urls {
		failed = errors.Join(failed, <-done)
	}
	return failed
}

func one(client http.RoundTripper, method, url string) error {
	request, err := http.NewRequest(method, url, nil)
	if err != nil {
		return err
	}
	response, err := client.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	// HTTP/0.9 has no status.
	if response.StatusCode != 0 && response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d of %s", response.StatusCode, url)
	}
	name := path.Base(request.URL.Path)
	file, err := os.Create(filepath.Join(variable("DOWNLOADS", "/downloads"), name))
	if err != nil {
		return err
	}
	_, err = io.Copy(file, response.Body)
	return errors.Join(err, file.Close())
}
