//! What can go wrong before there is anything to diagnose.

use std::io;

/// An error that keeps the doctor from seeing anything.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program runs on another system than Linux.
    #[error("this works on Linux only: it reads the Linux kernel's counters under /proc")]
    NotLinux,
    /// The network namespace cannot be opened or entered.
    #[error("cannot enter {namespace}: {error}{}", hint(.error))]
    Namespace {
        /// The namespace, as it was given.
        namespace: String,
        /// What the kernel answered.
        error: io::Error,
    },
    /// The counters without which there is no diagnosis cannot be read.
    #[error("cannot read {what}: {reason}")]
    Blind {
        /// The file or table.
        what: &'static str,
        /// Why it cannot be read.
        reason: String,
    },
    /// No socket matches `--pid` or `--port`.
    #[error("{0}")]
    NoSuchSocket(String),
    /// A file with samples cannot be read or understood.
    #[error("{path}: {reason}")]
    File {
        /// The file, and the line if there is one.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The terminal cannot be used.
    #[error("cannot draw on the terminal: {0}")]
    Terminal(io::Error),
    /// A thread cannot be started, or ended unexpectedly.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// What to do about an error of permissions.
fn hint(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::PermissionDenied {
        " (run as root, or with the capability CAP_SYS_ADMIN)"
    } else {
        ""
    }
}

/// Text or bytes of the kernel that do not have the expected form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found:?}")]
pub struct ParseError {
    /// What should have stood there.
    pub expected: &'static str,
    /// What stood there, shortened.
    pub found: String,
}

impl ParseError {
    /// Longest piece of foreign text in an error, in characters.
    const SHOWN: usize = 60;

    pub(crate) fn new(expected: &'static str, found: &str) -> Self {
        Self {
            expected,
            found: found.chars().take(Self::SHOWN).collect(),
        }
    }
}
