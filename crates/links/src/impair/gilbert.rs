//! Loss in bursts.

use core::fmt;
use core::str::FromStr;

use crate::spec::SpecError;
use crate::{Dice, Probability};

/// Loss in bursts after Gilbert and Elliott: a good state with little loss and
/// a bad one with much.
///
/// Written `1%:16.7%`, the chances from good to bad and back, if the bad state
/// loses everything and the good one nothing (Gilbert's simple model), or
/// `1%:16.7%:50%:0.1%` with the loss in the bad and in the good state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gilbert {
    /// From good to bad, before each packet.
    pub to_bad: Probability,
    /// From bad to good, before each packet.
    pub to_good: Probability,
    /// Loss in the bad state (Elliott's 1 − h).
    pub bad_loss: Probability,
    /// Loss in the good state (Elliott's 1 − k).
    pub good_loss: Probability,
}

impl FromStr for Gilbert {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let parts = text
            .split(':')
            .map(str::parse)
            .collect::<Result<Vec<Probability>, _>>()?;
        let (to_bad, to_good, bad_loss, good_loss) = match parts[..] {
            [to_bad, to_good] => (to_bad, to_good, Probability::ALWAYS, Probability::NEVER),
            [to_bad, to_good, bad_loss] => (to_bad, to_good, bad_loss, Probability::NEVER),
            [to_bad, to_good, bad_loss, good_loss] => (to_bad, to_good, bad_loss, good_loss),
            _ => {
                return Err(SpecError::new(
                    "Gilbert-Elliott loss",
                    text,
                    format!("found {} part(s), expected 2 to 4", parts.len()),
                    "the chances good-to-bad and bad-to-good such as 1%:16.7%, and optionally \
                     the loss in the bad and in the good state such as 1%:16.7%:50%:0.1%",
                ));
            }
        };
        Ok(Self {
            to_bad,
            to_good,
            bad_loss,
            good_loss,
        })
    }
}

impl fmt::Display for Gilbert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.to_bad, self.to_good)?;
        match (self.bad_loss, self.good_loss) {
            (Probability::ALWAYS, Probability::NEVER) => Ok(()),
            (bad, Probability::NEVER) => write!(f, ":{bad}"),
            (bad, good) => write!(f, ":{bad}:{good}"),
        }
    }
}

/// The state of the two-state chain.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    dice: Dice,
    in_bad_state: bool,
}

impl Chain {
    pub(crate) fn new(dice: Dice) -> Self {
        Self {
            dice,
            in_bad_state: false,
        }
    }

    /// Moves on by one packet; true if that one is lost.
    pub(crate) fn loses(&mut self, gilbert: Gilbert) -> bool {
        let leave = if self.in_bad_state {
            gilbert.to_good
        } else {
            gilbert.to_bad
        };
        self.in_bad_state ^= self.dice.happens(leave);
        let loss = if self.in_bad_state {
            gilbert.bad_loss
        } else {
            gilbert.good_loss
        };
        self.dice.happens(loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_round_trips_and_errors_give_the_reason() {
        for text in [
            "1%:16.7%",
            "1%:16.7%:50%",
            "1%:16.7%:50%:0.1%",
            "1%:2%:100%:3%",
        ] {
            assert_eq!(text.parse::<Gilbert>().unwrap().to_string(), text);
        }
        let error = "5%".parse::<Gilbert>().unwrap_err().to_string();
        assert!(
            error.contains("found 1 part(s), expected 2 to 4"),
            "{error}"
        );
        assert!("1%:2%:3%:4%:5%".parse::<Gilbert>().is_err());
        assert!("1%:200%".parse::<Gilbert>().is_err());
    }

    #[test]
    fn each_gilbert_state_loses_its_share() {
        let gilbert = "1%:3%:40%:2%".parse().unwrap();
        let mut chain = Chain::new(Dice::new(5, 1));
        let lost = (0..400_000).filter(|_| chain.loses(gilbert)).count();
        // A quarter of the time bad: 40 % / 4 + 2 % · 3 / 4 = 11.5 %.
        assert!((44_000..48_000).contains(&lost), "{lost}");
    }
}
