//! Which tasks wait for what of a session.

use std::task::{Context, Waker};

use clearway_http3::webtransport::SessionEnd;
use clearway_quic::stream::Directionality;

use crate::connection::Wakeups;

/// The tasks that wait for a session, and how it ended.
#[derive(Debug, Default)]
pub(in crate::http) struct SessionState {
    pub(in crate::http) end: Option<SessionEnd>,
    pub(in crate::http) draining: bool,
    uni: Vec<Waker>,
    bidi: Vec<Waker>,
    /// Those that wait for the end, or that it comes soon.
    pub(in crate::http) watchers: Vec<Waker>,
}

impl SessionState {
    /// Returns the tasks that wait for a stream of the peer.
    pub(in crate::http) fn acceptors(&mut self, directionality: Directionality) -> &mut Vec<Waker> {
        match directionality {
            Directionality::Unidirectional => &mut self.uni,
            Directionality::Bidirectional => &mut self.bidi,
        }
    }

    /// Wakes everybody.
    pub(in crate::http) fn wake(&mut self, wakeups: &mut Wakeups) {
        wakeups.wake_all(&mut self.uni);
        wakeups.wake_all(&mut self.bidi);
        wakeups.wake_all(&mut self.watchers);
    }
}

/// Adds the task to those that are woken, once.
pub(super) fn wait_in(waiting: &mut Vec<Waker>, cx: &Context<'_>) {
    if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
        waiting.push(cx.waker().clone());
    }
}
