//! UDP datagrams in captured frames: link layer, IP, UDP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use clearway_quic::wire::Reader;

const UDP: u8 = 17;
/// Maximum number of IPv6 extension headers that are skipped.
const MAX_EXTENSIONS: usize = 8;

/// A UDP datagram.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Datagram<'a> {
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    /// The two bits of ECN (RFC 3168).
    pub(super) ecn: u8,
    pub(super) payload: &'a [u8],
}

/// Finds the UDP datagram in a frame; `None` for everything else, fragments included.
pub(super) fn datagram(link_type: u16, frame: &[u8]) -> Option<Datagram<'_>> {
    let packet = match link_type {
        // Ethernet.
        1 => ethernet(frame)?,
        // BSD loopback, in the byte order of either host: the first nibble of IP says the rest.
        0 | 108 => frame.get(4..)?,
        // IP alone; the older numbers are those of pcap files.
        12 | 14 | 101 | 228 | 229 => frame,
        // Linux "cooked".
        113 => ip(frame.get(14..16)?, frame.get(16..)?)?,
        276 => ip(frame.get(..2)?, frame.get(20..)?)?,
        _ => return None,
    };
    match packet.first()? >> 4 {
        4 => ipv4(packet),
        6 => ipv6(packet),
        _ => None,
    }
}

/// What follows an EtherType, if that is IP.
fn ip<'a>(kind: &[u8], rest: &'a [u8]) -> Option<&'a [u8]> {
    match kind {
        [0x08, 0x00] | [0x86, 0xdd] => Some(rest),
        _ => None,
    }
}

fn ethernet(frame: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader::new(frame);
    reader.bytes(12)?;
    loop {
        let kind: [u8; 2] = reader.array()?;
        // VLAN tags (IEEE 802.1Q, 802.1ad).
        if !matches!(kind, [0x81, 0x00] | [0x88, 0xa8]) {
            return ip(&kind, reader.rest());
        }
        reader.bytes(2)?;
    }
}

fn ipv4(packet: &[u8]) -> Option<Datagram<'_>> {
    let mut reader = Reader::new(packet);
    let header_len = usize::from(reader.u8()? & 0x0f).saturating_mul(4);
    let ecn = reader.u8()? & 3;
    let total: [u8; 2] = reader.array()?;
    reader.bytes(2)?;
    let fragment: [u8; 2] = reader.array()?;
    reader.u8()?;
    if reader.u8()? != UDP || u16::from_be_bytes(fragment) & 0x3fff != 0 {
        return None;
    }
    reader.bytes(2)?;
    let source: [u8; 4] = reader.array()?;
    let destination: [u8; 4] = reader.array()?;
    // Offloaded segments may have no length.
    let total = match usize::from(u16::from_be_bytes(total)) {
        0 => packet.len(),
        total => total.min(packet.len()),
    };
    let body = packet.get(header_len..total)?;
    udp(
        Ipv4Addr::from(source).into(),
        Ipv4Addr::from(destination).into(),
        ecn,
        body,
    )
}

fn ipv6(packet: &[u8]) -> Option<Datagram<'_>> {
    let mut reader = Reader::new(packet);
    let first: [u8; 2] = reader.array()?;
    let ecn = (u16::from_be_bytes(first) >> 4 & 3) as u8;
    reader.bytes(2)?;
    let len: [u8; 2] = reader.array()?;
    let mut next = reader.u8()?;
    reader.u8()?;
    let source: [u8; 16] = reader.array()?;
    let destination: [u8; 16] = reader.array()?;
    let mut body = reader.rest();
    let len = usize::from(u16::from_be_bytes(len));
    if len > 0 {
        body = body.get(..len.min(body.len()))?;
    }
    // Hop-by-hop, routing and destination options.
    for _ in 0..MAX_EXTENSIONS {
        if !matches!(next, 0 | 43 | 60) {
            break;
        }
        next = *body.first()?;
        let len = usize::from(*body.get(1)?)
            .saturating_add(1)
            .saturating_mul(8);
        body = body.get(len..)?;
    }
    if next != UDP {
        return None;
    }
    udp(
        Ipv6Addr::from(source).into(),
        Ipv6Addr::from(destination).into(),
        ecn,
        body,
    )
}

