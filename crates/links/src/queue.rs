//! The queue before a serialiser: drop-tail, with an optional ECN mark.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::collections::VecDeque;

use crate::spec::{Span, SpecError, Unit, parse_with_unit, write_with_unit};
use crate::{Ecn, Packet, Time};

/// How much may wait. The packet being serialised does not count.
///
/// Written `250` or `250p` (packets), `64KB` (10³ bytes), `64KiB` (2¹⁰ bytes)
/// or `unlimited`. Bytes count as the serialiser counts them, with headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QueueLimit {
    /// Everything may wait.
    #[default]
    Unlimited,
    /// So many packets.
    Packets(u32),
    /// So many bytes.
    Bytes(u64),
}

const RIGHT: &str = "packets such as 250, bytes such as 64KB or 64KiB, or unlimited";
const BYTES: &[Unit] = &[
    Unit {
        names: &["GB"],
        size: 1_000_000_000,
    },
    Unit {
        names: &["MB"],
        size: 1_000_000,
    },
    Unit {
        names: &["KB", "kB"],
        size: 1_000,
    },
    Unit {
        names: &["B"],
        size: 1,
    },
];
const BINARY_BYTES: &[Unit] = &[
    Unit {
        names: &["KiB"],
        size: 1 << 10,
    },
    Unit {
        names: &["MiB"],
        size: 1 << 20,
    },
    Unit {
        names: &["GiB"],
        size: 1 << 30,
    },
];
const PACKETS: &[Unit] = &[Unit {
    names: &["p", ""],
    size: 1,
}];

impl FromStr for QueueLimit {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let error = |problem: String| SpecError::new("queue limit", text, problem, RIGHT);
        if text.trim() == "unlimited" {
            return Ok(Self::Unlimited);
        }
        if let Ok(packets) = parse_with_unit(text, PACKETS) {
            return u32::try_from(packets)
                .map(Self::Packets)
                .map_err(|_| error("it is too large".to_owned()));
        }
        parse_with_unit(text, BINARY_BYTES)
            .or_else(|_| parse_with_unit(text, BYTES))
            .map(Self::Bytes)
            .map_err(error)
    }
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::Packets(packets) => write!(f, "{packets}p"),
            Self::Bytes(bytes) => write_with_unit(f, bytes, BYTES),
        }
    }
}

/// When the queue sets congestion-experienced on ECN-capable packets.
///
/// Written like a queue limit, or as a time: `20p`, `64KB`, `242us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MarkAt {
    /// On arrival, if so many packets wait already.
    Packets(u32),
    /// On arrival, if so many bytes wait already.
    Bytes(u64),
    /// On departure, after having waited so long.
    Sojourn(Duration),
}

impl FromStr for MarkAt {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        match text.parse() {
            Ok(QueueLimit::Packets(packets)) => return Ok(Self::Packets(packets)),
            Ok(QueueLimit::Bytes(bytes)) => return Ok(Self::Bytes(bytes)),
            Ok(QueueLimit::Unlimited) | Err(_) => {}
        }
        text.parse::<Span>()
            .map(|span| Self::Sojourn(span.0))
            .map_err(|error| {
                SpecError::new(
                    "mark threshold",
                    text,
                    error.problem,
                    "packets such as 20p, bytes such as 64KB, or a time such as 242us",
                )
            })
    }
}

impl fmt::Display for MarkAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Packets(packets) => QueueLimit::Packets(packets).fmt(f),
            Self::Bytes(bytes) => QueueLimit::Bytes(bytes).fmt(f),
            Self::Sojourn(time) => Span(time).fmt(f),
        }
    }
}

/// A packet on its way, with what the link knows about it.
#[derive(Clone, Debug)]
pub(crate) struct Carried {
    pub(crate) packet: Packet,
    /// Its place among the packets offered to the link, from 0.
    pub(crate) index: u64,
    /// Bytes on the wire, headers included.
    pub(crate) size: u32,
    /// When it was offered to the link.
    pub(crate) since: Time,
}

/// Packets waiting for the serialiser.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Carried>,
    bytes: u64,
}

impl Queue {
    /// Is there room for `size` more bytes?
    pub(crate) fn has_room(&self, limit: QueueLimit, size: u32) -> bool {
        match limit {
            QueueLimit::Unlimited => true,
            QueueLimit::Packets(packets) => self.waiting.len() < packets as usize,
            QueueLimit::Bytes(bytes) => self.bytes + u64::from(size) <= bytes,
        }
    }

