//! Errors of parsing settings.

/// A setting that could not be parsed.
///
/// Displayed as `invalid rate "100X": unknown unit "X"; expected bits per second such as …`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what} {text:?}: {problem}; expected {expected}")]
pub struct SpecError {
    /// What the text should have been, such as `rate`.
    pub what: &'static str,
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub problem: String,
    /// The accepted forms, with examples.
    pub expected: &'static str,
}

impl SpecError {
    pub(crate) fn new(
        what: &'static str,
        text: &str,
        problem: impl Into<String>,
        expected: &'static str,
    ) -> Self {
        Self {
            what,
            text: text.to_owned(),
            problem: problem.into(),
            expected,
        }
    }
}
