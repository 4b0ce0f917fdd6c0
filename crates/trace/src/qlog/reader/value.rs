//! JSON values that borrow from the record they were parsed from.
//!
//! What is parsed, and what is an error, is decided by `serde_json`. A `serde_json::Value` has the
//! same content, but allocates a map for each object and a string for each key, which took most of
//! the time of reading a trace.

use core::fmt;
use std::borrow::Cow;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// A parsed record: its values in the order of the text, each followed by what it contains.
pub(super) type Tape<'r> = Vec<Node<'r>>;

/// A value, with its key if it is a field of an object.
#[derive(Clone, Debug)]
pub(super) struct Node<'r> {
    key: Cow<'r, str>,
    token: Token<'r>,
    /// Number of nodes of this value: itself and what it contains.
    len: usize,
}

#[derive(Clone, Debug)]
enum Token<'r> {
    Null,
    Bool(bool),
    Unsigned(u64),
    Negative(i64),
    Float(f64),
    String(Cow<'r, str>),
    Array,
    Object,
}

/// A value on a tape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value<'t>(&'t [Node<'t>]);

/// Parses one record onto `tape`, whose former content is removed; `None` if it is not JSON.
pub(super) fn parse<'t, 'r>(tape: &'t mut Tape<'r>, record: &'r [u8]) -> Option<Value<'t>> {
    tape.clear();
    let mut text = serde_json::Deserializer::from_slice(record);
    let whole = Parser {
        tape,
        key: Cow::Borrowed(""),
    };
    whole.deserialize(&mut text).ok()?;
    text.end().ok()?;
    Some(Value(tape))
}

impl<'t> Value<'t> {
    /// The value `null`.
    pub(super) const NULL: Self = Self(&[]);

    fn token(self) -> &'t Token<'t> {
        self.0.first().map_or(&Token::Null, |node| &node.token)
    }

    /// The values directly in this one, with their keys.
    fn children(self) -> Children<'t> {
        Children(self.0.get(1..).unwrap_or_default())
    }

    /// The field with this name; of several the last.
    pub(super) fn get(self, name: &str) -> Option<Self> {
        let named = |(key, value)| (key == name).then_some(value);
        self.fields()?.filter_map(named).last()
    }

    /// The fields of an object, in the order of the text. A name can be there several times: the
    /// last one counts.
    pub(super) fn fields(self) -> Option<Children<'t>> {
        matches!(self.token(), Token::Object).then(|| self.children())
    }

    /// The elements of an array.
    pub(super) fn elements(self) -> Option<impl Iterator<Item = Self>> {
        let array = matches!(self.token(), Token::Array).then(|| self.children())?;
        Some(array.map(|(_, value)| value))
    }

    pub(super) fn is_object(self) -> bool {
        matches!(self.token(), Token::Object)
    }

    #[cfg(test)]
    pub(super) fn is_array(self) -> bool {
        matches!(self.token(), Token::Array)
    }

    pub(super) fn as_str(self) -> Option<&'t str> {
        match self.token() {
            Token::String(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn as_bool(self) -> Option<bool> {
        match self.token() {
            Token::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The number, if it is written as an integer that is not negative.
    pub(super) fn as_u64(self) -> Option<u64> {
        match self.token() {
            Token::Unsigned(value) => Some(*value),
            _ => None,
        }
    }

    /// Any number.
    pub(super) fn as_f64(self) -> Option<f64> {
        match self.token() {
            Token::Unsigned(value) => Some(*value as f64),
            Token::Negative(value) => Some(*value as f64),
            Token::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// The same value in `serde_json`'s form, for what is shown as it was written.
    pub(super) fn to_json(self) -> serde_json::Value {
        use serde_json::Value as Json;
        match self.token() {
            Token::Null => Json::Null,
            Token::Bool(value) => Json::from(*value),
            Token::Unsigned(value) => Json::from(*value),
            Token::Negative(value) => Json::from(*value),
            Token::Float(value) => Json::from(*value),
            Token::String(text) => Json::from(text.as_ref()),
            Token::Array => self.children().map(|(_, value)| value.to_json()).collect(),
            Token::Object => self
                .children()
                .map(|(key, value)| (key.to_owned(), value.to_json()))
                .collect(),
        }
    }
}

/// Values next to each other, with their keys, which are empty in arrays.
#[derive(Clone, Debug)]
pub(super) struct Children<'t>(&'t [Node<'t>]);

impl<'t> Iterator for Children<'t> {
    type Item = (&'t str, Value<'t>);

    fn next(&mut self) -> Option<Self::Item> {
        let first = self.0.first()?;
        let (value, rest) = self.0.split_at_checked(first.len)?;
        self.0 = rest;
        Some((&first.key, Value(value)))
    }
}

/// Parses one value onto the tape.
struct Parser<'s, 'r> {
    tape: &'s mut Tape<'r>,
    key: Cow<'r, str>,
}

impl<'r> Parser<'_, 'r> {
    fn push(self, token: Token<'r>) {
        self.tape.push(Node {
            key: self.key,
            token,
            len: 1,
        });
    }

    /// Appends a container, and returns its place.
    fn open(&mut self, token: Token<'r>) -> usize {
        let at = self.tape.len();
        self.tape.push(Node {
            key: core::mem::take(&mut self.key),
            token,
            len: 1,
        });
        at
    }

    fn close(self, at: usize) {
        let len = self.tape.len().saturating_sub(at);
        if let Some(node) = self.tape.get_mut(at) {
            node.len = len;
        }
    }
}

impl<'r> DeserializeSeed<'r> for Parser<'_, 'r> {
    type Value = ();

    fn deserialize<D: Deserializer<'r>>(self, text: D) -> Result<(), D::Error> {
        text.deserialize_any(self)
    }
}

impl<'r> Visitor<'r> for Parser<'_, 'r> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.push(Token::Null);
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.push(Token::Bool(value));
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.push(Token::Unsigned(value));
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.push(Token::Negative(value));
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.push(Token::Float(value));
        Ok(())
    }

    fn visit_borrowed_str<E>(self, text: &'r str) -> Result<(), E> {
        self.push(Token::String(Cow::Borrowed(text)));
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.push(Token::String(Cow::Owned(text.to_owned())));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'r>>(mut self, mut array: A) -> Result<(), A::Error> {
        let at = self.open(Token::Array);
        loop {
            let element = Parser {
                tape: self.tape,
                key: Cow::Borrowed(""),
            };
            if array.next_element_seed(element)?.is_none() {
                break;
            }
        }
        self.close(at);
        Ok(())
    }

    fn visit_map<A: MapAccess<'r>>(mut self, mut object: A) -> Result<(), A::Error> {
        let at = self.open(Token::Object);
        while let Some(key) = object.next_key_seed(Key)? {
            object.next_value_seed(Parser {
                tape: self.tape,
                key,
            })?;
        }
        self.close(at);
        Ok(())
    }
}

/// Parses a key, borrowed unless it has escapes.
struct Key;

impl<'r> DeserializeSeed<'r> for Key {
    type Value = Cow<'r, str>;

    fn deserialize<D: Deserializer<'r>>(self, text: D) -> Result<Cow<'r, str>, D::Error> {
        text.deserialize_str(self)
    }
}

impl<'r> Visitor<'r> for Key {
    type Value = Cow<'r, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, text: &'r str) -> Result<Cow<'r, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Cow<'r, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// That the tape has exactly what `serde_json` parses.
    fn check(text: &[u8]) {
        let expected = serde_json::from_slice::<serde_json::Value>(text).ok();
        let mut tape = Tape::new();
        let parsed = parse(&mut tape, text);
        assert_eq!(
            parsed.map(Value::to_json),
            expected,
            "{}",
            String::from_utf8_lossy(text)
        );
        if let (Some(parsed), Some(expected)) = (parsed, &expected) {
            same(parsed, expected);
        }
    }

    /// That every access returns the same.
    fn same(value: Value<'_>, expected: &serde_json::Value) {
        assert_eq!(value.as_str(), expected.as_str());
        assert_eq!(value.as_bool(), expected.as_bool());
        assert_eq!(value.as_u64(), expected.as_u64());
        assert_eq!(value.as_f64(), expected.as_f64());
        assert_eq!(value.is_object(), expected.is_object());
        assert_eq!(value.is_array(), expected.is_array());
        for (key, field) in expected.as_object().into_iter().flatten() {
            same(value.get(key).expect("the field"), field);
        }
        assert!(value.get("no such field").is_none());
        let elements: Option<Vec<_>> = value.elements().map(Iterator::collect);
        let expected = expected.as_array();
        assert_eq!(elements.is_some(), expected.is_some());
        for (element, expected) in elements
            .into_iter()
            .flatten()
            .zip(expected.into_iter().flatten())
        {
            same(element, expected);
        }
    }

    const RECORD: &str = r#" {"time":12.0625,"name":"quic:packet_sent","data":{"header":{"packet_type":"1RTT","packet_number":7},"raw":{"length":1200},"frames":[{"frame_type":"ack","ack_delay":1e-3,"acked_ranges":[[0,3],[5,-5],[],18446744073709551615]},null,true,{"a\"\u00e9\ud83d\ude00\n":"\u0000","":-0}],"twice":1,"twice":{"x":2},"a":[[[{}]]]}}
"#;

    #[test]
    fn tape_has_what_serde_json_parses() {
        for text in [
            RECORD,
            "",
            " ",
            "7",
            "-7",
            "-0",
            "0.1",
            "1e400",
            "01",
            "1.",
            "\"",
            "\"a\"",
            "nul",
            "null",
            "[1,]",
            "{\"a\":1,}",
            "{\"a\"}",
            "{1:2}",
            "[1] 2",
            "\"\\ud800\"",
            "[\u{7f}]",
            "123456789012345678901234567890",
            "-9223372036854775809",
            "{\"a\":1,\"\\u0061\":2}",
        ] {
            check(text.as_bytes());
        }
        // Nesting is limited, invalid UTF-8 is an error.
        for depth in [126, 127, 128, 129] {
            check(format!("{}{}", "[".repeat(depth), "]".repeat(depth)).as_bytes());
        }
        check(b"\"\xff\"");
        check(b"{\"\xc3\x28\":1}");
    }

    #[test]
    fn tape_has_what_serde_json_parses_of_damaged_records() {
        let whole = RECORD.as_bytes();
        for at in 0..whole.len() {
            check(&whole[..at]);
            check(&whole[at..]);
            let mut text = whole.to_vec();
            text.remove(at);
            check(&text);
            for byte in *b"\"\\{}[],:0-.e \x00\x1e\xff" {
                let mut text = whole.to_vec();
                text[at] = byte;
                check(&text);
                text[at] = whole[at];
                text.insert(at, byte);
                check(&text);
            }
        }
    }
}
