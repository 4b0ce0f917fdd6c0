//! Hostile QPACK: an arbitrary encoder stream and field sections into a decoder, and an arbitrary
//! decoder stream into an encoder.
//!
//! Sizes stay within their limits, and no more streams are blocked than allowed.
#![no_main]

use bytes::Bytes;
use clearway_http3::qpack::{Decoded, Decoder, Encoder, FIELD_OVERHEAD, Field, FieldRef};
use libfuzzer_sys::fuzz_target;

const MAX_BLOCKED: u64 = 3;

/// Memory of an incomplete instruction per byte of table capacity, and memory for sections besides
/// their bytes.
const MEMORY_PER_CAPACITY: usize = 16;
const FIXED_MEMORY: usize = 256 << 10;

#[derive(arbitrary::Arbitrary, Debug)]
enum Input<'a> {
    EncoderStream(&'a [u8]),
    Section(u8, &'a [u8], u16),
    Cancel(u8),
    DecoderStream(&'a [u8]),
    Encode(u8, u8),
}

fuzz_target!(|input: (u16, Vec<Input<'_>>)| {
    let (capacity, inputs) = input;
    let mut decoder = Decoder::new(capacity.into(), MAX_BLOCKED);
    let mut encoder = Encoder::new(usize::from(capacity));
    encoder
        .set_peer_limits(capacity.into(), MAX_BLOCKED)
        .expect("the first SETTINGS");
    let mut kept = 0;
    for input in inputs {
        match input {
            Input::EncoderStream(bytes) => {
                if decoder.on_encoder_stream(bytes).is_err() {
                    return;
                }
                while let Some(stream) = decoder.next_unblocked() {
                    match decoder.resume(stream) {
                        Ok(decoded) => assert_ne!(decoded, Some(Decoded::Blocked)),
                        Err(_) => return,
                    }
                }
            }
            Input::Section(stream, bytes, limit) => {
                let section = Bytes::copy_from_slice(bytes);
                match decoder.decode(stream.into(), section, limit.into()) {
                    Ok(Decoded::Fields(fields)) => check_size(&fields, limit.into()),
                    Ok(Decoded::Blocked) => kept += bytes.len() + 512,
                    Ok(Decoded::TooLarge) => {}
                    Err(_) => return,
                }
            }
            Input::Cancel(stream) => decoder.cancel(stream.into()),
            Input::DecoderStream(bytes) => {
                if encoder.on_decoder_stream(bytes).is_err() {
                    return;
                }
            }
            Input::Encode(stream, value) => {
                let value = [value; 3];
                let field = FieldRef::new(b"server", &value);
                encoder.encode(stream.into(), [field], &mut Vec::new());
            }
        }
        assert!(decoder.blocked_streams() <= MAX_BLOCKED);
        let bound = FIXED_MEMORY + MEMORY_PER_CAPACITY * usize::from(capacity);
        assert!(decoder.memory() <= bound + kept, "{}", decoder.memory());
        assert!(
            encoder.memory() <= bound + (1 << 20),
            "{}",
            encoder.memory()
        );
    }
    decoder.instructions();
});

fn check_size(fields: &[Field], limit: usize) {
    let size: usize = (fields.iter())
        .map(|field| field.name.len() + field.value.len() + FIELD_OVERHEAD)
        .sum();
    assert!(size <= limit, "{size} above {limit}");
}
