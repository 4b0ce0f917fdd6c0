//! Measures whether a server respects the anti-amplification limit (RFC 9000 §8.1).

use clearway_quic::wire::PacketKind;
use clearway_quic::wire::header::PartialHeader;

/// Length of every connection ID in the lab.
const CID_LEN: usize = 8;

/// The bytes that one server received and sent until the client's address was validated.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Amplification {
    received: u64,
    sent: u64,
    validated: bool,
    worst_permille: u64,
}

impl Amplification {
    pub(super) fn on_received(&mut self, datagram: &[u8]) {
        if self.validated {
            return;
        }
        self.received += datagram.len() as u64;
        self.validated = has_handshake_packet(datagram);
    }

    pub(super) fn on_sent(&mut self, bytes: usize) {
        if self.validated {
            return;
        }
        self.sent += bytes as u64;
        let ratio = (self.sent * 1_000).checked_div(self.received);
        self.worst_permille = self.worst_permille.max(ratio.unwrap_or(u64::MAX));
    }

    pub(super) const fn worst_permille(&self) -> u64 {
        self.worst_permille
    }
}

/// A client's Handshake packet validates its address (RFC 9000 §8.1).
fn has_handshake_packet(mut datagram: &[u8]) -> bool {
    while let Ok(header) = PartialHeader::parse(datagram, CID_LEN) {
        match header.kind.packet() {
            Some(PacketKind::Handshake | PacketKind::OneRtt) => return true,
            Some(PacketKind::Initial | PacketKind::ZeroRtt) | None => {}
        }
        match datagram.get(header.packet_len..) {
            Some(rest) if !rest.is_empty() && header.packet_len > 0 => datagram = rest,
            Some(_) | None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amplification_factor_is_the_maximum_over_time() {
        let mut server = Amplification::default();
        server.on_received(&[0xff; 1200]);
        server.on_sent(3_000);
        server.on_received(&[0xff; 1200]);
        server.on_sent(1_000);
        assert_eq!(server.worst_permille(), 2_500);
        server.on_sent(4_400);
        assert_eq!(server.worst_permille(), 3_500);
    }
}