fn udp(source: IpAddr, destination: IpAddr, ecn: u8, body: &[u8]) -> Option<Datagram<'_>> {
    let mut reader = Reader::new(body);
    let source_port: [u8; 2] = reader.array()?;
    let destination_port: [u8; 2] = reader.array()?;
    let length: [u8; 2] = reader.array()?;
    reader.bytes(2)?;
    let rest = reader.rest();
    // A train of segments that was captured before it was cut has the length of the first, or 0.
    let length = usize::from(u16::from_be_bytes(length)).saturating_sub(8);
    let payload = if length == 0 || length > rest.len() {
        rest
    } else {
        rest.get(..length)?
    };
    Some(Datagram {
        source: SocketAddr::new(source, u16::from_be_bytes(source_port)),
        destination: SocketAddr::new(destination, u16::from_be_bytes(destination_port)),
        ecn,
        payload,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4_udp(payload: &[u8]) -> Vec<u8> {
        let total = 28 + payload.len() as u16;
        let mut out = vec![0x45, 0x02];
        out.extend(total.to_be_bytes());
        out.extend([0, 0, 0x40, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        out.extend(5000_u16.to_be_bytes());
        out.extend(443_u16.to_be_bytes());
        out.extend((8 + payload.len() as u16).to_be_bytes());
        out.extend([0, 0]);
        out.extend_from_slice(payload);
        out
    }

    #[test]
    fn datagram_is_found_under_every_link_layer() {
        let packet = ipv4_udp(b"payload");
        let with = |head: &[u8]| [head, packet.as_slice()].concat();
        let ethernet = with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0]);
        let vlan = with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x81, 0, 0, 7, 8, 0]);
        let cooked = with(&[0, 0, 3, 4, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0]);
        let cooked_2 = with(&[8, 0, 0, 0, 0, 0, 0, 1, 3, 4, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0]);
        for (link_type, frame) in [
            (1, ethernet),
            (1, vlan),
            (0, with(&[2, 0, 0, 0])),
            (101, packet.clone()),
            (113, cooked),
            (276, cooked_2),
        ] {
            let found = datagram(link_type, &frame).expect("a datagram");
            assert_eq!(found.payload, b"payload", "{link_type}");
            assert_eq!(found.source, ([10, 0, 0, 1], 5000).into());
            assert_eq!(found.destination, ([10, 0, 0, 2], 443).into());
            assert_eq!(found.ecn, 2);
        }
        assert_eq!(datagram(9, &packet), None);
    }

    #[test]
    fn ethernet_padding_is_not_part_of_the_payload() {
        let mut packet = ipv4_udp(b"x");
        packet.extend([0; 20]);
        assert_eq!(datagram(101, &packet).expect("a datagram").payload, b"x");
    }

    #[test]
    fn fragments_and_other_protocols_are_skipped() {
        let mut fragment = ipv4_udp(b"payload");
        fragment[6] = 0x20;
        assert_eq!(datagram(101, &fragment), None);
        let mut tcp = ipv4_udp(b"payload");
        tcp[9] = 6;
        assert_eq!(datagram(101, &tcp), None);
    }

    #[test]
    fn ipv6_extension_headers_are_skipped() {
        let mut packet = vec![0x60, 0x30, 0, 0, 0, 18, 60, 64];
        packet.extend([0; 15]);
        packet.push(1);
        packet.extend([0; 15]);
        packet.push(2);
        packet.extend([UDP, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend([0, 1, 0, 2, 0, 10, 0, 0, b'a', b'b']);
        let found = datagram(101, &packet).expect("a datagram");
        assert_eq!(found.payload, b"ab");
        assert_eq!(found.ecn, 3);
        assert_eq!(found.destination.port(), 2);
    }

    #[test]
    fn every_truncation_is_rejected_or_shorter() {
        let packet = ipv4_udp(b"payload");
        for len in 0..packet.len() {
            let found = datagram(101, &packet[..len]);
            assert!(found.is_none_or(|it| it.payload.len() < 7), "{len}");
        }
    }
}
