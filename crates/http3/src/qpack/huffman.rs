//! The static Huffman code (RFC 7541 Appendix B, used by RFC 9204 §4.1.2).
//!
//! The code is canonical: of two symbols, the one with the shorter code, then the one with the
//! smaller value, has the smaller code. So only the lengths are listed; codes and decoding tables
//! are computed from them at compile time.

use bytes::BufMut;

use super::error::Reason;
use crate::byte_map::ByteMap;

/// The end-of-string symbol, which no string may contain.
const EOS: usize = 256;

/// The length of each symbol's code, in bits (RFC 7541 Appendix B).
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

const MIN_BITS: usize = 5;
const MAX_BITS: usize = 30;

/// How many bits a lookup in [`LOOKUP`] uses.
const WINDOW: usize = 11;

/// Everything that follows from [`LENGTHS`].
struct Code {
    /// Symbols by code.
    symbols: [u16; 257],
    /// By length: the first code of this length.
    first: [u32; MAX_BITS + 1],
    /// By length: where [`Code::symbols`] of this length begin.
    start: [u16; MAX_BITS + 1],
    /// By length: the end of its codes as the top bits of 32.
    limit: [u64; MAX_BITS + 1],
}

impl Code {
    /// The symbol whose code is the first `len` of `bits`, of which no fewer are a code.
    fn symbol(&self, bits: u64, len: usize) -> Option<u16> {
        if bits >> 32 >= *self.limit.get(len)? {
            return None;
        }
        let code = bits.checked_shr(64_u32.checked_sub(len as u32)?)? as usize;
        let rank = code.checked_sub(*self.first.get(len)? as usize)?;
        let at = usize::from(*self.start.get(len)?).checked_add(rank)?;
        self.symbols.get(at).copied()
    }
}

static CODE: Code = CANONICAL.0;

/// The code, and each symbol's in its low bits.
const CANONICAL: (Code, [u32; 257]) = canonical();

#[expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "done while compiling, which fails if it panics"
)]
const fn canonical() -> (Code, [u32; 257]) {
    let mut codes = [0; 257];
    let mut code = Code {
        symbols: [0; 257],
        first: [0; MAX_BITS + 1],
        start: [0; MAX_BITS + 1],
        limit: [0; MAX_BITS + 1],
    };
    let (mut next, mut placed, mut bits) = (0_u32, 0, MIN_BITS);
    while bits <= MAX_BITS {
        code.first[bits] = next;
        code.start[bits] = placed as u16;
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == bits {
                codes[symbol] = next;
                code.symbols[placed] = symbol as u16;
                next += 1;
                placed += 1;
            }
            symbol += 1;
        }
        code.limit[bits] = (next as u64) << (32 - bits);
        next <<= 1;
        bits += 1;
    }
    (code, codes)
}

/// What the next [`WINDOW`] bits begin with: one or two symbols, or a code that is longer
/// (`symbols` is 0).
#[derive(Clone, Copy)]
struct LookupEntry {
    text: [u8; 2],
    symbols: u8,
    bits: u8,
}

static LOOKUP: [LookupEntry; 1 << WINDOW] = lookup_table();

#[expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "done while compiling, which fails if it panics"
)]
const fn lookup_table() -> [LookupEntry; 1 << WINDOW] {
    let none = LookupEntry {
        text: [0; 2],
        symbols: 0,
        bits: 0,
    };
    let mut single = [none; 1 << WINDOW];
    let mut symbol = 0;
    while symbol < EOS {
        let bits = LENGTHS[symbol] as usize;
        if bits <= WINDOW {
            let from = (CANONICAL.1[symbol] as usize) << (WINDOW - bits);
            let mut at = from;
            while at < from + (1 << (WINDOW - bits)) {
                single[at] = LookupEntry {
                    text: [symbol as u8, 0],
                    symbols: 1,
                    bits: bits as u8,
                };
                at += 1;
            }
        }
        symbol += 1;
    }
    let mut lookup_table = single;
    let mut at = 0;
    while at < lookup_table.len() {
        let one = single[at];
        let two = single[(at << one.bits) & ((1 << WINDOW) - 1)];
        if one.symbols == 1 && two.symbols == 1 && (one.bits + two.bits) as usize <= WINDOW {
            lookup_table[at] = LookupEntry {
                text: [one.text[0], two.text[0]],
                symbols: 2,
                bits: one.bits + two.bits,
            };
        }
        at += 1;
    }
    lookup_table
}

