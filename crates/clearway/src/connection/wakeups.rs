//! What tasks wait for, and which of them have to be woken.

use std::task::Waker;

use clearway_quic::stream::Directionality;

use super::notifiers::Notifiers;
use crate::panic::{CaughtPanic, catch};

/// An event that any number of tasks may wait for. A task that is woken tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Signal {
    /// The handshake is complete.
    Connected,
    /// The connection has ended.
    Closed,
    /// The peer opened bidirectional streams.
    OpenedBi,
    /// The peer opened unidirectional streams.
    OpenedUni,
    /// More bidirectional streams can be opened.
    AvailableBi,
    /// More unidirectional streams can be opened.
    AvailableUni,
    /// A datagram has arrived.
    Datagram,
    /// The queue of outgoing datagrams has room.
    DatagramRoom,
    /// HTTP requests have arrived.
    Requests,
    /// The server accepts more requests, or no more at all.
    RequestRoom,
    /// No HTTP request is in progress or undelivered.
    HttpIdle,
}

const SIGNALS: usize = 11;

impl Signal {
    /// Returns its bit in a set of signals.
    fn bit(self) -> u16 {
        // There are fewer than 16 signals.
        1_u16.wrapping_shl(self as u32)
    }
}

/// Returns the signal that streams can be opened.
pub(crate) fn available(directionality: Directionality) -> Signal {
    match directionality {
        Directionality::Bidirectional => Signal::AvailableBi,
        Directionality::Unidirectional => Signal::AvailableUni,
    }
}

/// The tasks that have to be woken. That is done after the connection's lock is released, so
/// that they do not wait for it.
#[derive(Debug, Default)]
pub(crate) struct Wakeups {
    signals: u16,
    /// The number of waiters to wake, for each signal that is passed on from one to the next.
    waiters: [u8; SIGNALS],
    /// In the order in which they were added.
    wakers: Vec<Waker>,
}

impl Wakeups {
    pub(crate) fn raise(&mut self, signal: Signal) {
        self.signals |= signal.bit();
    }

    pub(super) fn raise_all(&mut self) {
        self.signals = u16::MAX;
    }

    /// Wakes the first waiter. A waiter that succeeds wakes the next with
    /// `ConnectionShared::pass_on`, so that not all are woken for one place.
    pub(crate) fn raise_for_one(&mut self, signal: Signal) {
        self.raise_for(signal, 1);
    }

    /// Wakes the first `count` waiters in the same way.
    pub(super) fn raise_for(&mut self, signal: Signal, count: u8) {
        if let Some(waiters) = self.waiters.get_mut(signal as usize) {
            *waiters = count;
        }
    }

    pub(crate) fn wake(&mut self, waker: Option<Waker>) {
        self.wakers.extend(waker);
    }

    pub(crate) fn wake_all(&mut self, wakers: &mut Vec<Waker>) {
        self.wakers.append(wakers);
    }

    /// Wakes all of them, and is empty afterwards: the tasks that wait for a signal in
    /// `notifiers`, and wakers. Wakers belong to the application: one that panics does not stop
    /// the others, and is passed to `on_panic`.
    pub(super) fn fire(&mut self, notifiers: &Notifiers, on_panic: impl Fn(&CaughtPanic)) {
        let signals = std::mem::take(&mut self.signals);
        let waiters = std::mem::take(&mut self.waiters);
        if signals == 0 && waiters == [0; SIGNALS] && self.wakers.is_empty() {
            return;
        }
        for (signal, notifier) in notifiers.iter() {
            let waiters = waiters.get(signal as usize).copied().unwrap_or(0);
            let notified = catch(|| {
                if signals & signal.bit() == 0 {
                    (0..waiters).for_each(|_| notifier.notify_one());
                } else {
                    notifier.notify_waiters();
                }
            });
            if let Err(panic) = notified {
                on_panic(&panic);
            }
        }
        // In the order in which they were added.
        self.wakers.reverse();
        while let Err(panic) = catch(|| {
            while let Some(waker) = self.wakers.pop() {
                waker.wake();
            }
        }) {
            on_panic(&panic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_fits_the_set_of_signals() {
        let last = Signal::HttpIdle as usize;
        assert_eq!(last, SIGNALS - 1);
        assert!(SIGNALS <= u16::BITS as usize);
    }
}
