//! How an event loop learns that a socket can be read or written.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Where the readiness of a socket comes from.
#[derive(Clone, Debug)]
pub enum ReadinessSource<'a> {
    /// A file descriptor that the runtime watches; it stays the same for the socket's lifetime.
    #[cfg(unix)]
    Descriptor(std::os::fd::BorrowedFd<'a>),
    /// Flags that the socket sets itself: for sockets in memory, or on another runtime.
    Flags(Arc<Readiness>, std::marker::PhantomData<&'a ()>),
}

impl ReadinessSource<'_> {
    /// Returns the source of a socket that sets `flags`.
    #[must_use]
    pub fn flags(flags: Arc<Readiness>) -> Self {
        Self::Flags(flags, std::marker::PhantomData)
    }
}

/// A set of events of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Datagrams can be received.
    pub readable: bool,
    /// Datagrams can be sent.
    pub writable: bool,
    /// An error about a datagram sent earlier can be read.
    pub error: bool,
}

impl Events {
    /// Datagrams can be received.
    pub const READABLE: Self = Self {
        readable: true,
        writable: false,
        error: false,
    };
    /// Datagrams can be sent.
    pub const WRITABLE: Self = Self {
        readable: false,
        writable: true,
        error: false,
    };
    /// An error about a datagram sent earlier can be read.
    pub const ERROR: Self = Self {
        readable: false,
        writable: false,
        error: true,
    };

    /// Whether the sets have an event in common.
    #[must_use]
    pub fn intersects(self, other: Self) -> bool {
        self.readable && other.readable
            || self.writable && other.writable
            || self.error && other.error
    }

    /// Returns the events of either set.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            readable: self.readable || other.readable,
            writable: self.writable || other.writable,
            error: self.error || other.error,
        }
    }

    /// Returns the events of this set that `other` has not.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self {
            readable: self.readable && !other.readable,
            writable: self.writable && !other.writable,
            error: self.error && !other.error,
        }
    }
}

/// The readiness of a socket that no operating system watches.
///
/// The socket [sets](Self::set) an event when it begins: when a datagram arrives at an empty
/// queue, or a full one has room again. The loop that owns the socket forgets it after a call
/// that would have blocked.
#[derive(Debug, Default)]
pub struct Readiness(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    ready: Events,
    /// Counts calls of `set`, so that an event which comes during a call is not forgotten with
    /// the call's result.
    changes: u64,
    waiting: Option<(Events, Waker)>,
}

/// What a [`Readiness`] was at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The events that had happened.
    pub ready: Events,
    changes: u64,
}

impl Readiness {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records events, and wakes the loop if it waits for one of them.
    pub fn set(&self, events: Events) {
        let mut state = self.state();
        state.ready = state.ready.or(events);
        state.changes = state.changes.wrapping_add(1);
        let waiter = state
            .waiting
            .take_if(|(interest, _)| interest.intersects(events));
        drop(state);
        if let Some((_, waker)) = waiter {
            waker.wake();
        }
    }

    /// Returns what is ready now.
    #[must_use]
    pub fn get(&self) -> Observed {
        let state = self.state();
        Observed {
            ready: state.ready,
            changes: state.changes,
        }
    }

    /// Forgets events, because a call that needs them would have blocked, unless any was set
    /// since `observed`.
    pub fn clear(&self, events: Events, observed: Observed) {
        let mut state = self.state();
        if state.changes == observed.changes {
            state.ready = state.ready.without(events);
        }
    }

    /// Waits for any of the events. Wakes the last caller only: a socket has one loop.
    pub fn poll_ready(&self, cx: &mut Context<'_>, interest: Events) -> Poll<()> {
        let mut state = self.state();
        if state.ready.intersects(interest) {
            return Poll::Ready(());
        }
        state.waiting = Some((interest, cx.waker().clone()));
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_during_a_call_is_not_forgotten_with_its_result() {
        let readiness = Readiness::default();
        readiness.set(Events::READABLE);
        let before = readiness.get();
        assert!(before.ready.readable);
        readiness.set(Events::READABLE);
        readiness.clear(Events::READABLE, before);
        assert!(readiness.get().ready.readable);
        readiness.clear(Events::READABLE, readiness.get());
        assert!(!readiness.get().ready.readable);
    }

    #[test]
    fn only_an_event_of_interest_wakes_the_loop() {
        let readiness = Readiness::default();
        let mut cx = Context::from_waker(Waker::noop());
        let interest = Events::READABLE.or(Events::ERROR);
        assert!(readiness.poll_ready(&mut cx, interest).is_pending());
        readiness.set(Events::WRITABLE);
        assert!(readiness.state().waiting.is_some());
        assert!(readiness.poll_ready(&mut cx, interest).is_pending());
        readiness.set(Events::ERROR);
        assert!(readiness.state().waiting.is_none());
        assert!(readiness.poll_ready(&mut cx, interest).is_ready());
    }
}
