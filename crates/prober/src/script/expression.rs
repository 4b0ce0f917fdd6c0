//! Numbers and bytes that a script names: constants, and what is only known while it runs.

use super::error::unknown;
use super::lexer::unquote;
use crate::wire::{VARINT_MAX, put_varint};

/// A value that is known once the connection is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    /// The server's `initial_max_data`, or its last MAX_DATA.
    MaxData,
    /// The server's `initial_max_stream_data_bidi_remote`: the limit of a request stream.
    MaxStreamData,
    /// The server's `initial_max_stream_data_uni`.
    MaxStreamDataUni,
    /// How many bidirectional streams the server permits.
    MaxStreamsBidi,
    /// How many unidirectional streams the server permits.
    MaxStreamsUni,
    /// The server's `active_connection_id_limit`.
    CidLimit,
    /// The number of the next 1-RTT packet.
    NextNumber,
    /// The number of the next Initial packet.
    NextInitial,
    /// The number of the next Handshake packet.
    NextHandshake,
    /// Bytes of CRYPTO data sent in Initial packets.
    CryptoInitial,
    /// Bytes of CRYPTO data sent in Handshake packets.
    CryptoHandshake,
    /// The server's SETTINGS_MAX_FIELD_SECTION_SIZE; 65,536 if it has none.
    MaxFieldSectionSize,
    /// The server's SETTINGS_QPACK_MAX_TABLE_CAPACITY.
    TableCapacity,
    /// The server's `max_datagram_frame_size`.
    DatagramSize,
    /// How many request streams, each filled to its limit, exceed `max_data`.
    StreamsOverMaxData,
    /// The largest number of a 1-RTT packet that has arrived.
    LargestReceived,
    /// How many bytes were written to the stream that was written to last.
    Written,
    /// The ID of the server's control stream.
    ServerControl,
    /// The round of the innermost `repeat`, from 0.
    Round,
}

impl Variable {
    pub(crate) const NAMES: [(&'static str, Self); 19] = [
        ("max_data", Self::MaxData),
        ("max_stream_data", Self::MaxStreamData),
        ("max_stream_data_uni", Self::MaxStreamDataUni),
        ("max_streams_bidi", Self::MaxStreamsBidi),
        ("max_streams_uni", Self::MaxStreamsUni),
        ("cid_limit", Self::CidLimit),
        ("next_number", Self::NextNumber),
        ("next_initial", Self::NextInitial),
        ("next_handshake", Self::NextHandshake),
        ("crypto_initial", Self::CryptoInitial),
        ("crypto_handshake", Self::CryptoHandshake),
        ("max_field_section_size", Self::MaxFieldSectionSize),
        ("table_capacity", Self::TableCapacity),
        ("datagram_size", Self::DatagramSize),
        ("streams_over_max_data", Self::StreamsOverMaxData),
        ("largest_received", Self::LargestReceived),
        ("written", Self::Written),
        ("server_control", Self::ServerControl),
        ("round", Self::Round),
    ];
}

/// The four kinds of streams (RFC 9000 §2.1): the low bits of their IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    Bidi = 0,
    ServerBidi = 1,
    Uni = 2,
    ServerUni = 3,
}

impl StreamKind {
    const NAMES: [(&'static str, Self); 4] = [
        ("bidi", Self::Bidi),
        ("server-bidi", Self::ServerBidi),
        ("uni", Self::Uni),
        ("server-uni", Self::ServerUni),
    ];
}

/// A number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expression {
    Number(u64),
    Variable(Variable),
    /// The ID of a stream that the script named.
    Stream(String),
    /// The ID of the stream with this number of its kind, from 0.
    Nth(StreamKind, Box<Expression>),
    Sum(Box<Expression>, Box<Expression>),
    Difference(Box<Expression>, Box<Expression>),
}

/// What an expression is evaluated in.
pub(crate) trait Scope {
    /// Returns a variable; the error says why it is not known.
    fn variable(&self, variable: Variable) -> Result<u64, String>;
    /// Returns the ID of a named stream.
    fn stream(&self, name: &str) -> Option<u64>;
    /// Returns the connection ID that the server chose, or that the first Initial has.
    fn remote_cid(&self) -> Vec<u8>;
}

