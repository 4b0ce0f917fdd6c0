//! Sending trains.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::address::{SockAddr, packet_info_v4, packet_info_v6};
use super::cmsg::SentControl;
use super::errno::{SendErrno, sending};
use super::sys::Message;
use super::{Backend, OLD_MAX_SEGMENTS, errno_of};
use crate::{DropKind, MAX_SLOTS, SendError, Transmit};

/// How often a message is sent again after an errno that may belong to an ICMP error about another
/// datagram: twice, then twice more with ICMP reports switched off. An error may still be in
/// progress on another processor while they are switched off; the second time there is none.
const DOUBTS: u32 = 4;

/// Of these, how many before reports are switched off.
const DOUBTS_WHILE_LISTENING: u32 = 2;

/// How often a message is sent that the kernel rejects as invalid, or that fails for no known
/// reason: an errno that `recvmmsg` left on the socket is gone the second time.
const OBJECTIONS: u32 = 2;

/// How often a message is sent again after an interruption.
const INTERRUPTIONS: u32 = 16;

/// The confirmed reason why a message was not sent.
#[derive(Debug)]
struct SendFailure {
    meaning: SendErrno,
    error: io::Error,
}

impl Backend {
    pub(crate) fn send(&self, transmit: &mut Transmit<'_>) -> Result<(), SendError> {
        loop {
            let (bytes, segments) = transmit.front(self.gso_segments());
            match self.send_front(transmit, bytes) {
                Ok(()) => {}
                Err(failure) if segments > 1 && failure.may_be_about_the_train() => {
                    self.send_singly(transmit, &failure, segments)?;
                    continue;
                }
                Err(failure) => return Err(self.failed(transmit, failure)),
            }
            self.advance(transmit, bytes, segments);
            if transmit.contents.is_empty() {
                return Ok(());
            }
        }
    }

