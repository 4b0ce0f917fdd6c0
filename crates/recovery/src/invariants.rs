//! Invariants that hold between any two calls, recomputed from the packets.

use crate::recovery::Recovery;
use crate::space::Space;

impl<F> Recovery<F> {
    /// Checks the counts of what is in flight, and that data in flight has a timer. For
    /// tests: it visits every packet.
    ///
    /// # Panics
    /// If an invariant does not hold.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        for path in &self.paths {
            let mut bytes = 0;
            let mut packets = 0;
            let mut probes = 0;
            for space in Space::ALL {
                let mut ack_eliciting = 0;
                for (number, packet) in self.spaces[space.index()].sent.iter() {
                    if packet.path != path.id {
                        continue;
                    }
                    assert!(packet.index < path.next_index, "{space:?} {number}");
                    if packet.in_flight {
                        let known = space != Space::Data || number >= path.oldest;
                        assert!(known, "{number} is before {}", path.oldest);
                        bytes += packet.bytes();
                        packets += 1;
                        probes += u64::from(packet.mtu_probe) * packet.bytes();
                        ack_eliciting += u64::from(packet.ack_eliciting);
                    }
                }
                let counted = path.spaces[space.index()].ack_eliciting;
                assert_eq!(counted, ack_eliciting, "ack-eliciting of {space:?}");
            }
            assert_eq!(path.in_flight, bytes, "bytes in flight of {:?}", path.id);
            assert_eq!(path.packets_in_flight, packets, "packets of {:?}", path.id);
            let counted = path.mtu_probes_in_flight;
            assert_eq!(counted, probes, "MTU probes of {:?}", path.id);
        }
        self.check_spaces();
        self.check_timer();
    }

    /// Checks that loss detection, after an ACK frame of `space` at `now`, has left no packet
    /// that is lost, and that its timer is right. It walks over all packets instead of those of
    /// each path.
    #[cfg(test)]
    pub(crate) fn check_losses(&self, space: Space, now: crate::time::Instant) {
        use crate::loss::{LossDecision, decide};
        let ledger = &self.spaces[space.index()];
        let Some(largest) = ledger.largest_acked else {
            return;
        };
        let mut earliest = None;
        for (number, packet) in ledger.sent.iter() {
            let path = self.path(packet.path).expect("a path");
            if !packet.in_flight || number >= largest {
                continue;
            }
            let acked = path.spaces[space.index()].largest_acked;
            let bound = acked.and_then(|n| ledger.number_before(n, path.packet_threshold()));
            match decide(
                number,
                packet.time,
                bound,
                path.loss_delay(&self.config),
                now,
            ) {
                LossDecision::Lost(cause) => panic!("{number} is lost: {cause:?}"),
                LossDecision::NotYet(at) => {
                    earliest = Some(earliest.map_or(at, |t: crate::time::Instant| t.min(at)));
                }
            }
        }
        assert_eq!(ledger.loss_time, earliest, "the loss timer of {space:?}");
    }

    fn check_spaces(&self) {
        for space in Space::ALL {
            let ledger = &self.spaces[space.index()];
            assert!(ledger.largest_acked.is_none_or(|n| n < ledger.next));
            assert!(ledger.sent.iter().all(|(n, _)| n < ledger.next));
            assert!(
                ledger.sent.iter().all(|(_, p)| self.path(p.path).is_some()),
                "a packet without a path in {space:?} is never lost"
            );
            if ledger.discarded {
                assert_eq!(ledger.sent.len(), 0, "{space:?} is discarded");
                assert_eq!(ledger.loss_time, None, "{space:?} is discarded");
                assert!(ledger.lost.is_empty(), "{space:?} is discarded");
            }
        }
    }

    /// Checks that a timer is armed while ack-eliciting packets are in flight. RFC 9002 has
    /// two exceptions: only 1-RTT data before the handshake is confirmed (the handshake has
    /// its own timers), and a server at its amplification limit.
    fn check_timer(&self) {
        let waits = |space: Space| self.has_unacked(space);
        let data = waits(Space::Data) && self.context.handshake_confirmed;
        let waiting = waits(Space::Initial) || waits(Space::Handshake) || data;
        if waiting && !self.context.amplification_blocked {
            assert!(self.next_timeout().is_some(), "in flight without a timer");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::{Algorithm, build};
    use crate::packet::tests::packet;
    use crate::pto::PtoContext;
    use crate::time::Instant;
    use crate::{Config, PathId, SentInfo};

    const CONFIRMED: PtoContext = PtoContext {
        handshake_confirmed: true,
        has_handshake_keys: true,
        peer_completed_address_validation: true,
        amplification_blocked: false,
    };

    /// One ack-eliciting packet of 1200 bytes in flight.
    fn in_flight(space: Space, context: PtoContext) -> Recovery<()> {
        let mut recovery = Recovery::new(Config::default(), Instant::ZERO);
        let controller = build(Algorithm::NewReno, 1200);
        recovery.add_path(PathId(0), controller, 1200, Instant::ZERO);
        recovery.set_handshake_state(context, Instant::ZERO);
        let info = SentInfo {
            space,
            path: PathId(0),
            number: 0,
            now: Instant::ZERO,
            size: 1200,
            ack_eliciting: true,
            in_flight: true,
            mtu_probe: false,
            ect: false,
        };
        recovery.on_sent(info, ());
        recovery.check_invariants();
        recovery
    }

    fn data() -> Recovery<()> {
        in_flight(Space::Data, CONFIRMED)
    }

    #[test]
    #[should_panic(expected = "bytes in flight")]
    fn extra_byte_in_flight_is_detected() {
        let mut recovery = data();
        recovery.paths[0].in_flight += 1;
        recovery.check_invariants();
    }

    #[test]
    #[should_panic(expected = "packets of")]
    fn extra_packet_in_flight_is_detected() {
        let mut recovery = data();
        recovery.paths[0].packets_in_flight += 1;
        recovery.check_invariants();
    }

    #[test]
    #[should_panic(expected = "MTU probes of")]
    fn miscounted_mtu_probe_is_detected() {
        let mut recovery = data();
        recovery.paths[0].mtu_probes_in_flight += 1;
        recovery.check_invariants();
    }

    #[test]
    #[should_panic(expected = "ack-eliciting of Data")]
    fn miscounted_ack_eliciting_packet_is_detected() {
        let mut recovery = data();
        recovery.paths[0].spaces[Space::Data.index()].ack_eliciting = 0;
        recovery.check_invariants();
    }

    #[test]
    #[should_panic(expected = "n < ledger.next")]
    fn largest_acked_beyond_sent_is_detected() {
        let mut recovery = data();
        recovery.spaces[Space::Data.index()].largest_acked = Some(1);
        recovery.check_invariants();
    }

    #[test]
    #[should_panic(expected = "is never lost")]
    fn packet_without_path_is_detected() {
        let mut recovery = data();
        let mut stray = packet();
        (stray.path, stray.in_flight) = (PathId(7), false);
        recovery.spaces[Space::Data.index()].push(1, stray);
        recovery.check_invariants();
    }

    #[test]
    #[should_panic(expected = "Data is discarded")]
    fn packet_in_discarded_space_is_detected() {
        let mut recovery = data();
        recovery.spaces[Space::Data.index()].discarded = true;
        recovery.check_invariants();
    }

    /// A server at its amplification limit has no timer, even with packets in flight.
    #[test]
    fn amplification_blocked_server_needs_no_timer() {
        let blocked = PtoContext {
            amplification_blocked: true,
            ..PtoContext::default()
        };
        let recovery = in_flight(Space::Initial, blocked);
        assert_eq!(recovery.next_timeout(), None);
    }
}
