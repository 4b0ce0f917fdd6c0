//! Errors of receiving.

use std::fmt;
use std::io;

/// Why a receive call returned no message.
#[derive(Debug)]
pub enum RecvError {
    /// No datagram is waiting: wait until the socket is readable.
    WouldBlock,
    /// The system currently fails to receive, for a reason that may be temporary (such as lack of
    /// memory). Call again after a pause: the socket may be readable all the time.
    Unavailable(io::Error),
    /// The socket itself is broken: no later call will succeed.
    Broken(io::Error),
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldBlock => f.write_str("no datagram is waiting"),
            Self::Unavailable(error) => {
                write!(
                    f,
                    "temporary failure of receiving on the UDP socket: {error}"
                )
            }
            Self::Broken(error) => write!(f, "the UDP socket can no longer receive: {error}"),
        }
    }
}

impl std::error::Error for RecvError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unavailable(error) | Self::Broken(error) => Some(error),
            Self::WouldBlock => None,
        }
    }
}

impl From<RecvError> for io::Error {
    fn from(error: RecvError) -> Self {
        match error {
            RecvError::WouldBlock => io::ErrorKind::WouldBlock.into(),
            RecvError::Unavailable(error) | RecvError::Broken(error) => error,
        }
    }
}
