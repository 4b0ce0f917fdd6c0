//! Forged ICMP errors on loopback: what any stranger on the path, or one who can spoof, sends.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use socket2::{Domain, Protocol, SockAddr, Type};

/// An ICMP error's type, code and second word (an MTU, a pointer).
pub(crate) type Kind = (u8, u8, u32);

/// Every ICMPv4 error that reaches a UDP socket, and some that should not.
pub(crate) fn kinds_v4() -> Vec<Kind> {
    let unreachable = (0..=16).map(|code| (3, code, 1_280));
    let others = [
        (4, 0, 0),
        (11, 0, 0),
        (11, 1, 0),
        (12, 0, 0),
        (12, 1, 0),
        (12, 2, 0),
    ];
    unreachable.chain(others).collect()
}

/// Every ICMPv6 error, and unassigned ones.
pub(crate) fn kinds_v6() -> Vec<Kind> {
    let unreachable = (0..=8).map(|code| (1, code, 0));
    let others = [
        (2, 0, 1_280),
        (3, 0, 0),
        (3, 1, 0),
        (4, 0, 0),
        (4, 1, 0),
        (4, 2, 0),
        (100, 0, 0),
    ];
    unreachable.chain(others).collect()
}

/// A raw socket, and whom it lies to: the socket bound to `local`.
pub(crate) struct Forger {
    raw: socket2::Socket,
    local: SocketAddr,
    remote: SocketAddr,
}

impl Forger {
    /// `None`, with a word on stderr, where the tests may not open raw sockets. The errors are
    /// about datagrams from `local` to `remote`.
    pub(crate) fn new(local: SocketAddr, remote: SocketAddr) -> Option<Self> {
        let (domain, protocol) = if local.is_ipv4() {
            (Domain::IPV4, Protocol::ICMPV4)
        } else {
            (Domain::IPV6, Protocol::ICMPV6)
        };
        match socket2::Socket::new(domain, Type::RAW, Some(protocol)) {
            Ok(raw) => Some(Self { raw, local, remote }),
            Err(error) => {
                eprintln!("skipped: forging ICMP needs a raw socket (CAP_NET_RAW): {error}");
                None
            }
        }
    }

    /// Sends one error that quotes `payload`; whether it left.
    pub(crate) fn send(&self, (kind, code, word): Kind, payload: &[u8]) -> bool {
        let mut icmp = vec![kind, code, 0, 0];
        icmp.extend(word.to_be_bytes());
        icmp.extend(quoted_packet(self.local, self.remote, payload));
        if self.local.is_ipv4() {
            // The kernel fills in ICMPv6's, which covers addresses.
            let sum = checksum(&icmp);
            icmp[2..4].copy_from_slice(&sum);
        }
        let to = SockAddr::from(SocketAddr::new(self.local.ip(), 0));
        self.raw.send_to(&icmp, &to).is_ok()
    }

    /// Sends errors of these kinds, over and over, until the flood is dropped.
    pub(crate) fn flood(self, kinds: Vec<Kind>) -> Flood {
        let stop = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicU64::new(0));
        let (stopped, count) = (stop.clone(), sent.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                for kind in &kinds {
                    // Twice each: an error met twice in a row is the one that is believed.
                    for _ in 0..2 {
                        count
                            .fetch_add(u64::from(self.send(*kind, &[0x40; 32])), Ordering::Relaxed);
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
}

/// A flood under way; ends when dropped.
pub(crate) struct Flood {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    /// Errors sent so far.
    pub(crate) fn sent(&self) -> u64 {
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

/// An IP and UDP header from `local` to `remote`, and the payload behind them.
fn quoted_packet(local: SocketAddr, remote: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let udp_len = (8 + payload.len()) as u16;
    let mut packet = match (local.ip(), remote.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => header_v4(from, to, udp_len),
        (IpAddr::V6(from), IpAddr::V6(to)) => header_v6(from, to, udp_len),
        _ => panic!("{local} and {remote} are of two families"),
    };
    packet.extend(local.port().to_be_bytes());
    packet.extend(remote.port().to_be_bytes());
    packet.extend(udp_len.to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

fn header_v4(from: Ipv4Addr, to: Ipv4Addr, udp_len: u16) -> Vec<u8> {
    let mut header = vec![0x45, 0];
    header.extend((20 + udp_len).to_be_bytes());
    header.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    header.extend(from.octets());
    header.extend(to.octets());
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum);
    header
}

fn header_v6(from: Ipv6Addr, to: Ipv6Addr, udp_len: u16) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0];
    header.extend(udp_len.to_be_bytes());
    header.extend([17, 64]);
    header.extend(from.octets());
    header.extend(to.octets());
    header
}

/// The Internet checksum (RFC 1071 §1).
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}
