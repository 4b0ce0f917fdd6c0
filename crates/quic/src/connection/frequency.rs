//! How often we ask the peer to acknowledge (draft-ietf-quic-ack-frequency).
//!
//! A small window needs every second packet acknowledged, or growth stalls; a
//! large one is as well served by an ACK for every 32nd part of it, at a
//! fraction of the cost to both ends.
//!
//! Where the way back is narrow, ACKs queue there, and the flow is clocked by what
//! it carries instead of by the way there. A round trip of twice the shortest one
//! may be that; a controller that can do with fewer ACKs then gets fewer.

use core::time::Duration;

use super::Connection;
use super::life::Handshake;
use crate::wire::Frame;

/// ACKs we want per window.
const ACKS_PER_WINDOW: u64 = 32;

/// Most ack-eliciting packets that may wait for an ACK.
const MAX_THRESHOLD: u64 = 32;

/// Most of them for the sake of a narrow way back: most of the saving, and a
/// window of a few hundred packets is still answered often enough to be full.
const MAX_NARROW_THRESHOLD: u64 = 8;

/// Packets that may wait without the extension (RFC 9000 §13.2.2): one.
const DEFAULT_THRESHOLD: u64 = 1;

/// What we ask the peer's acknowledgements to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckFrequencyRequest {
    pub(crate) sequence: u64,
    /// Ack-eliciting packets that may go without an ACK.
    threshold: u64,
    max_ack_delay: Duration,
    /// Out-of-order distance that asks for an ACK at once.
    reordering: u64,
}

impl AckFrequencyRequest {
    pub(crate) fn frame(self) -> Frame<'static> {
        Frame::AckFrequency {
            sequence: self.sequence,
            ack_eliciting_threshold: self.threshold,
            request_max_ack_delay: self.max_ack_delay.as_micros() as u64,
            reordering_threshold: self.reordering,
        }
    }
}

impl Connection {
    /// Asks anew when the window has halved or doubled since the last request, or
    /// the round trip has: the delay alone may make every second packet's ACK due.
    pub(crate) fn ask_ack_frequency(&mut self) {
        if !self.config.ack_frequency || self.handshake != Handshake::Confirmed {
            return;
        }
        let Some((min, usual)) = self.tls.peer.as_ref().and_then(|peer| {
            let min = Duration::from_micros(peer.min_ack_delay?);
            Some((min, Duration::from_millis(peer.max_ack_delay)))
        }) else {
            return;
        };
        let path = self.active_recovery();
        let rtt = path.rtt();
        let last = self.control.ack_frequency;
        let before = last.map_or(DEFAULT_THRESHOLD, |request| request.threshold);
        let wish = Wish {
            packets: path.window() / path.mds().max(1),
            fewest_acks: path.fewest_acks(),
            queueing: rtt.min().is_some_and(|min| rtt.smoothed() >= 2 * min),
        };
        let threshold = wish.threshold(before);
        // A quarter of the round trip, so that the last packets of a window
        // are never what the next one waits for.
        let max_ack_delay = (rtt.smoothed() / 4).clamp(min, usual.max(min));
        let delay = last.map_or(usual, |request| request.max_ack_delay);
        let same_delay = max_ack_delay < 2 * delay && 2 * max_ack_delay > delay;
        if threshold == before && (same_delay || threshold == DEFAULT_THRESHOLD) {
            return;
        }
        self.control.ack_frequency = Some(AckFrequencyRequest {
            sequence: last.map_or(0, |request| request.sequence + 1),
            threshold,
            max_ack_delay,
            reordering: path.packet_threshold().min(3),
        });
        self.control.ack_frequency_due = true;
        self.recovery.set_max_ack_delay(usual.max(max_ack_delay));
    }
}

/// What the number of ACKs follows from.
#[derive(Clone, Copy, Debug)]
struct Wish {
    /// Packets of a window.
    packets: u64,
    /// ACKs of a window that do.
    fewest_acks: u64,
    /// Something queues, on the way there or back.
    queueing: bool,
}

impl Wish {
    /// The threshold to ask for after `before`. What a queue has raised stays as
    /// long as the window is worth it, or ACKs and queue would come and go in turn.
    fn threshold(self, before: u64) -> u64 {
        let part = |acks: u64| (self.packets / acks.max(1)).clamp(DEFAULT_THRESHOLD, MAX_THRESHOLD);
        let usual = part(ACKS_PER_WINDOW);
        let most = part(self.fewest_acks).min(MAX_NARROW_THRESHOLD).max(usual);
        let wanted = if self.queueing { most } else { usual };
        if wanted >= 2 * before {
            wanted
        } else if 2 * most <= before {
            most
        } else {
            before
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threshold(packets: u64, fewest_acks: u64, queueing: bool, before: u64) -> u64 {
        let wish = Wish {
            packets,
            fewest_acks,
            queueing,
        };
        wish.threshold(before)
    }

    #[test]
    fn the_window_decides_where_nothing_queues() {
        assert_eq!(threshold(10, 4, false, 1), 1);
        assert_eq!(threshold(63, 4, false, 1), 1, "not yet doubled");
        assert_eq!(threshold(64, 4, false, 1), 2);
        assert_eq!(threshold(1 << 20, 4, false, 2), MAX_THRESHOLD);
        assert_eq!(threshold(64, 32, false, 4), 2, "halved");
    }

    #[test]
    fn a_queue_means_fewer_acks_if_they_do() {
        assert_eq!(threshold(24, 4, true, 1), 6);
        assert_eq!(threshold(170, 4, true, 1), MAX_NARROW_THRESHOLD);
        assert_eq!(
            threshold(24, 32, true, 1),
            1,
            "a controller that counts ACKs"
        );
        assert_eq!(threshold(24, 4, false, 6), 6, "stays without the queue");
        assert_eq!(threshold(12, 4, false, 6), 3, "but not beyond its window");
        assert_eq!(threshold(4, 4, true, 3), 1);
    }
}
