//! The connections of a running endpoint: what each waits for, what is wrong with it, and counters
//! over all of them.
//!
//! ```
//! use clearway_trace::{Fleet, Recorder};
//!
//! let fleet = Fleet::new();
//! // An endpoint calls this for each new connection.
//! let observers = {
//!     let fleet = fleet.clone();
//!     move |remote| fleet.sink(remote).map(|sink| Box::new(Recorder::new(sink)))
//! };
//! # observers("[::1]:9".parse().unwrap());
//! // Meanwhile, elsewhere:
//! for connection in fleet.connections() {
//!     println!("{}: {}", connection.title, connection.headline);
//! }
//! assert!(fleet.metrics().contains("quic_connections_total"));
//! ```

mod connection;
mod counters;
mod exposition;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use self::connection::{ConnectionSummary, FleetSink};
use self::connection::{EndedConnection, LiveConnection};
use self::counters::Counters;
use crate::diagnosis::Examination;

/// Maximum number of connections that are examined at a time, at some 20 KiB each; others are only
/// counted (`quic_connections_unobserved_total`).
pub const MAX_CONNECTIONS: usize = 4_096;

/// Maximum number of connections of which values over time are kept: half a megabyte each.
const MAX_DRAWN: usize = 128;

/// Maximum number of ended connections that can still be looked at.
const MAX_ENDED: usize = 32;

/// Maximum number of connections in a list.
const MAX_LISTED: usize = 64;

/// The connections of a running endpoint. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Fleet(Arc<Mutex<FleetState>>);

#[derive(Debug, Default)]
struct FleetState {
    /// The number of the next connection.
    next: u64,
    open: BTreeMap<u64, Arc<Mutex<LiveConnection>>>,
    /// Those of `open` whose values over time are kept.
    drawn: usize,
    /// The latest last.
    ended: VecDeque<(u64, Arc<EndedConnection>)>,
    /// Of connections that have ended.
    counters: Counters,
    /// Connections that were not examined, because there were too many.
    unobserved: u64,
}

impl Fleet {
    /// No connections yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, FleetState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A sink for a new connection with this peer; `None` if [`MAX_CONNECTIONS`] are open. The
    /// connection has ended when the sink is dropped.
    #[must_use]
    pub fn sink(&self, remote: SocketAddr) -> Option<FleetSink> {
        let mut state = self.state();
        if state.open.len() >= MAX_CONNECTIONS {
            state.unobserved = state.unobserved.saturating_add(1);
            return None;
        }
        let id = state.next;
        state.next = id.saturating_add(1);
        let drawn = state.drawn < MAX_DRAWN;
        state.drawn = state.drawn.saturating_add(drawn.into());
        let live = Arc::new(Mutex::new(LiveConnection::new(remote, drawn)));
        state.open.insert(id, live.clone());
        Some(FleetSink::new(id, live, self.clone()))
    }

    /// What is known of a connection is kept for a while after its end.
    fn ended(&self, id: u64, ended: EndedConnection, drawn: bool) {
        let mut state = self.state();
        state.open.remove(&id);
        state.drawn = state.drawn.saturating_sub(drawn.into());
        state.counters.add_ended(&ended.examination);
        if state.ended.len() >= MAX_ENDED {
            state.ended.pop_front();
        }
        state.ended.push_back((id, Arc::new(ended)));
    }

    /// Connections, the open ones first, of those the ones with the worst problems, then the
    /// newest; at most 64.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionSummary> {
        let (open, ended) = {
            let state = self.state();
            let open: Vec<_> = state
                .open
                .iter()
                .map(|(id, it)| (*id, it.clone()))
                .collect();
            (open, state.ended.iter().cloned().collect::<Vec<_>>())
        };
        // Locked one after the other, so that no event waits for more than its own.
        let mut list: Vec<ConnectionSummary> = open
            .into_iter()
            .map(|(id, it)| LiveConnection::lock(&it).summary(id))
            .collect();
        list.extend(ended.into_iter().map(|(id, it)| it.summary(id)));
        list.sort_by_key(|it| core::cmp::Reverse((it.open, it.severity, it.id)));
        list.truncate(MAX_LISTED);
        list
    }

    /// The title of a connection and its examination so far, as if it ended now; `None` if there
    /// is none with this number, or it ended too long ago.
    #[must_use]
    pub fn examination(&self, id: u64) -> Option<(String, Examination)> {
        let (open, ended) = {
            let state = self.state();
            let ended = state.ended.iter().find(|(each, _)| *each == id);
            (
                state.open.get(&id).cloned(),
                ended.map(|(_, it)| it.clone()),
            )
        };
        match (open, ended) {
            (Some(live), _) => {
                let copy = LiveConnection::lock(&live).clone();
                Some((copy.title(), copy.finish()))
            }
            (None, Some(ended)) => Some((ended.title.clone(), ended.examination.clone())),
            (None, None) => None,
        }
    }

    /// Counters over all connections in the text format of Prometheus, version 0.0.4.
    #[must_use]
    pub fn metrics(&self) -> String {
        let (mut counters, open, opened, unobserved) = {
            let state = self.state();
            let open: Vec<_> = state.open.values().cloned().collect();
            (state.counters.clone(), open, state.next, state.unobserved)
        };
        for live in &open {
            LiveConnection::lock(live).add_to(&mut counters);
        }
        exposition::text(&counters, opened, open.len(), unobserved)
    }
}

#[cfg(test)]
mod tests;
