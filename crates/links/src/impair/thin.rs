//! Thinning of acknowledgements.

use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;

use crate::spec::{ByteSize, SpecError};

/// Keeps one in n small packets, as modems do with acknowledgements.
///
/// Encrypted acknowledgements can only be told by their size. Packets with more UDP payload than
/// `below` pass and are not counted; of the others the first passes, and then every `keep`-th.
/// Written `10` or `10:200B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thin {
    /// One in this many small packets is kept.
    pub keep: NonZeroU32,
    /// The largest UDP payload of a small packet, in bytes.
    pub below: u64,
}

/// More than an acknowledgement with many ranges, less than data in flight.
const DEFAULT_BELOW: u64 = 150;

const EXPECTED: &str = "of how many small packets one is kept, such as 10, and optionally the largest \
                     payload of a small one, such as 10:150B";

impl FromStr for Thin {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let error = |problem: String| SpecError::new("thinning", text, problem, EXPECTED);
        let (keep, below) = match text.split_once(':') {
            None => (text, DEFAULT_BELOW),
            Some((keep, below)) => (keep, ByteSize::parse_with_unit(below).map_err(error)?.0),
        };
        let keep = keep
            .trim()
            .parse()
            .map_err(|_| error("must be a number greater than zero".to_owned()))?;
        Ok(Self { keep, below })
    }
}

impl fmt::Display for Thin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.keep)?;
        if self.below == DEFAULT_BELOW {
            return Ok(());
        }
        f.write_str(":")?;
        ByteSize(self.below).fmt(f)
    }
}

/// Counts small packets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Thinner {
    /// How many to drop before the next one is kept.
    to_drop: u32,
}

impl Thinner {
    /// Whether this packet of `payload` bytes is dropped.
    pub(crate) fn drops(&mut self, thin: Thin, payload: usize) -> bool {
        if payload as u64 > thin.below {
            return false;
        }
        if let Some(left) = self.to_drop.checked_sub(1) {
            self.to_drop = left;
            return true;
        }
        self.to_drop = thin.keep.get() - 1;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_round_trips_and_errors_give_the_reason() {
        for text in ["10", "3:1.5KB"] {
            assert_eq!(text.parse::<Thin>().unwrap().to_string(), text);
        }
        let problem = |text: &str| text.parse::<Thin>().unwrap_err().problem;
        assert_eq!(problem("0"), "must be a number greater than zero");
        assert_eq!(problem("10:5"), "missing unit");
    }

    #[test]
    fn thinning_keeps_one_small_packet_in_three() {
        let thin = "3".parse().unwrap();
        let mut thinner = Thinner::default();
        let sizes = [40, 40, 1200, 40, 150, 151, 40, 40, 40];
        let kept: Vec<_> = sizes.map(|size| !thinner.drops(thin, size)).into();
        let expected = [true, false, true, false, true, true, false, false, true];
        assert_eq!(kept, expected);
    }
}