impl Expression {
    /// Reads `2^60+1`, `@max_data-1`, `bidi(@max_streams_bidi)`, `stream(control)`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut depth = 0_i32;
        let mut split = None;
        for (at, c) in text.char_indices() {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                // The last one, so that sums are read from the left.
                // Not the hyphen of `server-uni(0)`.
                '+' | '-' if depth == 0 && at > 0 && !text[..at].ends_with("server") => {
                    split = Some((at, c));
                }
                _ => {}
            }
        }
        if let Some((at, sign)) = split {
            let left = Box::new(Self::parse(&text[..at])?);
            let right = Box::new(Self::parse(&text[at + 1..])?);
            return Ok(match sign {
                '+' => Self::Sum(left, right),
                _ => Self::Difference(left, right),
            });
        }
        Self::atom(text)
    }

    fn atom(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix('@') {
            let found = Variable::NAMES.iter().find(|(known, _)| *known == name);
            return match found {
                Some((_, variable)) => Ok(Self::Variable(*variable)),
                None => Err(unknown(
                    "variable",
                    name,
                    Variable::NAMES.map(|(name, _)| name),
                )),
            };
        }
        if let Some((function, inner)) =
            text.strip_suffix(')').and_then(|text| text.split_once('('))
        {
            if function == "stream" {
                return Ok(Self::Stream(inner.to_owned()));
            }
            let found = StreamKind::NAMES
                .iter()
                .find(|(known, _)| *known == function);
            return match found {
                Some((_, kind)) => Ok(Self::Nth(*kind, Box::new(Self::parse(inner)?))),
                None => {
                    let names = StreamKind::NAMES.map(|(name, _)| name);
                    let names = names.into_iter().chain(["stream"]);
                    Err(unknown("function", function, names))
                }
            };
        }
        number(text).map(Self::Number).ok_or_else(|| {
            format!(
                "invalid number {text:?}: expected a number such as 16, 0x10 or 2^60+1, a variable \
                 such as @max_data, or a stream such as bidi(0) or stream(control)"
            )
        })
    }

    /// Appends the value as a variable-length integer.
    pub(super) fn put_varint(&self, scope: &dyn Scope, out: &mut Vec<u8>) -> Result<(), String> {
        let value = self.evaluate(scope)?;
        if value > VARINT_MAX {
            return Err(format!(
                "{value} is above 2^62-1, and no variable-length integer: write its bytes as RAW \
                 hex:…"
            ));
        }
        put_varint(out, value);
        Ok(())
    }

    /// Returns the value.
    pub(crate) fn evaluate(&self, scope: &dyn Scope) -> Result<u64, String> {
        Ok(match self {
            Self::Number(number) => *number,
            Self::Variable(variable) => scope.variable(*variable)?,
            Self::Stream(name) => scope
                .stream(name)
                .ok_or_else(|| format!("stream {name:?} is not open yet: write to it first"))?,
            Self::Nth(kind, nth) => {
                let nth = nth.evaluate(scope)?;
                let id = nth
                    .checked_mul(4)
                    .and_then(|id| id.checked_add(*kind as u64));
                id.ok_or_else(too_large)?
            }
            Self::Sum(a, b) => {
                let sum = a.evaluate(scope)?.checked_add(b.evaluate(scope)?);
                sum.ok_or_else(too_large)?
            }
            Self::Difference(a, b) => a.evaluate(scope)?.saturating_sub(b.evaluate(scope)?),
        })
    }
}

fn too_large() -> String {
    "the number is above 2^64-1".to_owned()
}

/// Reads `16`, `0x10`, `2^60`.
fn number(text: &str) -> Option<u64> {
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok();
    }
    match text.split_once('^') {
        Some((base, power)) => {
            let base: u64 = base.parse().ok()?;
            base.checked_pow(power.parse().ok()?)
        }
        None => text.parse().ok(),
    }
}

/// Bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BytesValue {
    Literal(Vec<u8>),
    /// So many bytes `a`.
    Fill(Expression),
    /// The server's connection ID.
    RemoteCid,
    /// A number in so many bytes, in network order.
    Fixed(usize, Expression),
}

/// Most bytes that `fill:` writes in one place.
const MAX_FILL: u64 = 4 << 20;

