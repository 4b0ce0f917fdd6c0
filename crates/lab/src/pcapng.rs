//! Captures that Wireshark opens and decrypts: pcapng with the TLS secrets in
//! a Decryption Secrets Block (draft-ietf-opsawg-pcapng).
//!
//! IP and UDP headers are made up around the datagrams, with their checksums.
//!
//! A capture is taken at one host, as tcpdump takes it there. With both hosts in
//! one file each datagram would be there twice, the arrivals behind what was sent
//! meanwhile, and a reader that expands truncated packet numbers by the largest it
//! has seen (RFC 9000 §A.3) gets those of the arrivals wrong and decrypts nothing.

use core::net::{IpAddr, SocketAddr};
use std::cell::RefCell;
use std::rc::Rc;

use clearway_links::{Direction, Packet};

use crate::stack::Role;
use crate::world::{Fate, Tap, TapRecord};

/// Section Header Block (§4.1).
const SECTION: u32 = 0x0a0d_0d0a;
/// Interface Description Block (§4.2).
const INTERFACE: u32 = 1;
/// Enhanced Packet Block (§4.3).
const PACKET: u32 = 6;
/// Decryption Secrets Block (§4.7).
const SECRETS: u32 = 10;
/// The secrets are a TLS key log.
const TLS_KEY_LOG: u32 = 0x544c_534b;
/// Tells a reader the byte order.
const MAGIC: u32 = 0x1a2b_3c4d;
/// IP without a link layer.
const LINKTYPE_RAW: u16 = 101;
/// Times are in nanoseconds.
const NANOSECONDS: u8 = 9;

/// Options (§3.5).
const OPT_END: u16 = 0;
const OPT_COMMENT: u16 = 1;
const OPT_IF_NAME: u16 = 2;
const OPT_IF_TSRESOL: u16 = 9;

/// A running capture: pass a clone to a world as its tap, and call [`Capture::finish`] on the other
/// afterwards.
#[derive(Clone, Debug)]
pub struct Capture {
    host: Role,
    packets: Rc<RefCell<Vec<u8>>>,
}

impl Tap for Capture {
    fn see(&mut self, sighting: &TapRecord<'_>) {
        if host(sighting) == self.host {
            write_packet(&mut self.packets.borrow_mut(), sighting);
        }
    }
}

impl Capture {
    /// Creates a capture of the packets that hosts of this role send and receive.
    #[must_use]
    pub fn at(host: Role) -> Self {
        Self {
            host,
            packets: Rc::default(),
        }
    }

    /// The content of the file: all packets, with `secrets` in the format of `SSLKEYLOGFILE`.
    #[must_use]
    pub fn finish(&self, secrets: &str) -> Vec<u8> {
        let mut out = Vec::new();
        block(&mut out, SECTION, |body| {
            body.extend(MAGIC.to_le_bytes());
            body.extend(1_u16.to_le_bytes());
            body.extend(0_u16.to_le_bytes());
            // The section's length is not known.
            body.extend(u64::MAX.to_le_bytes());
        });
        let name: &[u8] = match self.host {
            Role::Client => b"client",
            Role::Server => b"server",
        };
        block(&mut out, INTERFACE, |body| {
            body.extend(LINKTYPE_RAW.to_le_bytes());
            body.extend(0_u16.to_le_bytes());
            // No packet is cut off.
            body.extend(0_u32.to_le_bytes());
            option(body, OPT_IF_NAME, name);
            option(body, OPT_IF_TSRESOL, &[NANOSECONDS]);
            option(body, OPT_END, &[]);
        });
        if !secrets.is_empty() {
            block(&mut out, SECRETS, |body| {
                body.extend(TLS_KEY_LOG.to_le_bytes());
                body.extend((secrets.len() as u32).to_le_bytes());
                body.extend(secrets.as_bytes());
                pad(body);
            });
        }
        out.extend_from_slice(&self.packets.borrow());
        out
    }
}

/// The host at which it was captured.
const fn host(sighting: &TapRecord<'_>) -> Role {
    match (sighting.direction, sighting.fate) {
        (Direction::Up, Fate::Arrived)
        | (Direction::Down, Fate::Sent | Fate::QueueFull | Fate::Dropped) => Role::Server,
        (Direction::Down, Fate::Arrived)
        | (Direction::Up, Fate::Sent | Fate::QueueFull | Fate::Dropped) => Role::Client,
    }
}

fn write_packet(out: &mut Vec<u8>, sighting: &TapRecord<'_>) {
    let comment = match sighting.fate {
        Fate::Sent | Fate::Arrived => None,
        Fate::QueueFull => Some("dropped: the queue was full"),
        Fate::Dropped => Some("dropped before the queue"),
    };
    let bytes = ip_packet(sighting.packet);
    let nanos = sighting.at.as_nanos() + crate::stack::UNIX_ORIGIN * 1_000_000_000;
    block(out, PACKET, |body| {
        // The only interface.
        body.extend(0_u32.to_le_bytes());
        body.extend(((nanos >> 32) as u32).to_le_bytes());
        body.extend((nanos as u32).to_le_bytes());
        body.extend((bytes.len() as u32).to_le_bytes());
        body.extend((bytes.len() as u32).to_le_bytes());
        body.extend_from_slice(&bytes);
        pad(body);
        if let Some(comment) = comment {
            option(body, OPT_COMMENT, comment.as_bytes());
            option(body, OPT_END, &[]);
        }
    });
}

