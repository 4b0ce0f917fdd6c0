//! Sending trains.

use std::array;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use super::address::{Name, packet_info_v4, packet_info_v6};
use super::cmsg::Control;
use super::errno::{Sending, sending};
use super::sys::Message;
use super::{Backend, OLD_MAX_SEGMENTS, errno_of};
use crate::{DropKind, MAX_SLOTS, SendError, Transmit};

/// Times a message is offered that fails with an errno which may be an ICMP error's about
/// another: twice, then twice more with the kernel told to report no ICMP. An error may still
/// be under way on another processor when it is told; the second time there is none.
const DOUBTS: u32 = 4;

/// Of these, how many before it is told.
const DOUBTS_WHILE_LISTENING: u32 = 2;

/// Times a message is offered that the kernel objects to, or fails for no known reason: an
/// errno that `recvmmsg` left on the socket is gone the second time.
const OBJECTIONS: u32 = 2;

/// Times a message is offered that was interrupted.
const INTERRUPTIONS: u32 = 16;

/// Why a message did not go, for certain.
#[derive(Debug)]
struct Failure {
    meaning: Sending,
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
            // What stopped the run, or did not fit in it, goes by itself: that way knows what
            // to do about each refusal.
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

    /// Sends those at the front that take one message each with one call; returns how many went.
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
        let messages: [Message<'_>; MAX_SLOTS] = array::from_fn(|index| {
            transmits
                .get(index)
                .filter(|_| index < run)
                .and_then(|transmit| self.message(transmit, transmit.contents.len()))
                .unwrap_or(Message {
                    name: Name::EMPTY,
                    control: Control::EMPTY,
                    contents: &[],
                })
        });
        // A message without a name has no way out: `send` says so of its transmit.
        let named = messages
            .iter()
            .take_while(|message| !message.name.as_bytes().is_empty())
            .count();
        let Some(messages) = messages.get(..named).filter(|named| !named.is_empty()) else {
            return 0;
        };
        self.tally.send_calls.add(1);
        let went = match self.kernel.sendmmsg(self.socket.as_fd(), messages) {
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

    /// The first message of a run failed; `send` will offer it again by itself and decide.
    fn run_failed(&self, errno: i32) {
        match sending(errno) {
            Sending::Doubtful(_) | Sending::TooLarge => self.note_pending(),
            // A system call filter from before `sendmmsg`: what it does, `sendmsg` does too.
            Sending::Broken if errno == libc::ENOSYS => {
                self.can_send_many.store(false, Ordering::Relaxed);
            }
            Sending::Again
            | Sending::Wait
            | Sending::Lost(_)
            | Sending::Objection
            | Sending::Unexplained
            | Sending::Broken => {}
        }
    }

    /// One message with the first `bytes` of `transmit`; `None` if its remote address is not of
    /// this socket's family.
    fn message<'a>(&self, transmit: &Transmit<'a>, bytes: usize) -> Option<Message<'a>> {
        let name = Name::encode(transmit.remote, self.is_v6)?;
        let mut control = Control::EMPTY;
        // On a dual-stack socket a mapped address takes the IPv4 road, and reads its options.
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

    /// One message with the first `bytes`, offered until its answer is certain to be about it.
    fn send_front(&self, transmit: &Transmit<'_>, bytes: usize) -> Result<(), Failure> {
        let Some(message) = self.message(transmit, bytes) else {
            return Err(Failure::new(libc::EAFNOSUPPORT));
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
                Sending::Again => {
                    interruptions = interruptions.saturating_add(1);
                    interruptions == INTERRUPTIONS
                }
                Sending::Doubtful(_) | Sending::TooLarge => {
                    self.note_pending();
                    // With no ICMP reported to begin with, the first pair of offers is saved.
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
                Sending::Objection | Sending::Unexplained => {
                    objections = objections.saturating_add(1);
                    objections == OBJECTIONS
                }
                Sending::Wait | Sending::Lost(_) | Sending::Broken => true,
            };
            if answered {
                return Err(Failure { meaning, error });
            }
        }
    }

    /// A train failed, maybe for being one: sends its first datagram alone, whose error is the
    /// answer if it fails too. If it does not, the refusal of the train is proven.
    fn send_singly(
        &self,
        transmit: &mut Transmit<'_>,
        failure: &Failure,
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

    /// What a caller hears of a failure.
    fn failed(&self, transmit: &Transmit<'_>, failure: Failure) -> SendError {
        let Failure { meaning, error } = failure;
        let errno = errno_of(&error);
        let failure = match meaning {
            Sending::Wait => SendError::WouldBlock,
            Sending::TooLarge => SendError::TooLarge,
            Sending::Lost(kind) | Sending::Doubtful(kind) => SendError::Dropped(kind),
            // A source address that is not this host's, or a remote one that cannot be (port
            // 0, a route to nowhere).
            Sending::Objection if errno == libc::EINVAL && transmit.local_ip.is_some() => {
                SendError::Dropped(DropKind::NoSuchSource)
            }
            Sending::Objection if errno == libc::EINVAL => {
                SendError::Dropped(DropKind::Unreachable)
            }
            Sending::Again | Sending::Objection | Sending::Unexplained => {
                self.tally.unexplained_errors.add(1);
                if self.send_streak.add(self.kernel.now()) {
                    SendError::Broken(error)
                } else {
                    SendError::Dropped(DropKind::Other(errno))
                }
            }
            Sending::Broken => SendError::Broken(error),
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

impl Failure {
    fn new(errno: i32) -> Self {
        Self {
            meaning: sending(errno),
            error: io::Error::from_raw_os_error(errno),
        }
    }

    /// Whether it may mean "not as a train" rather than "not at all".
    fn may_be_about_the_train(&self) -> bool {
        match self.meaning {
            Sending::Objection | Sending::TooLarge | Sending::Unexplained => true,
            Sending::Again
            | Sending::Wait
            | Sending::Lost(_)
            | Sending::Doubtful(_)
            | Sending::Broken => false,
        }
    }
}
