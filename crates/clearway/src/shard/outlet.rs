//! The way out: trains, and what the socket says to them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use clearway_quic::connection::Transmit;
use clearway_quic::path::ecn::Mark;
use clearway_udp::{DatagramSocket, Ecn, MAX_TRAIN, SendError};

/// What became of a train.
#[derive(Debug)]
pub(super) enum Sent {
    /// On its way.
    Taken,
    /// Thrown away by the host, which the transport will take for a loss.
    Dropped,
    /// Kept until the socket is writable; nothing else may leave before.
    Kept,
    /// Datagrams of this many bytes are larger than the first link takes.
    TooLarge(usize),
    /// The socket is broken.
    Broken(io::Error),
}

/// The train under construction, or the rest of one that the socket would not
/// take yet.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) train: Box<[u8]>,
    kept: Option<Kept>,
}

#[derive(Debug)]
struct Kept {
    remote: SocketAddr,
    local_ip: Option<IpAddr>,
    ecn: Option<Ecn>,
    contents: Range<usize>,
    segment: Option<usize>,
}

impl Outlet {
    pub(super) fn new() -> Self {
        Self {
            train: vec![0; MAX_TRAIN].into_boxed_slice(),
            kept: None,
        }
    }

    /// Whether a train waits for the socket.
    pub(super) fn is_blocked(&self) -> bool {
        self.kept.is_some()
    }

    /// Another socket will not want to know.
    pub(super) fn forget(&mut self) {
        self.kept = None;
    }

    /// Sends what `transmit` wrote to `self.train`.
    pub(super) fn send(&mut self, socket: &dyn DatagramSocket, transmit: &Transmit) -> Sent {
        self.offer(
            socket,
            Kept {
                remote: transmit.remote,
                local_ip: transmit.local_ip,
                ecn: match transmit.ecn {
                    Mark::NotEct => None,
                    Mark::Ect0 => Some(Ecn::Ect0),
                    Mark::Ect1 => Some(Ecn::Ect1),
                },
                contents: 0..transmit.len,
                segment: transmit.segment,
            },
        )
    }

    /// Offers what was kept again.
    pub(super) fn resend(&mut self, socket: &dyn DatagramSocket) -> Sent {
        match self.kept.take() {
            Some(kept) => self.offer(socket, kept),
            None => Sent::Taken,
        }
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "a train is offered once: what the socket leaves is another"
    )]
    fn offer(&mut self, socket: &dyn DatagramSocket, train: Kept) -> Sent {
        let mut transmit = clearway_udp::Transmit {
            remote: train.remote,
            local_ip: train.local_ip,
            ecn: train.ecn,
            contents: &self.train[train.contents.clone()],
            segment_size: train.segment,
        };
        match socket.send(&mut transmit) {
            Ok(()) => Sent::Taken,
            Err(SendError::WouldBlock) => {
                let start = train.contents.end - transmit.contents.len();
                self.kept = Some(Kept {
                    contents: start..train.contents.end,
                    ..train
                });
                Sent::Kept
            }
            Err(SendError::TooLarge) => {
                Sent::TooLarge(train.segment.unwrap_or(transmit.contents.len()))
            }
            Err(SendError::Dropped(kind)) => {
                tracing::debug!(remote = %train.remote, ?kind, "the host dropped a train");
                Sent::Dropped
            }
            Err(SendError::Broken(error)) => Sent::Broken(error),
        }
    }
}

/// Sends one datagram that nobody waits for; whether it left.
pub(super) fn answer(
    socket: &dyn DatagramSocket,
    remote: SocketAddr,
    local_ip: Option<IpAddr>,
    datagram: &[u8],
) -> bool {
    let mut transmit = clearway_udp::Transmit::new(remote, datagram);
    transmit.local_ip = local_ip;
    socket.send(&mut transmit).is_ok()
}
