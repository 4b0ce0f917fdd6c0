//! The socket's error queue: ICMP and the local stack on datagrams sent earlier
//! (`ip(7)`, `IP_RECVERR`).

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use super::address::{self, Name};
use super::cmsg::{Control, u32_of};
use super::{Backend, sys};
use crate::{IcmpError, IcmpKind, IcmpSource};

/// Bytes of `struct sock_extended_err`; the reporter's address follows.
const EXTENDED_ERROR: usize = 16;

/// Errors a call may meet for the sake of an earlier datagram, whoever that was for. Reading
/// one clears it. `EMSGSIZE` and the unreachable ones may also be about the call at hand.
pub(super) fn is_pending(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::EMSGSIZE
                | libc::ENOPROTOOPT
                | libc::EOPNOTSUPP
                | libc::EPROTO
                | libc::EACCES
        )
    )
}

impl Backend {
    pub(super) fn note_pending(&self) {
        self.tally.icmp_errors.add(1);
        self.errors_waiting.store(true, Ordering::Relaxed);
    }

    pub(crate) fn poll_errors(&self) -> io::Result<Option<IcmpError>> {
        if !self.errors_waiting.load(Ordering::Relaxed) {
            return Ok(None);
        }
        loop {
            let mut name = Name::EMPTY;
            let mut control = Control::EMPTY;
            let mut quote = IcmpError::empty_quote();
            match sys::recv_error(self.socket.as_fd(), &mut name, &mut control, &mut quote) {
                Ok(quote_len) => {
                    let error = read_error(&name, &control);
                    if let Some(error) = error {
                        return Ok(Some(IcmpError {
                            quote,
                            quote_len,
                            ..error
                        }));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.errors_waiting.store(false, Ordering::Relaxed);
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// `None` for what is neither ICMP nor the local stack's word (transmit timestamps, say).
fn read_error(name: &Name, control: &Control) -> Option<IcmpError> {
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
    let reporter = address::decode(&data[EXTENDED_ERROR..]).map(|addr| addr.ip());
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
