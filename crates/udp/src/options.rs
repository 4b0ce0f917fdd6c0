//! What a socket is asked to do, and what it was granted.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};

use crate::warnings::Warnings;

/// Default ask for the kernel's buffers, bytes: 3 ms at 10 Gbit/s. Operating system defaults
/// (208 KiB on Linux) overflow in a burst of handshakes.
const DEFAULT_BUFFER: usize = 4 * 1024 * 1024;

/// What to ask of a socket. Whatever the platform lacks is left out and shows in [`Report`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Kernel receive buffer to ask for, bytes.
    pub recv_buffer: usize,
    /// Kernel send buffer to ask for, bytes.
    pub send_buffer: usize,
    /// Let other sockets of the same user share the port (`SO_REUSEPORT`). Off by default, so
    /// that a second server on the port is an error and not a silent half of the traffic.
    pub reuse_port: bool,
    /// An IPv6 socket refuses IPv4. Off by default: `[::]` serves both families.
    pub only_v6: bool,
    /// Send trains with `UDP_SEGMENT`.
    pub gso: bool,
    /// Receive trains with `UDP_GRO`.
    pub gro: bool,
    /// Set "don't fragment" without the kernel's own path MTU guess, as RFC 9000 §14 requires.
    pub dont_fragment: bool,
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
        }
    }
}

/// One kernel buffer: what was asked and what was given, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    /// Bytes asked for.
    pub asked: usize,
    /// Bytes granted, in the same measure (Linux reports twice this, for its bookkeeping).
    pub granted: usize,
}

impl Buffer {
    /// Whether the system gave less than was asked (on Linux `net.core.rmem_max` or `wmem_max`).
    #[must_use]
    pub fn clamped(&self) -> bool {
        self.granted < self.asked
    }
}

/// What a socket can do, fixed when it is bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The kernel's receive buffer.
    pub recv_buffer: Buffer,
    /// The kernel's send buffer.
    pub send_buffer: Buffer,
    /// Datagrams one send call can carry; 1 where there is no segmentation offload.
    /// [`crate::Socket::gso_segments`] is the same number after any refusal.
    pub gso_segments: usize,
    /// Trains are received whole.
    pub gro: bool,
    /// ECN codepoints are reported and can be set on each datagram.
    pub ecn: bool,
    /// [`crate::Meta::local_ip`] is reported and a source address can be chosen.
    pub packet_info: bool,
    /// The kernel counts what overflows the receive buffer.
    pub drop_counter: bool,
    /// "Don't fragment" is set; without it path MTU discovery must stay off (RFC 9000 §14).
    pub dont_fragment: bool,
    /// [`crate::Socket::poll_errors`] reports ICMP.
    pub icmp: bool,
    /// The kernel steers by connection ID to the shard that owns it.
    pub steered: bool,
}

/// Makes a bound socket that never blocks; `reuse_port` comes apart from the options because
/// the first shard of a group binds without it.
pub(crate) fn open(addr: SocketAddr, options: &Options, reuse_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    if addr.is_ipv6() {
        socket.set_only_v6(options.only_v6)?;
    }
    if reuse_port {
        share_port(&socket)?;
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

/// Sizes both kernel buffers and says what came of it. A refusal is a warning: the socket works,
/// it only overflows sooner.
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
