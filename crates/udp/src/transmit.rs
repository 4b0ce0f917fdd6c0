//! Datagrams to send, and the errors of sending.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::Ecn;

/// Maximum length of a train in one system call, in bytes: IPv4's 65,535 less the IP and UDP
/// headers.
pub const MAX_TRAIN: usize = 65_507;

/// A train of datagrams to one remote address. All but the last are `segment_size` bytes long.
#[derive(Clone, Debug)]
pub struct Transmit<'a> {
    /// Destination address.
    pub remote: SocketAddr,
    /// Source address to send from; the kernel's choice if `None`.
    pub local_ip: Option<IpAddr>,
    /// ECN codepoint for every datagram of the train.
    pub ecn: Option<Ecn>,
    /// The datagrams, end to end, of any total length. Sending removes what was sent from the
    /// front.
    pub contents: &'a [u8],
    /// Length of each datagram but the last, in bytes; `None` if `contents` is one datagram.
    pub segment_size: Option<usize>,
}

impl<'a> Transmit<'a> {
    /// Creates a single datagram, Not-ECT, from a source address that the kernel chooses.
    #[must_use]
    pub fn new(remote: SocketAddr, contents: &'a [u8]) -> Self {
        Self {
            remote,
            local_ip: None,
            ecn: None,
            contents,
            segment_size: None,
        }
    }

    /// Length of one datagram, in bytes; at least 1, so that it can be a divisor.
    pub(crate) fn segment(&self) -> usize {
        match self.segment_size {
            Some(size) if size > 0 => size,
            _ => self.contents.len().max(1),
        }
    }

    /// Number of bytes at the front of `contents` that fit into one message of at most `limit`
    /// datagrams, and how many datagrams those are.
    pub(crate) fn front(&self, limit: usize) -> (usize, usize) {
        let segment = self.segment();
        let segments = MAX_TRAIN.checked_div(segment).unwrap_or(1);
        let segments = segments.clamp(1, limit.max(1));
        let bytes = self.contents.len().min(segment.saturating_mul(segments));
        (bytes, bytes.div_ceil(segment).max(1))
    }
}

/// Why the network stack dropped a datagram. QUIC treats each as a loss and recovers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropKind {
    /// An interface queue or kernel memory was full (`ENOBUFS`, `ENOMEM`).
    NoBuffers,
    /// An earlier datagram met a closed port (`ECONNREFUSED`).
    Refused,
    /// No route, interface or neighbour, or an address family that this socket does not support.
    Unreachable,
    /// A local packet filter or policy rejected it (`EPERM`, `EACCES`).
    Forbidden,
    /// The requested source address does not, or no longer, belong to this host.
    NoSuchSource,
    /// The system failed with an error code that is not documented for sending, as a packet filter
    /// or sandbox may return. If there are only such errors for long, the socket counts as broken.
    Other(i32),
}

/// Why a send did not complete.
#[derive(Debug)]
pub enum SendError {
    /// The socket's buffer is full: wait until it is writable, then send what is left of the
    /// same [`Transmit`].
    WouldBlock,
    /// A datagram is larger than the local link's MTU or UDP allows: path MTU discovery should take
    /// note. Nothing of what is left in the [`Transmit`] was sent.
    TooLarge,
    /// Dropped locally; treat what is left in the [`Transmit`] as lost and continue.
    Dropped(DropKind),
    /// The socket itself is broken: no later call will succeed.
    Broken(io::Error),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldBlock => f.write_str("the socket's send buffer is full"),
            Self::TooLarge => f.write_str("the datagram is larger than the local link's MTU"),
            Self::Dropped(DropKind::NoBuffers) => f.write_str("dropped: a local queue is full"),
            Self::Dropped(DropKind::Refused) => f.write_str("dropped: the remote port is closed"),
            Self::Dropped(DropKind::Unreachable) => {
                f.write_str("dropped: no route to the remote address")
            }
            Self::Dropped(DropKind::Forbidden) => {
                f.write_str("dropped: blocked by a local packet filter")
            }
            Self::Dropped(DropKind::NoSuchSource) => {
                f.write_str("dropped: the source address does not belong to this host")
            }
            Self::Dropped(DropKind::Other(code)) => {
                let error = io::Error::from_raw_os_error(*code);
                write!(f, "dropped: the system failed to send: {error}")
            }
            Self::Broken(error) => write!(f, "the UDP socket can no longer send: {error}"),
        }
    }
}

impl std::error::Error for SendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Broken(error) => Some(error),
            Self::WouldBlock | Self::TooLarge | Self::Dropped(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transmit(contents: &[u8], segment_size: Option<usize>) -> Transmit<'_> {
        Transmit {
            segment_size,
            ..Transmit::new(([127, 0, 0, 1], 1).into(), contents)
        }
    }

    #[test]
    fn message_holds_whole_segments_within_both_limits() {
        let bytes = vec![0; 200_000];
        // 45 × 1,452 = 65,340: the largest train a message holds.
        assert_eq!(transmit(&bytes, Some(1452)).front(128), (65_340, 45));
        assert_eq!(transmit(&bytes, Some(100)).front(64), (6_400, 64));
        assert_eq!(transmit(&bytes, Some(1452)).front(1), (1452, 1));
        assert_eq!(transmit(&bytes[..3000], Some(1452)).front(64), (3000, 3));
        assert_eq!(transmit(&bytes[..1000], Some(1452)).front(64), (1000, 1));
        assert_eq!(transmit(&bytes, None).front(64), (200_000, 1));
        assert_eq!(transmit(&[], None).front(64), (0, 1));
        assert_eq!(transmit(&bytes[..9], Some(0)).front(64), (9, 1));
        assert_eq!(transmit(&bytes, Some(usize::MAX)).front(64), (200_000, 1));
    }
}