/// Returns the length of `text` when encoded, in bytes.
pub(super) fn encoded_len(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|&byte| usize::from(BITS.get(byte))).sum();
    bits.div_ceil(8)
}

/// Bits of each byte's code.
static BITS: ByteMap<u8> = {
    let [bytes @ .., _eos] = LENGTHS;
    ByteMap::new(bytes)
};

/// Each byte's code, in its low bits.
static CODES: ByteMap<u32> = {
    let [bytes @ .., _eos] = CANONICAL.1;
    ByteMap::new(bytes)
};

/// Appends the encoded `text`, padded with the most significant bits of EOS.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "31 bits are held at most when 30 come, and 64 hold both"
)]
pub(super) fn encode(out: &mut impl BufMut, text: &[u8]) {
    // The low `held` bits of `bits` are not written yet: below 32 between symbols.
    let (mut bits, mut held) = (0_u64, 0_u32);
    for &byte in text {
        let len = u32::from(BITS.get(byte));
        bits = bits << len | u64::from(CODES.get(byte));
        held += len;
        if held >= 32 {
            held -= 32;
            out.put_u32((bits >> held) as u32);
        }
    }
    while held >= 8 {
        held -= 8;
        out.put_u8((bits >> held) as u8);
    }
    if held > 0 {
        out.put_u8((bits << (8 - held)) as u8 | 0xff >> held);
    }
}

/// Returns the minimum and the maximum length of a string with `len` encoded bytes.
pub(super) fn decoded_len(len: usize) -> (usize, usize) {
    (
        len.saturating_mul(8).saturating_sub(7).div_ceil(MAX_BITS),
        len.saturating_mul(8) / MIN_BITS,
    )
}

/// The result of decoding a string.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DecodeOutcome {
    /// The string was decoded; contains its length.
    Complete(usize),
    /// The string is longer than the buffer.
    TooLong,
}

/// Decodes `bytes` to the beginning of `out`. The last two bytes of `out` are scratch space and do
/// not count as room for the string.
#[expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "places in slices; 64 bits are held at most, and a code is no longer than those held; a lookup uses eleven"
)]
pub(super) fn decode(bytes: &[u8], out: &mut [u8]) -> Result<DecodeOutcome, Reason> {
    let room = out.len().saturating_sub(2);
    let (mut written, mut at) = (0, 0);
    // The next bits of the string, at the top; `held` of them count, what is
    // below is either zero or the string's own.
    let (mut bits, mut held) = (0_u64, 0_usize);
    loop {
        if let Some(&word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
            bits |= u64::from_be_bytes(word) >> held;
            let taken = (63 - held) / 8;
            at += taken;
            held += 8 * taken;
        } else {
            while held <= 56
                && let Some(&byte) = bytes.get(at)
            {
                bits |= u64::from(byte) << (56 - held);
                at += 1;
                held += 8;
            }
        }
        let keep = if at < bytes.len() { MAX_BITS } else { WINDOW };
        while held >= keep {
            let entry = LOOKUP[(bits >> (64 - WINDOW)) as usize];
            let slot = out.get_mut(written..).and_then(<[u8]>::first_chunk_mut);
            let Some(slot) = slot else {
                return Ok(DecodeOutcome::TooLong);
            };
            *slot = entry.text;
            if entry.symbols > 0 {
                written += usize::from(entry.symbols);
                bits <<= entry.bits;
                held -= usize::from(entry.bits);
                continue;
            }
            let Some((symbol, len)) = decode_long_code(bits, held)? else {
                break;
            };
            slot[0] = symbol;
            written += 1;
            bits <<= len;
            held -= len;
        }
        if at == bytes.len() {
            break;
        }
    }
    let written = decode_tail(bits, held, written, out)?;
    Ok(if written <= room {
        DecodeOutcome::Complete(written)
    } else {
        DecodeOutcome::TooLong
    })
}

