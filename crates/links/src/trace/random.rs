//! Traces of links whose rate varies, generated from a seed.

use core::fmt;
use core::num::NonZeroU32;
use core::num::NonZeroU64;
use core::str::FromStr;
use core::time::Duration;

use super::{OPPORTUNITY_BYTES, Trace, add};
use crate::spec::{SpecError, ValueOption, options};
use crate::time::nanos;
use crate::{Dice, Rate, Span};

/// Parameters of a generated trace like that of a cellular link.
///
/// The rate stays for 200 ms to 1 s, then changes to another; all doublings within the swing are
/// equally likely. One change in ten begins with an outage. The mean over a round is exact, to one
/// opportunity.
///
/// Written `random:mean=12M:swing=10:outage=500ms:length=120s:seed=1`, which are the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RandomTrace {
    /// Bits per second over a round.
    pub mean: NonZeroU64,
    /// The ratio of the highest to the lowest rate.
    pub swing: NonZeroU32,
    /// The longest time without any delivery; zero means no outages.
    pub outage: Duration,
    /// Length of a round.
    pub length: Duration,
    /// The seed of all random decisions.
    pub seed: u64,
}

impl Default for RandomTrace {
    fn default() -> Self {
        Self {
            mean: const { NonZeroU64::new(12_000_000).expect("not zero") },
            swing: const { NonZeroU32::new(10).expect("not zero") },
            outage: Duration::from_millis(500),
            length: Duration::from_secs(120),
            seed: 1,
        }
    }
}

const WHAT: &str = "random trace";
const EXPECTED: &str = "random with any of mean=12M, swing=10, outage=500ms or steady, length=120s \
                     (10ms to 600s) and seed=1, colons between";
/// Shorter rounds would be dominated by rounding, longer ones by memory.
const LENGTHS: core::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(600);
const MOST_SWING: u32 = 1000;
/// How long a rate stays, in milliseconds.
const STAYS: core::ops::RangeInclusive<u64> = 200..=1000;
/// One change in this many begins with an outage.
const CHANGES_PER_OUTAGE: u64 = 10;
/// The lowest rate, as a weight: fine steps above it.
const LOWEST: u64 = 1024;
/// The random generator's stream; any number would do.
const STREAM: u64 = 0x7472_6163;

impl RandomTrace {
    /// Generates the trace. Equal parameters give equal traces.
    #[must_use]
    pub fn generate(&self) -> Trace {
        let length = self.length.clamp(*LENGTHS.start(), *LENGTHS.end());
        let weights = self.weights(length);
        let whole: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
        let bits = u128::from(self.mean.get()) * length.as_millis() / 1000;
        let total = (bits / (u128::from(OPPORTUNITY_BYTES) * 8)).max(1);
        let mut millis = Vec::new();
        let mut shares = 0;
        for (at, weight) in (1u64..).zip(weights) {
            shares += u128::from(weight) * total;
            let count = u32::try_from(shares / whole.max(1)).unwrap_or(u32::MAX);
            shares %= whole.max(1);
            if count > 0 {
                add(&mut millis, at, count);
            }
        }
        // The last weight is not zero, so the last millisecond has the last
        // opportunity and the round its full length.
        Trace::from_millis(self.to_string(), millis).unwrap_or_else(|| Trace {
            source: self.to_string(),
            moments: vec![(nanos(length), 1)],
        })
    }

    /// The rate of each millisecond, in proportion.
    fn weights(&self, length: Duration) -> Vec<u64> {
        // At most ten minutes.
        let length = length.as_millis() as usize;
        let mut dice = Dice::new(self.seed, STREAM);
        let longest = self.outage.as_millis().min(length as u128 / 2) as u64;
        let mut weights = Vec::with_capacity(length);
        while weights.len() < length {
            if longest > 0 && dice.below(CHANGES_PER_OUTAGE) == 0 {
                let gap = 1 + dice.below(longest);
                weights.resize(weights.len() + gap as usize, 0);
            }
            let stay = STAYS.start() + dice.below(STAYS.end() - STAYS.start() + 1);
            let weight = self.weight(&mut dice);
            weights.resize(weights.len() + stay as usize, weight);
        }
        weights.truncate(length);
        if let Some(last) = weights.last_mut() {
            *last = (*last).max(LOWEST);
        }
        weights
    }

    /// A rate between the lowest and `swing` times it.
    fn weight(&self, dice: &mut Dice) -> u64 {
        let highest = LOWEST * u64::from(self.swing.get().min(MOST_SWING));
        let doublings = (highest / LOWEST).ilog2();
        loop {
            let low = LOWEST << dice.below(u64::from(doublings) + 1);
            let weight = low + dice.below(low);
            if weight <= highest {
                return weight;
            }
        }
    }
}

impl FromStr for RandomTrace {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (name, choices) = options(text, WHAT, EXPECTED);
        if name != "random" {
            let problem = "does not start with \"random\"";
            return Err(SpecError::new(WHAT, text, problem, EXPECTED));
        }
        let mut config = Self::default();
        for choice in choices {
            config.set(&choice)?;
        }
        Ok(config)
    }
}

impl RandomTrace {
    fn set(&mut self, choice: &ValueOption<'_>) -> Result<(), SpecError> {
        match choice.key {
            "mean" => {
                let rate: Rate = choice.parse()?;
                let Rate::Bits(mean) = rate else {
                    let problem = "mean must be greater than zero";
                    return Err(SpecError::new(WHAT, &rate.to_string(), problem, EXPECTED));
                };
                self.mean = mean;
            }
            "swing" => self.swing = choice.count(MOST_SWING)?,
            "outage" => self.outage = choice.time()?,
            "steady" => {
                choice.flag()?;
                self.outage = Duration::ZERO;
            }
            "length" => {
                let length = choice.parse::<Span>()?;
                if !LENGTHS.contains(&length.0) {
                    let problem = "length must be from 10ms to 600s";
                    return Err(SpecError::new(WHAT, &length.to_string(), problem, EXPECTED));
                }
                self.length = length.0;
            }
            "seed" => self.seed = choice.number()?,
            _ => return Err(choice.unknown()),
        }
        Ok(())
    }
}

impl fmt::Display for RandomTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "random:mean={}:swing={}",
            Rate::Bits(self.mean),
            self.swing
        )?;
        if self.outage.is_zero() {
            f.write_str(":steady")?;
        } else {
            write!(f, ":outage={}", Span(self.outage))?;
        }
        write!(f, ":length={}:seed={}", Span(self.length), self.seed)
    }
}
