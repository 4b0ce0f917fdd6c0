//! Why nothing came in.

use std::fmt;
use std::io;

/// Why a receive call brought nothing.
#[derive(Debug)]
pub enum RecvError {
    /// Nothing waits: wait until the socket is readable.
    WouldBlock,
    /// The system fails to receive at the moment, for a reason that may pass (out of memory,
    /// say). Call again after a pause: the socket may be readable all the while.
    Unavailable(io::Error),
    /// The socket itself is broken: no later call will receive.
    Broken(io::Error),
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldBlock => f.write_str("no datagram is waiting"),
            Self::Unavailable(error) => {
                write!(
                    f,
                    "receiving on the UDP socket fails at the moment: {error}"
                )
            }
            Self::Broken(error) => write!(f, "the UDP socket cannot receive any more: {error}"),
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
