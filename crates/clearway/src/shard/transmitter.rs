//! The way out: trains, and what the socket says to them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use clearway_quic::Instant;
use clearway_quic::connection::Transmit;
use clearway_quic::path::ecn::Mark;
use clearway_udp::{DatagramSocket, Ecn, MAX_TRAIN, SendError};

use crate::log_limit::LogLimiter;

/// How long a train waits for the socket to be writable before it is offered unasked. The
/// kernel says "try again" for one reason that no edge follows (an IPsec association under
/// negotiation), and one lost edge must not silence a shard. Doubles from the first to the last.
const MIN_RESEND_WAIT: Duration = Duration::from_millis(10);
const MAX_RESEND_WAIT: Duration = Duration::from_secs(1);

/// What became of a train.
#[derive(Debug)]
pub(super) enum SendOutcome {
    /// On its way.
    Sent,
    /// Thrown away by the host, which the transport will take for a loss.
    Dropped,
    /// Kept until the socket is writable; nothing else may be sent before.
    Blocked,
    /// Datagrams of this many bytes are larger than the first link takes.
    TooLarge(usize),
    /// The socket is broken.
    Broken(io::Error),
}

/// The train under construction, or the rest of one that the socket would not
/// take yet.
#[derive(Debug)]
pub(super) struct Transmitter {
    pub(super) train: Box<[u8]>,
    blocked: Option<Train>,
    /// When what is kept is offered whether or not the socket is writable, and how long that
    /// was waited for.
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

    /// Another socket will not want to know.
    pub(super) fn forget(&mut self) {
        self.blocked = None;
        self.resend_at = None;
    }

    /// When to offer what is kept, if the socket has not been writable by then.
    pub(super) fn resend_at(&self) -> Option<Instant> {
        self.resend_at
    }

    /// Sends what `transmit` wrote to `self.train`.
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

    /// Offers what was kept again.
    pub(super) fn resend(&mut self, socket: &dyn DatagramSocket, now: Instant) -> SendOutcome {
        match self.blocked.take() {
            Some(train) => self.offer(socket, now, train),
            None => SendOutcome::Sent,
        }
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "a train is offered once: what the socket leaves is another"
    )]
    fn offer(&mut self, socket: &dyn DatagramSocket, now: Instant, train: Train) -> SendOutcome {
        self.resend_at = None;
        let mut transmit = clearway_udp::Transmit {
            remote: train.remote,
            local_ip: train.local_ip,
            ecn: train.ecn,
            // Never out of bounds: it is where `transmit` wrote, or a part of that.
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

/// Sends one datagram that nobody waits for; whether it left.
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
