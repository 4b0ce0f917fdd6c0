//! Events for tests, as loss detection would report them.

use core::ops::Range;
use core::time::Duration;

use crate::controller::{Ack, Congestion, CongestionCause, SendIndex, Sent, Spurious};
use crate::rate::Delivery;
use crate::time::Instant;

/// Datagram size in tests.
pub(super) const MDS: u64 = 1_200;

/// Milliseconds after the origin.
pub(super) fn at_ms(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// Packet `index` was sent with `in_flight_before` bytes in flight.
pub(super) fn sent(index: SendIndex, in_flight_before: u64) -> Sent {
    Sent {
        now: at_ms(0),
        bytes: MDS,
        index,
        in_flight_before,
        app_limited: false,
    }
}

/// `packets` packets up to `largest` were acknowledged, all of which used the
/// window; the flight stays at `in_flight` packets.
pub(super) fn acked(largest: SendIndex, packets: u64, in_flight: u64) -> Ack<'static> {
    Ack {
        now: at_ms(0),
        bytes: packets * MDS,
        packets,
        largest_index: largest,
        largest_sent_time: at_ms(0),
        next_index: largest + 1 + in_flight,
        in_flight_before: (in_flight + packets) * MDS,
        in_flight_after: in_flight * MDS,
        lost_bytes: 0,
        window_used_bytes: packets * MDS,
        mean_age: Duration::from_millis(10),
        rtt_sample: Some(Duration::from_millis(10)),
        smoothed_rtt: Duration::from_millis(10),
        min_rtt: Duration::from_millis(10),
        rate: None,
        delivery: Delivery::default(),
    }
}

/// The packets of a range were lost, out of a flight that reached `next`.
pub(super) fn lost(range: Range<SendIndex>, next: SendIndex) -> Congestion {
    let packets = range.end - range.start;
    let in_flight = (next - range.start) * MDS;
    Congestion {
        now: at_ms(0),
        cause: CongestionCause::Loss,
        largest_index: range.end - 1,
        next_index: next,
        lost_bytes: packets * MDS,
        packets,
        lost_ranges: 1,
        in_flight_before: in_flight,
        in_flight_after: in_flight - packets * MDS,
        acked_bytes: 0,
        persistent: false,
        largest_tx_in_flight: in_flight,
    }
}

/// As `lost`, over a span that makes it persistent congestion.
pub(super) fn persistent(range: Range<SendIndex>, next: SendIndex) -> Congestion {
    Congestion {
        persistent: true,
        ..lost(range, next)
    }
}

/// A CE mark came back with the ACK of `largest`.
pub(super) fn marked(largest: SendIndex, next: SendIndex) -> Congestion {
    Congestion {
        cause: CongestionCause::EcnCe,
        largest_index: largest,
        lost_bytes: 0,
        packets: 1,
        lost_ranges: 0,
        in_flight_after: (next - largest) * MDS,
        ..lost(largest..largest + 1, next)
    }
}

/// Every loss of the event with this boundary has been acknowledged.
pub(super) fn spurious(event: SendIndex) -> Spurious {
    Spurious {
        now: at_ms(0),
        event,
    }
}
