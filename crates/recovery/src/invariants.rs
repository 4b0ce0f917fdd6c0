//! What must hold between any two calls, recomputed from the packets.

use crate::recovery::Recovery;
use crate::space::Space;

impl<F> Recovery<F> {
    /// Recomputes what is in flight and compares; checks that data in flight
    /// has a timer. For tests: it walks every packet.
    ///
    /// # Panics
    /// If anything does not hold.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        for path in &self.paths {
            let mut bytes = 0;
            let mut packets = 0;
            for space in Space::ALL {
                let mut ack_eliciting = 0;
                for (number, packet) in self.spaces[space.index()].sent.iter() {
                    if packet.path != path.id {
                        continue;
                    }
                    assert!(packet.index < path.next_index, "{space:?} {number}");
                    if packet.in_flight {
                        bytes += packet.bytes();
                        packets += 1;
                        ack_eliciting += u64::from(packet.ack_eliciting);
                    }
                }
                let counted = path.spaces[space.index()].ack_eliciting;
                assert_eq!(counted, ack_eliciting, "ack-eliciting of {space:?}");
            }
            assert_eq!(path.in_flight, bytes, "bytes in flight of {:?}", path.id);
            assert_eq!(path.packets_in_flight, packets, "packets of {:?}", path.id);
        }
        self.check_spaces();
        self.check_timer();
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
            }
        }
    }

    /// Ack-eliciting data in flight ⇒ a timer is armed. By the RFC none is for
    /// 1-RTT data alone before the handshake is confirmed (the handshake's own
    /// timers drive it on), nor for a server that may not send.
    fn check_timer(&self) {
        let waits = |space: Space| self.has_unacked(space);
        let data = waits(Space::Data) && self.context.handshake_confirmed;
        let waiting = waits(Space::Initial) || waits(Space::Handshake) || data;
        if waiting && !self.context.amplification_blocked {
            assert!(self.next_timeout().is_some(), "in flight without a timer");
        }
    }
}
