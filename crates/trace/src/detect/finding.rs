//! Findings of the detectors.

use serde::{Deserialize, Serialize};

use super::Detector;

/// How severe a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Information.
    Note,
    /// A cost, or an effect of the network.
    Warning,
    /// A defect: it must not happen on any network.
    Error,
}

/// A value that supports a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence(String);

impl From<u64> for Evidence {
    fn from(value: u64) -> Self {
        Self(value.to_string())
    }
}

impl From<usize> for Evidence {
    fn from(value: usize) -> Self {
        Self(value.to_string())
    }
}

impl From<String> for Evidence {
    fn from(value: String) -> Self {
        Self(value)
    }
}

impl From<&str> for Evidence {
    fn from(value: &str) -> Self {
        Self(value.to_owned())
    }
}

/// A problem of a connection, with the time in which it occurred.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The detector that found it.
    pub detector: Detector,
    /// When it began, in nanoseconds of the trace.
    pub t0: u64,
    /// When it ended, or was last seen.
    pub t1: u64,
    /// How bad it is.
    pub severity: Severity,
    /// Names and values that support it.
    pub evidence: Vec<(String, String)>,
}

impl Finding {
    /// Creates a finding without evidence.
    #[must_use]
    pub fn new(detector: Detector, t0: u64, t1: u64, severity: Severity) -> Self {
        Self {
            detector,
            t0,
            t1: t1.max(t0),
            severity,
            evidence: Vec::new(),
        }
    }

    /// Adds a piece of evidence.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Evidence>) -> Self {
        self.evidence.push((name.to_owned(), value.into().0));
        self
    }

    /// A sentence with the evidence, for people.
    #[must_use]
    pub fn sentence(&self) -> String {
        let from = seconds(self.t0);
        let when = if self.t1.saturating_sub(self.t0) < 1_000_000 {
            format!("At {from} s")
        } else {
            format!("From {from} s to {} s", seconds(self.t1))
        };
        let what = self.detector.explanation();
        let evidence: Vec<String> = self
            .evidence
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        if evidence.is_empty() {
            format!("{when}: {what}.")
        } else {
            format!("{when}: {what} ({}).", evidence.join(", "))
        }
    }
}

/// Nanoseconds as seconds with three decimal places.
fn seconds(nanos: u64) -> String {
    format!("{}.{:03}", nanos / 1_000_000_000, nanos / 1_000_000 % 1_000)
}

/// Nanoseconds for people.
pub(crate) fn span(nanos: u64) -> String {
    match nanos {
        0..1_000_000 => format!("{} µs", nanos / 1_000),
        1_000_000..10_000_000_000 => format!("{} ms", nanos / 1_000_000),
        _ => format!("{} s", seconds(nanos)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_text_gives_time_problem_and_evidence() {
        let finding = Finding::new(
            Detector::FloorPinned,
            1_500_000_000,
            3_000_000_000,
            Severity::Error,
        )
        .with("window", 2_700_u64);
        let said = finding.sentence();
        assert!(said.starts_with("From 1.500 s to 3.000 s: "), "{said}");
        assert!(said.ends_with("(window 2700)."), "{said}");
        let json = serde_json::to_string(&finding).expect("serialises");
        assert!(json.contains("\"floor_pinned\""), "{json}");
        let back: Finding = serde_json::from_str(&json).expect("parses");
        assert_eq!(back, finding);
    }
}
