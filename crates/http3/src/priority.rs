//! Priorities of responses: the Priority field and PRIORITY_UPDATE frames (RFC 9218).

use clearway_quic::stream::{self, StreamId};
use clearway_quic::wire::Reader;
use clearway_quic::wire::cursor::varint_len;

use crate::error::{Code, ConnectionError};
use crate::frame::{FrameHeader, FrameKind, put_varint};

/// The priority of a response relative to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// The urgency, from 0 (first) to 7 (last) (RFC 9218 §4.1).
    pub urgency: u8,
    /// Whether the client can process parts of the response, so that it shares bandwidth with other
    /// incremental responses of the same urgency (RFC 9218 §4.2).
    pub incremental: bool,
}

impl Default for Priority {
    /// Urgency 3, not incremental (RFC 9218 §4).
    fn default() -> Self {
        Self {
            urgency: 3,
            incremental: false,
        }
    }
}

impl From<Priority> for stream::Priority {
    fn from(priority: Priority) -> Self {
        Self {
            urgency: priority.urgency,
            incremental: priority.incremental,
        }
    }
}

impl Priority {
    /// Parses a Priority field value, a structured-field dictionary (RFC 8941 §3.2). Unknown
    /// members and values out of range are ignored. A value that is not a dictionary yields the
    /// default.
    #[must_use]
    pub fn parse(value: &[u8]) -> Self {
        let mut priority = Self::default();
        match (DictionaryParser { rest: value }).apply(&mut priority) {
            Some(()) => priority,
            None => Self::default(),
        }
    }

    /// Returns the field value, with the parameters that differ from the default.
    #[must_use]
    pub fn to_value(self) -> String {
        let default = Self::default();
        let urgency = (self.urgency != default.urgency).then(|| format!("u={}", self.urgency));
        let incremental = self.incremental.then(|| "i".to_owned());
        let members: Vec<String> = urgency.into_iter().chain(incremental).collect();
        members.join(", ")
    }
}

/// Decodes the payload of a PRIORITY_UPDATE frame for a request (RFC 9218 §7.2).
pub(crate) fn decode_priority_update(
    payload: &[u8],
) -> Result<(StreamId, Priority), ConnectionError> {
    let mut r = Reader::new(payload);
    let Some(id) = r.varint() else {
        let reason = "PRIORITY_UPDATE payload has no prioritized element ID";
        return Err(ConnectionError::new(Code::FRAME_ERROR, reason));
    };
    if id & 3 != 0 {
        let reason = "PRIORITY_UPDATE identifies a stream that is not a request stream";
        return Err(ConnectionError::new(Code::ID_ERROR, reason));
    }
    Ok((StreamId::from_wire(id), Priority::parse(r.rest())))
}

/// Appends a PRIORITY_UPDATE frame for a request.
pub(crate) fn encode_priority_update(out: &mut Vec<u8>, id: StreamId, priority: Priority) {
    let value = priority.to_value();
    let len = varint_len(id.as_u64()).saturating_add(value.len()) as u64;
    let kind = FrameKind::PriorityUpdateRequest;
    FrameHeader { kind, len }.encode(out);
    put_varint(out, id.as_u64());
    out.extend_from_slice(value.as_bytes());
}

/// The value of a dictionary member, as far as priorities need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberValue {
    Integer(i64),
    Boolean(bool),
    Other,
}

/// A parser of a dictionary. Its methods return `None` if the syntax is invalid.
struct DictionaryParser<'a> {
    rest: &'a [u8],
}

impl DictionaryParser<'_> {
    /// Applies all members. The last one of a name counts (RFC 8941 §3.2).
    fn apply(&mut self, priority: &mut Priority) -> Option<()> {
        self.skip(b" ");
        while !self.rest.is_empty() {
            let key = self.key()?;
            let value = if self.eat(b'=') {
                self.member()?
            } else {
                MemberValue::Boolean(true)
            };
            self.parameters()?;
            match (key, value) {
                (b"u", MemberValue::Integer(urgency @ 0..=7)) => priority.urgency = urgency as u8,
                (b"i", MemberValue::Boolean(incremental)) => priority.incremental = incremental,
                _ => {}
            }
            self.skip(b" \t");
            if self.rest.is_empty() {
                return Some(());
            }
            if !self.eat(b',') {
                return None;
            }
            self.skip(b" \t");
            if self.rest.is_empty() {
                return None;
            }
        }
        Some(())
    }

    fn eat(&mut self, byte: u8) -> bool {
        match self.rest.split_first() {
            Some((first, rest)) if *first == byte => {
                self.rest = rest;
                true
            }
            Some(_) | None => false,
        }
    }

    fn skip(&mut self, any_of: &[u8]) {
        while let Some((first, rest)) = self.rest.split_first() {
            if !any_of.contains(first) {
                return;
            }
            self.rest = rest;
        }
    }
}

