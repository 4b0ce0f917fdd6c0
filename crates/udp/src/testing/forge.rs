//! Forged ICMP errors, as anyone can send who guesses two ports and spoofs a source address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// UDP's protocol number.
const UDP: u8 = 17;

/// The type, code and second word of an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpMessage {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// The second word: an MTU, a pointer, or nothing.
    pub word: u32,
}

impl IcmpMessage {
    const fn new(kind: u8, code: u8, word: u32) -> Self {
        Self { kind, code, word }
    }

    /// Every ICMP error that a host of the family of `ip` may receive about a datagram, including
    /// unassigned codes and types.
    #[must_use]
    pub fn all(ip: IpAddr) -> Vec<Self> {
        let (unreachable, codes, others): (u8, u8, &[(u8, u8)]) = if ip.is_ipv4() {
            (
                3,
                16,
                &[(4, 0), (11, 0), (11, 1), (12, 0), (12, 1), (12, 2)],
            )
        } else {
            (
                1,
                8,
                &[(2, 0), (3, 0), (3, 1), (4, 0), (4, 1), (4, 2), (100, 0)],
            )
        };
        let unreachable = (0..=codes).map(|code| Self::new(unreachable, code, 1_280));
        let others = others
            .iter()
            .map(|(kind, code)| Self::new(*kind, *code, 1_280));
        unreachable.chain(others).collect()
    }
}

/// Sends forged errors to one socket about the datagrams it has sent.
#[derive(Debug)]
pub struct Forger {
    raw: Socket,
    local: SocketAddr,
    remote: SocketAddr,
}

impl Forger {
    /// Creates a forger for the socket bound to `local`, about datagrams to `remote`, which need
    /// not exist. Both must have the same family. The host remembers the path MTU of `remote` from
    /// a forged error for ten minutes: use an address that nothing else talks to.
    ///
    /// # Errors
    /// `PermissionDenied` without the right to open raw sockets (`CAP_NET_RAW`).
    pub fn new(local: SocketAddr, remote: SocketAddr) -> io::Result<Self> {
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (domain, protocol) = if local.is_ipv4() {
            (Domain::IPV4, Protocol::ICMPV4)
        } else {
            (Domain::IPV6, Protocol::ICMPV6)
        };
        let raw = Socket::new(domain, Type::RAW, Some(protocol))?;
        Ok(Self { raw, local, remote })
    }

    /// Sends one error that quotes a datagram with `payload`.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn send(&self, message: IcmpMessage, payload: &[u8]) -> io::Result<()> {
        let to = SockAddr::from(SocketAddr::new(self.local.ip(), 0));
        self.raw
            .send_to(&self.write(message, payload), &to)
            .map(drop)
    }

    /// Sends errors of these kinds, each twice in a row, as fast as it can until the flood is
    /// dropped.
    #[must_use]
    pub fn flood(self, messages: Vec<IcmpMessage>) -> Flood {
        let stop = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicU64::new(0));
        let (stopped, count) = (stop.clone(), sent.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                for message in messages.iter().flat_map(|message| [message; 2]) {
                    if self.send(*message, &[0x40; 32]).is_ok() {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
        Flood {
            stop,
            sent,
            thread: Some(thread),
        }
    }

    fn write(&self, message: IcmpMessage, payload: &[u8]) -> Vec<u8> {
        let quote = self.quote(payload);
        let write = |sum: [u8; 2]| {
            let head = [
                &[message.kind, message.code][..],
                &sum,
                &message.word.to_be_bytes(),
            ];
            [&head.concat()[..], &quote].concat()
        };
        let unsummed = write([0, 0]);
        if self.local.is_ipv4() {
            write(checksum(&unsummed))
        } else {
            // Covers addresses too, so the kernel fills it in.
            unsummed
        }
    }

    /// An IP and UDP header and the payload, as the router claims to have seen them.
    fn quote(&self, payload: &[u8]) -> Vec<u8> {
        let udp_len = u16::try_from(payload.len())
            .unwrap_or(u16::MAX)
            .saturating_add(8);
        let header = match (self.local.ip(), self.remote.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => header_v4(from, to, udp_len),
            (IpAddr::V6(from), IpAddr::V6(to)) => header_v6(from, to, udp_len),
            // `new` has checked it.
            (_, _) => Vec::new(),
        };
        let ports = [
            self.local.port().to_be_bytes(),
            self.remote.port().to_be_bytes(),
        ];
        let udp = [&ports.concat()[..], &udp_len.to_be_bytes(), &[0, 0]].concat();
        [&header[..], &udp, payload].concat()
    }
}

/// A flood under way; ends when dropped.
#[derive(Debug)]
pub struct Flood {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    /// Errors sent so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn header_v4(from: Ipv4Addr, to: Ipv4Addr, udp_len: u16) -> Vec<u8> {
    let write = |sum: [u8; 2]| {
        let total = udp_len.saturating_add(20).to_be_bytes();
        let head = [&[0x45, 0][..], &total, &[0, 0, 0x40, 0, 64, UDP], &sum].concat();
        [&head[..], &from.octets(), &to.octets()].concat()
    };
    write(checksum(&write([0, 0])))
}

fn header_v6(from: Ipv6Addr, to: Ipv6Addr, udp_len: u16) -> Vec<u8> {
    let head = [&[0x60, 0, 0, 0][..], &udp_len.to_be_bytes(), &[UDP, 64]].concat();
    [&head[..], &from.octets(), &to.octets()].concat()
}

/// The Internet checksum (RFC 1071 §1).
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let mut sum: u16 = 0;
    for pair in bytes.chunks(2) {
        let high = pair.first().copied().unwrap_or(0);
        let low = pair.get(1).copied().unwrap_or(0);
        let (next, carry) = sum.overflowing_add(u16::from_be_bytes([high, low]));
        // The carry goes round; a sum that carried is never all ones.
        sum = next.wrapping_add(u16::from(carry));
    }
    (!sum).to_be_bytes()
}
