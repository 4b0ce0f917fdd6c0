//! Cases as text: what is sent, and what is expected.
//!
//! The built-in cases and a user's own are written in the same format; the crate's README
//! describes it. [`parse`] turns a file into [`Case`]s.

mod error;
mod expected;
mod expression;
mod lexer;
mod parser;
mod setup;
mod steps;
#[cfg(test)]
mod tests;

pub use error::ScriptError;
pub(crate) use expected::Expected;
pub(crate) use expression::{Scope, StreamKind, Variable};
pub use parser::parse;
pub(crate) use setup::{Mark, Need, Setup};
pub(crate) use steps::{ConnectUntil, FrameSpec, Item, RawDatagram, SendOptions, Step, WaitFor};

/// Most rounds of a `repeat`.
pub(crate) const MAX_ROUNDS: u64 = 10_000;

/// Most bytes of a datagram.
pub(crate) const MAX_DATAGRAM: u64 = 65_000;

/// The part of the system that a case tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// QUIC (RFC 8999, 9000, 9001).
    Transport,
    /// TLS in QUIC (RFC 8446, 9001).
    Tls,
    /// HTTP/3 (RFC 9114, 9220, 9297).
    Http3,
    /// QPACK (RFC 9204).
    Qpack,
}

impl Layer {
    const NAMES: [(&'static str, Self); 4] = [
        ("transport", Self::Transport),
        ("tls", Self::Tls),
        ("http3", Self::Http3),
        ("qpack", Self::Qpack),
    ];

    /// Returns the name that scripts use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Transport => "transport",
            Self::Tls => "tls",
            Self::Http3 => "http3",
            Self::Qpack => "qpack",
        }
    }
}

/// How strongly the source asks for what is expected (RFC 2119).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Requirement {
    /// Anything else is a deviation.
    Must,
    /// Anything else is reported, but is not a deviation.
    Should,
}

/// One test of a server: data, which the runner executes.
#[derive(Clone, Debug)]
pub struct Case {
    /// A stable name: lower-case words with hyphens.
    pub name: String,
    /// One line that says what is tested.
    pub title: String,
    /// Where that is specified, such as `RFC 9000 §19.11`.
    pub source: String,
    /// Which part of a server it tests.
    pub layer: Layer,
    /// Whether the source says MUST or SHOULD.
    pub requirement: Requirement,
    /// Whether the case floods the server or makes it amplify.
    pub intrusive: bool,
    /// The steps as they are written, for reports.
    pub script: Vec<String>,
    pub(crate) setup: Setup,
    pub(crate) needs: Vec<Need>,
    pub(crate) steps: Vec<Step>,
    /// Any of these is as expected.
    pub(crate) expected: Vec<Expected>,
}

impl Case {
    /// Returns what is expected, in words.
    #[must_use]
    pub fn expectation(&self) -> String {
        let all: Vec<_> = self.expected.iter().map(ToString::to_string).collect();
        all.join(", or ")
    }

    /// Returns whether a server has to do something, so that one that ignores what is sent
    /// deviates. Other cases are about input that is legal, or that may be ignored.
    #[must_use]
    pub fn expects_reaction(&self) -> bool {
        let passive = |expected: &Expected| match expected {
            Expected::Status { from, .. } => *from < 400,
            expected => expected.is_quiet(),
        };
        !self.expected.iter().any(passive)
    }
}
