//! Sending trains of datagrams.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use clearway_quic::Instant;
use clearway_quic::connection::Transmit;
use clearway_quic::path::ecn::Mark;
use clearway_udp::{DatagramSocket, Ecn, MAX_TRAIN, SendError};

use crate::log_limit::LogLimiter;

/// How long a train waits for the socket to be writable before it is tried again without that,
/// doubling from the minimum to the maximum. The kernel returns "try again" for a reason that
/// no writable event follows (an IPsec association that is being negotiated), and a lost event
/// must not stop a shard.
const MIN_RESEND_WAIT: Duration = Duration::from_millis(10);
const MAX_RESEND_WAIT: Duration = Duration::from_secs(1);

/// The result of sending a train.
#[derive(Debug)]
pub(super) enum SendOutcome {
    /// It was passed to the network.
    Sent,
    /// The host dropped it, which the transport handles as a loss.
    Dropped,
    /// Kept until the socket is writable; nothing else may be sent before.
    Blocked,
    /// Datagrams of this size, in bytes, exceed the MTU of the first link.
    TooLarge(usize),
    /// The socket failed permanently.
    Broken(io::Error),
}

/// The buffer of a train, and the rest of a train that the socket has not sent yet.
#[derive(Debug)]
pub(super) struct Transmitter {
    pub(super) train: Box<[u8]>,
    blocked: Option<Train>,
    /// When a blocked train is tried again without a writable event, and how long it waits for
    /// that.
    resend_at: Option<Instant>,
    wait_time: Duration,
    drops: LogLimiter,
}

#[derive(Debug)]
struct Train {
    remote: SocketAddr,
    local_ip: Option<IpAddr>,
    ecn: Option<Ecn>,
    contents: Range<usize>,
    segment: Option<usize>,
}

impl Transmitter {
    pub(super) fn new() -> Self {
        Self {
            train: vec![0; MAX_TRAIN].into_boxed_slice(),
            blocked: None,
            resend_at: None,
            wait_time: Duration::ZERO,
            drops: LogLimiter::default(),
        }
    }

    /// Whether a train waits for the socket.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// Forgets a blocked train, because the socket was replaced.
    pub(super) fn forget(&mut self) {
        self.blocked = None;
        self.resend_at = None;
    }

    /// Returns when to try a blocked train again without a writable event.
    pub(super) fn resend_at(&self) -> Option<Instant> {
        self.resend_at
    }

    /// Sends the train that `transmit` describes, from `self.train`.
    pub(super) fn send(
        &mut self,
        socket: &dyn DatagramSocket,
        transmit: &Transmit,
        now: Instant,
    ) -> SendOutcome {
        self.wait_time = Duration::ZERO;
        self.offer(
            socket,
            now,
            Train {
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

    /// Tries a blocked train again.
    pub(super) fn resend(&mut self, socket: &dyn DatagramSocket, now: Instant) -> SendOutcome {
        match self.blocked.take() {
            Some(train) => self.offer(socket, now, train),
            None => SendOutcome::Sent,
        }
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "a train is used up: the rest of it is another"
    )]
    fn offer(&mut self, socket: &dyn DatagramSocket, now: Instant, train: Train) -> SendOutcome {
        self.resend_at = None;
        let mut transmit = clearway_udp::Transmit {
            remote: train.remote,
            local_ip: train.local_ip,
            ecn: train.ecn,
            // Always in bounds: `transmit` wrote there.
            contents: self.train.get(train.contents.clone()).unwrap_or(&[]),
            segment_size: train.segment,
        };
        match socket.send(&mut transmit) {
            Ok(()) => SendOutcome::Sent,
            Err(SendError::WouldBlock) => {
                let left = transmit.contents.len();
                let start = train.contents.end.saturating_sub(left);
                self.blocked = Some(Train {
                    contents: start..train.contents.end,
                    ..train
                });
                self.wait_time = self
                    .wait_time
                    .saturating_mul(2)
                    .clamp(MIN_RESEND_WAIT, MAX_RESEND_WAIT);
                self.resend_at = Some(now + self.wait_time);
                SendOutcome::Blocked
            }
            Err(SendError::TooLarge) => {
                SendOutcome::TooLarge(train.segment.unwrap_or(transmit.contents.len()))
            }
            Err(SendError::Dropped(kind)) => {
                if let Some(suppressed) = self.drops.record(now) {
                    let error = SendError::Dropped(kind);
                    tracing::debug!(remote = %train.remote, suppressed, "a train of datagrams was dropped: {error}");
                }
                SendOutcome::Dropped
            }
            Err(SendError::Broken(error)) => SendOutcome::Broken(error),
        }
    }
}

/// Sends one datagram without a connection. Returns whether it was sent.
pub(super) fn send_datagram(
    socket: &dyn DatagramSocket,
    remote: SocketAddr,
    local_ip: Option<IpAddr>,
    datagram: &[u8],
) -> bool {
    let mut transmit = clearway_udp::Transmit::new(remote, datagram);
    transmit.local_ip = local_ip;
    socket.send(&mut transmit).is_ok()
}