    pub(crate) fn send_many(&self, transmits: &mut [Transmit<'_>]) -> Result<usize, SendError> {
        let mut taken: usize = 0;
        while let Some(rest) = transmits.get_mut(taken..).filter(|rest| !rest.is_empty()) {
            let went = self.send_run(rest);
            taken = taken.saturating_add(went);
            // The message that ended the run is sent by itself: that path handles each error.
            if let Some(next) = transmits.get_mut(taken).filter(|_| went < MAX_SLOTS) {
                match self.send(next) {
                    Ok(()) => taken = taken.saturating_add(1),
                    Err(error) if taken == 0 => return Err(error),
                    Err(_) => break,
                }
            }
        }
        Ok(taken)
    }

    /// Sends the messages at the front that take one message each with one call; returns how many
    /// were sent.
    fn send_run(&self, transmits: &mut [Transmit<'_>]) -> usize {
        let limit = self.gso_segments();
        let run = transmits
            .iter()
            .take(MAX_SLOTS)
            .take_while(|transmit| transmit.front(limit).0 == transmit.contents.len())
            .count();
        if run < 2 || !self.can_send_many.load(Ordering::Relaxed) {
            return 0;
        }
        // A message without an address cannot be sent: `send` returns the error for its transmit.
        let named = transmits
            .iter()
            .take(run)
            .map_while(|transmit| self.message(transmit, transmit.contents.len()));
        let mut messages = SmallVec::<[Message<'_>; MAX_SLOTS]>::new();
        messages.extend(named);
        if messages.is_empty() {
            return 0;
        }
        self.tally.send_calls.add(1);
        let went = match self.kernel.sendmmsg(self.socket.as_fd(), &messages) {
            Ok(went) => went,
            Err(error) => {
                self.run_failed(errno_of(&error));
                0
            }
        };
        for transmit in transmits.iter_mut().take(went) {
            let (bytes, segments) = transmit.front(limit);
            self.advance(transmit, bytes, segments);
        }
        went
    }

    /// The first message of a run failed; `send` will send it again by itself and decide.
    fn run_failed(&self, errno: i32) {
        match sending(errno) {
            SendErrno::Doubtful(_) | SendErrno::TooLarge => self.note_pending(),
            // A system call filter older than `sendmmsg` may reject it: `sendmsg` does the same.
            SendErrno::Broken if errno == libc::ENOSYS => {
                self.can_send_many.store(false, Ordering::Relaxed);
            }
            SendErrno::Again
            | SendErrno::Wait
            | SendErrno::Lost(_)
            | SendErrno::Objection
            | SendErrno::Unexplained
            | SendErrno::Broken => {}
        }
    }

    /// One message with the first `bytes` of `transmit`; `None` if its remote address is not of
    /// this socket's family.
    fn message<'a>(&self, transmit: &Transmit<'a>, bytes: usize) -> Option<Message<'a>> {
        let name = SockAddr::encode(transmit.remote, self.is_v6)?;
        let mut control = SentControl::EMPTY;
        // On a dual-stack socket a mapped address is sent as IPv4, and uses IPv4 options.
        let to_v4 = transmit.remote.ip().to_canonical().is_ipv4();
        if let Some(ecn) = transmit.ecn {
            let tos = i32::from(ecn.bits()).to_ne_bytes();
            if to_v4 {
                control.push(libc::SOL_IP, libc::IP_TOS, &tos);
            } else {
                control.push(libc::SOL_IPV6, libc::IPV6_TCLASS, &tos);
            }
        }
        match transmit.local_ip.map(|ip| ip.to_canonical()) {
            Some(IpAddr::V4(ip)) => {
                control.push(libc::SOL_IP, libc::IP_PKTINFO, &packet_info_v4(ip));
            }
            Some(IpAddr::V6(ip)) => {
                control.push(libc::SOL_IPV6, libc::IPV6_PKTINFO, &packet_info_v6(ip));
            }
            None => {}
        }
        let segment = transmit.segment();
        if bytes > segment {
            // `front` made a train of them, so a segment is at most half of MAX_TRAIN.
            control.push(
                libc::SOL_UDP,
                libc::UDP_SEGMENT,
                &(segment as u16).to_ne_bytes(),
            );
        }
        Some(Message {
            name,
            control,
            contents: transmit.contents.get(..bytes)?,
        })
    }

    /// Sends one message with the first `bytes`, and repeats it until the result is certain to be
    /// about it.
    fn send_front(&self, transmit: &Transmit<'_>, bytes: usize) -> Result<(), SendFailure> {
        let Some(message) = self.message(transmit, bytes) else {
            return Err(SendFailure::new(libc::EAFNOSUPPORT));
        };
        let (mut doubts, mut objections, mut interruptions) = (0_u32, 0_u32, 0_u32);
        loop {
            self.tally.send_calls.add(1);
            let Err(error) = self.kernel.sendmsg(self.socket.as_fd(), &message) else {
                self.send_streak.end();
                return Ok(());
            };
            let meaning = sending(errno_of(&error));
            let answered = match meaning {
                SendErrno::Again => {
                    interruptions = interruptions.saturating_add(1);
                    interruptions == INTERRUPTIONS
                }
                SendErrno::Doubtful(_) | SendErrno::TooLarge => {
                    self.note_pending();
                    // With ICMP reports already off, the first pair of attempts is skipped.
                    let least = if self.icmp.is_open() {
                        0
                    } else {
                        DOUBTS_WHILE_LISTENING
                    };
                    doubts = doubts.max(least).saturating_add(1);
                    if doubts == DOUBTS_WHILE_LISTENING {
                        self.stop_listening();
                    }
                    doubts == DOUBTS
                }
                SendErrno::Objection | SendErrno::Unexplained => {
                    objections = objections.saturating_add(1);
                    objections == OBJECTIONS
                }
                SendErrno::Wait | SendErrno::Lost(_) | SendErrno::Broken => true,
            };
            if answered {
                return Err(SendFailure { meaning, error });
            }
        }
    }

    /// A train failed, possibly because it is a train: sends its first datagram alone. If that
    /// fails too, its error is the result; if not, the rejection of the train is proven.
    fn send_singly(
        &self,
        transmit: &mut Transmit<'_>,
        failure: &SendFailure,
        segments: usize,
    ) -> Result<(), SendError> {
        let (bytes, _) = transmit.front(1);
        self.send_front(transmit, bytes)
            .map_err(|failure| self.failed(transmit, failure))?;
        self.advance(transmit, bytes, 1);
        self.tally.gso_refusals.add(1);
        let too_many = errno_of(&failure.error) == libc::EINVAL && segments > OLD_MAX_SEGMENTS;
        let limit = if too_many { OLD_MAX_SEGMENTS } else { 1 };
        self.offload
            .refused(self.kernel.now(), segments, limit, &failure.error);
        Ok(())
    }

    fn advance(&self, transmit: &mut Transmit<'_>, bytes: usize, segments: usize) {
        transmit.contents = transmit.contents.get(bytes..).unwrap_or_default();
        self.tally.sent_datagrams.add(segments as u64);
        self.tally.sent_bytes.add(bytes as u64);
        if segments > 1 {
            self.tally.gso_trains.add(1);
            self.offload.accepted(segments);
        }
    }

    /// The error that the caller gets for a failure.
    fn failed(&self, transmit: &Transmit<'_>, failure: SendFailure) -> SendError {
        let SendFailure { meaning, error } = failure;
        let errno = errno_of(&error);
        let failure = match meaning {
            SendErrno::Wait => SendError::WouldBlock,
            SendErrno::TooLarge => SendError::TooLarge,
            SendErrno::Lost(kind) | SendErrno::Doubtful(kind) => SendError::Dropped(kind),
            // A source address that is not this host's, or a remote one that cannot be (port
            // 0, a route to nowhere).
            SendErrno::Objection if errno == libc::EINVAL && transmit.local_ip.is_some() => {
                SendError::Dropped(DropKind::NoSuchSource)
            }
            SendErrno::Objection if errno == libc::EINVAL => {
                SendError::Dropped(DropKind::Unreachable)
            }
            SendErrno::Again | SendErrno::Objection | SendErrno::Unexplained => {
                self.tally.unexplained_errors.add(1);
                if self.send_streak.add(self.kernel.now()) {
                    SendError::Broken(error)
                } else {
                    SendError::Dropped(DropKind::Other(errno))
                }
            }
            SendErrno::Broken => SendError::Broken(error),
        };
        match &failure {
            SendError::WouldBlock => self.tally.send_blocked.add(1),
            SendError::TooLarge => self.tally.send_too_large.add(1),
            SendError::Dropped(_) => self.tally.send_drops.add(1),
            SendError::Broken(_) => {}
        }
        failure
    }
}

impl SendFailure {
    fn new(errno: i32) -> Self {
        Self {
            meaning: sending(errno),
            error: io::Error::from_raw_os_error(errno),
        }
    }

    /// Whether it may mean that only a train is rejected.
    fn may_be_about_the_train(&self) -> bool {
        match self.meaning {
            SendErrno::Objection | SendErrno::TooLarge | SendErrno::Unexplained => true,
            SendErrno::Again
            | SendErrno::Wait
            | SendErrno::Lost(_)
            | SendErrno::Doubtful(_)
            | SendErrno::Broken => false,
        }
    }
}
