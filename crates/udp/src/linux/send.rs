//! Sending trains.

use std::array;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use super::address::{Name, packet_info_v4, packet_info_v6};
use super::cmsg::Control;
use super::sys::Message;
use super::{Backend, OLD_MAX_SEGMENTS, errors, sys};
use crate::{DropKind, MAX_SLOTS, SendError, Transmit};

impl Backend {
    pub(crate) fn send(&self, transmit: &mut Transmit<'_>) -> Result<(), SendError> {
        loop {
            let limit = self.gso_segments();
            let (bytes, segments) = transmit.front(limit);
            match self.send_front(transmit, bytes) {
                Ok(()) => {}
                Err(error) if segments > 1 && refuses_train(&error) => {
                    self.distrust(transmit, &error, segments)?;
                    continue;
                }
                Err(error) => return Err(self.failed(transmit, error)),
            }
            self.advance(transmit, bytes, segments);
            if transmit.contents.is_empty() {
                return Ok(());
            }
        }
    }

    pub(crate) fn send_many(&self, transmits: &mut [Transmit<'_>]) -> Result<usize, SendError> {
        let mut taken = 0;
        while taken < transmits.len() {
            let rest = &mut transmits[taken..];
            let went = self.send_run(rest);
            taken += went;
            // What stopped the run, or did not fit in it, goes by itself: that way knows what
            // to do about each refusal.
            if let Some(next) = transmits.get_mut(taken).filter(|_| went < MAX_SLOTS) {
                match self.send(next) {
                    Ok(()) => taken += 1,
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
        if run < 2 {
            return 0;
        }
        let messages: [Message<'_>; MAX_SLOTS] = array::from_fn(|index| {
            transmits[..run]
                .get(index)
                .and_then(|transmit| self.message(transmit, transmit.contents.len()))
                .unwrap_or(Message {
                    name: Name::EMPTY,
                    control: Control::EMPTY,
                    contents: &[],
                })
        });
        // A message without a name has no way out: `send` says so of its transmit.
        let named = messages[..run]
            .iter()
            .take_while(|m| !m.name.as_bytes().is_empty())
            .count();
        if named == 0 {
            return 0;
        }
        self.tally.send_calls.add(1);
        let went = sys::sendmmsg(self.socket.as_fd(), &messages[..named]).unwrap_or_else(|error| {
            if errors::is_pending(&error) {
                self.note_pending();
            }
            0
        });
        for transmit in &mut transmits[..went] {
            let (bytes, segments) = transmit.front(limit);
            self.advance(transmit, bytes, segments);
        }
        went
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
            contents: &transmit.contents[..bytes],
        })
    }

    /// One message with the first `bytes`. An error that an earlier datagram left on the socket
    /// is cleared by being read; what comes back twice is about this message.
    fn send_front(&self, transmit: &Transmit<'_>, bytes: usize) -> io::Result<()> {
        let message = self
            .message(transmit, bytes)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))?;
        let mut second_try = false;
        loop {
            self.tally.send_calls.add(1);
            match sys::sendmsg(self.socket.as_fd(), &message) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if errors::is_pending(&error) => {
                    self.note_pending();
                    if second_try {
                        return Err(error);
                    }
                    second_try = true;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Decides what a refused train means. Without a checksum-capable device or under IPsec the
    /// kernel says `EIO` to every train; `EINVAL` may be about their number; the rest may as
    /// well be about the datagrams, so one goes alone first, and its error is the answer.
    fn distrust(
        &self,
        transmit: &mut Transmit<'_>,
        error: &io::Error,
        segments: usize,
    ) -> Result<(), SendError> {
        let limit = match error.raw_os_error() {
            Some(libc::EINVAL) if segments > OLD_MAX_SEGMENTS => OLD_MAX_SEGMENTS,
            Some(libc::EIO) => 1,
            _ => {
                let (bytes, _) = transmit.front(1);
                self.send_front(transmit, bytes)
                    .map_err(|error| self.failed(transmit, error))?;
                self.advance(transmit, bytes, 1);
                1
            }
        };
        self.tally.gso_refusals.add(1);
        self.gso_segments.store(limit, Ordering::Relaxed);
        tracing::warn!(%error, segments, limit, "the kernel refused a UDP_SEGMENT train");
        Ok(())
    }

    fn advance(&self, transmit: &mut Transmit<'_>, bytes: usize, segments: usize) {
        transmit.contents = &transmit.contents[bytes..];
        self.tally.sent_datagrams.add(segments as u64);
        self.tally.sent_bytes.add(bytes as u64);
        if segments > 1 {
            self.tally.gso_trains.add(1);
        }
    }

    fn failed(&self, transmit: &Transmit<'_>, error: io::Error) -> SendError {
        let sourced = transmit.local_ip.is_some();
        let error = match error.raw_os_error() {
            // What the kernel says of a source address that is not this host's, and of a
            // remote that cannot be one (port 0).
            Some(libc::EINVAL) if sourced => SendError::Dropped(DropKind::NoSuchSource),
            Some(libc::EINVAL) => SendError::Dropped(DropKind::Unreachable),
            _ => SendError::from(error),
        };
        match error {
            SendError::WouldBlock => self.tally.send_blocked.add(1),
            SendError::TooLarge => self.tally.send_too_large.add(1),
            SendError::Dropped(_) => self.tally.send_drops.add(1),
            SendError::Broken(_) => {}
        }
        error
    }
}

/// Errors that may mean "not as a train" rather than "not at all".
fn refuses_train(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE | libc::EOPNOTSUPP | libc::ENOPROTOOPT)
    )
}
