//! Sockets on Linux.

mod address;
mod cmsg;
mod errors;
mod filter;
mod receive;
mod send;
pub(crate) mod sys;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crate::counters::Tally;
use crate::options::size_buffers;
use crate::{Counters, Options, Report};

use address::Name;
use cmsg::Control;
pub(crate) use filter::attach as attach_steering;
use sys::{Filled, Message};

/// `UDP_MAX_SEGMENTS` of the kernel until 6.14 doubled it.
const OLD_MAX_SEGMENTS: usize = 64;
const NEW_MAX_SEGMENTS: usize = 128;

/// What a receive call needs beside payload memory, one of each for each slot.
#[derive(Debug)]
pub(crate) struct Scratch {
    names: Box<[Name]>,
    controls: Box<[Control]>,
    filled: Box<[Filled]>,
}

impl Scratch {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            names: vec![Name::EMPTY; slots].into_boxed_slice(),
            controls: vec![Control::EMPTY; slots].into_boxed_slice(),
            filled: vec![Filled::default(); slots].into_boxed_slice(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Backend {
    socket: UdpSocket,
    is_v6: bool,
    report: Report,
    tally: Tally,
    /// Datagrams a message may carry, 1 once the kernel has refused.
    gso_segments: AtomicUsize,
    /// A call met an error that ICMP or the local stack has also put on the error queue.
    errors_waiting: AtomicBool,
    /// The kernel's drop count as last read.
    last_drops: AtomicU32,
}

impl Backend {
    pub(crate) fn new(socket: UdpSocket, options: &Options) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let is_v6 = socket.local_addr()?.is_ipv6();
        let socket = socket2::Socket::from(socket);
        let (recv_buffer, send_buffer) = size_buffers(&socket, options);
        let socket = UdpSocket::from(socket);
        let mut report = ask(socket.as_fd(), is_v6, options);
        report.recv_buffer = recv_buffer;
        report.send_buffer = send_buffer;
        Ok(Self {
            socket,
            is_v6,
            gso_segments: AtomicUsize::new(report.gso_segments),
            report,
            tally: Tally::default(),
            errors_waiting: AtomicBool::new(false),
            last_drops: AtomicU32::new(0),
        })
    }

    pub(crate) fn std(&self) -> &UdpSocket {
        &self.socket
    }

    pub(crate) fn report(&self) -> &Report {
        &self.report
    }

    pub(crate) fn set_steered(&mut self) {
        self.report.steered = true;
    }

    pub(crate) fn counters(&self) -> Counters {
        self.tally.snapshot()
    }

    pub(crate) fn gso_segments(&self) -> usize {
        self.gso_segments.load(Ordering::Relaxed)
    }
}

/// Turns on what the kernel offers and says what it does.
fn ask(fd: BorrowedFd<'_>, is_v6: bool, options: &Options) -> Report {
    let on = |level, option, value| sys::set_option(fd, level, option, value).is_ok();
    // An IPv6 socket that also serves IPv4 needs the options of both; one for IPv6 alone
    // accepts the IPv4 ones without effect.
    let ecn = on(libc::SOL_IP, libc::IP_RECVTOS, 1)
        && (!is_v6 || on(libc::SOL_IPV6, libc::IPV6_RECVTCLASS, 1));
    let icmp = on(libc::SOL_IP, libc::IP_RECVERR, 1)
        && (!is_v6 || on(libc::SOL_IPV6, libc::IPV6_RECVERR, 1));
    // PROBE sets "don't fragment" and ignores the kernel's path MTU cache, which anyone's
    // forged ICMP could shrink: path MTU discovery is QUIC's own (RFC 9000 §14.3).
    let dont_fragment = options.dont_fragment
        && on(libc::SOL_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)
        && (!is_v6
            || on(
                libc::SOL_IPV6,
                libc::IPV6_MTU_DISCOVER,
                libc::IPV6_PMTUDISC_PROBE,
            ));
    // IPv6 packet info on a dual-stack socket tells of IPv4 in mapped form.
    let packet_info = if is_v6 {
        on(libc::SOL_IPV6, libc::IPV6_RECVPKTINFO, 1)
    } else {
        on(libc::SOL_IP, libc::IP_PKTINFO, 1)
    };
    Report {
        gso_segments: if options.gso { max_segments() } else { 1 },
        gro: options.gro && on(libc::SOL_UDP, libc::UDP_GRO, 1),
        ecn,
        packet_info,
        drop_counter: on(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1),
        dont_fragment,
        icmp,
        ..Report::default()
    }
}

/// Datagrams the kernel takes in one message. Asked of the kernel itself, once a process, with
/// a train of the new limit's length sent over loopback: no option tells the number.
fn max_segments() -> usize {
    static MAX: OnceLock<usize> = OnceLock::new();
    *MAX.get_or_init(|| probe_segments().unwrap_or(1))
}

fn probe_segments() -> io::Result<usize> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    sys::set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, 0)?;
    let Some(name) = Name::encode(socket.local_addr()?, false) else {
        return Ok(1);
    };
    let mut control = Control::EMPTY;
    control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &1u16.to_ne_bytes());
    let contents = &[0; NEW_MAX_SEGMENTS];
    match sys::sendmsg(
        socket.as_fd(),
        &Message {
            name,
            control,
            contents,
        },
    ) {
        Ok(_) => Ok(NEW_MAX_SEGMENTS),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(OLD_MAX_SEGMENTS),
        Err(error) => Err(error),
    }
}
