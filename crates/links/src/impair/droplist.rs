//! Lists of packets to drop.

use core::fmt;
use core::str::FromStr;

use crate::schedule::write_list;
use crate::spec::SpecError;

/// Packets to drop by their number, counted from 1 in the order in which they
/// were offered to the link. Written `2-7,9`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DropList(Vec<(u64, u64)>);

impl DropList {
    /// Adds the packets `first..=last`.
    #[must_use]
    pub fn and(mut self, first: u64, last: u64) -> Self {
        self.0.push((first, last));
        self
    }

    /// Whether packet `number` is in the list.
    #[must_use]
    pub fn names(&self, number: u64) -> bool {
        self.0
            .iter()
            .any(|&(first, last)| (first..=last).contains(&number))
    }
}

impl FromStr for DropList {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let error = |problem: &str| {
            SpecError::new(
                "drop list",
                text,
                problem,
                "packet numbers from 1 and ranges of them such as 2-7,9",
            )
        };
        let number = |text: &str| match text.trim().parse::<u64>() {
            Ok(0) => Err(error("packet numbers start at 1")),
            Ok(number) => Ok(number),
            Err(_) => Err(error("not a list of numbers and ranges")),
        };
        text.split(',').try_fold(Self::default(), |list, part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return Err(error("range ends before it starts"));
            }
            Ok(list.and(first, last))
        })
    }
}

impl fmt::Display for DropList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, &self.0, |f, &(first, last)| {
            if first == last {
                write!(f, "{first}")
            } else {
                write!(f, "{first}-{last}")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_round_trips_and_errors_give_the_reason() {
        for text in ["2-7,9", "1"] {
            assert_eq!(text.parse::<DropList>().unwrap().to_string(), text);
        }
        let problem = |text: &str| text.parse::<DropList>().unwrap_err().problem;
        assert_eq!(problem("0"), "packet numbers start at 1");
        assert_eq!(problem("7-2"), "range ends before it starts");
        assert_eq!(problem("x"), "not a list of numbers and ranges");
    }
}
