//! Packets in traces.

use clearway_quic::wire::PacketKind;

use super::{Frame, Name};

/// A packet's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PacketType {
    /// Initial.
    Initial,
    /// Handshake.
    Handshake,
    /// 0-RTT.
    ZeroRtt,
    /// 1-RTT.
    OneRtt,
    /// Retry.
    Retry,
    /// Version Negotiation.
    VersionNegotiation,
    /// Stateless Reset.
    StatelessReset,
    /// Something else.
    Unknown,
}

/// A packet number space (RFC 9000 §12.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// Initial packets.
    Initial,
    /// Handshake packets.
    Handshake,
    /// 0-RTT and 1-RTT packets.
    Data,
}

impl Space {
    /// Its index among the three.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// One value for each space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BySpace<T> {
    initial: T,
    handshake: T,
    data: T,
}

impl<T> BySpace<T> {
    pub(crate) const fn get(&self, space: Space) -> &T {
        match space {
            Space::Initial => &self.initial,
            Space::Handshake => &self.handshake,
            Space::Data => &self.data,
        }
    }

    pub(crate) const fn get_mut(&mut self, space: Space) -> &mut T {
        match space {
            Space::Initial => &mut self.initial,
            Space::Handshake => &mut self.handshake,
            Space::Data => &mut self.data,
        }
    }

    pub(crate) const fn each(&self) -> [&T; 3] {
        [&self.initial, &self.handshake, &self.data]
    }

    /// Maps each value with `of`.
    pub(crate) fn map<U>(&self, of: impl Fn(&T) -> U) -> BySpace<U> {
        BySpace {
            initial: of(&self.initial),
            handshake: of(&self.handshake),
            data: of(&self.data),
        }
    }
}

impl PacketType {
    /// As qlog names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::Handshake => "handshake",
            Self::ZeroRtt => "0RTT",
            Self::OneRtt => "1RTT",
            Self::Retry => "retry",
            Self::VersionNegotiation => "version_negotiation",
            Self::StatelessReset => "stateless_reset",
            Self::Unknown => "unknown",
        }
    }

    /// The type with this name, in any stack's spelling.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        const NAMES: [(&str, PacketType); 16] = [
            ("1RTT", PacketType::OneRtt),
            ("onertt", PacketType::OneRtt),
            ("one_rtt", PacketType::OneRtt),
            ("1-rtt", PacketType::OneRtt),
            ("short", PacketType::OneRtt),
            ("initial", PacketType::Initial),
            ("handshake", PacketType::Handshake),
            ("0RTT", PacketType::ZeroRtt),
            ("zerortt", PacketType::ZeroRtt),
            ("zero_rtt", PacketType::ZeroRtt),
            ("0-rtt", PacketType::ZeroRtt),
            ("retry", PacketType::Retry),
            ("version_negotiation", PacketType::VersionNegotiation),
            ("versionnegotiation", PacketType::VersionNegotiation),
            ("stateless_reset", PacketType::StatelessReset),
            ("statelessreset", PacketType::StatelessReset),
        ];
        let named = |(known, _): &&(&str, Self)| known.eq_ignore_ascii_case(name);
        let found = NAMES.iter().find(named);
        found.map_or(Self::Unknown, |(_, kind)| *kind)
    }

    /// Its packet number space; `None` for packets without a number.
    #[must_use]
    pub const fn space(self) -> Option<Space> {
        match self {
            Self::Initial => Some(Space::Initial),
            Self::Handshake => Some(Space::Handshake),
            Self::ZeroRtt | Self::OneRtt => Some(Space::Data),
            Self::Retry | Self::VersionNegotiation | Self::StatelessReset | Self::Unknown => None,
        }
    }
}

impl From<PacketKind> for PacketType {
    fn from(kind: PacketKind) -> Self {
        match kind {
            PacketKind::Initial => Self::Initial,
            PacketKind::ZeroRtt => Self::ZeroRtt,
            PacketKind::Handshake => Self::Handshake,
            PacketKind::OneRtt => Self::OneRtt,
        }
    }
}

/// A packet sent or received.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet {
    /// Its type.
    pub kind: PacketType,
    /// Its number; `None` for packets without one.
    pub number: Option<u64>,
    /// Its size in bytes, header and tag included.
    pub size: Option<u64>,
    /// Its frames; `None` if the trace does not record them.
    pub frames: Option<Vec<Frame>>,
    /// Whether it counts in flight, if recorded rather than derived from the frames.
    pub in_flight: Option<bool>,
    /// Whether it probes the path MTU.
    pub mtu_probe: bool,
    /// Its ECN mark, as qlog names it.
    pub ecn: Option<Name>,
}

impl Packet {
    /// A packet of which only type, number and size are known.
    #[must_use]
    pub const fn new(kind: PacketType, number: u64, size: u64) -> Self {
        Self {
            kind,
            number: Some(number),
            size: Some(size),
            frames: None,
            in_flight: None,
            mtu_probe: false,
            ecn: None,
        }
    }

    /// The frames; empty if they are not known.
    #[must_use]
    pub fn frames(&self) -> &[Frame] {
        self.frames.as_deref().unwrap_or(&[])
    }

    /// Whether it is ack-eliciting (RFC 9002 §2); `None` if unknown.
    #[must_use]
    pub fn ack_eliciting(&self) -> Option<bool> {
        let frames = self.frames.as_ref()?;
        Some(frames.iter().any(Frame::is_ack_eliciting))
    }

    /// Whether it counts in flight (RFC 9002 §2): ack-eliciting or padded;
    /// `None` if unknown.
    #[must_use]
    pub fn counts_in_flight(&self) -> Option<bool> {
        let padded = |frame: &Frame| matches!(frame, Frame::Padding { .. });
        self.in_flight.or_else(|| {
            let frames = self.frames.as_ref()?;
            Some(
                frames
                    .iter()
                    .any(|frame| frame.is_ack_eliciting() || padded(frame)),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_type_names_of_every_stack_parse() {
        for kind in [
            PacketType::Initial,
            PacketType::Handshake,
            PacketType::ZeroRtt,
            PacketType::OneRtt,
            PacketType::Retry,
            PacketType::VersionNegotiation,
            PacketType::StatelessReset,
        ] {
            assert_eq!(PacketType::from_name(kind.name()), kind);
        }
        assert_eq!(PacketType::from_name("1rtt"), PacketType::OneRtt);
        assert_eq!(PacketType::from_name("INITIAL"), PacketType::Initial);
        assert_eq!(PacketType::from_name("?"), PacketType::Unknown);
    }

    #[test]
    fn ack_only_is_not_in_flight_and_padding_is_in_flight_only() {
        let mut packet = Packet::new(PacketType::OneRtt, 1, 40);
        assert_eq!(packet.ack_eliciting(), None);
        assert_eq!(packet.counts_in_flight(), None);
        packet.frames = Some(vec![Frame::ack([(0, 1)])]);
        assert_eq!(packet.counts_in_flight(), Some(false));
        packet.frames = Some(vec![Frame::ack([(0, 1)]), Frame::Padding { len: 9 }]);
        assert_eq!(packet.ack_eliciting(), Some(false));
        assert_eq!(packet.counts_in_flight(), Some(true));
        packet.frames = Some(vec![Frame::Ping]);
        assert_eq!(packet.ack_eliciting(), Some(true));
    }
}
