//! Jitter and reordering: random extra delays.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::spec::SpecError;
use crate::{Probability, Span};

/// An extra delay drawn uniformly from zero to `max` for each packet.
///
/// Written `200us`, or `200us:unordered` if packets may overtake each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Jitter {
    /// The largest extra delay.
    pub max: Duration,
    /// Whether a packet waits for the one sent before it, so that order is kept.
    pub keeps_order: bool,
}

impl Default for Jitter {
    fn default() -> Self {
        Self {
            max: Duration::ZERO,
            keeps_order: true,
        }
    }
}

impl FromStr for Jitter {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (max, order) = text.split_once(':').unwrap_or((text, "ordered"));
        let keeps_order = match order.trim() {
            "ordered" => true,
            "unordered" => false,
            _ => {
                return Err(SpecError::new(
                    "jitter",
                    text,
                    format!("unknown order {order:?}"),
                    "the largest extra delay such as 200us, or 200us:unordered",
                ));
            }
        };
        Ok(Self {
            max: max.parse::<Span>()?.0,
            keeps_order,
        })
    }
}

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Span(self.max).fmt(f)?;
        f.write_str(if self.keeps_order { "" } else { ":unordered" })
    }
}

/// Delays a fraction of packets, so that others overtake them. Written `5%:20ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reorder {
    /// The fraction of packets that are delayed.
    pub fraction: Probability,
    /// By how much they are delayed.
    pub extra: Duration,
}

impl FromStr for Reorder {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (fraction, extra) = text.split_once(':').ok_or_else(|| {
            SpecError::new(
                "reordering",
                text,
                "missing colon",
                "the fraction and its extra delay such as 5%:20ms",
            )
        })?;
        Ok(Self {
            fraction: fraction.parse()?,
            extra: extra.parse::<Span>()?.0,
        })
    }
}

impl fmt::Display for Reorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.fraction, Span(self.extra))
    }
}
