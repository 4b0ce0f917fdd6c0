//! Frames and integers as bytes (RFC 9000 §16, §19), independent of the library's own
//! writers, which refuse some of what a hostile peer sends.

/// Appends a variable-length integer in its shortest form.
pub(crate) fn put_varint(out: &mut Vec<u8>, value: u64) {
    let (length, prefix): (usize, u8) = match value {
        0..=0x3f => (1, 0x00),
        0x40..=0x3fff => (2, 0x40),
        0x4000..=0x3fff_ffff => (4, 0x80),
        _ => (8, 0xc0),
    };
    let start = out.len();
    out.extend_from_slice(&value.to_be_bytes()[8 - length..]);
    out[start] |= prefix;
}

/// Several variable-length integers: most frames are nothing else.
pub(crate) fn integers(values: &[u64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 * values.len());
    for &value in values {
        put_varint(&mut out, value);
    }
    out
}

/// Appends a STREAM frame with an offset and a length.
pub(crate) fn put_stream(out: &mut Vec<u8>, id: u64, offset: u64, data: &[u8]) {
    // STREAM with OFF and LEN.
    put_varint(out, 0x08 | 0x04 | 0x02);
    put_varint(out, id);
    put_varint(out, offset);
    put_varint(out, data.len() as u64);
    out.extend_from_slice(data);
}

/// Appends a CRYPTO frame.
pub(crate) fn put_crypto(out: &mut Vec<u8>, offset: u64, data: &[u8]) {
    put_varint(out, 0x06);
    put_varint(out, offset);
    put_varint(out, data.len() as u64);
    out.extend_from_slice(data);
}
