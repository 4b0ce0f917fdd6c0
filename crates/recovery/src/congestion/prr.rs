//! Proportional Rate Reduction (RFC 9937).

/// How many bytes may be sent with each ACK of a recovery period, so that the flight falls
/// to ssthresh by its end, without a pause and without a burst.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prr {
    /// RecoverFS: bytes in flight when the congestion was found, including
    /// what the same ACK acknowledged or proved lost.
    flight: u64,
    /// Bytes delivered since.
    delivered: u64,
    /// Bytes sent since.
    out: u64,
}

/// What an ACK in recovery delivers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    /// Bytes it newly acknowledged.
    pub(super) acked: u64,
    /// Bytes still in flight after it.
    pub(super) in_flight: u64,
    /// Whether it proved no further loss (safeACK).
    pub(super) safe: bool,
}

impl Prr {
    /// Begins a recovery period with `flight` bytes.
    pub(super) fn new(flight: u64) -> Self {
        Self {
            flight: flight.max(1),
            delivered: 0,
            out: 0,
        }
    }

    /// Returns the bytes delivered since the recovery period began.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Records bytes sent.
    pub(super) fn on_sent(&mut self, bytes: u64) {
        self.out = self.out.saturating_add(bytes);
    }

    /// Returns SndCnt, the bytes that may be sent now. `None` if nothing was delivered: the
    /// last result stays in force.
    pub(super) fn on_ack(&mut self, ack: Delivery, ssthresh: u64, mds: u64) -> Option<u64> {
        if ack.acked == 0 {
            return None;
        }
        self.delivered = self.delivered.saturating_add(ack.acked);
        let allowed = if ack.in_flight > ssthresh {
            self.proportional(ssthresh)
        } else {
            self.rebuilding(ack, mds).min(ssthresh - ack.in_flight)
        };
        // The first packet, a retransmission, may be sent in any case.
        let stuck = self.out == 0 && allowed == 0;
        Some(if stuck { mds } else { allowed })
    }

    /// Returns what may be sent while the flight is above ssthresh: β bytes per byte
    /// delivered.
    fn proportional(&self, ssthresh: u64) -> u64 {
        let due = u128::from(self.delivered) * u128::from(ssthresh);
        let due = due.div_ceil(u128::from(self.flight));
        u64::try_from(due)
            .unwrap_or(u64::MAX)
            .saturating_sub(self.out)
    }

    /// Returns what may be sent while the flight is at or below ssthresh (after many
    /// losses, or because the application sent less): as much as was delivered, and a
    /// datagram more while ACKs prove no further loss, as in slow start.
    fn rebuilding(&self, ack: Delivery, mds: u64) -> u64 {
        let conserved = self.delivered.saturating_sub(self.out).max(ack.acked);
        if ack.safe {
            conserved.saturating_add(mds)
        } else {
            conserved
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MDS: u64 = 1_000;

    fn ack(in_flight: u64, safe: bool) -> Delivery {
        Delivery {
            acked: MDS,
            in_flight,
            safe,
        }
    }

    #[test]
    fn one_loss_of_twenty_sends_half_a_packet_per_ack() {
        // NewReno: 20 in flight, one lost, ssthresh 10; 19 ACKs follow.
        let (mut prr, mut in_flight, mut sent) = (Prr::new(20 * MDS), 19 * MDS, 0);
        for _ in 0..19 {
            in_flight -= MDS;
            let allowed = prr.on_ack(ack(in_flight, true), 10 * MDS, MDS).unwrap();
            let packets = allowed / MDS;
            prr.on_sent(packets * MDS);
            in_flight += packets * MDS;
            sent += packets;
            assert!(in_flight >= 9 * MDS, "the flight fell through ssthresh");
        }
        assert_eq!(sent, 10, "one loss took its place in the budget");
        assert_eq!(in_flight, 10 * MDS);
    }

    #[test]
    fn heavy_loss_adds_one_packet_per_safe_ack() {
        let mut prr = Prr::new(20 * MDS);
        // 15 of 20 lost: 5 minus the ACKed one in flight, ssthresh 10.
        assert_eq!(prr.on_ack(ack(4 * MDS, false), 10 * MDS, MDS), Some(MDS));
        prr.on_sent(MDS);
        assert_eq!(prr.on_ack(ack(4 * MDS, true), 10 * MDS, MDS), Some(2 * MDS));
    }

    #[test]
    fn rebuilding_stops_at_ssthresh() {
        let mut prr = Prr::new(20 * MDS);
        let big = Delivery {
            acked: 12 * MDS,
            in_flight: 8 * MDS,
            safe: true,
        };
        assert_eq!(prr.on_ack(big, 10 * MDS, MDS), Some(2 * MDS));
    }

    #[test]
    fn one_packet_may_be_sent_on_entering_recovery() {
        let mut prr = Prr::new(20 * MDS);
        let at_ssthresh = ack(10 * MDS, true);
        assert_eq!(prr.on_ack(at_ssthresh, 10 * MDS, MDS), Some(MDS));
        prr.on_sent(MDS);
        assert_eq!(prr.on_ack(at_ssthresh, 10 * MDS, MDS), Some(0));
    }

    #[test]
    fn fraction_of_a_byte_is_rounded_up() {
        // 1000 of 20000 delivered against ssthresh 14001: 700.05 bytes.
        let mut prr = Prr::new(20 * MDS);
        assert_eq!(prr.on_ack(ack(18 * MDS, true), 14_001, MDS), Some(701));
    }

    #[test]
    fn ack_without_delivery_changes_nothing() {
        let nothing = Delivery {
            acked: 0,
            in_flight: 0,
            safe: true,
        };
        assert_eq!(Prr::new(MDS).on_ack(nothing, MDS, MDS), None);
    }
}
