//! A packet number space: its CRYPTO stream, received packets, and what is due in it (RFC
//! 9000 §12.3).

use clearway_recovery::Space;

use super::crypto_stream::CryptoStream;
use super::received::ReceivedPackets;
use crate::ack::AckPolicy;
use crate::path::ecn::SpaceEcn;

/// The spaces in the order in which packets are coalesced.
pub(crate) const SPACES: [Space; 3] = [Space::Initial, Space::Handshake, Space::Data];

/// State of one packet number space.
#[derive(Debug)]
pub(crate) struct PacketSpace {
    pub(crate) crypto: CryptoStream,
    /// Packet numbers received.
    pub(crate) received: ReceivedPackets,
    /// When to acknowledge them.
    pub(crate) ack: AckPolicy,
    /// ECN marks sent, and the peer's counts.
    pub(crate) ecn: SpaceEcn,
    /// Ack-eliciting packets to send regardless of window and pacer (RFC 9002 §6.2.4).
    pub(crate) probes: u8,
    /// A PING is due.
    pub(crate) ping: bool,
    /// Packets sent since the last ack-eliciting one.
    pub(crate) since_eliciting: u32,
}

impl PacketSpace {
    pub(crate) fn new(ack: AckPolicy) -> Self {
        Self {
            crypto: CryptoStream::default(),
            received: ReceivedPackets::new(),
            ack,
            ecn: SpaceEcn::default(),
            probes: 0,
            ping: false,
            since_eliciting: 0,
        }
    }
}

/// The three spaces. Those of the handshake use memory only while it runs.
#[derive(Debug)]
pub(crate) struct PacketSpaces {
    /// Initial and Handshake.
    early: Option<Box<[PacketSpace; 2]>>,
    data: PacketSpace,
}

impl PacketSpaces {
    pub(crate) fn new(data: PacketSpace) -> Self {
        Self { early: None, data }
    }

    /// Returns a space. Those of the handshake are created when first used, also after they
    /// were discarded.
    #[inline]
    pub(crate) fn get_mut(&mut self, space: Space) -> &mut PacketSpace {
        match space {
            Space::Data => &mut self.data,
            Space::Initial => {
                let [initial, _] = self.early();
                initial
            }
            Space::Handshake => {
                let [_, handshake] = self.early();
                handshake
            }
        }
    }

    #[cold]
    fn early(&mut self) -> &mut [PacketSpace; 2] {
        self.early.get_or_insert_with(|| {
            let space = || PacketSpace::new(AckPolicy::immediate());
            Box::new([space(), space()])
        })
    }

    /// Returns a space, if it exists.
    #[inline]
    pub(crate) fn get(&self, space: Space) -> Option<&PacketSpace> {
        match space {
            Space::Data => Some(&self.data),
            Space::Initial => self.early.as_deref().map(|[initial, _]| initial),
            Space::Handshake => self.early.as_deref().map(|[_, handshake]| handshake),
        }
    }

    /// Returns the spaces that exist.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &PacketSpace> + Clone {
        let early = self.early.iter().flat_map(|early| early.iter());
        early.chain([&self.data])
    }

    /// Returns the spaces that exist.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut PacketSpace> {
        let early = self.early.iter_mut().flat_map(|early| early.iter_mut());
        early.chain([&mut self.data])
    }

    /// Frees the Initial and Handshake spaces, whose keys are discarded.
    pub(crate) fn discard_early(&mut self) {
        self.early = None;
    }
}
