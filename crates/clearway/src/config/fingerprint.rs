//! Certificate fingerprints.

use std::fmt;
use std::str::FromStr;

/// The SHA-256 digest of a certificate in DER; printed and parsed as 64
/// hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Computes the fingerprint of a certificate in DER.
    #[must_use]
    pub fn of(certificate: &[u8]) -> Self {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text does not have 64 hexadecimal digits (colons between them are ignored).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid SHA-256 fingerprint: expected 64 hexadecimal digits")]
pub struct ParseFingerprintError;

impl FromStr for Fingerprint {
    type Err = ParseFingerprintError;

    fn from_str(text: &str) -> Result<Self, ParseFingerprintError> {
        let mut digits = text.chars().filter(|c| *c != ':').map(|c| c.to_digit(16));
        let mut bytes = [0; 32];
        for byte in &mut bytes {
            let (Some(Some(high)), Some(Some(low))) = (digits.next(), digits.next()) else {
                return Err(ParseFingerprintError);
            };
            *byte = (high << 4 | low) as u8;
        }
        match digits.next() {
            None => Ok(Self(bytes)),
            Some(_) => Err(ParseFingerprintError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_text_parses_back_and_other_lengths_are_rejected() {
        // SHA-256 of nothing (FIPS 180-4 examples).
        let text = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Fingerprint::of(b"").to_string(), text);
        assert_eq!(text.parse(), Ok(Fingerprint::of(b"")));
        let colons: Vec<_> = text
            .as_bytes()
            .chunks(2)
            .map(String::from_utf8_lossy)
            .collect();
        assert_eq!(colons.join(":").parse(), Ok(Fingerprint::of(b"")));
        for wrong in [
            "",
            "e3",
            &text[1..],
            &format!("{text}0"),
            &text.replace('e', "x"),
        ] {
            assert_eq!(
                wrong.parse::<Fingerprint>(),
                Err(ParseFingerprintError),
                "{wrong}"
            );
        }
    }
}
