//! Takes the secrets of a handshake out of rustls, for a client whose server has chosen another
//! QUIC version than that of its first flight.
//!
//! rustls derives packet keys with the labels of the version that a session was created with, and
//! a client creates its session before it knows which version the server chooses (RFC 9368 §2.3).
//! The key log is rustls's documented way to the secrets behind these keys. Each connection that
//! may be switched has one of its own, which keeps nothing until the version has changed, and
//! passes everything on to the application's key log.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::KeyLog;
use zeroize::Zeroizing;

use super::secrets::{SecretPair, TrafficSecret};
use super::suite::Suite;

/// A key log for one connection of a client.
pub(super) struct SecretCapture {
    /// The application's key log.
    log: Arc<dyn KeyLog>,
    /// Whether the version has changed, so that secrets are needed.
    wanted: AtomicBool,
    captured: Mutex<Captured>,
}

/// The secrets of one encryption level, by sender.
#[derive(Default)]
struct LevelSecrets {
    client: Option<Zeroizing<Vec<u8>>>,
    server: Option<Zeroizing<Vec<u8>>>,
}

#[derive(Default)]
struct Captured {
    handshake: LevelSecrets,
    one_rtt: LevelSecrets,
}

impl LevelSecrets {
    /// Takes the secrets for `suite`, as a client uses them.
    fn take(&mut self, suite: Suite) -> Option<SecretPair> {
        let secret = |bytes: Zeroizing<Vec<u8>>| TrafficSecret::new(suite, &bytes);
        Some(SecretPair {
            local: self.client.take().map(secret)?,
            remote: self.server.take().map(secret)?,
        })
    }
}

impl Captured {
    /// Returns where the secret of a label of the SSLKEYLOGFILE format belongs; `None` for those
    /// that no packet key follows from.
    fn place(&mut self, label: &str) -> Option<&mut Option<Zeroizing<Vec<u8>>>> {
        match label {
            "CLIENT_HANDSHAKE_TRAFFIC_SECRET" => Some(&mut self.handshake.client),
            "SERVER_HANDSHAKE_TRAFFIC_SECRET" => Some(&mut self.handshake.server),
            "CLIENT_TRAFFIC_SECRET_0" => Some(&mut self.one_rtt.client),
            "SERVER_TRAFFIC_SECRET_0" => Some(&mut self.one_rtt.server),
            _ => None,
        }
    }
}

impl SecretCapture {
    /// Creates one that passes everything on to `log`.
    pub(super) fn new(log: Arc<dyn KeyLog>) -> Self {
        Self {
            log,
            wanted: AtomicBool::new(false),
            captured: Mutex::default(),
        }
    }

    /// Keeps the secrets that follow.
    pub(super) fn begin(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// Takes the secrets of Handshake packets.
    pub(super) fn take_handshake(&self, suite: Suite) -> Option<SecretPair> {
        self.with(|captured| captured.handshake.take(suite))
    }

    /// Takes the first secrets of 1-RTT packets. Nothing is kept any more.
    pub(super) fn take_one_rtt(&self, suite: Suite) -> Option<SecretPair> {
        self.wanted.store(false, Ordering::Relaxed);
        self.with(|captured| captured.one_rtt.take(suite))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Captured) -> T) -> T {
        act(&mut self.captured.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl KeyLog for SecretCapture {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        if self.wanted.load(Ordering::Relaxed) {
            self.with(|captured| {
                if let Some(place) = captured.place(label) {
                    *place = Some(Zeroizing::new(secret.to_vec()));
                }
            });
        }
        if self.log.will_log(label) {
            self.log.log(label, client_random, secret);
        }
    }

    fn will_log(&self, label: &str) -> bool {
        self.wanted.load(Ordering::Relaxed) || self.log.will_log(label)
    }
}

impl core::fmt::Debug for SecretCapture {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SecretCapture(..)")
    }
}
