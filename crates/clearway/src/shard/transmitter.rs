//! Sending trains of datagrams.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use clearway_quic::Instant;
use clearway_quic::connection::Transmit;
use clearway_quic::endpoint::ConnectionHandle;
use clearway_quic::path::ecn::Mark;
use clearway_udp::{DatagramSocket, Ecn, MAX_TRAIN, SendError};

use smallvec::SmallVec;

use crate::log_limit::LogLimiter;

/// How long a train waits for the socket to be writable before it is tried again without that,
/// doubling from the minimum to the maximum. The kernel returns "try again" for a reason that
/// no writable event follows (an IPsec association that is being negotiated), and a lost event
/// must not stop a shard.
const MIN_RESEND_WAIT: Duration = Duration::from_millis(10);
const MAX_RESEND_WAIT: Duration = Duration::from_secs(1);

/// Trains that wait to be sent together, at most: a call for so many costs little more for each
/// than the kernel's own work.
const MAX_WAITING: usize = 16;

/// A train of so many bytes leaves at once, with those before it: it keeps the kernel and the
/// peer busy.
const LARGE_TRAIN: usize = 16 * 1024;

/// What became of a train that was not sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum NotSent {
    /// Datagrams of this size, in bytes, exceed the MTU of the first link.
    TooLarge(usize),
    /// Kept until the socket is writable; nothing else may be sent before.
    Blocked,
}

/// The buffer of trains, those that wait to be sent together, and what the socket has not sent
/// yet.
#[derive(Debug)]
pub(super) struct Transmitter {
    /// Room for trains that wait, and for a whole one behind them.
    buffer: Box<[u8]>,
    /// Bytes of the buffer that are used by trains that wait.
    used: usize,
    waiting: VecDeque<Train>,
    /// The socket was full.
    is_blocked: bool,
    /// When blocked trains are tried again without a writable event, and how long they wait for
    /// that.
    resend_at: Option<Instant>,
    wait_time: Duration,
    drops: LogLimiter,
}

#[derive(Debug)]
struct Train {
    connection: ConnectionHandle,
    remote: SocketAddr,
    local_ip: Option<IpAddr>,
    ecn: Option<Ecn>,
    contents: Range<usize>,
    segment: Option<usize>,
}

impl Transmitter {
    pub(super) fn new() -> Self {
        Self {
            buffer: vec![0; MAX_TRAIN.saturating_mul(2)].into_boxed_slice(),
            used: 0,
            waiting: VecDeque::with_capacity(MAX_WAITING),
            is_blocked: false,
            resend_at: None,
            wait_time: Duration::ZERO,
            drops: LogLimiter::default(),
        }
    }

    /// Whether trains wait for the socket.
    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Forgets all trains, because the socket was replaced.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
        self.used = 0;
        self.is_blocked = false;
        self.resend_at = None;
    }

    /// Returns when to try blocked trains again without a writable event.
    pub(super) fn resend_at(&self) -> Option<Instant> {
        self.resend_at
    }

    /// Returns the room for the next train. Not to be called while it is blocked.
    pub(super) fn room(&mut self) -> &mut [u8] {
        let end = self.used.saturating_add(MAX_TRAIN);
        self.buffer.get_mut(self.used..end).unwrap_or_default()
    }

    /// Adds the train that was written into the [room](Self::room). Returns whether to
    /// [send](Self::send) now: there are `most` trains, or too little room for another.
    pub(super) fn push(
        &mut self,
        connection: ConnectionHandle,
        transmit: &Transmit,
        most: usize,
    ) -> bool {
        let end = self.used.saturating_add(transmit.len);
        self.waiting.push_back(Train {
            connection,
            remote: transmit.remote,
            local_ip: transmit.local_ip,
            ecn: match transmit.ecn {
                Mark::NotEct => None,
                Mark::Ect0 => Some(Ecn::Ect0),
                Mark::Ect1 => Some(Ecn::Ect1),
            },
            contents: self.used..end,
            segment: transmit.segment,
        });
        self.used = end;
        transmit.len >= LARGE_TRAIN
            || self.waiting.len() >= most.min(MAX_WAITING)
            || self.buffer.len().saturating_sub(self.used) < MAX_TRAIN
    }

    /// Sends the trains that wait, as far as the socket accepts them. Calls `on_not_sent` for
    /// connections whose trains were not sent.
    ///
    /// # Errors
    /// If the socket failed permanently.
    pub(super) fn send(
        &mut self,
        socket: &dyn DatagramSocket,
        now: Instant,
        mut on_not_sent: impl FnMut(ConnectionHandle, NotSent),
    ) -> io::Result<()> {
        if !std::mem::replace(&mut self.is_blocked, false) {
            self.wait_time = Duration::ZERO;
        }
        self.resend_at = None;
        while !self.waiting.is_empty() {
            let Err(error) = self.offer(socket) else {
                continue;
            };
            match error {
                SendError::WouldBlock => {
                    self.block(now);
                    for train in &self.waiting {
                        on_not_sent(train.connection, NotSent::Blocked);
                    }
                    return Ok(());
                }
                SendError::TooLarge => {
                    if let Some(train) = self.waiting.pop_front() {
                        let size = train.segment.unwrap_or(train.contents.len());
                        on_not_sent(train.connection, NotSent::TooLarge(size));
                    }
                }
                SendError::Dropped(kind) => {
                    // The transport handles it as a loss.
                    let train = self.waiting.pop_front();
                    if let Some(suppressed) = self.drops.record(now) {
                        let error = SendError::Dropped(kind);
                        let remote = train.map(|train| train.remote);
                        tracing::debug!(
                            ?remote,
                            suppressed,
                            "a train of datagrams was dropped: {error}"
                        );
                    }
                }
                SendError::Broken(error) => return Err(error),
            }
        }
        self.used = 0;
        Ok(())
    }

    /// Makes one send call, and removes what was sent.
    fn offer(&mut self, socket: &dyn DatagramSocket) -> Result<(), SendError> {
        let mut transmits: SmallVec<[clearway_udp::Transmit<'_>; MAX_WAITING]> = self
            .waiting
            .iter()
            .map(|train| clearway_udp::Transmit {
                remote: train.remote,
                local_ip: train.local_ip,
                ecn: train.ecn,
                // Always in bounds: `transmit` wrote there.
                contents: self.buffer.get(train.contents.clone()).unwrap_or(&[]),
                segment_size: train.segment,
            })
            .collect();
        let offered = match &mut transmits[..] {
            [one] => socket.send(one).map(|()| 1),
            several => socket.send_many(several),
        };
        let sent = *offered.as_ref().unwrap_or(&0);
        let left = transmits.get(sent).map(|next| next.contents.len());
        self.waiting.drain(..sent.min(self.waiting.len()));
        if let (Some(next), Some(left)) = (self.waiting.front_mut(), left) {
            next.contents.start = next.contents.end.saturating_sub(left);
        }
        offered.map(|_| ())
    }

    fn block(&mut self, now: Instant) {
        self.is_blocked = true;
        self.wait_time = self
            .wait_time
            .saturating_mul(2)
            .clamp(MIN_RESEND_WAIT, MAX_RESEND_WAIT);
        self.resend_at = Some(now + self.wait_time);
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
