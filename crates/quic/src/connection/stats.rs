//! What a connection counts, and what it shows of itself.

use core::time::Duration;

use clearway_recovery::controller::{Metrics, State};
use clearway_recovery::limit::Limit;

use super::Connection;
use crate::Instant;

/// Counts since the connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// UDP datagrams sent.
    pub datagrams_sent: u64,
    /// UDP payload bytes sent.
    pub bytes_sent: u64,
    /// QUIC packets sent.
    pub packets_sent: u64,
    /// UDP datagrams received.
    pub datagrams_received: u64,
    /// UDP payload bytes received.
    pub bytes_received: u64,
    /// QUIC packets that authenticated.
    pub packets_received: u64,
    /// QUIC packets not processed, for whatever reason.
    pub packets_dropped: u64,
    /// Packets declared lost (MTU probes aside).
    pub packets_lost: u64,
    /// Of those, acknowledged after all.
    pub spurious_losses: u64,
    /// Probe timeouts.
    pub ptos: u64,
    /// DATAGRAM frames in lost packets.
    pub datagram_frames_lost: u64,
    /// Times the active path changed.
    pub migrations: u64,
    /// Times the maximum datagram size changed.
    pub mtu_changes: u64,
    /// CE marks the peer reported.
    pub ce_marks: u64,
    /// Key updates, either side's.
    pub key_updates: u64,
    /// Of those, the peer's.
    pub peer_key_updates: u64,
}

/// A connection's figures at one moment. Sizes are bytes, rates bytes per second.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Counts since the beginning.
    pub counters: Counters,
    /// Smoothed RTT of the active path.
    pub smoothed_rtt: Duration,
    /// Minimum RTT of the active path, once measured.
    pub min_rtt: Option<Duration>,
    /// Congestion window.
    pub window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// What the pacer lets out.
    pub pacing_rate: u64,
    /// Largest UDP payload sent.
    pub mtu: u16,
    /// Name of the congestion controller.
    pub controller: &'static str,
    /// Where the controller is.
    pub state: State,
    /// What else it shows.
    pub metrics: Metrics,
    /// How long each reason for not sending held; sums to the connection's life.
    pub limits: Vec<(Limit, Duration)>,
    /// Bytes of memory the streams hold.
    pub stream_memory: usize,
    /// Times a timer fired with nothing to do.
    pub idle_wakeups: u64,
}

impl Connection {
    /// The connection's figures now.
    #[must_use]
    pub fn stats(&self, now: Instant) -> Stats {
        let path = self.active_recovery();
        Stats {
            counters: self.counters,
            smoothed_rtt: path.rtt().smoothed(),
            min_rtt: path.rtt().min(),
            window: path.window(),
            in_flight: path.in_flight(),
            pacing_rate: path.pacing_rate(),
            mtu: self.paths.active().mtu.current(),
            controller: path.controller().name(),
            state: path.controller().state(),
            metrics: path.controller().metrics(),
            limits: self.recovery.limits().breakdown(now).collect(),
            stream_memory: self.streams.memory(),
            idle_wakeups: self.timers.idle_wakeups,
        }
    }

    /// Bytes of memory the peer can make this connection hold: stream buffers,
    /// CRYPTO, queued DATAGRAMs, packets kept until their keys exist.
    #[must_use]
    pub fn memory(&self) -> usize {
        let crypto: usize = self.spaces.iter().map(|space| space.crypto.memory()).sum();
        let kept: usize = self
            .undecryptable
            .iter()
            .map(|(_, packet)| packet.len())
            .sum();
        self.streams.memory() + self.datagrams_in.memory() + crypto + kept
    }
}
