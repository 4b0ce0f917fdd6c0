//! Errors in scripts.

/// An error in a script: which line, what is wrong, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ScriptError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong and what was expected.
    pub message: String,
}

impl ScriptError {
    pub(super) fn new(line: usize, message: impl Into<String>) -> Self {
        Self {
            line,
            message: message.into(),
        }
    }
}

/// Returns a message about a word that is none of `known`, with the nearest of them if one is
/// near, and otherwise with all of them.
pub(super) fn unknown<'a>(
    what: &str,
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> String {
    let known: Vec<_> = known.into_iter().collect();
    let near = known
        .iter()
        .map(|other| (distance(word, other), other))
        .min()
        .filter(|(distance, _)| *distance <= 3);
    match near {
        Some((_, near)) => format!("unknown {what} {word:?}: did you mean {near:?}?"),
        None => format!(
            "unknown {what} {word:?}: expected one of {}",
            known.join(", ")
        ),
    }
}

/// Returns the edit distance between two words, without regard to case.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<_> = b.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