    /// Takes `carried` in; true if it was marked.
    pub(crate) fn push(&mut self, mut carried: Carried, mark: Option<MarkAt>) -> bool {
        let deep = match mark {
            None | Some(MarkAt::Sojourn(_)) => false,
            Some(MarkAt::Packets(packets)) => self.waiting.len() >= packets as usize,
            Some(MarkAt::Bytes(bytes)) => self.bytes >= bytes,
        };
        let marked = deep && set_ce(&mut carried.packet);
        self.bytes += u64::from(carried.size);
        self.waiting.push_back(carried);
        marked
    }

    /// Lets the head go at `now`; the flag says that it was marked now.
    pub(crate) fn pop(&mut self, now: Time, mark: Option<MarkAt>) -> Option<(Carried, bool)> {
        let mut carried = self.waiting.pop_front()?;
        self.bytes -= u64::from(carried.size);
        let late = match mark {
            None | Some(MarkAt::Packets(_) | MarkAt::Bytes(_)) => false,
            Some(MarkAt::Sojourn(limit)) => now - carried.since >= limit,
        };
        let marked = late && set_ce(&mut carried.packet);
        Some((carried, marked))
    }

    /// When the head came.
    pub(crate) fn head_since(&self) -> Option<Time> {
        self.waiting.front().map(|carried| carried.since)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Marks an ECN-capable packet; true if that changed it.
fn set_ce(packet: &mut Packet) -> bool {
    let changed = packet.ecn.is_capable() && packet.ecn != Ecn::Ce;
    if changed {
        packet.ecn = Ecn::Ce;
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_round_trip() {
        for (text, limit, printed) in [
            ("250", QueueLimit::Packets(250), "250p"),
            ("250p", QueueLimit::Packets(250), "250p"),
            ("64KB", QueueLimit::Bytes(64_000), "64KB"),
            ("64KiB", QueueLimit::Bytes(65_536), "65.536KB"),
            ("unlimited", QueueLimit::Unlimited, "unlimited"),
        ] {
            assert_eq!(text.parse(), Ok(limit));
            assert_eq!(limit.to_string(), printed);
            assert_eq!(printed.parse(), Ok(limit));
        }
        let error = "250x".parse::<QueueLimit>().unwrap_err().to_string();
        assert_eq!(
            error,
            "bad queue limit \"250x\": the unit \"x\" is unknown; write packets such as 250, \
             bytes such as 64KB or 64KiB, or unlimited"
        );
    }

    #[test]
    fn marks_round_trip() {
        for text in ["20p", "64KB", "242us"] {
            assert_eq!(text.parse::<MarkAt>().unwrap().to_string(), text);
        }
        assert!("unlimited".parse::<MarkAt>().is_err());
    }

    fn carried(ecn: Ecn, since: Time) -> Carried {
        let here = ([127, 0, 0, 1], 1).into();
        Carried {
            packet: Packet::new(here, here, vec![0; 72]).with_ecn(ecn),
            index: 0,
            size: 100,
            since,
        }
    }

    #[test]
    fn byte_limits_admit_what_fits_exactly() {
        let mut queue = Queue::default();
        let limit = QueueLimit::Bytes(200);
        queue.push(carried(Ecn::NotEct, Time::ZERO), None);
        assert!(queue.has_room(limit, 100));
        assert!(!queue.has_room(limit, 101));
    }

    #[test]
    fn only_capable_packets_are_marked() {
        let mut queue = Queue::default();
        let mark = Some(MarkAt::Packets(1));
        assert!(!queue.push(carried(Ecn::Ect0, Time::ZERO), mark));
        assert!(queue.push(carried(Ecn::Ect0, Time::ZERO), mark));
        assert!(!queue.push(carried(Ecn::NotEct, Time::ZERO), mark));
        assert!(!queue.push(carried(Ecn::Ce, Time::ZERO), mark));
    }

    #[test]
    fn long_waits_are_marked_on_departure() {
        let mut queue = Queue::default();
        let mark = Some(MarkAt::Sojourn(Duration::from_micros(242)));
        queue.push(carried(Ecn::Ect1, Time::ZERO), mark);
        queue.push(carried(Ecn::Ect1, Time::from_micros(1)), mark);
        let marks: Vec<_> = core::iter::from_fn(|| queue.pop(Time::from_micros(242), mark))
            .map(|(_, marked)| marked)
            .collect();
        assert_eq!(marks, [true, false]);
    }
}
