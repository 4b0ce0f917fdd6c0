//! Errors in scenario files: the problem, where it is, and what to write instead.

use core::fmt;
use core::ops::Range;

/// A scenario's text with its name.
#[derive(Clone, Debug)]
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
}

/// An error in a scenario file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// The file, as named by the caller.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// What is wrong.
    pub problem: String,
    /// What is expected, or what to do; may be empty.
    pub help: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            column,
            problem,
            help,
        } = self;
        write!(f, "{file}:{line}:{column}: {problem}")?;
        if help.is_empty() {
            return Ok(());
        }
        write!(f, "; {help}")
    }
}

impl std::error::Error for ScenarioError {}

impl Source<'_> {
    /// Creates an error about the bytes at `span`.
    pub(super) fn error(
        &self,
        span: &Range<usize>,
        problem: impl Into<String>,
        help: impl Into<String>,
    ) -> ScenarioError {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        ScenarioError {
            file: self.file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            problem: problem.into(),
            help: help.into(),
        }
    }
}

/// Suggests the name in `known` that `wrong` was most likely meant to be, and lists all.
pub(crate) fn suggest(wrong: &str, known: &[&str]) -> String {
    let list = known.join(", ");
    let nearest = known.iter().min_by_key(|name| distance(wrong, name));
    match nearest {
        Some(name) if is_near(wrong, name) => {
            format!("did you mean {name}? Expected one of {list}")
        }
        Some(_) | None => format!("expected one of {list}"),
    }
}

/// Whether `wrong` is a misspelling of `name`.
pub(super) fn is_near(wrong: &str, name: &str) -> bool {
    distance(wrong, name) <= 1 + name.len() / 3
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_give_line_and_column() {
        let source = Source {
            file: "a.toml",
            text: "x = 1\ny = -2\n",
        };
        let error = source.error(&(10..12), "too low", "write 2");
        assert_eq!(error.to_string(), "a.toml:2:5: too low; write 2");
    }

    #[test]
    fn misspelled_name_gets_a_suggestion() {
        let known = ["duration", "network", "seeds"];
        assert!(suggest("durration", &known).starts_with("did you mean duration?"));
        assert!(suggest("banana", &known).starts_with("expected one of"));
    }
}