/// A block: type, length, body, length again.
fn block(out: &mut Vec<u8>, kind: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut body = Vec::new();
    fill(&mut body);
    let length = (body.len() as u32 + 12).to_le_bytes();
    out.extend(kind.to_le_bytes());
    out.extend(length);
    out.extend_from_slice(&body);
    out.extend(length);
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend_from_slice(value);
    pad(body);
}

/// Everything is aligned to 32 bits.
fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

const UDP: u8 = 17;
const HOP_LIMIT: u8 = 64;

/// The datagram with an IP and a UDP header before it.
fn ip_packet(packet: &Packet) -> Vec<u8> {
    let udp = udp_datagram(packet.src, packet.dst, &packet.data);
    let mut out = match (packet.src.ip(), packet.dst.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let total = (20 + udp.len()) as u16;
            let mut header = vec![0x45, packet.ecn.bits()];
            header.extend(total.to_be_bytes());
            // Not fragmented and not to be.
            header.extend([0, 0, 0x40, 0, HOP_LIMIT, UDP, 0, 0]);
            header.extend(src.octets());
            header.extend(dst.octets());
            let sum = checksum(&[&header]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        }
        (src, dst) => {
            let octets = |ip: IpAddr| match ip {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            let mut header = vec![0x60, packet.ecn.bits() << 4, 0, 0];
            header.extend((udp.len() as u16).to_be_bytes());
            header.extend([UDP, HOP_LIMIT]);
            header.extend(octets(src));
            header.extend(octets(dst));
            header
        }
    };
    out.extend_from_slice(&udp);
    out
}

fn udp_datagram(src: SocketAddr, dst: SocketAddr, data: &[u8]) -> Vec<u8> {
    let length = (8 + data.len()) as u16;
    let mut out = Vec::with_capacity(8 + data.len());
    out.extend(src.port().to_be_bytes());
    out.extend(dst.port().to_be_bytes());
    out.extend(length.to_be_bytes());
    out.extend([0, 0]);
    out.extend_from_slice(data);
    let mut pseudo = Vec::with_capacity(40);
    for ip in [src.ip(), dst.ip()] {
        match ip {
            IpAddr::V4(v4) => pseudo.extend(v4.octets()),
            IpAddr::V6(v6) => pseudo.extend(v6.octets()),
        }
    }
    pseudo.extend([0, UDP]);
    pseudo.extend(length.to_be_bytes());
    // Zero would mean that there is no checksum (RFC 768).
    let sum = match checksum(&[&pseudo, &out]) {
        0 => 0xffff,
        sum => sum,
    };
    out[6..8].copy_from_slice(&sum.to_be_bytes());
    out
}

/// The Internet checksum (RFC 1071). Every part but the last has an even
/// length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for pair in parts.iter().flat_map(|part| part.chunks(2)) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u32::from(u16::from_be_bytes([pair[0], low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use clearway_links::{Ecn, Time};

    use super::*;

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    fn capture(host: Role, fate: Fate) -> Vec<u8> {
        let mut capture = Capture::at(host);
        let packet = Packet::new(
            ([10, 2, 0, 1], 5000).into(),
            ([10, 1, 0, 1], 443).into(),
            vec![7; 33],
        );
        capture.see(&TapRecord {
            at: Time(5),
            direction: Direction::Up,
            fate,
            packet: &packet.with_ecn(Ecn::Ect0),
        });
        capture.finish("LABEL 00 11\n")
    }

    #[test]
    fn pcapng_blocks_are_well_formed_with_secrets_first() {
        let file = capture(Role::Client, Fate::QueueFull);
        let mut kinds = Vec::new();
        let mut at = 0;
        while at < file.len() {
            let length = word(&file, at + 4) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(word(&file, at + length - 4) as usize, length);
            kinds.push(word(&file, at));
            at += length;
        }
        assert_eq!(at, file.len());
        assert_eq!(kinds, [SECTION, INTERFACE, SECRETS, PACKET]);
        let text = String::from_utf8_lossy(&file);
        assert!(text.contains("LABEL 00 11"));
        assert!(text.contains("the queue was full"));
    }

    #[test]
    fn capture_contains_packets_sent_and_received_by_the_host() {
        let empty = Capture::at(Role::Client).finish("LABEL 00 11\n").len();
        let seen = |host, fate| capture(host, fate).len() > empty;
        assert!(seen(Role::Client, Fate::Sent));
        assert!(!seen(Role::Client, Fate::Arrived));
        assert!(seen(Role::Server, Fate::Arrived));
        assert!(!seen(Role::Server, Fate::Sent));
    }

    #[test]
    fn ip_and_udp_checksums_are_valid() {
        let packet = Packet::new(
            ([10, 2, 0, 1], 5000).into(),
            ([10, 1, 0, 1], 443).into(),
            vec![7; 33],
        );
        let bytes = ip_packet(&packet.with_ecn(Ecn::Ce));
        assert_eq!(bytes.len(), 20 + 8 + 33);
        assert_eq!(bytes[1], 3, "congestion experienced");
        assert_eq!(checksum(&[&bytes[..20]]), 0, "the IP header's sum");
        let mut pseudo = bytes[12..20].to_vec();
        pseudo.extend([0, UDP, 0, 41]);
        assert_eq!(checksum(&[&pseudo, &bytes[20..]]), 0, "the UDP sum");
    }
}
