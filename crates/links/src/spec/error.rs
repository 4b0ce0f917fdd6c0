//! Why a text was not understood.

/// A text that could not be understood, with what would be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad {what} {text:?}: {problem}; write {right}")]
pub struct SpecError {
    /// What the text was meant to be, such as `rate`.
    pub what: &'static str,
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub problem: String,
    /// What would be right, with examples.
    pub right: &'static str,
}

impl SpecError {
    pub(crate) fn new(
        what: &'static str,
        text: &str,
        problem: impl Into<String>,
        right: &'static str,
    ) -> Self {
        Self {
            what,
            text: text.to_owned(),
            problem: problem.into(),
            right,
        }
    }
}