impl BytesValue {
    /// Reads `"text"`, `hex:00ff`, `fill:100`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if let Some(count) = text.strip_prefix("fill:") {
            return Expression::parse(count).map(Self::Fill);
        }
        if let Some(digits) = text.strip_prefix("hex:") {
            return hex_bytes(digits).map(Self::Literal);
        }
        for (prefix, size) in [("u64:", 8), ("u128:", 16)] {
            if let Some(number) = text.strip_prefix(prefix) {
                return Ok(Self::Fixed(size, Expression::parse(number)?));
            }
        }
        if text == "@cid" {
            return Ok(Self::RemoteCid);
        }
        if text.starts_with('"') {
            return unquote(text).map(Self::Literal);
        }
        Err(format!(
            "invalid bytes {text:?}: expected \"text\", hex:00ff, fill:100 for a hundred \
             bytes, or @cid for the server's connection ID"
        ))
    }

    /// Returns the bytes.
    pub(crate) fn evaluate(&self, scope: &dyn Scope) -> Result<Vec<u8>, String> {
        match self {
            Self::Literal(bytes) => Ok(bytes.clone()),
            Self::RemoteCid => Ok(scope.remote_cid()),
            Self::Fixed(size, number) => {
                let mut bytes = vec![0; size.saturating_sub(8)];
                bytes.extend(number.evaluate(scope)?.to_be_bytes());
                Ok(bytes)
            }
            Self::Fill(count) => {
                let count = count.evaluate(scope)?;
                if count > MAX_FILL {
                    return Err(format!(
                        "fill:{count} exceeds the limit of {MAX_FILL} bytes: send less at a time"
                    ));
                }
                Ok(vec![b'a'; count as usize])
            }
        }
    }
}

fn hex_bytes(digits: &str) -> Result<Vec<u8>, String> {
    let wrong = || format!("invalid hex:{digits}: expected pairs of hexadecimal digits");
    if !digits.len().is_multiple_of(2) || !digits.is_ascii() {
        return Err(wrong());
    }
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| wrong()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl Scope for Fixed {
        fn variable(&self, variable: Variable) -> Result<u64, String> {
            Ok(variable as u64 + 100)
        }
        fn stream(&self, name: &str) -> Option<u64> {
            (name == "control").then_some(2)
        }
        fn remote_cid(&self) -> Vec<u8> {
            vec![5; 8]
        }
    }

    #[test]
    fn expressions_are_evaluated_from_the_left() {
        for (text, value) in [
            ("16", 16),
            ("0x10", 16),
            ("2^60+1", (1 << 60) + 1),
            ("2^62-1", (1 << 62) - 1),
            ("10-3-2", 5),
            ("10-3+2", 9),
            ("@max_data", 100),
            ("@max_stream_data+1", 102),
            ("bidi(3)", 12),
            ("uni(@max_streams_uni)", 4 * 104 + 2),
            ("server-uni(0)", 3),
            ("server-bidi(1)+4", 9),
            ("stream(control)+4", 6),
        ] {
            let parsed = Expression::parse(text).unwrap();
            assert_eq!(parsed.evaluate(&Fixed), Ok(value), "{text}");
        }
    }

    #[test]
    fn invalid_expressions_say_what_is_expected() {
        for (text, message) in [
            ("", "expected a number"),
            ("x", "expected a number"),
            ("2^99", "expected a number"),
            ("@max_dat", "did you mean \"max_data\"?"),
            ("bidy(0)", "did you mean \"bidi\"?"),
        ] {
            let error = Expression::parse(text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
        let unopened = Expression::parse("stream(request)").unwrap();
        assert!(
            unopened
                .evaluate(&Fixed)
                .unwrap_err()
                .contains("not open yet")
        );
    }

    #[test]
    fn bytes_are_text_hex_or_filling() {
        let of = |text| BytesValue::parse(text).and_then(|bytes| bytes.evaluate(&Fixed));
        assert_eq!(of("\"a\\x00b\""), Ok(b"a\0b".to_vec()));
        assert_eq!(of("hex:00ff"), Ok(vec![0, 255]));
        assert_eq!(of("u64:258"), Ok(vec![0, 0, 0, 0, 0, 0, 1, 2]));
        assert_eq!(of("u128:1").unwrap().len(), 16);
        assert_eq!(of("@cid"), Ok(vec![5; 8]));
        assert_eq!(of("fill:3"), Ok(b"aaa".to_vec()));
        assert!(
            of("hex:0")
                .unwrap_err()
                .contains("pairs of hexadecimal digits")
        );
        assert!(of("abc").unwrap_err().contains("expected \"text\""));
        assert!(of("fill:2^30").unwrap_err().contains("send less"));
    }
}
