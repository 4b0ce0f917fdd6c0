//! The keys of a connection, by packet type, and when each is dropped
//! (RFC 9001 §4.9).

use clearway_recovery::Space;

use crate::Instant;
use crate::crypto::{Direction, Keys, OneRttKeys};
use crate::wire::PacketKind;

/// Every key the connection holds now.
#[derive(Debug, Default)]
pub(crate) struct Keyring {
    pub(crate) initial: Option<Box<Keys>>,
    /// The client seals with it, the server opens with it.
    pub(crate) zero_rtt: Option<Direction>,
    /// When a server drops them: late 0-RTT packets may come until then
    /// (RFC 9001 §4.9.3).
    pub(crate) zero_rtt_until: Option<Instant>,
    pub(crate) handshake: Option<Box<Keys>>,
    pub(crate) one_rtt: Option<OneRttKeys>,
    /// Initial keys existed and are gone.
    pub(crate) initial_discarded: bool,
    /// Handshake keys existed and are gone.
    pub(crate) handshake_discarded: bool,
    /// 0-RTT keys existed and are gone, or were refused.
    pub(crate) zero_rtt_discarded: bool,
}

impl Keyring {
    /// The packet type that a packet of `space` would have now; `None` if it
    /// can't be sealed.
    pub(crate) fn sending_kind(&self, space: Space, is_client: bool) -> Option<PacketKind> {
        match space {
            Space::Initial => self.initial.as_ref().map(|_| PacketKind::Initial),
            Space::Handshake => self.handshake.as_ref().map(|_| PacketKind::Handshake),
            Space::Data if self.one_rtt.is_some() => Some(PacketKind::OneRtt),
            Space::Data if is_client && self.zero_rtt.is_some() => Some(PacketKind::ZeroRtt),
            Space::Data => None,
        }
    }

    /// No 0-RTT packet is sealed or opened any more.
    pub(crate) fn discard_zero_rtt(&mut self) {
        self.zero_rtt = None;
        self.zero_rtt_until = None;
        self.zero_rtt_discarded = true;
    }

    /// Whether packets of this type can never be opened any more.
    pub(crate) fn is_discarded(&self, kind: PacketKind) -> bool {
        match kind {
            PacketKind::Initial => self.initial_discarded,
            PacketKind::Handshake => self.handshake_discarded,
            PacketKind::ZeroRtt => self.zero_rtt_discarded,
            PacketKind::OneRtt => false,
        }
    }
}

/// The packet number space of a packet type (RFC 9000 §12.3).
pub(crate) fn space_of(kind: PacketKind) -> Space {
    match kind {
        PacketKind::Initial => Space::Initial,
        PacketKind::Handshake => Space::Handshake,
        PacketKind::ZeroRtt | PacketKind::OneRtt => Space::Data,
    }
}
