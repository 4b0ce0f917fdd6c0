//! The socket's error queue: ICMP and the local stack on datagrams sent earlier
//! (`ip(7)`, `IP_RECVERR`).

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use super::address::{self, SockAddr};
use super::cmsg::{ControlBuffer, u32_of};
use super::errno::{ErrorQueueErrno, reading};
use super::{Backend, errno_of};
use crate::{IcmpError, IcmpKind, IcmpSource};

/// Bytes of `struct sock_extended_err`; the reporter's address follows.
const EXTENDED_ERROR: usize = 16;

/// Errors that calls may meet between two looks at the queue before it is emptied unread. Each
/// is some hundred bytes of the receive buffer.
const UNREAD: u32 = 1_000;

/// Messages on the queue that are no errors which one look passes over, and interruptions.
const SKIPPED: usize = 16;

impl Backend {
    /// A call met an error that may be an ICMP error's.
    pub(super) fn note_pending(&self) {
        self.tally.icmp_errors.add(1);
        self.errors_waiting.store(true, Ordering::Relaxed);
        // Who never looks must not find the receive buffer full of what was there to see.
        let unread = self.errors_unread.load(Ordering::Relaxed).saturating_add(1);
        self.errors_unread.store(unread, Ordering::Relaxed);
        if unread >= UNREAD {
            self.stop_listening();
        }
    }

    /// Has the kernel report no ICMP errors for a while, and forgets those it has reported.
    pub(super) fn stop_listening(&self) {
        if self.icmp.is_open() {
            self.tally.icmp_pauses.add(1);
            if self.icmp.close(&self.kernel, self.socket.as_fd()) {
                self.errors_waiting.store(false, Ordering::Relaxed);
                self.errors_unread.store(0, Ordering::Relaxed);
            }
        }
        // What has been left on the socket is cleared by being read, whatever it is.
        let _ = self.socket.take_error();
    }

    pub(crate) fn expect_errors(&self) {
        self.errors_waiting.store(true, Ordering::Relaxed);
    }

    pub(crate) fn poll_errors(&self) -> io::Result<Option<IcmpError>> {
        if !self.errors_waiting.load(Ordering::Relaxed) {
            return Ok(None);
        }
        self.errors_unread.store(0, Ordering::Relaxed);
        for _ in 0..SKIPPED {
            let mut name = SockAddr::EMPTY;
            let mut control = ControlBuffer::EMPTY;
            let mut quote = IcmpError::empty_quote();
            let fd = self.socket.as_fd();
            let read = self
                .kernel
                .recv_error(fd, &mut name, &mut control, &mut quote);
            match read.map_err(|error| (reading(errno_of(&error)), error)) {
                Ok(quote_len) => {
                    if self.icmp.hear(self.kernel.now()) {
                        self.stop_listening();
                    }
                    if let Some(error) = read_error(&name, &control) {
                        return Ok(Some(IcmpError {
                            quote,
                            quote_len,
                            ..error
                        }));
                    }
                }
                Err((ErrorQueueErrno::Again, _)) => {}
                Err((ErrorQueueErrno::Empty, _)) => {
                    self.errors_waiting.store(false, Ordering::Relaxed);
                    return Ok(None);
                }
                Err((ErrorQueueErrno::Unreadable, _)) => {
                    self.tally.unexplained_errors.add(1);
                    self.stop_listening();
                    return Ok(None);
                }
                Err((ErrorQueueErrno::Broken, error)) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// `None` for what is neither ICMP nor the local stack's word (transmit timestamps, say).
fn read_error(name: &SockAddr, control: &ControlBuffer) -> Option<IcmpError> {
    let remote = name.decode()?;
    let (_, _, data) = control.iter().find(|(level, kind, _)| {
        matches!(
            (*level, *kind),
            (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)
        )
    })?;
    // struct sock_extended_err: u32 errno; u8 origin, type, code, pad; u32 info, data.
    let errno = u32_of(data)?;
    let [origin, kind, code, _] = *data.get(4..)?.first_chunk()?;
    let info = u32_of(data.get(8..)?)?;
    let (source, kind) = match origin {
        libc::SO_EE_ORIGIN_ICMP => (IcmpSource::Network, IcmpKind::from_v4(kind, code, info)),
        libc::SO_EE_ORIGIN_ICMP6 => (IcmpSource::Network, IcmpKind::from_v6(kind, code, info)),
        libc::SO_EE_ORIGIN_LOCAL if errno == libc::EMSGSIZE as u32 => {
            (IcmpSource::Local, IcmpKind::TooBig { mtu: info })
        }
        libc::SO_EE_ORIGIN_LOCAL => (IcmpSource::Local, IcmpKind::Other { kind, code }),
        _ => return None,
    };
    let reporter = data.get(EXTENDED_ERROR..).and_then(address::decode);
    let reporter = reporter.map(|addr| addr.ip());
    let reporter = reporter.filter(|ip: &IpAddr| !ip.is_unspecified());
    Some(IcmpError {
        remote,
        kind,
        source,
        reporter,
        quote: IcmpError::empty_quote(),
        quote_len: 0,
    })
}
