//! How often we ask the peer to acknowledge (draft-ietf-quic-ack-frequency).
//!
//! A small window needs every second packet acknowledged, or growth stalls, and
//! every one where its controller lives by marks at a threshold of a packet; a
//! large one is as well served by an ACK for every 32nd part of it, at a
//! fraction of the cost to both ends.
//!
//! Where something queues, four a window do: if it is the ACKs themselves that
//! fill a narrow way back, their pace is what the window is worth, and asking
//! for fewer is the only way to more. A queue of data tells the same and is
//! harmed by neither.

use core::time::Duration;

use clearway_recovery::PathRecovery;
use clearway_recovery::rtt::Rtt;

use super::peer_parameters::PeerParameters;
use crate::wire::Frame;

/// ACKs we want per window.
const ACKS_PER_WINDOW: u64 = 32;

/// The same on a path with a queue.
const ACKS_PER_QUEUED_WINDOW: u64 = 4;

/// Quarters of the least RTT above which a path has a queue …
const QUEUED_ABOVE: u32 = 8;

/// … and below which it no longer has: fewer ACKs shrink their own queue.
const QUEUED_BELOW: u32 = 5;

/// Most ack-eliciting packets that may wait for an ACK.
const MAX_THRESHOLD: u64 = 32;

/// Packets that may wait without the extension (RFC 9000 §13.2.2): one.
const DEFAULT_THRESHOLD: u64 = 1;

/// What we ask the peer's acknowledgements to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckFrequencyRequest {
    pub(crate) sequence: u64,
    /// Ack-eliciting packets that may go without an ACK.
    threshold: u8,
    /// The path had a queue.
    queued: bool,
    max_ack_delay: Duration,
    /// Out-of-order distance that asks for an ACK at once.
    reordering: u8,
}

impl AckFrequencyRequest {
    /// One whose frame can't be written: a delay has no 64 bits.
    #[cfg(test)]
    pub(super) fn without_encoding() -> Self {
        Self {
            sequence: 0,
            threshold: 1,
            queued: false,
            max_ack_delay: Duration::from_micros(u64::MAX),
            reordering: 1,
        }
    }

    pub(crate) fn frame(self) -> Frame<'static> {
        Frame::AckFrequency {
            sequence: self.sequence,
            ack_eliciting_threshold: self.threshold.into(),
            request_max_ack_delay: self.max_ack_delay.as_micros() as u64,
            reordering_threshold: self.reordering.into(),
        }
    }
}

/// Whether packets or their ACKs wait on the path, as far as its RTT tells.
fn is_queued(rtt: &Rtt, before: bool) -> bool {
    let quarters = if before { QUEUED_BELOW } else { QUEUED_ABOVE };
    rtt.min()
        .is_some_and(|least| rtt.smoothed().saturating_mul(4) > least.saturating_mul(quarters))
}

impl AckFrequencyRequest {
    /// What to ask of `peer` after `last`, if the window of `path`, which carries data,
    /// has halved or doubled since then.
    pub(super) fn after(
        last: Option<Self>,
        peer: &PeerParameters,
        path: &PathRecovery,
    ) -> Option<Self> {
        let (min, usual) = (peer.min_ack_delay()?, peer.max_ack_delay());
        let packets = path.window().checked_div(path.mds()).unwrap_or(0);
        let every = path.counts_every_ack();
        // Whoever keeps the queue short by marks does not fill it with ACKs.
        let queued = !every && is_queued(path.rtt(), last.is_some_and(|request| request.queued));
        let packets_an_ack = if queued {
            packets / ACKS_PER_QUEUED_WINDOW
        } else {
            packets / ACKS_PER_WINDOW
        };
        let least = if every { 0 } else { DEFAULT_THRESHOLD };
        let threshold = packets_an_ack.clamp(least, MAX_THRESHOLD);
        let before = last.map_or(DEFAULT_THRESHOLD, |request| request.threshold.into());
        if threshold == before || threshold / 2 < before && before / 2 < threshold {
            return None;
        }
        // A quarter of the round trip, so that the last packets of a window
        // are never what the next one waits for.
        let quarter = path.rtt().smoothed().checked_div(4).unwrap_or_default();
        Some(Self {
            sequence: last.map_or(0, |request| request.sequence.saturating_add(1)),
            threshold: threshold as u8,
            queued,
            max_ack_delay: quarter.clamp(min, usual.max(min)),
            reordering: path.packet_threshold().min(3) as u8,
        })
    }

    /// The longest that the peer then holds an acknowledgement back.
    pub(super) fn longest_ack_delay(&self, peer: &PeerParameters) -> Duration {
        peer.max_ack_delay().max(self.max_ack_delay)
    }
}
