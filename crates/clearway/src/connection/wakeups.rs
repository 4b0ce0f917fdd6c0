//! What tasks wait for, and who has to be woken.

use std::task::Waker;

use clearway_quic::stream::Directionality;

use super::ConnectionShared;
use crate::panic::catch;

/// What any number of tasks may wait for. Whoever wakes tries again.
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
    /// The peer lets us open more bidirectional streams.
    AvailableBi,
    /// The peer lets us open more unidirectional streams.
    AvailableUni,
    /// A datagram has arrived.
    Datagram,
    /// The queue of outgoing datagrams has room.
    DatagramRoom,
    /// HTTP requests have arrived.
    Requests,
    /// The server takes more requests, or none at all any more.
    RequestRoom,
    /// No HTTP request is under way or undelivered.
    HttpIdle,
}

const SIGNALS: usize = 11;

impl Signal {
    /// Its place in a set of signals.
    fn bit(self) -> u16 {
        // There are fewer than 16.
        1_u16.wrapping_shl(self as u32)
    }
}

/// Who waits for streams to open.
pub(crate) fn available(directionality: Directionality) -> Signal {
    match directionality {
        Directionality::Bidirectional => Signal::AvailableBi,
        Directionality::Unidirectional => Signal::AvailableUni,
    }
}

/// Who has to be woken; done after the lock is released, so that the woken find
/// it free.
#[derive(Debug, Default)]
pub(crate) struct Wakeups {
    signals: u16,
    /// Of each so many waiters, the last of whom passes it on.
    relays: [u8; SIGNALS],
    /// The last is woken first.
    wakers: Vec<Waker>,
}

impl Wakeups {
    pub(crate) fn raise(&mut self, signal: Signal) {
        self.signals |= signal.bit();
    }

    pub(super) fn raise_all(&mut self) {
        self.signals = u16::MAX;
    }

    /// Wakeups the first who waits; whoever is served wakes the next with
    /// [`ConnectionShared::pass_on`], so that a crowd is not woken for one place.
    pub(crate) fn raise_for_one(&mut self, signal: Signal) {
        self.raise_for(signal, 1);
    }

    /// The same for `count` of them.
    pub(super) fn raise_for(&mut self, signal: Signal, count: u8) {
        if let Some(relay) = self.relays.get_mut(signal as usize) {
            *relay = count;
        }
    }

    pub(crate) fn wake(&mut self, waker: Option<Waker>) {
        self.wakers.extend(waker);
    }

    pub(super) fn wake_all(&mut self, wakers: &mut Vec<Waker>) {
        self.wakers.append(wakers);
    }

    /// Wakeups them all and is empty again. Wakers are the application's: one that
    /// panics keeps no other from being woken.
    pub(crate) fn fire(&mut self, shared: &ConnectionShared) {
        let signals = std::mem::take(&mut self.signals);
        let relays = std::mem::take(&mut self.relays);
        if signals == 0 && relays == [0; SIGNALS] && self.wakers.is_empty() {
            return;
        }
        for (signal, notifier) in shared.notifiers.iter() {
            let relays = relays.get(signal as usize).copied().unwrap_or(0);
            let rung = catch(|| {
                if signals & signal.bit() == 0 {
                    (0..relays).for_each(|_| notifier.notify_one());
                } else {
                    notifier.notify_waiters();
                }
            });
            if let Err(panic) = rung {
                shared.on_waker_panic(&panic);
            }
        }
        // In the order in which they were found.
        self.wakers.reverse();
        while let Err(panic) = catch(|| {
            while let Some(waker) = self.wakers.pop() {
                waker.wake();
            }
        }) {
            shared.on_waker_panic(&panic);
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
