//! TLS secrets of a run, for decrypting its packets.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::KeyLog;

/// Collects secrets in the format of `SSLKEYLOGFILE`.
#[derive(Clone, Debug, Default)]
pub struct Secrets(Arc<Mutex<String>>);

impl Secrets {
    /// The secrets collected so far: lines of label, client random, secret.
    #[must_use]
    pub fn text(&self) -> String {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

fn hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            out.push(char::from_digit(u32::from(digit), 16).unwrap_or('?'));
        }
    }
}

impl KeyLog for Secrets {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        text.push_str(label);
        text.push(' ');
        hex(&mut text, client_random);
        text.push(' ');
        hex(&mut text, secret);
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_written_in_key_log_format() {
        let secrets = Secrets::default();
        secrets.log("CLIENT_TRAFFIC_SECRET_0", &[0xab, 1], &[0xff]);
        assert_eq!(secrets.text(), "CLIENT_TRAFFIC_SECRET_0 ab01 ff\n");
    }
}
