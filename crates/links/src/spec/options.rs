//! Settings within a value: `codel:target=5ms:noecn`.

use core::num::NonZeroU32;
use core::time::Duration;

use super::{Span, SpecError};

/// Maximum time of a controller's setting, so that its integer arithmetic stays far from overflow.
const LONGEST: Duration = Duration::from_secs(100);

/// One `key=value` or flag among the options of a value.
pub(crate) struct ValueOption<'a> {
    /// What the whole value should have been, for errors.
    what: &'static str,
    expected: &'static str,
    pub(crate) key: &'a str,
    value: Option<&'a str>,
}

/// Splits `name:key=value:flag` into its name and its options.
pub(crate) fn options<'a>(
    text: &'a str,
    what: &'static str,
    expected: &'static str,
) -> (&'a str, impl Iterator<Item = ValueOption<'a>>) {
    let mut parts = text.split(':').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let choices = parts.map(move |part| {
        let (key, value) = match part.split_once('=') {
            None => (part, None),
            Some((key, value)) => (key, Some(value)),
        };
        ValueOption {
            what,
            expected,
            key,
            value,
        }
    });
    (name, choices)
}

impl ValueOption<'_> {
    pub(crate) fn unknown(&self) -> SpecError {
        SpecError::new(self.what, self.key, "unknown option", self.expected)
    }

    fn value(&self) -> Result<&str, SpecError> {
        self.value.ok_or_else(|| {
            let problem = "missing value";
            SpecError::new(self.what, self.key, problem, self.expected)
        })
    }

    /// Checks that this is a flag, which takes no value.
    pub(crate) fn flag(&self) -> Result<(), SpecError> {
        match self.value {
            None => Ok(()),
            Some(value) => {
                let problem = format!("option {:?} takes no value", self.key);
                Err(SpecError::new(self.what, value, problem, self.expected))
            }
        }
    }

    /// A time above zero and up to 100 s.
    pub(crate) fn time(&self) -> Result<Duration, SpecError> {
        let text = self.value()?;
        let time = positive(text, self.what, self.expected)?;
        if time > LONGEST {
            let problem = format!("{} must be at most 100s", self.key);
            return Err(SpecError::new(self.what, text, problem, self.expected));
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
                let problem = format!("{} must be a number from 1 to {most}", self.key);
                SpecError::new(self.what, text, problem, self.expected)
            })
    }

    /// A value of any type that parses.
    pub(crate) fn parse<T: core::str::FromStr<Err = SpecError>>(&self) -> Result<T, SpecError> {
        self.value()?.parse()
    }

    /// Any number.
    pub(crate) fn number(&self) -> Result<u64, SpecError> {
        let text = self.value()?;
        text.parse().map_err(|_| {
            let problem = format!("{} is not a number", self.key);
            SpecError::new(self.what, text, problem, self.expected)
        })
    }
}

/// A time above zero.
pub(crate) fn positive(
    text: &str,
    what: &'static str,
    expected: &'static str,
) -> Result<Duration, SpecError> {
    match text.parse::<Span>() {
        Ok(Span::ZERO) => Err(SpecError::new(
            what,
            text,
            "must be greater than zero",
            expected,
        )),
        Ok(Span(time)) => Ok(time),
        Err(error) => Err(SpecError::new(what, text, error.problem, expected)),
    }
}
