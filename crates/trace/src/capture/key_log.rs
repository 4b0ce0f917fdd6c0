//! TLS secrets in the format of `SSLKEYLOGFILE` (RFC 9850).

use std::collections::HashMap;

/// Maximum number of sessions whose secrets are kept.
const MAX_SESSIONS: usize = 100_000;
/// Size of the client's random in bytes (RFC 8446 §4.1.2).
pub(super) const RANDOM_LEN: usize = 32;

/// Why a file has no TLS secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no TLS secrets in {lines} lines: expected lines such as \"CLIENT_TRAFFIC_SECRET_0 RANDOM \
     SECRET\", as programs write them to the file that SSLKEYLOGFILE names"
)]
pub struct KeyLogError {
    /// Lines that it has.
    pub lines: usize,
}

/// The secrets of one session: those of the client and of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SessionSecrets {
    pub(super) early: Option<Vec<u8>>,
    pub(super) handshake: [Option<Vec<u8>>; 2],
    pub(super) traffic: [Option<Vec<u8>>; 2],
}

/// TLS secrets by the client's random.
#[derive(Clone, Default)]
pub struct KeyLog {
    sessions: HashMap<[u8; RANDOM_LEN], SessionSecrets>,
}

impl core::fmt::Debug for KeyLog {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // Secrets do not belong in a log.
        f.debug_struct("KeyLog")
            .field("sessions", &self.sessions.len())
            .finish()
    }
}

impl KeyLog {
    /// Reads a file in the format of `SSLKEYLOGFILE`.
    ///
    /// # Errors
    /// If it has no secrets of TLS 1.3.
    pub fn parse(text: &[u8]) -> Result<Self, KeyLogError> {
        let mut log = Self::default();
        log.add(text);
        if log.sessions.is_empty() {
            let lines = text.split(|byte| *byte == b'\n').count();
            return Err(KeyLogError { lines });
        }
        Ok(log)
    }

    /// Number of sessions with secrets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Adds the lines of a key log; lines of other kinds are skipped.
    pub(super) fn add(&mut self, text: &[u8]) {
        for line in text.split(|byte| *byte == b'\n') {
            let _ = self.add_line(line);
        }
    }

    fn add_line(&mut self, line: &[u8]) -> Option<()> {
        let line = core::str::from_utf8(line).ok()?;
        let mut words = line.split_ascii_whitespace();
        let (label, random, secret) = (words.next()?, words.next()?, words.next()?);
        let random: [u8; RANDOM_LEN] = unhex(random)?.try_into().ok()?;
        let secret = unhex(secret)?;
        // Those of SHA-256 and SHA-384, the hashes of TLS 1.3.
        if !matches!(secret.len(), 32 | 48) {
            return None;
        }
        if self.sessions.len() >= MAX_SESSIONS && !self.sessions.contains_key(&random) {
            return None;
        }
        let known = matches!(
            label,
            "CLIENT_EARLY_TRAFFIC_SECRET"
                | "CLIENT_HANDSHAKE_TRAFFIC_SECRET"
                | "SERVER_HANDSHAKE_TRAFFIC_SECRET"
                | "CLIENT_TRAFFIC_SECRET_0"
                | "SERVER_TRAFFIC_SECRET_0"
        );
        if !known {
            return None;
        }
        let session = self.sessions.entry(random).or_default();
        let [client_handshake, server_handshake] = &mut session.handshake;
        let [client_traffic, server_traffic] = &mut session.traffic;
        let place = match label {
            "CLIENT_EARLY_TRAFFIC_SECRET" => &mut session.early,
            "CLIENT_HANDSHAKE_TRAFFIC_SECRET" => client_handshake,
            "SERVER_HANDSHAKE_TRAFFIC_SECRET" => server_handshake,
            "CLIENT_TRAFFIC_SECRET_0" => client_traffic,
            _ => server_traffic,
        };
        *place = Some(secret);
        Some(())
    }

    pub(super) fn session(&self, random: &[u8; RANDOM_LEN]) -> Option<&SessionSecrets> {
        self.sessions.get(random)
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(digit(high)? << 4 | digit(low)?).ok(),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_found_by_client_random() {
        let random = "ab".repeat(32);
        let text = format!(
            "# comment\nCLIENT_RANDOM {random} {0}\nSERVER_TRAFFIC_SECRET_0 {random} {0}\r\nnonsense\n",
            "01".repeat(32)
        );
        let log = KeyLog::parse(text.as_bytes()).expect("secrets");
        let session = log.session(&[0xab; 32]).expect("a session");
        assert_eq!(session.traffic, [None, Some(vec![1; 32])]);
        assert_eq!(log.session(&[0; 32]), None);
        assert!(!format!("{log:?}").contains("01"));
    }

    #[test]
    fn file_without_secrets_is_rejected_with_its_number_of_lines() {
        let error = KeyLog::parse(b"a\nb").expect_err("no secrets");
        assert!(error.to_string().starts_with("no TLS secrets in 2 lines"));
    }

    #[test]
    fn lines_with_wrong_lengths_or_digits_are_skipped() {
        let random = "ab".repeat(32);
        for secret in ["01".repeat(31), "0".to_owned(), "zz".repeat(32)] {
            let line = format!("SERVER_TRAFFIC_SECRET_0 {random} {secret}");
            assert!(KeyLog::parse(line.as_bytes()).is_err(), "{secret}");
        }
    }
}
