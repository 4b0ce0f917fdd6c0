//! Forged ICMP errors about datagrams of the server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::sockets::Traffic;
use super::{Attacker, Context};

/// Types that the kernel reports to a UDP socket: destination unreachable, source
/// quench, redirect, time exceeded, parameter problem.
const ERRORS: [u8; 5] = [3, 4, 5, 11, 12];

/// Number of codes of destination unreachable, the type with the most.
const CODES: u8 = 16;

/// Number of well-behaved clients that the quoted datagrams are addressed to.
const RECEIVERS: u8 = 8;

/// Sends every type and code in turn; every second message is one that the kernel
/// reports to the server's socket.
pub(crate) struct Icmp {
    socket: Socket,
    server: Ipv4Addr,
    port: u16,
    next: u32,
    traffic: Traffic,
}

impl Icmp {
    pub(crate) fn new(context: &Context) -> io::Result<Self> {
        let SocketAddr::V4(server) = context.server else {
            return Err(io::Error::other("the server must listen on IPv4"));
        };
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            server: *server.ip(),
            port: server.port(),
            next: 0,
            traffic: Traffic::default(),
        })
    }

    /// A message that quotes a datagram from the server to a client.
    fn message(&self, kind: u8, code: u8, receiver: u8) -> Vec<u8> {
        let mut message = vec![kind, code, 0, 0];
        // The next hop's MTU (RFC 1191) or the position of the problem (RFC 792).
        message.extend_from_slice(&[20, 0, 0x04, 0xd0]);
        // The quoted IPv4 header: UDP, 28 bytes and 1,200 of payload.
        let length = 1228_u16.to_be_bytes();
        message.extend_from_slice(&[0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, 17, 0, 0]);
        message.extend_from_slice(&self.server.octets());
        message.extend_from_slice(&[127, 1, 0, receiver]);
        let ip_checksum = checksum(&message[8..28]).to_be_bytes();
        message[18..20].copy_from_slice(&ip_checksum);
        // The quoted UDP header.
        message.extend_from_slice(&self.port.to_be_bytes());
        message.extend_from_slice(&[0xc0, receiver]);
        message.extend_from_slice(&1208_u16.to_be_bytes());
        message.extend_from_slice(&[0, 0]);
        let icmp_checksum = checksum(&message).to_be_bytes();
        message[2..4].copy_from_slice(&icmp_checksum);
        message
    }
}

impl Attacker for Icmp {
    fn turn(&mut self, packets: u64) {
        let to = SockAddr::from(SocketAddr::from((self.server, 0)));
        for _ in 0..packets {
            let n = self.next;
            self.next = n.wrapping_add(1);
            let half = n / 2;
            let (kind, code) = if n.is_multiple_of(2) {
                ((half >> 8) as u8, half as u8)
            } else {
                let kind = ERRORS[half as usize % ERRORS.len()];
                (kind, (half / ERRORS.len() as u32) as u8 % CODES)
            };
            let message = self.message(kind, code, 1 + (half % u32::from(RECEIVERS)) as u8);
            if self.socket.send_to(&message, &to).is_ok() {
                self.traffic.add(message.len());
            }
        }
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn note(&self) -> String {
        let kinds = (self.next / 2).min(1 << 16);
        format!(
            "{} errors, of {kinds} of the 65,536 types and codes",
            self.next
        )
    }
}

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}
