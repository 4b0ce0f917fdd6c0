//! How much may wait, and from when on it is marked.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::Rate;
use crate::spec::{Span, SpecError, Unit, parse_with_unit, write_with_unit};
use crate::time::nanos;

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

impl QueueLimit {
    /// As many bytes as `rate` carries in `time`: the queue of a path whose
    /// round trip is `time` holds one bandwidth-delay product. At least one
    /// byte, so that a slow link has a queue; unlimited if the rate is.
    #[must_use]
    pub fn of_time(rate: Rate, time: Duration) -> Self {
        match rate.bits() {
            None => Self::Unlimited,
            Some(bits) => {
                let bytes = u128::from(bits) * u128::from(nanos(time)) / (8 * 1_000_000_000);
                Self::Bytes(u64::try_from(bytes).unwrap_or(u64::MAX).max(1))
            }
        }
    }
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
        match amount(text).map_err(error)? {
            Self::Packets(0) | Self::Bytes(0) => Err(error(
                "no packet could wait, so all but the first of any two would be lost".to_owned(),
            )),
            limit => Ok(limit),
        }
    }
}

/// Packets or bytes.
fn amount(text: &str) -> Result<QueueLimit, String> {
    if let Ok(packets) = parse_with_unit(text, PACKETS) {
        return u32::try_from(packets)
            .map(QueueLimit::Packets)
            .map_err(|_| "it is too large".to_owned());
    }
    bytes(text).map(QueueLimit::Bytes)
}

/// A number of bytes such as `64KB` or `64KiB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    parse_with_unit(text, BINARY_BYTES).or_else(|_| parse_with_unit(text, BYTES))
}

/// Writes what [`bytes`] reads.
pub(crate) fn write_bytes(f: &mut fmt::Formatter<'_>, bytes: u64) -> fmt::Result {
    write_with_unit(f, bytes, BYTES)
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::Packets(packets) => write!(f, "{packets}p"),
            Self::Bytes(bytes) => write_bytes(f, bytes),
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
        match amount(text) {
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
        for nothing in ["0", "0p", "0KB"] {
            let error = nothing.parse::<QueueLimit>().unwrap_err().to_string();
            assert!(error.contains("no packet could wait"), "{error}");
        }
        let error = "250x".parse::<QueueLimit>().unwrap_err().to_string();
        assert_eq!(
            error,
            "bad queue limit \"250x\": the unit \"x\" is unknown; write packets such as 250, \
             bytes such as 64KB or 64KiB, or unlimited"
        );
    }

    #[test]
    fn a_queue_of_so_much_time() {
        let of = |rate: &str, time| QueueLimit::of_time(rate.parse().unwrap(), time);
        let time = Duration::from_millis(30);
        assert_eq!(of("50M", time), QueueLimit::Bytes(187_500));
        assert_eq!(of("unlimited", time), QueueLimit::Unlimited);
        assert_eq!(of("1k", Duration::ZERO), QueueLimit::Bytes(1));
        assert_eq!(of("10G", Duration::MAX), QueueLimit::Bytes(u64::MAX));
    }

    #[test]
    fn marks_round_trip() {
        for text in ["20p", "64KB", "242us"] {
            assert_eq!(text.parse::<MarkAt>().unwrap().to_string(), text);
        }
        assert!("unlimited".parse::<MarkAt>().is_err());
    }
}
