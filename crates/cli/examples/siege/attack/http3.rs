//! What HTTP/3 clients send on streams, as bytes (RFC 9114, RFC 9204).

use super::wire::put_varint;

/// Stream types (RFC 9114 §6.2, RFC 9204 §4.2).
pub(crate) const CONTROL: u64 = 0x00;
pub(crate) const QPACK_ENCODER: u64 = 0x02;
pub(crate) const QPACK_DECODER: u64 = 0x03;

/// Frame types (RFC 9114 §7.2).
pub(crate) const DATA: u64 = 0x00;
pub(crate) const HEADERS: u64 = 0x01;
pub(crate) const SETTINGS: u64 = 0x04;
pub(crate) const GOAWAY: u64 = 0x07;
pub(crate) const MAX_PUSH_ID: u64 = 0x0d;
pub(crate) const PRIORITY_UPDATE: u64 = 0xf_0700;

/// A reserved stream or frame type (RFC 9114 §6.2.3, §7.2.8).
pub(crate) fn reserved(n: u64) -> u64 {
    0x1f * (n % 1_000) + 0x21
}

/// H3_REQUEST_CANCELLED (RFC 9114 §8.1).
pub(crate) const REQUEST_CANCELLED: u64 = 0x10c;

/// Static-table indices (RFC 9204 appendix A).
const AUTHORITY: u64 = 0;
const PATH: u64 = 1;
const CONTENT_LENGTH: u64 = 4;
const METHOD_GET: u64 = 17;
const METHOD_PUT: u64 = 21;
const SCHEME_HTTPS: u64 = 23;

/// Appends a frame.
pub(crate) fn put_frame(out: &mut Vec<u8>, kind: u64, payload: &[u8]) {
    put_varint(out, kind);
    put_varint(out, payload.len() as u64);
    out.extend_from_slice(payload);
}

/// The start of a control stream: its type and empty SETTINGS.
pub(crate) fn control_stream() -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, CONTROL);
    put_frame(&mut out, SETTINGS, &[]);
    out
}

/// The HEADERS frame of a GET.
pub(crate) fn get(path: &str) -> Vec<u8> {
    request(METHOD_GET, path, None)
}

/// The HEADERS frame of a GET with a Content-Length.
pub(crate) fn get_with_body(path: &str, length: u64) -> Vec<u8> {
    request(METHOD_GET, path, Some(length))
}

/// The HEADERS frame of a PUT and the header of a DATA frame with its whole body.
pub(crate) fn put(path: &str, length: u64) -> Vec<u8> {
    let mut out = request(METHOD_PUT, path, Some(length));
    put_varint(&mut out, DATA);
    put_varint(&mut out, length);
    out
}

fn request(method: u64, path: &str, content_length: Option<u64>) -> Vec<u8> {
    let mut out = Vec::new();
    put_frame(&mut out, HEADERS, &section(method, path, content_length));
    out
}

/// The field section of a GET.
pub(crate) fn get_section(path: &str) -> Vec<u8> {
    section(METHOD_GET, path, None)
}

fn section(method: u64, path: &str, content_length: Option<u64>) -> Vec<u8> {
    // No dynamic table: required insert count and base are zero.
    let mut out = vec![0, 0];
    put_indexed(&mut out, method);
    put_indexed(&mut out, SCHEME_HTTPS);
    put_named(&mut out, AUTHORITY, b"localhost");
    put_named(&mut out, PATH, path.as_bytes());
    if let Some(length) = content_length {
        put_named(&mut out, CONTENT_LENGTH, length.to_string().as_bytes());
    }
    out
}

/// Appends a field of the static table (RFC 9204 §4.5.2).
fn put_indexed(out: &mut Vec<u8>, index: u64) {
    put_integer(out, 0xc0, 6, index);
}

/// Appends a name of the static table and a value (RFC 9204 §4.5.4).
fn put_named(out: &mut Vec<u8>, name: u64, value: &[u8]) {
    put_integer(out, 0x50, 4, name);
    put_text(out, value);
}

/// Appends a string without Huffman coding.
fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_integer(out, 0, 7, text.len() as u64);
    out.extend_from_slice(text);
}

/// Appends a literal name and a value (RFC 9204 §4.5.6).
pub(crate) fn put_literal(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    put_integer(out, 0x20, 3, name.len() as u64);
    out.extend_from_slice(name);
    put_text(out, value);
}

/// A field section that requires `inserts` insertions into a dynamic table of 4 KiB
/// (RFC 9204 §4.5.1) and refers to the last.
pub(crate) fn blocked_section(inserts: u64) -> Vec<u8> {
    /// Twice the entries that fit into 4 KiB (RFC 9204 §4.5.1.1).
    const FULL_RANGE: u64 = 2 * (4096 / 32);
    let mut out = Vec::new();
    put_integer(&mut out, 0, 8, inserts % FULL_RANGE + 1);
    put_integer(&mut out, 0, 7, 0);
    // An indexed field of the dynamic table, relative to the base.
    put_integer(&mut out, 0x80, 6, 0);
    out
}

/// Appends Set Dynamic Table Capacity (RFC 9204 §4.3.1).
pub(crate) fn put_capacity(out: &mut Vec<u8>, capacity: u64) {
    put_integer(out, 0x20, 5, capacity);
}

/// Appends Insert with Literal Name (RFC 9204 §4.3.3).
pub(crate) fn put_insert(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    put_integer(out, 0x40, 5, name.len() as u64);
    out.extend_from_slice(name);
    put_text(out, value);
}

/// Appends a Duplicate of the newest entry (RFC 9204 §4.3.4).
pub(crate) fn put_duplicate(out: &mut Vec<u8>) {
    put_integer(out, 0, 5, 0);
}

/// Appends an integer with a prefix of `bits` bits (RFC 7541 §5.1).
fn put_integer(out: &mut Vec<u8>, flags: u8, bits: u32, value: u64) {
    let limit = (1 << bits) - 1;
    if value < limit {
        out.push(flags | value as u8);
        return;
    }
    out.push(flags | limit as u8);
    let mut rest = value - limit;
    while rest >= 128 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}
