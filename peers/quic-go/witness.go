package main

import (
	"context"
	"sync/atomic"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
)

// witness counts what only quic-go's trace tells of a connection.
type witness struct {
	keyUpdates, peerKeyUpdates atomic.Int64
	retried                    atomic.Bool
}

func (w *witness) AddProducer() qlogwriter.Recorder { return w }

func (w *witness) SupportsSchemas(string) bool { return false }

func (w *witness) Close() error { return nil }

func (w *witness) RecordEvent(event qlogwriter.Event) {
	switch event := event.(type) {
	case qlog.KeyUpdated:
		// Each update is told once per direction; TLS tells of the keys of the first phase.
		if event.KeyType != qlog.KeyTypeClient1RTT {
			return
		}
		switch event.Trigger {
		case qlog.KeyUpdateLocal:
			w.keyUpdates.Add(1)
		case qlog.KeyUpdateRemote:
			w.keyUpdates.Add(1)
			w.peerKeyUpdates.Add(1)
		}
	case qlog.PacketReceived:
		if event.Header.PacketType == qlog.PacketTypeRetry {
			w.retried.Store(true)
		}
	}
}

// tracer makes a witness of every connection and hands it to meet.
func tracer(meet func(*witness)) func(context.Context, bool, quic.ConnectionID) qlogwriter.Trace {
	return func(context.Context, bool, quic.ConnectionID) qlogwriter.Trace {
		w := &witness{}
		meet(w)
		return w
	}
}
