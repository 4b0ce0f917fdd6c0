//! Packets that arrived before their keys (RFC 9001 §5.7).

use super::arrival::Arrival;
use super::keyring::Keyring;
use super::state::HandshakeState;
use crate::event::DropReason;
use crate::wire::PacketKind;

/// Most packets kept until their keys are available: as many as a peer sends at once, ten
/// datagrams (RFC 9002 §7.2).
const MAX_PACKETS: usize = 10;

/// Most bytes of those packets: ten packets on an Ethernet path. Their sender is not
/// authenticated, and IP carries datagrams of 64 KiB.
const MAX_BYTES: usize = 16 << 10;

/// A packet that arrived before its keys.
#[derive(Debug)]
pub(crate) struct Undecryptable {
    pub(super) arrival: Arrival,
    kind: PacketKind,
    pub(super) packet: Vec<u8>,
}

/// Packets kept until their keys are available. Uses memory only while there are some.
#[derive(Debug, Default)]
#[expect(
    clippy::box_collection,
    reason = "most connections never have any, so this should be no larger than a pointer"
)]
pub(crate) struct UndecryptablePackets(Option<Box<Vec<Undecryptable>>>);

impl UndecryptablePackets {
    /// Returns whether there is room for a packet of `len` bytes.
    fn has_room(&self, len: usize) -> bool {
        let kept = self.0.as_ref().map_or(0, |kept| kept.len());
        kept < MAX_PACKETS && self.bytes().saturating_add(len) <= MAX_BYTES
    }

    /// Keeps a packet whose keys may still become available. Returns the reason why it is
    /// not processed now.
    pub(super) fn keep(
        &mut self,
        arrival: Arrival,
        kind: PacketKind,
        packet: &[u8],
        keys: &Keyring,
    ) -> DropReason {
        if keys.is_discarded(kind) {
            return DropReason::KeysDiscarded;
        }
        if kind == PacketKind::Initial || !self.has_room(packet.len()) {
            return DropReason::Overload;
        }
        self.push(Undecryptable {
            arrival,
            kind,
            packet: packet.to_vec(),
        });
        DropReason::KeysUnavailable
    }

    /// Takes the next packet whose keys are available.
    #[inline]
    pub(super) fn next_openable(
        &mut self,
        keys: &Keyring,
        handshake: HandshakeState,
    ) -> Option<Undecryptable> {
        self.take(
            |kind| keys.is_discarded(kind),
            |kind| keys.can_open(kind, handshake),
        )
    }

    fn push(&mut self, packet: Undecryptable) {
        self.0.get_or_insert_default().push(packet);
    }

    /// Takes the first packet that `can_open`, and drops those that can never be opened.
    fn take(
        &mut self,
        is_discarded: impl Fn(PacketKind) -> bool,
        can_open: impl Fn(PacketKind) -> bool,
    ) -> Option<Undecryptable> {
        let kept = self.0.as_mut()?;
        kept.retain(|packet| !is_discarded(packet.kind));
        let at = kept.iter().position(|packet| can_open(packet.kind));
        let packet = at.map(|at| kept.remove(at));
        if kept.is_empty() {
            self.0 = None;
        }
        packet
    }

    fn bytes(&self) -> usize {
        let kept = self.0.iter().flat_map(|kept| kept.iter());
        kept.map(|packet| packet.packet.len()).sum()
    }

    /// Returns the bytes allocated.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the parts are in memory at the same time, so their sizes add up"
    )]
    pub(crate) fn memory(&self) -> usize {
        self.0.as_ref().map_or(0, |kept| {
            size_of_val(&**kept) + crate::memory::vec(kept) + self.bytes()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Instant;
    use crate::ack::ReceivedEcn;
    use crate::connection::RecvMeta;

    fn packet(len: usize) -> Undecryptable {
        let from = RecvMeta {
            remote: ([192, 0, 2, 1], 1).into(),
            local_ip: None,
            ecn: ReceivedEcn::NotEct,
        };
        Undecryptable {
            arrival: Arrival {
                at: Instant::ZERO,
                from,
            },
            kind: PacketKind::Handshake,
            packet: vec![0; len],
        }
    }

    /// Returns how many packets of `len` bytes are kept.
    fn kept(len: usize) -> usize {
        let mut packets = UndecryptablePackets::default();
        (0..100)
            .take_while(|_| {
                let room = packets.has_room(len);
                packets.push(packet(len));
                room
            })
            .count()
    }

    #[test]
    fn undecryptable_packets_are_bounded_in_number_and_bytes() {
        assert_eq!(kept(100), MAX_PACKETS);
        assert_eq!(kept(1_452), MAX_PACKETS);
        assert_eq!(kept(9_000), 1);
        assert_eq!(kept(60_000), 0);
    }

    #[test]
    fn taken_and_never_openable_packets_free_their_memory() {
        let mut packets = UndecryptablePackets::default();
        packets.push(packet(10));
        packets.push(packet(20));
        assert!(packets.take(|_| false, |_| false).is_none());
        let first = packets.take(|_| false, |_| true).unwrap();
        assert_eq!(first.packet.len(), 10);
        assert!(packets.take(|_| true, |_| true).is_none());
        assert_eq!(packets.memory(), 0);
    }
}
