//! Settings within a value: `codel:target=5ms:noecn`.

use core::num::NonZeroU32;
use core::time::Duration;

use super::{Span, SpecError};

/// The longest time that a controller's setting may be, so that its integer
/// arithmetic stays far from overflow.
const LONGEST: Duration = Duration::from_secs(100);

/// One `key=value` or flag among the options of a value.
pub(crate) struct Choice<'a> {
    /// What the whole was meant to be, for errors.
    what: &'static str,
    right: &'static str,
    pub(crate) key: &'a str,
    value: Option<&'a str>,
}

/// Splits `name:key=value:flag` into its name and its options.
pub(crate) fn options<'a>(
    text: &'a str,
    what: &'static str,
    right: &'static str,
) -> (&'a str, impl Iterator<Item = Choice<'a>>) {
    let mut parts = text.split(':').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let choices = parts.map(move |part| {
        let (key, value) = match part.split_once('=') {
            None => (part, None),
            Some((key, value)) => (key, Some(value)),
        };
        Choice {
            what,
            right,
            key,
            value,
        }
    });
    (name, choices)
}

impl Choice<'_> {
    pub(crate) fn unknown(&self) -> SpecError {
        SpecError::new(self.what, self.key, "the option is unknown", self.right)
    }

    fn value(&self) -> Result<&str, SpecError> {
        self.value.ok_or_else(|| {
            let problem = "the option needs a value";
            SpecError::new(self.what, self.key, problem, self.right)
        })
    }

    /// A flag, which takes no value.
    pub(crate) fn flag(&self) -> Result<(), SpecError> {
        match self.value {
            None => Ok(()),
            Some(value) => {
                let problem = format!("the option {:?} takes no value", self.key);
                Err(SpecError::new(self.what, value, problem, self.right))
            }
        }
    }

    /// A time above zero and up to 100 s.
    pub(crate) fn time(&self) -> Result<Duration, SpecError> {
        let text = self.value()?;
        let time = positive(text, self.what, self.right)?;
        if time > LONGEST {
            let problem = format!("{} is more than 100s", self.key);
            return Err(SpecError::new(self.what, text, problem, self.right));
        }
        Ok(time)
    }

    /// A number from 1 to `most`.
    pub(crate) fn count(&self, most: u32) -> Result<NonZeroU32, SpecError> {
        let text = self.value()?;
        text.parse()
            .ok()
            .filter(|count: &NonZeroU32| count.get() <= most)
            .ok_or_else(|| {
                let problem = format!("{} is not a number from 1 to {most}", self.key);
                SpecError::new(self.what, text, problem, self.right)
            })
    }

    /// Anything that parses.
    pub(crate) fn parse<T: core::str::FromStr<Err = SpecError>>(&self) -> Result<T, SpecError> {
        self.value()?.parse()
    }

    /// Any number.
    pub(crate) fn number(&self) -> Result<u64, SpecError> {
        let text = self.value()?;
        text.parse().map_err(|_| {
            let problem = format!("{} is not a number", self.key);
            SpecError::new(self.what, text, problem, self.right)
        })
    }
}

/// A time above zero.
pub(crate) fn positive(
    text: &str,
    what: &'static str,
    right: &'static str,
) -> Result<Duration, SpecError> {
    match text.parse::<Span>() {
        Ok(Span::ZERO) => Err(SpecError::new(what, text, "it is zero", right)),
        Ok(Span(time)) => Ok(time),
        Err(error) => Err(SpecError::new(what, text, error.problem, right)),
    }
}
