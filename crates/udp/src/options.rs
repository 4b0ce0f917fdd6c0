//! Options of a socket, and what the system granted of them.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};

use crate::warnings::Warnings;

/// Default size of the kernel's buffers, in bytes: 3 ms at 10 Gbit/s. Operating system defaults
/// (208 KiB on Linux) overflow in a burst of handshakes.
const DEFAULT_BUFFER: usize = 4 * 1024 * 1024;

/// Options of a socket. Unsupported ones are skipped; [`Report`] says which are in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Size of the kernel's receive buffer to request, in bytes.
    pub recv_buffer: usize,
    /// Size of the kernel's send buffer to request, in bytes.
    pub send_buffer: usize,
    /// Lets other sockets of the same user share the port (`SO_REUSEPORT`). Off by default, so that
    /// a second server on the port gets an error instead of half of the traffic.
    pub reuse_port: bool,
    /// Restricts an IPv6 socket to IPv6. Off by default: `[::]` serves both families.
    pub only_v6: bool,
    /// Sends trains with `UDP_SEGMENT`.
    pub gso: bool,
    /// Receives trains with `UDP_GRO`.
    pub gro: bool,
    /// Sets "don't fragment" and disables the kernel's own path MTU estimate, as RFC 9000 §14
    /// requires.
    pub dont_fragment: bool,
    /// Sends from addresses that are not this host's ([`Transmit::local_ip`](crate::Transmit)),
    /// and receives what is sent to them, where routes bring it here (`IP_TRANSPARENT`). Linux
    /// only; binding fails without the capability `CAP_NET_ADMIN`. Off by default.
    pub transparent: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            recv_buffer: DEFAULT_BUFFER,
            send_buffer: DEFAULT_BUFFER,
            reuse_port: false,
            only_v6: false,
            gso: true,
            gro: true,
            dont_fragment: true,
            transparent: false,
        }
    }
}

/// The size of one kernel buffer, requested and granted, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    /// Bytes requested.
    pub asked: usize,
    /// Bytes granted, in the same measure (Linux reports twice this, for its own bookkeeping).
    pub granted: usize,
}

impl Buffer {
    /// Whether the system granted less than requested (on Linux limited by `net.core.rmem_max` or
    /// `wmem_max`).
    #[must_use]
    pub fn clamped(&self) -> bool {
        self.granted < self.asked
    }
}

/// The capabilities of a socket, fixed when it is bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The kernel's receive buffer.
    pub recv_buffer: Buffer,
    /// The kernel's send buffer.
    pub send_buffer: Buffer,
    /// Number of datagrams that one send call can carry; 1 without segmentation offload.
    /// [`crate::Socket::gso_segments`] is the current number, after any rejections.
    pub gso_segments: usize,
    /// Whether trains are received whole.
    pub gro: bool,
    /// Whether ECN codepoints are reported and can be set on each datagram.
    pub ecn: bool,
    /// Whether [`crate::Meta::local_ip`] is reported and a source address can be chosen.
    pub packet_info: bool,
    /// Whether the kernel counts overflows of the receive buffer.
    pub drop_counter: bool,
    /// Whether "don't fragment" is set; without it path MTU discovery must stay off (RFC 9000 §14).
    pub dont_fragment: bool,
    /// Whether [`crate::Socket::poll_errors`] reports ICMP errors.
    pub icmp: bool,
    /// Whether the kernel steers datagrams to the shard that owns their connection ID.
    pub steered: bool,
}

/// Creates a bound, non-blocking socket. `reuse_port` is separate from the options because the
/// first shard of a group binds without it.
pub(crate) fn open(addr: SocketAddr, options: &Options, reuse_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    if addr.is_ipv6() {
        socket.set_only_v6(options.only_v6)?;
    }
    if reuse_port {
        share_port(&socket)?;
    }
    if options.transparent {
        be_transparent(&socket, addr.is_ipv6())?;
    }
    socket.bind(&addr.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(all(unix, not(any(target_os = "solaris", target_os = "illumos"))))]
pub(crate) fn share_port(socket: &Socket) -> io::Result<()> {
    socket.set_reuse_port(true)
}

#[cfg(not(all(unix, not(any(target_os = "solaris", target_os = "illumos")))))]
pub(crate) fn share_port(_socket: &Socket) -> io::Result<()> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

#[cfg(target_os = "linux")]
fn be_transparent(socket: &Socket, is_v6: bool) -> io::Result<()> {
    // One flag in the kernel for both families.
    if is_v6 {
        socket.set_ip_transparent_v6(true)
    } else {
        socket.set_ip_transparent_v4(true)
    }
}

#[cfg(not(target_os = "linux"))]
fn be_transparent(_socket: &Socket, _is_v6: bool) -> io::Result<()> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

/// Sets both kernel buffer sizes and reports the result. A refusal is a warning: the socket works,
/// but overflows sooner.
pub(crate) fn size_buffers(
    socket: &Socket,
    options: &Options,
    warnings: &Warnings,
) -> (Buffer, Buffer) {
    // Linux doubles what it is told, for its own bookkeeping, and reports the double.
    let share = if cfg!(target_os = "linux") { 2 } else { 1 };
    let granted = |bytes: io::Result<usize>| bytes.map_or(0, |bytes| bytes.div_euclid(share));
    let refusal = socket.set_recv_buffer_size(options.recv_buffer).err();
    let recv = Buffer {
        asked: options.recv_buffer,
        granted: granted(socket.recv_buffer_size()),
    };
    warnings.of_receive_buffer(recv, refusal);
    let refusal = socket.set_send_buffer_size(options.send_buffer).err();
    let send = Buffer {
        asked: options.send_buffer,
        granted: granted(socket.send_buffer_size()),
    };
    warnings.of_send_buffer(send, refusal);
    (recv, send)
}
