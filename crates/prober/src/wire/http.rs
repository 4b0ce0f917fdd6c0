//! HTTP/3 frames and field sections, right or wrong (RFC 9114 §7.2, RFC 9204 §4.5), and reading
//! the peer's.

use clearway_http3::qpack::{Decoded, Decoder};
use clearway_quic::wire::cursor::Reader;

use super::{put_prefixed, put_varint};

/// HTTP/3 frame types (RFC 9114 §7.2).
pub(crate) mod kind {
    pub(crate) const DATA: u64 = 0x00;
    pub(crate) const HEADERS: u64 = 0x01;
    pub(crate) const CANCEL_PUSH: u64 = 0x03;
    pub(crate) const SETTINGS: u64 = 0x04;
    pub(crate) const GOAWAY: u64 = 0x07;
    pub(crate) const MAX_PUSH_ID: u64 = 0x0d;
}

/// Largest field section that is decoded, in bytes.
const MAX_SECTION: u64 = 64 << 10;

/// Appends a frame.
pub(crate) fn put_frame(out: &mut Vec<u8>, kind: u64, payload: &[u8]) {
    put_varint(out, kind);
    put_prefixed(out, payload);
}

/// Appends an integer with a prefix of `bits` bits whose byte begins with `first` (RFC 9204
/// §4.1.1).
fn put_integer(out: &mut Vec<u8>, first: u8, bits: u32, value: u64) {
    let max = (1_u64 << bits) - 1;
    if value < max {
        out.push(first | value as u8);
        return;
    }
    out.push(first | max as u8);
    let mut rest = value - max;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Returns fields as a field section that uses no table: literals with literal names, without
/// Huffman coding (RFC 9204 §4.5.6), so that any bytes can be written.
pub(crate) fn field_section<'a>(fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let mut out = vec![0, 0];
    for (name, value) in fields {
        put_integer(&mut out, 0x20, 3, name.len() as u64);
        out.extend_from_slice(name);
        put_integer(&mut out, 0x00, 7, value.len() as u64);
        out.extend_from_slice(value);
    }
    out
}

/// A complete frame of the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) kind: u64,
    pub(crate) payload: Vec<u8>,
}

/// Reads the complete frames in `bytes`.
pub(crate) fn frames(bytes: &[u8]) -> Vec<Received> {
    let mut reader = Reader::new(bytes);
    let mut frames = Vec::new();
    let mut next = || {
        let kind = reader.varint()?;
        let len = usize::try_from(reader.varint()?).ok()?;
        let payload = reader.bytes(len)?.to_vec();
        Some(Received { kind, payload })
    };
    while let Some(frame) = next() {
        frames.push(frame);
    }
    frames
}

/// Returns the status of the final response on a request stream, once its HEADERS have arrived.
pub(crate) fn status(stream: &[u8]) -> Option<u16> {
    let sections = frames(stream)
        .into_iter()
        .filter(|frame| frame.kind == kind::HEADERS);
    sections
        .filter_map(|frame| {
            let section = bytes::Bytes::from(frame.payload);
            let Ok(Decoded::Fields(fields)) = Decoder::new(0, 0).decode(0, section, MAX_SECTION)
            else {
                return None;
            };
            let field = fields.iter().map(|field| field.as_ref());
            let mut status = field.filter(|field| field.name == b":status");
            let value = status.next()?;
            core::str::from_utf8(value.value).ok()?.parse().ok()
        })
        // Interim responses come before the final one (RFC 9110 §15.2).
        .find(|status| *status >= 200)
}

/// Returns the peer's SETTINGS as identifiers and values, from the bytes of its control stream
/// behind the stream type.
pub(crate) fn settings(control: &[u8]) -> Option<Vec<(u64, u64)>> {
    let first = frames(control).into_iter().next()?;
    if first.kind != kind::SETTINGS {
        return None;
    }
    let mut reader = Reader::new(&first.payload);
    let mut settings = Vec::new();
    while let (Some(id), Some(value)) = (reader.varint(), reader.varint()) {
        settings.push((id, value));
    }
    Some(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_of_final_response_is_read() {
        let mut stream = Vec::new();
        put_frame(
            &mut stream,
            kind::HEADERS,
            &field_section([(&b":status"[..], &b"103"[..])]),
        );
        assert_eq!(status(&stream), None);
        put_frame(
            &mut stream,
            kind::HEADERS,
            &field_section([(&b":status"[..], &b"404"[..])]),
        );
        assert_eq!(status(&stream), Some(404));
        assert_eq!(status(&stream[..stream.len() - 1]), None);
        // Indexed: static entry 25 is `:status: 200`.
        assert_eq!(status(&[0x01, 0x03, 0x00, 0x00, 0xd9]), Some(200));
    }

    #[test]
    fn long_values_are_read_back() {
        let value = vec![b'a'; 5_000];
        let section = field_section([(&b"name-of-a-field"[..], &value[..])]);
        let decoded = Decoder::new(0, 0)
            .decode(0, section.into(), MAX_SECTION)
            .unwrap();
        let Decoded::Fields(fields) = decoded else {
            panic!("{decoded:?}")
        };
        assert_eq!(fields[0].as_ref().value, value);
    }

    #[test]
    fn settings_are_the_first_frame_of_the_control_stream() {
        let mut control = Vec::new();
        put_frame(
            &mut control,
            kind::SETTINGS,
            &[0x06, 0x40, 0x64, 0x01, 0x00],
        );
        assert_eq!(settings(&control), Some(vec![(6, 100), (1, 0)]));
        assert_eq!(settings(&[0x00, 0x00]), None);
    }
}
