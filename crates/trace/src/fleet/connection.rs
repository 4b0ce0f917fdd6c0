//! One connection of a running endpoint.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;

use super::Fleet;
use super::counters::Counters;
use crate::detect::Severity;
use crate::diagnosis::{Examination, Examiner};
use crate::event::Event;
use crate::series::Series;
use crate::sink::Sink;

/// Maximum number of points per track of a connection that is drawn.
const POINTS: usize = 2_048;

/// A line about a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConnectionSummary {
    /// Its number.
    pub id: u64,
    /// Its peer's address, and its number.
    pub title: String,
    /// Whether it has not ended.
    pub open: bool,
    /// Grows with each event, so that a change is noticed.
    pub revision: u64,
    /// What happened so far, in one sentence.
    pub headline: String,
    /// How bad the worst problem is.
    pub severity: Option<Severity>,
}

/// A connection that has not ended.
#[derive(Clone, Debug)]
pub(super) struct LiveConnection {
    remote: SocketAddr,
    examiner: Examiner,
    /// When its trace began, which is its time zero.
    began: Option<Instant>,
    events: u64,
    drawn: bool,
}

/// A connection that has ended.
#[derive(Debug)]
pub(super) struct EndedConnection {
    pub(super) title: String,
    pub(super) examination: Examination,
    events: u64,
}

impl LiveConnection {
    pub(super) fn new(remote: SocketAddr, drawn: bool) -> Self {
        let points = if drawn { POINTS } else { 0 };
        Self {
            remote,
            examiner: Examiner::with_series(None, Series::with_points(points)),
            began: None,
            events: 0,
            drawn,
        }
    }

    pub(super) fn lock(shared: &Mutex<Self>) -> MutexGuard<'_, Self> {
        shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nanoseconds since the trace began.
    fn now(&self) -> u64 {
        let passed = self.began.map(|began| began.elapsed().as_nanos());
        passed.map_or(0, |passed| u64::try_from(passed).unwrap_or(u64::MAX))
    }

    pub(super) fn title(&self) -> String {
        self.remote.to_string()
    }

    pub(super) fn summary(&self, id: u64) -> ConnectionSummary {
        let diagnosis = self.examiner.diagnosis_at(self.now());
        ConnectionSummary {
            id,
            title: self.title(),
            open: true,
            revision: self.events,
            headline: diagnosis.headline,
            severity: diagnosis.severity,
        }
    }

    pub(super) fn add_to(&self, counters: &mut Counters) {
        counters.add_open(&self.examiner, self.now());
    }

    /// The examination, as if the connection ended now.
    pub(super) fn finish(self) -> Examination {
        let now = self.now();
        self.examiner.finish_at(now, Vec::new())
    }
}

impl EndedConnection {
    pub(super) fn summary(&self, id: u64) -> ConnectionSummary {
        let diagnosis = &self.examination.diagnosis;
        ConnectionSummary {
            id,
            title: self.title.clone(),
            open: false,
            revision: self.events,
            headline: diagnosis.headline.clone(),
            severity: diagnosis.severity,
        }
    }
}

/// Receives the events of one connection of a [`Fleet`]; dropped, the connection has ended.
#[derive(Debug)]
pub struct FleetSink {
    id: u64,
    live: Arc<Mutex<LiveConnection>>,
    fleet: Fleet,
}

impl FleetSink {
    pub(super) const fn new(id: u64, live: Arc<Mutex<LiveConnection>>, fleet: Fleet) -> Self {
        Self { id, live, fleet }
    }
}

impl Sink for FleetSink {
    fn event(&mut self, event: &Event) {
        let mut live = LiveConnection::lock(&self.live);
        live.began.get_or_insert_with(Instant::now);
        live.events = live.events.saturating_add(1);
        live.examiner.event(event);
    }
}

impl Drop for FleetSink {
    fn drop(&mut self) {
        let live = LiveConnection::lock(&self.live).clone();
        let (drawn, events) = (live.drawn, live.events);
        let ended = EndedConnection {
            title: live.title(),
            events,
            examination: live.finish(),
        };
        self.fleet.ended(self.id, ended, drawn);
    }
}
