//! Failures of commands: one line for people, one exit code for scripts.

use core::fmt;
use std::error::Error;
use std::process::ExitCode;

use crate::printable;

/// What the exit codes mean, for `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  any other failure
  2  invalid arguments, or a file named in them cannot be used
  3  an address cannot be resolved or bound
  4  the connection failed
  5  the content received differs from what was sent
  6  timed out
  7  the server's certificate was rejected
  8  the output cannot be written
  9  the server answered with a redirect, or with an HTTP status of 400 or above
  10  the transfer ended before it was complete
  11  the server's endpoint failed, for example because of a socket error
  12  a probe found deviations
  130  interrupted by a signal
  141  the reader of standard output closed it early";

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Any other failure.
    Other = 1,
    /// Invalid arguments. The argument parser uses this exit code too.
    Arguments = 2,
    /// An address cannot be resolved or bound.
    Address = 3,
    /// The connection could not be established, or broke.
    Connection = 4,
    /// The peer sent wrong content.
    Content = 5,
    /// A time limit was reached.
    Timeout = 6,
    /// The server's certificate is not trusted.
    Certificate = 7,
    /// The output cannot be written.
    Output = 8,
    /// A redirect, or an HTTP status of 400 or above.
    Status = 9,
    /// The transfer was interrupted by the server or the network.
    Incomplete = 10,
    /// A server's endpoint failed while serving.
    Endpoint = 11,
    /// A probed server deviates from what is specified.
    Deviation = 12,
    /// A signal ended the command.
    Interrupted = 130,
}

/// A command's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The kind, which determines the exit code.
    pub(crate) kind: Kind,
    /// The message, in one line.
    pub(crate) message: String,
    /// The reader of stdout has gone away, as after `| head`: no message is printed.
    pub(crate) unread: bool,
}

/// Maximum length of a message, in characters: room for several paths, and errors of several
/// addresses.
const LONGEST: usize = 8_192;

/// The exit code that a shell reports for tools ended by SIGPIPE because nobody reads their output.
const UNREAD: u8 = 128 + 13;

impl Failure {
    /// A failure with the given message, which is made printable.
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            kind,
            message: printable::short(&message, LONGEST).into_owned(),
            unread: false,
        }
    }

    /// A failure caused by `error`, followed by its sources, which its `Display` may omit.
    pub(crate) fn caused(kind: Kind, what: impl fmt::Display, error: &dyn Error) -> Self {
        let mut message = format!("{what}: {error}");
        let mut cause = error.source();
        while let Some(inner) = cause {
            let text = inner.to_string();
            // Many errors repeat the text of their source.
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
    fn error_chain_names_each_cause_once() {
        let error = Outer(std::io::Error::other("inner"));
        let failure = Failure::caused(Kind::Address, "what", &error);
        assert_eq!(failure.message, "what: outer: inner");
        let again = Failure::caused(Kind::Address, "outer: inner", &std::io::Error::other("x"));
        assert_eq!(again.message, "outer: inner: x");
    }

    #[test]
    fn every_exit_code_is_documented() {
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
            Kind::Deviation,
            Kind::Interrupted,
        ] {
            let line = format!("\n  {}  ", kind as u8);
            assert!(EXIT_CODES.contains(&line), "{kind:?}");
        }
        assert!(EXIT_CODES.contains(&format!("\n  {UNREAD}  ")));
    }
}
