//! Bytes on the wire, valid or not: packets, frames, transport parameters, ClientHello, HTTP/3.
//!
//! What is written here is never checked: a prober has to be able to write what a correct
//! encoder refuses. What is read comes from the peer, so nothing here may panic on it.

pub(crate) mod codes;
pub(crate) mod frame;
pub(crate) mod hello;
pub(crate) mod http;
pub(crate) mod packet;
pub(crate) mod parameters;

/// Largest number that a variable-length integer can say (RFC 9000 §16).
pub(crate) const VARINT_MAX: u64 = (1 << 62) - 1;

/// Appends a variable-length integer in its shortest form (RFC 9000 §16). What is above
/// [`VARINT_MAX`] loses its two highest bits: numbers of scripts are checked before.
pub(crate) fn put_varint(out: &mut Vec<u8>, value: u64) {
    match value & VARINT_MAX {
        value @ 0..=0x3f => out.push(value as u8),
        value @ 0x40..=0x3fff => out.extend((value as u16 | 0x4000).to_be_bytes()),
        value @ 0x4000..=0x3fff_ffff => out.extend((value as u32 | 0x8000_0000).to_be_bytes()),
        value => out.extend((value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Appends bytes behind their length as a variable-length integer.
pub(crate) fn put_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends bytes behind their length in one byte.
///
/// # Errors
/// If there are more than 255.
pub(crate) fn put_short_prefixed(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), String> {
    let length = u8::try_from(bytes.len()).map_err(|_| {
        let count = bytes.len();
        format!("{count} bytes are more than the 255 that a length of one byte can say")
    })?;
    out.push(length);
    out.extend_from_slice(bytes);
    Ok(())
}

/// Returns bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use clearway_quic::wire::cursor::Reader;

    use super::*;

    #[test]
    fn varints_are_read_back_at_every_length() {
        for value in [
            0,
            0x3f,
            0x40,
            0x3fff,
            0x4000,
            0x3fff_ffff,
            0x4000_0000,
            VARINT_MAX,
        ] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.varint(), Some(value));
            assert!(reader.is_empty());
        }
    }
}
