//! How a command fails: one line for people, one exit code for scripts.

use core::fmt;
use std::error::Error;
use std::process::ExitCode;

use crate::printable;

/// What the exit codes mean, for `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  everything asked for was done
  1  something else went wrong
  2  bad arguments, or a file named in them cannot be used
  3  an address cannot be resolved or bound
  4  the connection failed
  5  the content received is not what was sent
  6  it took too long
  7  the server's certificate was refused
  8  the output cannot be written
  9  the server answered with an HTTP status of 400 or above
  10  the transfer broke off before its end
  11  the server's endpoint failed, such as for a broken socket
  130  it was interrupted by a signal
  141  whoever read its output went away before the end";

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// None of the others.
    Other = 1,
    /// What was asked for makes no sense. The argument parser uses this code too.
    Arguments = 2,
    /// An address cannot be resolved or bound.
    Address = 3,
    /// The connection could not be made or broke.
    Connection = 4,
    /// The peer sent something else than it should have.
    Content = 5,
    /// The time was up.
    Timeout = 6,
    /// The server's certificate is not to be trusted.
    Certificate = 7,
    /// The output cannot be written.
    Output = 8,
    /// An HTTP status of 400 or above.
    Status = 9,
    /// The server or the network stopped in the middle.
    Incomplete = 10,
    /// A server's endpoint failed while it served.
    Endpoint = 11,
    /// A signal ended it.
    Interrupted = 130,
}

/// A command's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Which exit code it is.
    pub(crate) kind: Kind,
    /// What was wrong, in one line.
    pub(crate) message: String,
    /// Nobody reads stdout any more, as after `| head`: nothing to speak of.
    pub(crate) unread: bool,
}

/// Longest message, in characters: several paths, and what several addresses had to
/// say.
const LONGEST: usize = 8_192;

/// What a shell calls the end by the signal that other tools end by when nobody
/// reads their output any more, SIGPIPE.
const UNREAD: u8 = 128 + 13;

impl Failure {
    /// A failure that `message` describes, which is made printable.
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            kind,
            message: printable::short(&message, LONGEST).into_owned(),
            unread: false,
        }
    }

    /// A failure caused by `error`, whose own causes are spelled out, which
    /// its `Display` alone may leave out.
    pub(crate) fn caused(kind: Kind, what: impl fmt::Display, error: &dyn Error) -> Self {
        let mut message = format!("{what}: {error}");
        let mut cause = error.source();
        while let Some(inner) = cause {
            let text = inner.to_string();
            // Many errors repeat their cause's words.
            if !message.ends_with(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            cause = inner.source();
        }
        Self::new(kind, message)
    }

    /// A failure to write what was asked for to stdout.
    pub(crate) fn stdout(error: &std::io::Error) -> Self {
        Self {
            unread: error.kind() == std::io::ErrorKind::BrokenPipe,
            ..Self::caused(Kind::Output, "cannot write to stdout", error)
        }
    }

    /// The process's exit code.
    pub(crate) fn code(&self) -> ExitCode {
        match self.unread {
            true => ExitCode::from(UNREAD),
            false => ExitCode::from(self.kind as u8),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Failure {}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(Kind::Other, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Outer(std::io::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("outer")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn causes_are_spelled_out_once() {
        let error = Outer(std::io::Error::other("inner"));
        let failure = Failure::caused(Kind::Address, "what", &error);
        assert_eq!(failure.message, "what: outer: inner");
        let again = Failure::caused(Kind::Address, "outer: inner", &std::io::Error::other("x"));
        assert_eq!(again.message, "outer: inner: x");
    }

    #[test]
    fn each_kind_is_documented() {
        for kind in [
            Kind::Other,
            Kind::Arguments,
            Kind::Address,
            Kind::Connection,
            Kind::Content,
            Kind::Timeout,
            Kind::Certificate,
            Kind::Output,
            Kind::Status,
            Kind::Incomplete,
            Kind::Endpoint,
            Kind::Interrupted,
        ] {
            let line = format!("\n  {}  ", kind as u8);
            assert!(EXIT_CODES.contains(&line), "{kind:?}");
        }
        assert!(EXIT_CODES.contains(&format!("\n  {UNREAD}  ")));
    }
}
