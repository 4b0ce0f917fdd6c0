//! UDP sockets with their memory, from netlink (sock_diag(7)).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::netlink::{attributes, dump_request, messages, u16_at, u32_at};
use crate::error::ParseError;
use crate::socket::{SocketMemory, UdpSocket};

/// `SOCK_DIAG_BY_FAMILY`
const BY_FAMILY: u16 = 20;
/// `INET_DIAG_SKMEMINFO`: nine numbers of a socket's memory.
const SKMEMINFO: u16 = 7;
/// `IPPROTO_UDP`
const UDP: u8 = 17;
/// `AF_INET`
const INET: u8 = 2;
/// `AF_INET6`
const INET6: u8 = 10;
/// Length of `struct inet_diag_msg`.
const MESSAGE: usize = 72;

/// Writes a request for all UDP sockets of a family, with their memory.
#[must_use]
pub fn request(v6: bool) -> Vec<u8> {
    let mut body = vec![0; 56];
    let head = [if v6 { INET6 } else { INET }, UDP, 1 << (SKMEMINFO - 1), 0];
    body[..4].copy_from_slice(&head);
    // In any state.
    body[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
    dump_request(BY_FAMILY, &body)
}

/// Reads the answer.
///
/// # Errors
/// If a message is too short or of an unknown family.
pub fn parse(bytes: &[u8]) -> Result<Vec<UdpSocket>, ParseError> {
    let (messages, _) = messages(bytes)?;
    messages
        .iter()
        .filter(|message| message.kind == BY_FAMILY)
        .map(|message| socket(message.body))
        .collect()
}

fn socket(body: &[u8]) -> Result<UdpSocket, ParseError> {
    let wrong = || ParseError::new("a UDP socket", &format!("{} bytes", body.len()));
    let fixed: &[u8; MESSAGE] = body.first_chunk().ok_or_else(wrong)?;
    let v6 = match fixed[0] {
        INET => false,
        INET6 => true,
        _ => return Err(wrong()),
    };
    let number = |at| u32_at(fixed, at).ok_or_else(wrong);
    let mut socket = UdpSocket {
        local: address(fixed, v6, 4, 8).ok_or_else(wrong)?,
        remote: address(fixed, v6, 6, 24).ok_or_else(wrong)?,
        queue: u64::from(number(56)?),
        uid: number(64)?,
        inode: u64::from(number(68)?),
        drops: 0,
        memory: None,
    };
    for (kind, value) in attributes(body.get(MESSAGE..).unwrap_or_default()) {
        if kind == SKMEMINFO {
            let word = |index: usize| u32_at(value, index * 4).map(u64::from);
            socket.drops = word(8).unwrap_or(0);
            if let (Some(charged), Some(limit)) = (word(0), word(1)) {
                socket.memory = Some(SocketMemory { charged, limit });
            }
        }
    }
    Ok(socket)
}

fn address(bytes: &[u8], v6: bool, port_at: usize, ip_at: usize) -> Option<SocketAddr> {
    let port = u16::from_be(u16_at(bytes, port_at)?);
    let octets: [u8; 16] = *bytes.get(ip_at..)?.first_chunk()?;
    let ip = if v6 {
        IpAddr::V6(Ipv6Addr::from(octets))
    } else {
        IpAddr::V4(Ipv4Addr::from(*octets.first_chunk::<4>()?))
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(family: u8) -> Vec<u8> {
        let mut body = vec![0; MESSAGE];
        body[0] = family;
        body[4..6].copy_from_slice(&4433_u16.to_be_bytes());
        body[8..12].copy_from_slice(&[127, 0, 0, 1]);
        body[56..60].copy_from_slice(&2_304_u32.to_ne_bytes());
        body[68..72].copy_from_slice(&99_u32.to_ne_bytes());
        body.extend_from_slice(&40_u16.to_ne_bytes());
        body.extend_from_slice(&SKMEMINFO.to_ne_bytes());
        for word in [4_608_u32, 212_992, 0, 0, 0, 0, 0, 0, 55] {
            body.extend_from_slice(&word.to_ne_bytes());
        }
        dump_request(BY_FAMILY, &body)
    }

    #[test]
    fn socket_with_memory_is_read() {
        let sockets = parse(&message(INET)).unwrap();
        let [socket] = sockets.as_slice() else {
            panic!("{sockets:?}")
        };
        assert_eq!(socket.local, "127.0.0.1:4433".parse().unwrap());
        assert_eq!((socket.queue, socket.inode, socket.drops), (2_304, 99, 55));
        assert_eq!(socket.unreleased(), Some(2_304));
        assert_eq!(socket.memory.unwrap().limit, 212_992);
    }

    #[test]
    fn short_messages_and_unknown_families_are_errors() {
        assert!(parse(&message(77)).is_err());
        assert!(parse(&dump_request(BY_FAMILY, &[INET; 20])).is_err());
    }
}
