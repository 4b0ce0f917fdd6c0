//! Limits of the queue, and thresholds for marking.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::Rate;
use crate::spec::{ByteSize, Span, SpecError, Unit, parse_with_unit};
use crate::time::nanos;

/// The limit of a queue. The packet being serialised does not count.
///
/// Written `250` or `250p` (packets), a [`crate::ByteSize`] with its unit such as `64KB` or
/// `64KiB`, or `unlimited`. Bytes count as the serialiser counts them, with headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QueueLimit {
    /// No limit.
    #[default]
    Unlimited,
    /// At most this many packets.
    Packets(u32),
    /// At most this many bytes.
    Bytes(u64),
}

impl QueueLimit {
    /// The number of bytes that `rate` carries in `time`: one bandwidth-delay product for a path
    /// whose round trip is `time`. At least one byte, so that a slow link has a queue; unlimited if
    /// the rate is.
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

const EXPECTED: &str = "packets such as 250, bytes such as 64KB or 64KiB, or unlimited";
const PACKETS: &[Unit] = &[Unit {
    names: &["p", ""],
    size: 1,
}];

impl FromStr for QueueLimit {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let error = |problem: String| SpecError::new("queue limit", text, problem, EXPECTED);
        if text.trim() == "unlimited" {
            return Ok(Self::Unlimited);
        }
        match amount(text).map_err(error)? {
            Self::Packets(0) | Self::Bytes(0) => Err(error(
                "must be greater than zero, or packets sent back to back would be lost".to_owned(),
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
            .map_err(|_| "value is too large".to_owned());
    }
    ByteSize::parse_with_unit(text).map(|size| QueueLimit::Bytes(size.0))
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::Packets(packets) => write!(f, "{packets}p"),
            Self::Bytes(bytes) => ByteSize(bytes).fmt(f),
        }
    }
}

/// When the queue sets congestion-experienced on ECN-capable packets.
///
/// Written like a queue limit, or as a time: `20p`, `64KB`, `242us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MarkAt {
    /// On arrival, if at least this many packets are queued.
    Packets(u32),
    /// On arrival, if at least this many bytes are queued.
    Bytes(u64),
    /// On departure, after at least this long in the queue.
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
    fn queue_limits_round_trip() {
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
            assert!(error.contains("must be greater than zero"), "{error}");
        }
        let error = "250x".parse::<QueueLimit>().unwrap_err().to_string();
        assert_eq!(
            error,
            "invalid queue limit \"250x\": unknown unit \"x\"; expected packets such as 250, \
             bytes such as 64KB or 64KiB, or unlimited"
        );
    }

    #[test]
    fn queue_limit_from_time_is_rate_times_time() {
        let of = |rate: &str, time| QueueLimit::of_time(rate.parse().unwrap(), time);
        let time = Duration::from_millis(30);
        assert_eq!(of("50M", time), QueueLimit::Bytes(187_500));
        assert_eq!(of("unlimited", time), QueueLimit::Unlimited);
        assert_eq!(of("1k", Duration::ZERO), QueueLimit::Bytes(1));
        assert_eq!(of("10G", Duration::MAX), QueueLimit::Bytes(u64::MAX));
    }

    #[test]
    fn mark_thresholds_round_trip() {
        for text in ["20p", "64KB", "242us"] {
            assert_eq!(text.parse::<MarkAt>().unwrap().to_string(), text);
        }
        assert!("unlimited".parse::<MarkAt>().is_err());
    }
}
