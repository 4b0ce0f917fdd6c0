//! Parts of a batch that several machines do.

use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;

/// One of several equal parts of a batch, written `1/4`: the first of four.
///
/// Runs are dealt out like cards, so that each part has a share of every scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shard {
    number: NonZeroU32,
    count: NonZeroU32,
}

/// The text is no part of a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid shard {0:?}: expected I/N with I from 1 to N, such as 1/4 for the first of four")]
pub struct ShardError(String);

impl Shard {
    /// The only part.
    pub const WHOLE: Self = Self {
        number: NonZeroU32::MIN,
        count: NonZeroU32::MIN,
    };

    /// Its number, from 0.
    #[must_use]
    pub const fn index(self) -> u64 {
        self.number.get() as u64 - 1
    }

    /// The number of parts.
    #[must_use]
    pub const fn count(self) -> u64 {
        self.count.get() as u64
    }

    /// Whether the run with this index, from 0, is in this part.
    #[must_use]
    pub const fn has(self, index: u64) -> bool {
        index % self.count() == self.index()
    }
}

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Self, ShardError> {
        let parsed = text.split_once('/').and_then(|(number, count)| {
            let shard = Self {
                number: number.trim().parse().ok()?,
                count: count.trim().parse().ok()?,
            };
            (shard.number <= shard.count).then_some(shard)
        });
        parsed.ok_or_else(|| ShardError(text.to_owned()))
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_in_exactly_one_shard() {
        for count in 1..=7 {
            let shards: Vec<Shard> = (1..=count)
                .map(|number| format!("{number}/{count}").parse().unwrap())
                .collect();
            for index in 0..50 {
                let own = shards.iter().filter(|shard| shard.has(index)).count();
                assert_eq!(own, 1, "run {index} of {count} shards");
            }
        }
    }

    #[test]
    fn invalid_shards_are_rejected_with_the_form() {
        for text in ["", "1", "0/4", "5/4", "1/0", "-1/4", "a/b", "1/4/2"] {
            let error = text.parse::<Shard>().unwrap_err().to_string();
            assert!(error.contains("expected I/N"), "{error}");
        }
        assert_eq!("2/4".parse::<Shard>().unwrap().to_string(), "2/4");
    }
}
