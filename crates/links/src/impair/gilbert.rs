//! Loss in bursts.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::spec::SpecError;
use crate::{Dice, Probability, Span};

/// The shortest mean stay in a state: shorter ones would only be a slow way of losing at random.
const SHORTEST_STAY: Duration = Duration::from_micros(10);

/// When the states of [`Gilbert`] change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GilbertChange {
    /// With packets, as in the papers: before each one there is a chance to change. A burst lasts
    /// for so many packets, however long they take.
    Packets {
        /// The chance of good to bad.
        to_bad: Probability,
        /// The chance of bad to good.
        to_good: Probability,
    },
    /// With time, as on the air: a burst ends although nothing is sent. The stays are exponentially
    /// distributed.
    Time {
        /// The mean stay in the good state.
        good: Duration,
        /// The mean stay in the bad state.
        bad: Duration,
    },
}

/// Loss in bursts after Gilbert and Elliott: a good state with little loss and
/// a bad one with much.
///
/// Written `1%:16.7%`, the chances from good to bad and back before each packet, or `10s:50ms`,
/// the mean times in the good and in the bad state, if the bad state
/// loses everything and the good one nothing (Gilbert's simple model), or
/// `1%:16.7%:50%:0.1%` with the loss in the bad and in the good state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gilbert {
    /// When the states change.
    pub change: GilbertChange,
    /// Loss in the bad state (Elliott's 1 − h).
    pub bad_loss: Probability,
    /// Loss in the good state (Elliott's 1 − k).
    pub good_loss: Probability,
}

const HELP: &str = "the chances good-to-bad and bad-to-good such as 1%:16.7%, or the mean times in \
                    the good and in the bad state such as 10s:50ms, and optionally the loss in \
                    the bad and in the good state such as 1%:16.7%:50%:0.1%";

fn stay(text: &str) -> Result<Option<Duration>, SpecError> {
    let Ok(Span(stay)) = text.parse() else {
        return Ok(None);
    };
    // A bare zero is a probability as well.
    if text.parse::<Probability>().is_ok() {
        return Ok(None);
    }
    if stay < SHORTEST_STAY {
        let problem = format!("must be at least {}", Span(SHORTEST_STAY));
        return Err(SpecError::new("Gilbert-Elliott loss", text, problem, HELP));
    }
    Ok(Some(stay))
}

impl FromStr for Gilbert {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let error = |problem: String| SpecError::new("Gilbert-Elliott loss", text, problem, HELP);
        let parts: Vec<&str> = text.split(':').collect();
        let (first, second, losses) = match parts[..] {
            [first, second, ref losses @ ..] if losses.len() <= 2 => (first, second, losses),
            _ => {
                let problem = format!("found {} part(s), expected 2 to 4", parts.len());
                return Err(error(problem));
            }
        };
        let change = match (stay(first)?, stay(second)?) {
            (Some(good), Some(bad)) => GilbertChange::Time { good, bad },
            (None, None) => GilbertChange::Packets {
                to_bad: first.parse()?,
                to_good: second.parse()?,
            },
            (Some(_), None) | (None, Some(_)) => {
                return Err(error("mixes a time and a probability".to_owned()));
            }
        };
        let loss = |at: usize, default| losses.get(at).map_or(Ok(default), |text| text.parse());
        Ok(Self {
            change,
            bad_loss: loss(0, Probability::ALWAYS)?,
            good_loss: loss(1, Probability::NEVER)?,
        })
    }
}

impl fmt::Display for Gilbert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.change {
            GilbertChange::Packets { to_bad, to_good } => write!(f, "{to_bad}:{to_good}")?,
            GilbertChange::Time { good, bad } => write!(f, "{}:{}", Span(good), Span(bad))?,
        }
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
    /// Where states change with time: until when this one lasts; `None` before the first packet.
    until: Option<Duration>,
}

impl Chain {
    pub(crate) fn new(dice: Dice) -> Self {
        Self {
            dice,
            in_bad_state: false,
            until: None,
        }
    }

