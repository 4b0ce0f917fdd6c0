//! A JSON writer into a reused buffer.

use std::io::Write as _;

/// Appends JSON to a buffer and inserts commas as needed.
#[derive(Debug)]
pub(super) struct Json<'a> {
    out: &'a mut Vec<u8>,
    /// Whether the next element is the first of its container.
    first: bool,
}

impl<'a> Json<'a> {
    pub(super) const fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, first: true }
    }

    fn comma(&mut self) {
        if !self.first {
            self.out.push(b',');
        }
        self.first = false;
    }

    fn key(&mut self, key: &str) {
        self.comma();
        self.string(key);
        self.out.push(b':');
    }

    fn string(&mut self, text: &str) {
        self.out.push(b'"');
        for &byte in text.as_bytes() {
            match byte {
                b'"' => self.out.extend_from_slice(b"\\\""),
                b'\\' => self.out.extend_from_slice(b"\\\\"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                0..0x20 => {
                    let _ = write!(self.out, "\\u{byte:04x}");
                }
                _ => self.out.push(byte),
            }
        }
        self.out.push(b'"');
    }

    fn number(&mut self, value: u64) {
        let mut digits = [0; 20];
        let mut rest = value;
        let mut count = 0_usize;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' | (rest % 10) as u8;
            rest /= 10;
            count = count.saturating_add(1);
            if rest == 0 {
                break;
            }
        }
        let unused = digits.len().saturating_sub(count);
        self.out
            .extend_from_slice(digits.get(unused..).unwrap_or_default());
    }

    /// Nanoseconds as milliseconds, exactly.
    fn millis(&mut self, nanos: u64) {
        self.number(nanos / 1_000_000);
        let fraction = nanos % 1_000_000;
        if fraction > 0 {
            let mut digits = [0; 6];
            let mut rest = fraction;
            for digit in digits.iter_mut().rev() {
                *digit = b'0' | (rest % 10) as u8;
                rest /= 10;
            }
            let mut shown = &digits[..];
            while let [front @ .., b'0'] = shown {
                shown = front;
            }
            self.out.push(b'.');
            self.out.extend_from_slice(shown);
        }
    }

    pub(super) fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        self.string(value);
    }

    pub(super) fn u64(&mut self, key: &str, value: u64) {
        self.key(key);
        self.number(value);
    }

    pub(super) fn bool(&mut self, key: &str, value: bool) {
        self.key(key);
        self.out
            .extend_from_slice(if value { b"true" } else { b"false" });
    }

    pub(super) fn ms(&mut self, key: &str, nanos: u64) {
        self.key(key);
        self.millis(nanos);
    }

    pub(super) fn opt_text(&mut self, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    pub(super) fn opt_u64(&mut self, key: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.u64(key, value);
        }
    }

    pub(super) fn opt_ms(&mut self, key: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.ms(key, value);
        }
    }

    /// Thousandths as a decimal fraction.
    pub(super) fn thousandths(&mut self, key: &str, value: u64) {
        self.key(key);
        self.millis(value.saturating_mul(1_000));
    }

    pub(super) fn object(&mut self, key: &str, fill: impl FnOnce(&mut Self)) {
        self.key(key);
        self.body(b'{', b'}', fill);
    }

    pub(super) fn array(&mut self, key: &str, fill: impl FnOnce(&mut Self)) {
        self.key(key);
        self.body(b'[', b']', fill);
    }

    /// An object without a key: a document, or an element of an array.
    pub(super) fn element(&mut self, fill: impl FnOnce(&mut Self)) {
        self.comma();
        self.body(b'{', b'}', fill);
    }

    /// Numbers in brackets, as an element of an array.
    pub(super) fn numbers(&mut self, values: &[u64]) {
        self.comma();
        self.body(b'[', b']', |json| {
            for value in values {
                json.comma();
                json.number(*value);
            }
        });
    }

    /// A string as an element of an array.
    pub(super) fn item(&mut self, value: &str) {
        self.comma();
        self.string(value);
    }

    fn body(&mut self, open: u8, close: u8, fill: impl FnOnce(&mut Self)) {
        self.out.push(open);
        self.first = true;
        fill(self);
        self.out.push(close);
        self.first = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_nesting_escapes_and_numbers() {
        let mut out = Vec::new();
        Json::new(&mut out).element(|json| {
            json.text("a", "\"\\\n\u{1}ü");
            json.u64("b", u64::MAX);
            json.object("c", |json| {
                json.bool("d", true);
                json.array("e", |json| {
                    json.numbers(&[1, 2]);
                    json.item("x");
                    json.element(|_| {});
                });
            });
            json.ms("f", 1_020_000);
            json.ms("g", 3_000_000);
            json.ms("h", 1);
            json.thousandths("i", 1_125);
        });
        let text = String::from_utf8(out).expect("UTF-8");
        assert_eq!(
            text,
            r#"{"a":"\"\\\n\u0001ü","b":18446744073709551615,"c":{"d":true,"e":[[1,2],"x",{}]},"#
                .to_owned()
                + r#""f":1.02,"g":3,"h":0.000001,"i":1.125}"#
        );
        let back: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(back["a"], "\"\\\n\u{1}ü");
    }
}
