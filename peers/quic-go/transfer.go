package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// transfer is one connection's requests.
type transfer struct {
	client     *client
	connection *quic.Conn
	http       *http3.ClientConn
	method     string
	started    atomic.Int64
	answered   atomic.Int64
	received   atomic.Int64
}

func newTransfer(c *client, connection *quic.Conn, early bool) *transfer {
	t := &transfer{client: c, connection: connection, method: http.MethodGet}
	if early {
		t.method = http3.MethodGet0RTT
	}
	if !c.options.raw {
		t.http = c.http.NewClientConn(connection)
	}
	return t
}

// all makes all requests and verifies all answers.
func (t *transfer) all() error {
	o := t.client.options
	ctx := context.Background()
	if o.seconds > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(o.seconds*float64(time.Second)))
		defer cancel()
	}
	return abreast(o.parallel, func() error {
		buffer := make([]byte, 1<<16)
		for ctx.Err() == nil && (o.seconds > 0 || t.started.Add(1) <= o.requests) {
			if err := t.request(ctx, buffer); err != nil {
				// A stream's own clock may strike before the context's.
				if o.seconds > 0 && (ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded)) {
					break
				}
				return err
			}
			t.answered.Add(1)
		}
		return nil
	})
}

func (t *transfer) request(ctx context.Context, buffer []byte) error {
	if t.http == nil {
		return t.raw(ctx, buffer)
	}
	o := t.client.options
	path := fmt.Sprintf("/%d", o.bytes)
	method := t.method
	if o.post > 0 {
		path, method = "/echo", http.MethodPost
	}
	url := fmt.Sprintf("https://%s:%d%s", o.name, t.client.address.Port, path)
	request, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	if o.post > 0 {
		request.Body = io.NopCloser(&upload{length: o.post})
		request.ContentLength = -1
		request.Trailer = http.Header{"X-Sum": {t.client.sum}}
	}
	response, err := t.http.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	if err := t.verify(response.Body, buffer); err != nil {
		return err
	}
	if sum := response.Trailer.Get("X-Sum"); sum != "" {
		if sum != t.client.sum {
			return fmt.Errorf("x-sum is %s, expected %s", sum, t.client.sum)
		}
		t.client.trailers.Add(1)
	}
	return nil
}

func (t *transfer) raw(ctx context.Context, buffer []byte) error {
	stream, err := t.connection.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	if deadline, timed := ctx.Deadline(); timed {
		_ = stream.SetDeadline(deadline)
		defer stream.CancelRead(0)
	}
	var header [rawHeader]byte
	binary.BigEndian.PutUint64(header[:], uint64(t.client.options.bytes))
	if _, err := stream.Write(header[:]); err != nil {
		return err
	}
	if _, err := io.Copy(stream, &upload{length: t.client.options.post}); err != nil {
		return err
	}
	if err := stream.Close(); err != nil {
		return err
	}
	return t.verify(stream, buffer)
}

// verify reads an answer to its end.
func (t *transfer) verify(answer io.Reader, buffer []byte) error {
	wanted := t.client.options.bytes
	var offset int64
	for {
		n, err := answer.Read(buffer)
		if int64(n) > wanted-offset {
			return fmt.Errorf("received more than the expected %d bytes", wanted)
		}
		if err := verify(offset, buffer[:n]); err != nil {
			return err
		}
		offset += int64(n)
		t.received.Add(int64(n))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if offset != wanted {
		return fmt.Errorf("received %d bytes, expected %d", offset, wanted)
	}
	return nil
}

// upload is the pattern as a request's body.
type upload struct{ offset, length int64 }

func (u *upload) Read(buffer []byte) (int, error) {
	if u.offset == u.length {
		return 0, io.EOF
	}
	n := copy(buffer, pattern(u.offset, u.length-u.offset))
	u.offset += int64(n)
	return n, nil
}
