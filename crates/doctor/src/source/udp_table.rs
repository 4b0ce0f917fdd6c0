//! `/proc/net/udp` and `/proc/net/udp6`: the sockets as text. Netlink tells more
//! ([`super::sock_diag`]); this is for kernels without it.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::error::ParseError;
use crate::socket::UdpSocket;

/// Reads the sockets.
///
/// # Errors
/// If a line lacks a column, or a column is not what it should be.
pub fn parse(text: &str) -> Result<Vec<UdpSocket>, ParseError> {
    text.lines()
        .skip(1)
        .filter(|line| !line.trim().is_empty())
        .map(socket)
        .collect()
}

/// `sl local remote state tx:rx timer:when retransmits uid timeout inode references pointer drops`
fn socket(line: &str) -> Result<UdpSocket, ParseError> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let word = |index: usize| {
        let word = words.get(index).copied();
        word.ok_or_else(|| ParseError::new("thirteen columns", line))
    };
    let decimal = |index: usize| {
        let word = word(index)?;
        word.parse::<u64>()
            .map_err(|_| ParseError::new("a number", word))
    };
    let queues = word(4)?;
    let queue = queues
        .split_once(':')
        .and_then(|(_, queue)| u64::from_str_radix(queue, 16).ok())
        .ok_or_else(|| ParseError::new("two hexadecimal sizes of queues", queues))?;
    Ok(UdpSocket {
        local: address(word(1)?)?,
        remote: address(word(2)?)?,
        inode: decimal(9)?,
        uid: u32::try_from(decimal(7)?).unwrap_or(u32::MAX),
        queue,
        drops: decimal(12)?,
        memory: None,
    })
}

/// `0100007F:1F90`: each 32-bit word of the address in the byte order of the host.
fn address(text: &str) -> Result<SocketAddr, ParseError> {
    let wrong = || ParseError::new("an address and a port in hexadecimal", text);
    let (ip, port) = text.split_once(':').ok_or_else(wrong)?;
    let port = u16::from_str_radix(port, 16).map_err(|_| wrong())?;
    let word = |index: usize| {
        let digits = ip.get(index * 8..index * 8 + 8).ok_or_else(wrong)?;
        u32::from_str_radix(digits, 16)
            .map(u32::to_ne_bytes)
            .map_err(|_| wrong())
    };
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut octets = [0; 16];
            for (index, chunk) in octets.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(index)?);
            }
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        _ => return Err(wrong()),
    };
    Ok(SocketAddr::new(ip, port))
}

#[cfg(all(test, target_endian = "little"))]
mod tests {
    use super::*;

    const V4: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  511: 0100007F:1151 00000000:0000 07 00000000:00033CC0 00:00000000 00000000  1000        0 32144 2 0000000000000000 77
";

    #[test]
    fn addresses_queue_and_drops_are_read() {
        let sockets = parse(V4).unwrap();
        let [socket] = sockets.as_slice() else {
            panic!("{sockets:?}")
        };
        assert_eq!(socket.local, "127.0.0.1:4433".parse().unwrap());
        assert_eq!((socket.queue, socket.drops), (0x33cc0, 77));
        assert_eq!((socket.inode, socket.uid), (32_144, 1_000));
    }

    #[test]
    fn ipv6_address_is_four_words() {
        let local = address("00000000000000000000000001000000:01BB").unwrap();
        assert_eq!(local, "[::1]:443".parse().unwrap());
        for text in ["", "1:2", "0100007F", "0100007G:1", "é00007F:11"] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
