//! Encoder and decoder together: the examples of the RFC, random exchanges, attacks.

mod compression;
mod examples;
mod exchange;
mod hostile;

use bytes::Bytes;

use super::{Decoded, Field};

/// Decodes hexadecimal digits, ignoring anything else between them.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    assert_eq!(digits.len() % 2, 0);
    let digit = |digit: u8| char::from(digit).to_digit(16).unwrap() as u8;
    digits
        .chunks(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

fn field(name: &str, value: &str) -> Field {
    let (name, value) = (Bytes::copy_from_slice(name.as_bytes()), value.as_bytes());
    Field {
        name,
        value: Bytes::copy_from_slice(value),
        sensitive: false,
    }
}

#[track_caller]
fn fields(decoded: Decoded) -> Vec<Field> {
    match decoded {
        Decoded::Fields(fields) => fields,
        other @ (Decoded::Blocked | Decoded::TooLarge) => panic!("{other:?}"),
    }
}
