//! What a peer may say on the stream of a request, and the bytes of it.

use clearway_http3::qpack::{Encoder, FieldRef};

use crate::hostile::forger::{
    CANCEL_PUSH, DATA, GOAWAY, HEADERS, MAX_PUSH_ID, PRIORITY_UPDATE, PRIORITY_UPDATE_PUSH,
    PUSH_PROMISE, RESERVED, SETTINGS, frame,
};

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Said {
    /// A header section: GET from a client, 200 from a server.
    Head,
    /// A header section with `content-length: 5`: POST, or 200.
    HeadOfFive,
    /// 103 from a server.
    Interim,
    /// A header section like [`Head`](Self::Head) that refers to the first entry of the
    /// dynamic table.
    HeadByTable,
    /// A section of one plain field: trailers.
    Trailers,
    /// Trailers that refer to the first entry of the dynamic table.
    TrailersByTable,
    /// The same with the second entry.
    HeadBySecond,
    TrailersBySecond,
    /// A section that cannot be decoded.
    Undecodable,
    /// So many bytes of content.
    Data(u8),
    /// A frame of a reserved type.
    Grease,
    /// A frame that has no place on the stream of a request.
    Forbidden(u64),
}

/// All frame types that are known and have no place on the stream of a request.
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

/// The instruction that inserts `a: b`, and the one before it that makes room.
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

/// The same, and the `nth` entry of the dynamic table: Required Insert Count and Base
/// of `nth`.
fn by_table(nth: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = section(fields);
    out[..2].copy_from_slice(&[nth + 1, 0x00]);
    out.push(0x80);
    out
}

impl Said {
    /// Entries that the dynamic table must have had for its section.
    pub(super) fn required(self) -> u8 {
        match self {
            Self::HeadByTable | Self::TrailersByTable => 1,
            Self::HeadBySecond | Self::TrailersBySecond => 2,
            Self::Head
            | Self::HeadOfFive
            | Self::Interim
            | Self::Trailers
            | Self::Undecodable
            | Self::Data(_)
            | Self::Grease
            | Self::Forbidden(_) => 0,
        }
    }

    /// The frame on the wire, from a client or from a server.
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
            Self::HeadOfFive => {
                let fields = [post, &[("content-length", "5")]].concat();
                frame(HEADERS, &section(&fields))
            }
            Self::Interim => frame(HEADERS, &section(&[(":status", "103")])),
            Self::HeadByTable | Self::HeadBySecond => {
                frame(HEADERS, &by_table(self.required(), head))
            }
            Self::Trailers => frame(HEADERS, &section(&[("t", "u")])),
            Self::TrailersByTable | Self::TrailersBySecond => {
                frame(HEADERS, &by_table(self.required(), &[]))
            }
            // A static entry that is not.
            Self::Undecodable => frame(HEADERS, &[0, 0, 0xff, 0x40]),
            Self::Data(len) => frame(DATA, &vec![7; len.into()]),
            // The type in its long form, so that it can be cut.
            Self::Grease => [&[0x40, RESERVED as u8, 3][..], b"abc"].concat(),
            Self::Forbidden(kind) => frame(kind, &[0]),
        }
    }
}
