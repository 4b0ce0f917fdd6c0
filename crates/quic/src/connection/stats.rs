//! Statistics of a connection and of its paths.

use core::time::Duration;
use std::net::SocketAddr;

use clearway_recovery::controller::{Metrics, SavedPath, State};
use clearway_recovery::limit::Limit;

use super::Connection;
use super::counters::Counters;
use crate::Instant;
use crate::path::ecn::EcnState;

/// A snapshot of a connection's statistics. Sizes are in bytes, rates in bytes per second.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Counters since the connection began.
    pub counters: Counters,
    /// Smoothed RTT of the active path.
    pub smoothed_rtt: Duration,
    /// Minimum RTT of the active path, once measured.
    pub min_rtt: Option<Duration>,
    /// Congestion window.
    pub window: u64,
    /// The smallest window that the controller uses.
    pub min_window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Rate at which the pacer releases packets.
    pub pacing_rate: u64,
    /// Largest UDP payload that is sent on the active path, probes not counted.
    pub mtu: u16,
    /// Name of the congestion controller.
    pub controller: &'static str,
    /// The controller's state.
    pub state: State,
    /// Other figures of the controller.
    pub metrics: Metrics,
    /// How long each reason for not sending applied; the sum is the connection's age.
    pub limits: Vec<(Limit, Duration)>,
    /// Bytes of memory that streams use.
    pub stream_memory: usize,
    /// DATAGRAM frames' data dropped without being delivered: received while the queue was
    /// full, or queued here and too large since the path's MTU shrank.
    pub datagrams_dropped: u64,
    /// Times that a timer fired with nothing to do.
    pub idle_wakeups: u64,
    /// Cost of the peer's frames that transferred no new data, in the units of
    /// [`Config::unproductive_work`](super::Config::unproductive_work).
    pub unproductive_work: u32,
}

impl Default for Stats {
    /// Returns the statistics of an unknown connection: all zero.
    fn default() -> Self {
        Self {
            counters: Counters::default(),
            smoothed_rtt: Duration::ZERO,
            min_rtt: None,
            window: 0,
            min_window: 0,
            in_flight: 0,
            pacing_rate: 0,
            mtu: 0,
            controller: "none",
            state: State::SlowStart,
            metrics: Metrics::default(),
            limits: Vec::new(),
            stream_memory: 0,
            datagrams_dropped: 0,
            idle_wakeups: 0,
            unproductive_work: 0,
        }
    }
}

/// A snapshot of a path's statistics. Sizes are in bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PathStats {
    /// The peer's address on this path.
    pub remote: SocketAddr,
    /// Whether this is the active path, which carries the data.
    pub active: bool,
    /// Smoothed RTT.
    pub smoothed_rtt: Duration,
    /// Minimum RTT, once measured.
    pub min_rtt: Option<Duration>,
    /// Congestion window.
    pub window: u64,
    /// The smallest window that the controller uses.
    pub min_window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// State of ECN validation.
    pub ecn: EcnState,
    /// What it carries, for a later connection ([`Connection::resume_path`]), if it is enough to be
    /// of use (RFC 9959 §3.1).
    pub to_save: Option<SavedPath>,
    /// How long each reason for not sending applied on this path; the sum is the path's
    /// age.
    pub limits: Vec<(Limit, Duration)>,
}

impl Connection {
    /// Returns the statistics of every path, including the active one.
    pub fn path_stats(&self, now: Instant) -> impl Iterator<Item = PathStats> {
        let active = self.network.paths.active_id();
        self.network.paths.iter().filter_map(move |path| {
            let recovery = self.network.recovery.path(path.id)?;
            Some(PathStats {
                remote: path.remote,
                active: path.id == active,
                smoothed_rtt: recovery.rtt().smoothed(),
                min_rtt: recovery.rtt().min(),
                window: recovery.window(),
                min_window: recovery.controller().min_window(),
                in_flight: recovery.in_flight(),
                ecn: path.ecn.state(),
                to_save: recovery.to_save(),
                limits: recovery.limits().breakdown(now).collect(),
            })
        })
    }

    /// Returns the connection's statistics.
    #[must_use]
    pub fn stats(&self, now: Instant) -> Stats {
        let path = self.network.active_recovery();
        Stats {
            counters: self.reports.counters,
            smoothed_rtt: path.rtt().smoothed(),
            min_rtt: path.rtt().min(),
            window: path.window(),
            min_window: path.controller().min_window(),
            in_flight: path.in_flight(),
            pacing_rate: path.pacing_rate(),
            mtu: self.network.paths.active().mtu.current(),
            controller: path.controller().name(),
            state: path.controller().state(),
            metrics: path.controller().metrics(),
            limits: self.network.recovery.limits().breakdown(now).collect(),
            stream_memory: self.frames.streams.memory(),
            datagrams_dropped: self
                .frames
                .datagrams_in
                .dropped()
                .saturating_add(self.frames.datagrams_out.dropped()),
            idle_wakeups: self.timers.idle_wakeups,
            unproductive_work: self.work.charged(),
        }
    }
}
