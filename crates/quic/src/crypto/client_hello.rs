//! The transport parameters in a ClientHello, read before there is a TLS session.
//!
//! A server that may switch a client to another QUIC version has to know the client's versions
//! before it creates the session, because rustls fixes version and transport parameters then. So
//! the whole ClientHello is collected first. Whatever is wrong with it is left for TLS to report.

use crate::memory;
use crate::wire::Reader;

/// The type of a ClientHello (RFC 8446 §4).
const CLIENT_HELLO: u8 = 1;
/// Type and length of a handshake message.
const HEADER_LEN: usize = 4;
/// Extension quic_transport_parameters (RFC 9001 §8.2).
const QUIC_TRANSPORT_PARAMETERS: u16 = 0x39;
/// Length of the field Random (RFC 8446 §4.1.2).
const RANDOM_LEN: usize = 32;
/// Largest ClientHello that is collected, in bytes: what is buffered of the CRYPTO stream that
/// carries it. A longer one is passed on to TLS, in the client's version.
const MAX_LEN: usize = 16 << 10;

/// The beginning of a client's CRYPTO stream, until the ClientHello is complete.
#[derive(Debug, Default)]
pub(crate) struct ClientHello {
    bytes: Vec<u8>,
}

impl ClientHello {
    /// Appends the next bytes of the stream. Returns whether there is nothing more to wait for:
    /// the ClientHello is complete, too long, or is none.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        self.bytes.extend_from_slice(bytes);
        match self.body_len() {
            Some(len) => {
                let end = len.saturating_add(HEADER_LEN);
                self.bytes.len() >= end || end > MAX_LEN
            }
            // Too short for the header, or another message.
            None => self.bytes.len() >= HEADER_LEN,
        }
    }

    /// Returns all bytes so far.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the QUIC transport parameters in wire form; `None` if there are none, or if the
    /// ClientHello is not complete or malformed.
    pub(crate) fn transport_parameters(&self) -> Option<&[u8]> {
        let mut message = Reader::new(self.bytes.get(HEADER_LEN..)?);
        let mut body = Reader::new(message.bytes(self.body_len()?)?);
        let _legacy_version = body.u16()?;
        body.bytes(RANDOM_LEN)?;
        let session_id = body.u8()?;
        body.bytes(session_id.into())?;
        let cipher_suites = body.u16()?;
        body.bytes(cipher_suites.into())?;
        let compression = body.u8()?;
        body.bytes(compression.into())?;
        let len = body.u16()?;
        let mut extensions = Reader::new(body.bytes(len.into())?);
        while !extensions.is_empty() {
            let kind = extensions.u16()?;
            let len = extensions.u16()?;
            let data = extensions.bytes(len.into())?;
            if kind == QUIC_TRANSPORT_PARAMETERS {
                return Some(data);
            }
        }
        None
    }

    /// Returns the length of the message after its header; `None` if it is not known yet, or if
    /// the message is not a ClientHello.
    fn body_len(&self) -> Option<usize> {
        let mut reader = Reader::new(&self.bytes);
        let kind = reader.u8()?;
        let [high, middle, low] = reader.array::<3>()?;
        let len = u32::from_be_bytes([0, high, middle, low]);
        (kind == CLIENT_HELLO).then_some(len as usize)
    }

    /// Returns the bytes allocated.
    pub(crate) fn memory(&self) -> usize {
        memory::vec(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::testing::hex;

    /// The ClientHello of RFC 9001 §A.2 and RFC 9369 §A.2.
    fn sample() -> Vec<u8> {
        hex("010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e868
             04fe3a47f06a2b69484c00000413011302010000c000000010000e00000b6578
             616d706c652e636f6dff01000100000a00080006001d00170018001000070005
             04616c706e000500050100000000003300260024001d00209370b2c9caa47fba
             baf4559fedba753de171fa71f50f1ce15d43e994ec74d748002b000302030400
             0d0010000e0403050306030203080408050806002d00020101001c0002400100
             3900320408ffffffffffffffff05048000ffff07048000ffff08011001048000
             75300901100f088394c8f03e51570806048000ffff")
    }

    #[test]
    fn transport_parameters_are_found_once_client_hello_is_complete() {
        let sample = sample();
        let mut hello = ClientHello::default();
        for (at, byte) in sample.iter().enumerate() {
            assert_eq!(hello.transport_parameters(), None, "{at}");
            assert_eq!(hello.push(&[*byte]), at + 1 == sample.len(), "{at}");
        }
        let parameters = hello.transport_parameters().expect("parameters");
        assert_eq!(parameters[..2], [0x04, 0x08]);
        assert_eq!(parameters.len(), 0x32);
        assert_eq!(hello.bytes(), sample);
    }

    /// Bytes after the ClientHello are for TLS to judge.
    #[test]
    fn bytes_after_client_hello_are_kept() {
        let mut hello = ClientHello::default();
        assert!(hello.push(&[sample(), vec![7; 9]].concat()));
        assert!(hello.transport_parameters().is_some());
        assert!(hello.bytes().ends_with(&[7; 9]));
    }

    #[test]
    fn other_message_or_oversized_client_hello_is_not_waited_for() {
        assert!(ClientHello::default().push(&[2, 0, 0, 200]));
        assert!(ClientHello::default().push(&[1, 0, 0x40, 0]));
        assert!(!ClientHello::default().push(&[1, 0, 0x3f, 0]));
        let mut other = ClientHello::default();
        other.push(&[2, 0, 0, 0]);
        assert_eq!(other.transport_parameters(), None);
    }

    /// Whatever is cut off or changed, reading ends, without parameters of another extension.
    #[test]
    fn malformed_client_hello_has_no_parameters_or_ends_within_itself() {
        let sample = sample();
        for at in 4..sample.len() {
            for value in [0, 1, 0x39, 0x7f, 0xff] {
                let mut changed = sample.clone();
                changed[at] = value;
                let mut hello = ClientHello::default();
                assert!(hello.push(&changed), "{at}");
                if let Some(found) = hello.transport_parameters() {
                    assert!(found.len() < changed.len(), "{at}");
                }
            }
            let mut short = sample[..at].to_vec();
            let len = (at - 4).to_be_bytes();
            short[1..4].copy_from_slice(&len[5..]);
            let mut hello = ClientHello::default();
            assert!(hello.push(&short), "{at}");
            assert_eq!(hello.transport_parameters(), None, "{at}");
        }
    }
}
