//! What a load balancer may read of a packet: the fields that no version of QUIC changes.

/// The fixed part of a packet's header (RFC 8999 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header<'a> {
    /// A long header (RFC 8999 §5.1).
    Long {
        /// The first byte; what its low seven bits mean depends on the version.
        first: u8,
        /// The version; 0 is a Version Negotiation packet.
        version: u32,
        /// The destination connection ID, 0 to 255 bytes.
        dcid: &'a [u8],
        /// The source connection ID, 0 to 255 bytes.
        scid: &'a [u8],
    },
    /// A short header (RFC 8999 §5.2).
    Short {
        /// The packet after its first byte, which begins with a destination connection ID of
        /// unknown length.
        rest: &'a [u8],
    },
}

/// Which packet a long header of a known version begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderForm {
    /// An Initial packet, which may start a connection.
    Initial,
    /// A packet that belongs to a connection.
    Other,
    /// The version is unknown, so nobody can tell.
    Unknown,
}

const LONG: u8 = 0x80;

/// QUIC version 1 (RFC 9000).
const V1: u32 = 1;
/// QUIC version 2 (RFC 9369).
const V2: u32 = 0x6b33_43cf;

impl<'a> Header<'a> {
    /// Reads the header of a datagram's first packet. `None` if the datagram ends within it.
    #[must_use]
    pub fn parse(datagram: &'a [u8]) -> Option<Self> {
        let (&first, rest) = datagram.split_first()?;
        if first & LONG == 0 {
            return Some(Self::Short { rest });
        }
        let (version, rest) = rest.split_first_chunk()?;
        let (dcid, rest) = connection_id(rest)?;
        let (scid, _) = connection_id(rest)?;
        Some(Self::Long {
            first,
            version: u32::from_be_bytes(*version),
            dcid,
            scid,
        })
    }

    /// Returns which packet this is, as far as its version is known.
    #[must_use]
    pub fn form(&self) -> HeaderForm {
        match *self {
            Self::Short { .. } => HeaderForm::Other,
            Self::Long { first, version, .. } => {
                // The bits of the type in version 1 (RFC 9000 §17.2) and 2 (RFC 9369 §3.2).
                let initial = match version {
                    V1 => 0b00,
                    V2 => 0b01,
                    _ => return HeaderForm::Unknown,
                };
                if first >> 4 & 0b11 == initial {
                    HeaderForm::Initial
                } else {
                    HeaderForm::Other
                }
            }
        }
    }

    /// Returns the bytes that begin with the destination connection ID: only the ID of a long
    /// header, all the rest of a short one.
    #[must_use]
    pub fn dcid(&self) -> &'a [u8] {
        match *self {
            Self::Long { dcid, .. } => dcid,
            Self::Short { rest } => rest,
        }
    }
}

fn connection_id(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn long(first: u8, version: u32, dcid: &[u8], scid: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x80 | first];
        packet.extend(version.to_be_bytes());
        for cid in [dcid, scid] {
            packet.push(cid.len() as u8);
            packet.extend(cid);
        }
        packet
    }

    #[test]
    fn connection_ids_of_every_length_are_read() {
        for len in 0..=255 {
            let (dcid, scid) = (vec![1; len], vec![2; 255 - len]);
            let packet = long(0, 0x0a0a_0a0a, &dcid, &scid);
            let header = Header::parse(&packet).unwrap();
            let expected = Header::Long {
                first: 0x80,
                version: 0x0a0a_0a0a,
                dcid: &dcid,
                scid: &scid,
            };
            assert_eq!(header, expected);
            assert_eq!(header.form(), HeaderForm::Unknown);
            assert_eq!(Header::parse(&packet[..packet.len() - 1]), None);
        }
    }

    #[test]
    fn initial_packets_of_versions_1_and_2_are_recognised() {
        for bits in 0..4_u8 {
            let form = |version| {
                let packet = long(bits << 4, version, &[], &[]);
                Header::parse(&packet).unwrap().form()
            };
            let expected = |initial| match bits == initial {
                true => HeaderForm::Initial,
                false => HeaderForm::Other,
            };
            assert_eq!(form(V1), expected(0));
            assert_eq!(form(V2), expected(1));
        }
        assert_eq!(Header::parse(&[0x40]).unwrap().form(), HeaderForm::Other);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Some(header) = Header::parse(&bytes) {
                let _ = header.form();
                prop_assert!(header.dcid().len() < bytes.len());
            } else {
                prop_assert!(bytes.is_empty() || bytes[0] & 0x80 != 0);
            }
        }
    }
}