/// The symbol at the top of `bits` whose code is longer than a entry, unless
/// the string ends in it.
fn decode_long_code(bits: u64, held: usize) -> Result<Option<(u8, usize)>, Reason> {
    let mut lengths = WINDOW + 1..=MAX_BITS.min(held);
    match lengths.find_map(|len| Some((CODE.symbol(bits, len)?, len))) {
        Some((symbol, len)) => {
            let symbol = u8::try_from(symbol).map_err(|_| Reason::HuffmanEos)?;
            Ok(Some((symbol, len)))
        }
        None => Ok(None),
    }
}

/// Decodes the last bits: complete symbols, and then the padding.
fn decode_tail(
    mut bits: u64,
    mut held: usize,
    mut written: usize,
    out: &mut [u8],
) -> Result<usize, Reason> {
    while let Some((symbol, len)) =
        (MIN_BITS..=held.min(MAX_BITS)).find_map(|len| Some((CODE.symbol(bits, len)?, len)))
    {
        let symbol = u8::try_from(symbol).map_err(|_| Reason::HuffmanEos)?;
        if let Some(slot) = out.get_mut(written) {
            *slot = symbol;
        }
        written = written.saturating_add(1);
        bits = bits.wrapping_shl(len as u32);
        held = held.saturating_sub(len);
    }
    // RFC 7541 §5.2: at most 7 bits, the most significant of EOS, which are ones.
    if held > 7 || (bits.leading_ones() as usize) < held {
        Err(Reason::HuffmanPadding)
    } else {
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(bytes: &[u8]) -> Result<Vec<u8>, Reason> {
        let max = decoded_len(bytes.len()).1;
        let mut out = vec![0; max + 2];
        match decode(bytes, &mut out)? {
            DecodeOutcome::Complete(len) => {
                out.truncate(len);
                Ok(out)
            }
            DecodeOutcome::TooLong => panic!("{max} bytes are not enough for {bytes:x?}"),
        }
    }

    fn encoded(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, text);
        assert_eq!(out.len(), encoded_len(text));
        out
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let digit = |digit: u8| char::from(digit).to_digit(16).unwrap() as u8;
        digits
            .chunks(2)
            .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
            .collect()
    }

    /// Single rows of RFC 7541 Appendix B, from every length in it.
    #[test]
    fn codes_match_rfc_7541_appendix_b() {
        for (symbol, code, bits) in [
            (0, 0x1ff8, 13),
            (1, 0x007f_ffd8, 23),
            (2, 0x0fff_ffe2, 28),
            (9, 0x00ff_ffea, 24),
            (10, 0x3fff_fffc, 30),
            (usize::from(b' '), 0x14, 6),
            (usize::from(b'!'), 0x3f8, 10),
            (usize::from(b'#'), 0xffa, 12),
            (usize::from(b'&'), 0xf8, 8),
            (usize::from(b'\''), 0x7fa, 11),
            (usize::from(b'/'), 0x18, 6),
            (usize::from(b'0'), 0x0, 5),
            (usize::from(b'<'), 0x7ffc, 15),
            (usize::from(b'\\'), 0x7fff0, 19),
            (usize::from(b'^'), 0x3ffc, 14),
            (usize::from(b'z'), 0x7b, 7),
            (128, 0xf_ffe6, 20),
            (161, 0x1f_ffdd, 21),
            (129, 0x003f_ffd2, 22),
            (199, 0x01ff_ffec, 25),
            (192, 0x03ff_ffe0, 26),
            (203, 0x07ff_ffde, 27),
            (255, 0x03ff_ffee, 26),
            (EOS, 0x3fff_ffff, 30),
        ] {
            assert_eq!(
                (CANONICAL.1[symbol], LENGTHS[symbol]),
                (code, bits),
                "{symbol}"
            );
        }
    }

    #[test]
    fn rfc_7541_examples() {
        // C.4 and C.6
        for (text, bytes) in [
            ("www.example.com", "f1e3 c2e5 f23a 6ba0 ab90 f4ff"),
            ("no-cache", "a8eb 1064 9cbf"),
            ("custom-key", "25a8 49e9 5ba9 7d7f"),
            ("custom-value", "25a8 49e9 5bb8 e8b4 bf"),
            ("302", "6402"),
            ("private", "aec3 771a 4b"),
            (
                "Mon, 21 Oct 2013 20:13:21 GMT",
                "d07a be94 1054 d444 a820 0595 040b 8166 e082 a62d 1bff",
            ),
            (
                "https://www.example.com",
                "9d29 ad17 1863 c78f 0b97 c8e9 ae82 ae43 d3",
            ),
            (
                "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
                "94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 \
                 3160 65c0 03ed 4ee5 b106 3d50 07",
            ),
        ] {
            assert_eq!(encoded(text.as_bytes()), hex(bytes), "{text}");
            assert_eq!(decoded(&hex(bytes)).unwrap(), text.as_bytes(), "{text}");
        }
    }

    #[test]
    fn every_symbol_round_trips_alone_and_between_others() {
        for byte in 0..=255 {
            for text in [
                &[byte][..],
                &[b'0', byte],
                &[byte, 0xf9],
                &[byte; 9],
                &[b'a', byte, b'z'],
            ] {
                assert_eq!(decoded(&encoded(text)).unwrap(), text);
            }
        }
    }

    #[test]
    fn eos_in_a_string_is_rejected() {
        // The 30 bits of EOS, and two of padding.
        assert_eq!(decoded(&[0xff; 4]), Err(Reason::HuffmanEos));
        assert_eq!(decoded(&[0xff; 40]), Err(Reason::HuffmanEos));
        let after = [&encoded(b"0123456789abcdef")[..], &[0xff; 4]].concat();
        assert_eq!(decoded(&after), Err(Reason::HuffmanEos));
    }

    #[test]
    fn padding_other_than_seven_ones_is_rejected() {
        assert_eq!(decoded(&[]).unwrap(), b"");
        // '0' is 00000, then 111.
        assert_eq!(decoded(&[0b0000_0111]).unwrap(), b"0");
        for bad in [0b0000_0110, 0b0000_0011, 0b0000_0101, 0b0000_0000] {
            assert_eq!(decoded(&[bad]), Err(Reason::HuffmanPadding), "{bad:b}");
        }
        // Eight and more bits of padding, but shorter than EOS.
        for len in 1..=3 {
            assert_eq!(decoded(&vec![0xff; len]), Err(Reason::HuffmanPadding));
            let mut after = vec![0b0000_0111];
            after.extend(vec![0xff; len]);
            assert_eq!(decoded(&after), Err(Reason::HuffmanPadding));
        }
    }

    #[test]
    fn string_longer_than_the_buffer_is_too_long() {
        let text = b"a text of 27 bytes, counted";
        let bytes = encoded(text);
        for room in 0..text.len() {
            assert_eq!(
                decode(&bytes, &mut vec![0; room + 2]),
                Ok(DecodeOutcome::TooLong),
                "{room}"
            );
        }
        assert_eq!(
            decode(&bytes, &mut vec![0; text.len() + 2]),
            Ok(DecodeOutcome::Complete(27))
        );
        assert_eq!(decode(&bytes, &mut []), Ok(DecodeOutcome::TooLong));
    }

    proptest! {
        #[test]
        fn strings_round_trip(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let bytes = encoded(&text);
            let (min, max) = decoded_len(bytes.len());
            prop_assert!(min <= text.len() && text.len() <= max);
            prop_assert_eq!(decoded(&bytes).unwrap(), text);
        }

        /// Whatever is accepted is what the encoder would have written: a string has only one
        /// encoding.
        #[test]
        fn accepted_bytes_are_the_only_encoding(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(text) = decoded(&bytes) {
                prop_assert_eq!(encoded(&text), bytes);
            }
        }
    }
}