    /// Moves on to the next packet, which is met at `elapsed`; true if it is lost.
    pub(crate) fn loses(&mut self, gilbert: Gilbert, elapsed: Option<Duration>) -> bool {
        match gilbert.change {
            GilbertChange::Packets { to_bad, to_good } => {
                let leave = if self.in_bad_state { to_good } else { to_bad };
                self.in_bad_state ^= self.dice.happens(leave);
            }
            GilbertChange::Time { good, bad } => {
                self.pass(good, bad, elapsed.unwrap_or_default());
            }
        }
        let loss = if self.in_bad_state {
            gilbert.bad_loss
        } else {
            gilbert.good_loss
        };
        self.dice.happens(loss)
    }

    /// Changes the state as often as `now` asks for.
    fn pass(&mut self, good: Duration, bad: Duration, now: Duration) {
        let mut until = match self.until {
            Some(until) => until,
            None => self.dice.exponential(good),
        };
        while until <= now {
            self.in_bad_state = !self.in_bad_state;
            let stay = self
                .dice
                .exponential(if self.in_bad_state { bad } else { good });
            until = until.saturating_add(stay);
        }
        self.until = Some(until);
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
            "10s:50ms",
            "1.5s:10us:60%:1%",
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
        let error = "1s:20%".parse::<Gilbert>().unwrap_err().to_string();
        assert!(error.contains("mixes a time and a probability"), "{error}");
        let error = "1s:9us".parse::<Gilbert>().unwrap_err().to_string();
        assert!(error.contains("must be at least 10us"), "{error}");
        // Never good to bad.
        assert!("0:20%".parse::<Gilbert>().is_ok());
    }

    #[test]
    fn each_gilbert_state_loses_its_share() {
        let gilbert = "1%:3%:40%:2%".parse().unwrap();
        let mut chain = Chain::new(Dice::new(5, 1));
        let lost = (0..400_000).filter(|_| chain.loses(gilbert, None)).count();
        // A quarter of the time bad: 40 % / 4 + 2 % · 3 / 4 = 11.5 %.
        assert!((44_000..48_000).contains(&lost), "{lost}");
    }
    /// The fates of packets at even distances.
    fn fates(gilbert: &str, distance: Duration, count: u32) -> Vec<bool> {
        let gilbert = gilbert.parse().unwrap();
        let mut chain = Chain::new(Dice::new(5, 1));
        let fate = |n| chain.loses(gilbert, Some(distance * n));
        (0..count).map(fate).collect()
    }

    /// A sixth of the time is bad, in stays of 20 ms, however many packets there are in one.
    #[test]
    fn bursts_of_time_last_as_long_at_any_packet_rate() {
        for (micros, count) in [(100, 4_000_000), (1_000, 400_000)] {
            let fates = fates("100ms:20ms", Duration::from_micros(micros), count);
            let lost = fates.iter().filter(|lost| **lost).count() as u64;
            let share = lost * 1_000 / u64::from(count);
            assert!((157..=177).contains(&share), "{share} ‰ at {micros} µs");
            let bursts = fates
                .split(|lost| !lost)
                .filter(|run| !run.is_empty())
                .count() as u64;
            let mean = lost * micros / bursts;
            assert!(
                (19_000..=21_500).contains(&mean),
                "{mean} µs at {micros} µs"
            );
        }
    }

    /// What a sender with few packets and long pauses needs: by packets, it would be lost for
    /// as many packets as at any rate.
    #[test]
    fn burst_of_time_ends_although_nothing_is_sent() {
        let longest = |gilbert| {
            let fates = fates(gilbert, Duration::from_secs(1), 10_000);
            let runs = fates.split(|lost| !lost);
            runs.map(<[bool]>::len).max().unwrap()
        };
        assert_eq!(longest("20s:20ms"), 1);
        assert!(longest("1%:5%") > 20);
    }
}