impl<'a> DictionaryParser<'a> {
    fn take_while(&mut self, keep: impl Fn(&u8) -> bool) -> &'a [u8] {
        let len = self.rest.iter().take_while(|b| keep(b)).count();
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }

    /// RFC 8941 §3.1.2.
    fn key(&mut self) -> Option<&'a [u8]> {
        let first = self.rest.first()?;
        if !first.is_ascii_lowercase() && *first != b'*' {
            return None;
        }
        Some(
            self.take_while(|b| {
                b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-.*".contains(b)
            }),
        )
    }

    /// An item, or an inner list: items in parentheses.
    fn member(&mut self) -> Option<MemberValue> {
        if !self.eat(b'(') {
            return self.item();
        }
        loop {
            self.skip(b" ");
            if self.eat(b')') {
                return Some(MemberValue::Other);
            }
            self.item()?;
            self.parameters()?;
            if !matches!(self.rest.first(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    fn parameters(&mut self) -> Option<()> {
        while self.eat(b';') {
            self.skip(b" ");
            self.key()?;
            if self.eat(b'=') {
                self.item()?;
            }
        }
        Some(())
    }

    /// RFC 8941 §3.3.
    fn item(&mut self) -> Option<MemberValue> {
        match *self.rest.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string(),
            b':' => {
                self.eat(b':');
                self.take_while(|b| b.is_ascii_alphanumeric() || b"+/=".contains(b));
                self.eat(b':').then_some(MemberValue::Other)
            }
            b'?' => {
                self.eat(b'?');
                let value = MemberValue::Boolean(self.rest.first() == Some(&b'1'));
                (self.eat(b'0') || self.eat(b'1')).then_some(value)
            }
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.take_while(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(b));
                Some(MemberValue::Other)
            }
            _ => None,
        }
    }

    /// Integers have at most 15 digits; decimals at most 12 before the point and 3 after it (RFC
    /// 8941 §3.3.1).
    fn number(&mut self) -> Option<MemberValue> {
        let negative = self.eat(b'-');
        let digits = self.take_while(u8::is_ascii_digit);
        if digits.is_empty() || digits.len() > 15 {
            return None;
        }
        if self.eat(b'.') {
            let fraction = self.take_while(u8::is_ascii_digit).len();
            let decimal = digits.len() <= 12 && (1..=3).contains(&fraction);
            return decimal.then_some(MemberValue::Other);
        }
        let value = digits.iter().try_fold(0_i64, |value, digit| {
            let digit = i64::from(digit.checked_sub(b'0')?);
            value.checked_mul(10)?.checked_add(digit)
        })?;
        let value = if negative {
            value.checked_neg()?
        } else {
            value
        };
        Some(MemberValue::Integer(value))
    }

    fn string(&mut self) -> Option<MemberValue> {
        self.eat(b'"');
        loop {
            self.take_while(|&b| (0x20..0x7f).contains(&b) && b != b'"' && b != b'\\');
            if self.eat(b'"') {
                return Some(MemberValue::Other);
            }
            if !self.eat(b'\\') || !(self.eat(b'"') || self.eat(b'\\')) {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(value: &str) -> (u8, bool) {
        let priority = Priority::parse(value.as_bytes());
        (priority.urgency, priority.incremental)
    }

    #[test]
    fn valid_members_are_applied() {
        for (value, expected) in [
            ("", (3, false)),
            ("u=0", (0, false)),
            ("i", (3, true)),
            ("u=5, i", (5, true)),
            ("i=?1,u=7", (7, true)),
            ("i=?0", (3, false)),
            ("u=1;x=y;z, i;q=0.5", (1, true)),
            ("u=1, u=2", (2, false)),
            ("a=\"u=1, \\\"i\", u=4", (4, false)),
            ("*k.1-_=2, u=4", (4, false)),
            ("a=123456789012345, u=4", (4, false)),
            (
                "a=(1 \"b\";c 2), b=:aGk=:, c=-1.5, d=tok/en, u=6",
                (6, false),
            ),
        ] {
            assert_eq!(parsed(value), expected, "{value}");
        }
    }

    #[test]
    fn invalid_members_are_ignored_and_invalid_dictionaries_yield_the_default() {
        for value in [
            "u=8",
            "u=-1",
            "u=1.0",
            "u=\"1\"",
            "u",
            "i=1",
            "U=1",
            "u=1,",
            "u=1 i",
            "u=1,,i",
            "u=1, =",
            "u=1, a=\"",
            "u=1, a=(",
            "u=1, a=?2",
            "u=1, a=1234567890123456",
            "u=1, a=-",
            "u=1, a=1234567890123.5",
            "u=1, a=1.2345",
            "u=1, a=1.",
            "u=1, a=",
            "u=1, a=%",
            "u=1, a=)",
            "u=1, a==",
            "u=1, a=(%)",
            "u=1, a=(b;%)",
            "u=1, a=:aGk",
            "u=1, a=\"\\b\"",
            "u=1, a=b;",
            "u=1, a=b;c=",
            "u=1, a=b;c=%",
            "u=1, é",
            "u=1, a=(1,2)",
        ] {
            assert_eq!(parsed(value), (3, false), "{value}");
        }
        assert_eq!(parsed("u=8, i"), (3, true));
    }

    #[test]
    fn priority_update_round_trips() {
        for urgency in 0..8 {
            for incremental in [false, true] {
                let priority = Priority {
                    urgency,
                    incremental,
                };
                let mut out = Vec::new();
                encode_priority_update(&mut out, StreamId::from_wire(400), priority);
                let (header, size) = FrameHeader::parse(&out).unwrap();
                assert_eq!(header.len as usize, out.len() - size);
                let read = decode_priority_update(&out[size..]).unwrap();
                assert_eq!(read, (StreamId::from_wire(400), priority));
            }
        }
        assert_eq!(
            decode_priority_update(&[]).unwrap_err().code,
            Code::FRAME_ERROR
        );
        for id in 1..4 {
            assert_eq!(
                decode_priority_update(&[id]).unwrap_err().code,
                Code::ID_ERROR
            );
        }
    }

    proptest! {
        #[test]
        fn any_value_yields_a_valid_urgency(value in "[uia=?0-9,; \\\\\"():.-]{0,24}") {
            prop_assert!(Priority::parse(value.as_bytes()).urgency <= 7);
        }
    }
}
