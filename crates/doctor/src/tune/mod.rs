//! `doctor tune`: what on this host limits QUIC, as advice; nothing is changed.

mod checks;

use serde::Serialize;

pub use checks::{Facts, Host, check};

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub subject: String,
    /// How it is.
    pub status: Status,
    /// What was found, and what it means.
    pub text: String,
    /// The command that changes it, or shows more.
    pub command: Option<String>,
}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It limits.
    Limits,
    /// It could not be read.
    Unknown,
    /// It does not limit.
    Fine,
}

/// Returns the findings as text, what limits first.
#[must_use]
pub fn text(findings: &[Finding]) -> String {
    use std::fmt::Write as _;
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| finding.status);
    let mut out = String::new();
    for finding in sorted {
        let mark = match finding.status {
            Status::Limits => "LIMITS ",
            Status::Unknown => "unknown",
            Status::Fine => "ok     ",
        };
        let _ = writeln!(out, "{mark}  {}: {}", finding.subject, finding.text);
        if let Some(command) = &finding.command {
            let _ = writeln!(out, "           {command}");
        }
    }
    out
}
