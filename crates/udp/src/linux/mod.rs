//! Sockets on Linux.

mod address;
mod cmsg;
mod errno;
mod errors;
mod filter;
mod icmp_gate;
mod kernel;
mod offload;
mod receive;
mod send;
pub(crate) mod sys;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32};

use crate::counters::AtomicCounters;
use crate::options::size_buffers;
use crate::streak::FailureStreak;
use crate::warning_interval::WarningInterval;
use crate::warnings::WARNINGS;
use crate::{Counters, Options, Report};

use address::SockAddr;
use cmsg::ControlBuffer;
#[cfg(any(test, feature = "testing"))]
pub use errno::Call;
use errno::{SetOptionErrno, setting};
pub(crate) use filter::{attach as attach_steering, attach_by_port};
use icmp_gate::{IcmpGate, set_listening};
pub(crate) use kernel::Kernel;
use offload::Offload;
use sys::{Message, ReceivedMessage};

/// `UDP_MAX_SEGMENTS` of the kernel until 6.14 doubled it.
const OLD_MAX_SEGMENTS: usize = 64;
const NEW_MAX_SEGMENTS: usize = 128;

/// What a receive call needs besides payload memory, one of each per slot.
#[derive(Debug)]
pub(crate) struct Scratch {
    names: Box<[SockAddr]>,
    controls: Box<[ControlBuffer]>,
    filled: Box<[ReceivedMessage]>,
}

impl Scratch {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            names: vec![SockAddr::EMPTY; slots].into_boxed_slice(),
            controls: vec![ControlBuffer::EMPTY; slots].into_boxed_slice(),
            filled: vec![ReceivedMessage::default(); slots].into_boxed_slice(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Backend {
    socket: UdpSocket,
    kernel: Kernel,
    is_v6: bool,
    report: Report,
    tally: AtomicCounters,
    offload: Offload,
    icmp: IcmpGate,
    /// A call met an error that is also on the error queue, from ICMP or the local stack.
    errors_waiting: AtomicBool,
    /// Errors met by calls since the error queue was last read.
    errors_unread: AtomicU32,
    /// Whether `sendmmsg` is available.
    can_send_many: AtomicBool,
    send_streak: FailureStreak,
    receive_streak: FailureStreak,
    receive_warning: WarningInterval,
    /// The kernel's drop count when last read.
    last_drops: AtomicU32,
}

impl Backend {
    pub(crate) fn new(socket: UdpSocket, options: &Options, kernel: Kernel) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let is_v6 = socket.local_addr()?.is_ipv6();
        let socket = socket2::Socket::from(socket);
        let (recv_buffer, send_buffer) = size_buffers(&socket, options, &WARNINGS);
        let socket = UdpSocket::from(socket);
        let mut report = ask(&kernel, socket.as_fd(), is_v6, options)?;
        report.recv_buffer = recv_buffer;
        report.send_buffer = send_buffer;
        Ok(Self {
            socket,
            kernel,
            is_v6,
            offload: Offload::new(report.gso_segments),
            icmp: IcmpGate::new(report.icmp, is_v6),
            report,
            tally: AtomicCounters::default(),
            errors_waiting: AtomicBool::new(false),
            errors_unread: AtomicU32::new(0),
            can_send_many: AtomicBool::new(true),
            send_streak: FailureStreak::default(),
            receive_streak: FailureStreak::default(),
            receive_warning: WarningInterval::default(),
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
        self.offload.segments(|| self.kernel.now())
    }
}

/// The errno of a failed system call.
fn errno_of(error: &io::Error) -> i32 {
    // Every error here is made from an errno; 0 is not one.
    error.raw_os_error().unwrap_or(0)
}

/// Enables the options that the kernel supports, and reports them.
///
/// # Errors
/// If the descriptor is not a socket. Unsupported options are not an error.
fn ask(kernel: &Kernel, fd: BorrowedFd<'_>, is_v6: bool, options: &Options) -> io::Result<Report> {
    let granted = |result: io::Result<()>| match result {
        Ok(()) => Ok(true),
        Err(error) => match setting(errno_of(&error)) {
            SetOptionErrno::NotGranted => Ok(false),
            SetOptionErrno::Broken => Err(error),
        },
    };
    let on = |level, option, value| granted(kernel.set_option(fd, level, option, value));
    // An IPv6 socket that also serves IPv4 needs the options of both; one for IPv6 alone
    // accepts the IPv4 ones without effect.
    let ecn = on(libc::SOL_IP, libc::IP_RECVTOS, 1)?
        && (!is_v6 || on(libc::SOL_IPV6, libc::IPV6_RECVTCLASS, 1)?);
    let icmp = granted(set_listening(kernel, fd, is_v6, true))?;
    // PROBE sets "don't fragment" and ignores the kernel's path MTU cache, which anyone's
    // forged ICMP could shrink: path MTU discovery is QUIC's own (RFC 9000 §14.3).
    let dont_fragment = options.dont_fragment
        && on(libc::SOL_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?
        && (!is_v6
            || on(
                libc::SOL_IPV6,
                libc::IPV6_MTU_DISCOVER,
                libc::IPV6_PMTUDISC_PROBE,
            )?);
    // IPv6 packet info on a dual-stack socket tells of IPv4 in mapped form.
    let packet_info = if is_v6 {
        on(libc::SOL_IPV6, libc::IPV6_RECVPKTINFO, 1)?
    } else {
        on(libc::SOL_IP, libc::IP_PKTINFO, 1)?
    };
    // No segment size for the socket: each message names its own, if the kernel knows the
    // option at all.
    let gso = options.gso && on(libc::SOL_UDP, libc::UDP_SEGMENT, 0)?;
    let gro = options.gro && on(libc::SOL_UDP, libc::UDP_GRO, 1)?;
    let report = Report {
        gso_segments: if gso { max_segments() } else { 1 },
        gro,
        ecn,
        packet_info,
        drop_counter: on(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?,
        dont_fragment,
        icmp,
        ..Report::default()
    };
    WARNINGS.of_offload(options, &report);
    Ok(report)
}

/// Number of datagrams that the kernel accepts in one message. Determined once per process by
/// sending a train of the newer limit's length over loopback, because no option reports it. If that
/// is impossible (no loopback, no free descriptor), the older limit is used and nothing is
/// remembered.
fn max_segments() -> usize {
    static MAX: OnceLock<usize> = OnceLock::new();
    if let Some(known) = MAX.get() {
        return *known;
    }
    match probe_segments() {
        Ok(segments) => *MAX.get_or_init(|| segments),
        Err(_) => OLD_MAX_SEGMENTS,
    }
}

fn probe_segments() -> io::Result<usize> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let name = SockAddr::encode(socket.local_addr()?, false).ok_or(io::ErrorKind::Unsupported)?;
    let mut control = ControlBuffer::EMPTY;
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
        Err(error) if errno_of(&error) == libc::EINVAL => Ok(OLD_MAX_SEGMENTS),
        Err(error) => Err(error),
    }
}
