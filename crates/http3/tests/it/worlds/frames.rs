//! The frames that a peer sends on request streams, and their bytes.

use clearway_http3::qpack::{Encoder, FieldRef};

use crate::hostile::hostile_peer::{
    CANCEL_PUSH, DATA, GOAWAY, HEADERS, MAX_PUSH_ID, PRIORITY_UPDATE, PRIORITY_UPDATE_PUSH,
    PUSH_PROMISE, RESERVED, SETTINGS, frame,
};

/// A frame on a request stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum TestFrame {
    /// A header section: GET from a client, 200 from a server.
    Head,
    /// A header section with `content-length: 5`: POST, or 200.
    HeadWithLength,
    /// 103 from a server.
    Interim,
    /// A header section like [`Head`](Self::Head) that refers to the first entry of the
    /// dynamic table.
    HeadWithEntry1,
    /// A section of one plain field: trailers.
    Trailers,
    /// Trailers that refer to the first entry of the dynamic table.
    TrailersWithEntry1,
    /// The same with the second entry.
    HeadWithEntry2,
    TrailersWithEntry2,
    /// A section that cannot be decoded.
    Undecodable,
    /// A DATA frame of this length.
    Data(u8),
    /// A frame of a reserved type.
    Reserved,
    /// A frame that is not allowed on a request stream.
    Forbidden(u64),
}

/// All known frame types that are not allowed on a request stream.
pub(super) const FORBIDDEN: [u64; 11] = [
    CANCEL_PUSH,
    SETTINGS,
    PUSH_PROMISE,
    GOAWAY,
    MAX_PUSH_ID,
    PRIORITY_UPDATE,
    PRIORITY_UPDATE_PUSH,
    // HTTP/2's (RFC 9114 §7.2.8).
    0x02,
    0x06,
    0x08,
    0x09,
];

/// The instruction that sets the capacity, and the one that inserts `a: b`.
pub(super) const CAPACITY: &[u8] = &[0x3f, 0xe1, 0x1f];
pub(super) const INSERT: &[u8] = &[0x41, b'a', 0x01, b'b'];

fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    let fields = fields
        .iter()
        .map(|(name, value)| FieldRef::new(name.as_bytes(), value.as_bytes()));
    Encoder::new(0).encode(0, fields, &mut out);
    out
}

/// A field section with the `nth` entry of the dynamic table added: Required Insert Count and Base
/// are `nth`.
fn by_table(nth: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = section(fields);
    out[..2].copy_from_slice(&[nth + 1, 0x00]);
    out.push(0x80);
    out
}

impl TestFrame {
    /// Returns the Required Insert Count of the section.
    pub(super) fn required(self) -> u8 {
        match self {
            Self::HeadWithEntry1 | Self::TrailersWithEntry1 => 1,
            Self::HeadWithEntry2 | Self::TrailersWithEntry2 => 2,
            Self::Head
            | Self::HeadWithLength
            | Self::Interim
            | Self::Trailers
            | Self::Undecodable
            | Self::Data(_)
            | Self::Reserved
            | Self::Forbidden(_) => 0,
        }
    }

    /// Encodes the frame, as sent by a client or by a server.
    pub(super) fn bytes(self, client: bool) -> Vec<u8> {
        let request = |method| {
            [
                (":method", method),
                (":scheme", "https"),
                (":authority", "h"),
                (":path", "/"),
            ]
        };
        let head: &[(&str, &str)] = if client {
            &request("GET")
        } else {
            &[(":status", "200")]
        };
        let post: &[(&str, &str)] = if client {
            &request("POST")
        } else {
            &[(":status", "200")]
        };
        match self {
            Self::Head => frame(HEADERS, &section(head)),
            Self::HeadWithLength => {
                let fields = [post, &[("content-length", "5")]].concat();
                frame(HEADERS, &section(&fields))
            }
            Self::Interim => frame(HEADERS, &section(&[(":status", "103")])),
            Self::HeadWithEntry1 | Self::HeadWithEntry2 => {
                frame(HEADERS, &by_table(self.required(), head))
            }
            Self::Trailers => frame(HEADERS, &section(&[("t", "u")])),
            Self::TrailersWithEntry1 | Self::TrailersWithEntry2 => {
                frame(HEADERS, &by_table(self.required(), &[]))
            }
            // A static table index that does not exist.
            Self::Undecodable => frame(HEADERS, &[0, 0, 0xff, 0x40]),
            Self::Data(len) => frame(DATA, &vec![7; len.into()]),
            // The type in a long encoding, so that it can be split.
            Self::Reserved => [&[0x40, RESERVED as u8, 3][..], b"abc"].concat(),
            Self::Forbidden(kind) => frame(kind, &[0]),
        }
    }
}
