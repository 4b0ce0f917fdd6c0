//! The configuration file, which `clearway balance` and `clearway serve --lb` share.
//!
//! ```toml
//! listen = "0.0.0.0:443"
//! shards = 2
//!
//! [[backend]]
//! name = "a"
//! address = "10.0.0.2:443"
//! server_ids = ["01"]
//!
//! [[backend]]
//! name = "b"
//! address = "10.0.0.3:443"
//! server_ids = ["02"]
//! state = "draining"
//!
//! [quic_lb]
//! active = 0
//!
//! [[quic_lb.config]]
//! id = 0
//! server_id_len = 1
//! nonce_len = 7
//! key = "8f95f09245765f80256934e50c66207f"
//! ```

mod discovery;
mod sources;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use clearway_quic::cid::quic_lb::{self, Config, KEY_LEN, ServerId};
use serde::Deserialize;

pub use discovery::{DiscoveredServer, Discovery, DiscoverySection, DiscoverySource, server_id_of};
pub use sources::{Source, sources};

use crate::backend::BackendState;
use crate::health::HealthSettings;
use crate::router::RouterLimits;
use crate::settings::{BackendSettings, Settings};

/// What is wrong with a configuration file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// It is not TOML, or has an unknown key or a value of the wrong type.
    #[error("line {line}: {message}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// What was expected and what was found.
        message: String,
    },
    /// A value is out of range, or contradicts another.
    #[error("{place}: {message}")]
    Value {
        /// The key or the section.
        place: String,
        /// What was expected, what was found, what to do.
        message: String,
    },
}

fn value(place: impl Into<String>, message: impl Into<String>) -> FileError {
    FileError::Value {
        place: place.into(),
        message: message.into(),
    }
}

/// A configuration file. Unknown keys are errors.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// The address that clients send to.
    pub listen: Option<SocketAddr>,
    /// Number of threads.
    pub shards: Option<usize>,
    /// Addresses of this host, or networks of such, that datagrams to backends are sent from.
    #[serde(default)]
    pub sources: Vec<Source>,
    /// Most upstream sockets of a shard.
    pub upstream_sockets: Option<u32>,
    /// Whether datagrams to backends keep the clients' addresses.
    #[serde(default)]
    pub transparent: bool,
    /// Bounds of tables and rates.
    #[serde(default)]
    pub limits: LimitSection,
    /// When a backend counts as down.
    #[serde(default)]
    pub health: HealthSection,
    /// The backends.
    #[serde(default, rename = "backend")]
    pub backends: Vec<BackendSection>,
    /// Where further backends are found.
    pub discovery: Option<DiscoverySection>,
    /// The encoding of connection IDs.
    pub quic_lb: Option<QuicLbSection>,
}

/// `[limits]`. Keys that are absent have the defaults of [`RouterLimits`] and [`Settings`].
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitSection {
    /// Entries of each table of a shard.
    pub table_entries: Option<usize>,
    /// Flows of a shard.
    pub flows: Option<usize>,
    /// Seconds that an entry or a flow is kept without being used.
    pub idle_seconds: Option<u64>,
    /// New connections per second and shard; 0 = no limit.
    pub new_connections: Option<u32>,
    /// New connections per second and shard from one address; 0 = no limit.
    pub new_connections_by_source: Option<u32>,
}

/// `[health]`. Keys that are absent have the defaults of [`HealthSettings`].
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HealthSection {
    /// Whether backends are probed.
    pub enabled: Option<bool>,
    /// Milliseconds between two probes.
    pub interval_ms: Option<u64>,
    /// Probes without an answer after which a backend is down.
    pub failures: Option<u32>,
    /// Answers after which it is up again.
    pub successes: Option<u32>,
}

/// `[[backend]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackendSection {
    /// Its name; its address if absent.
    pub name: Option<String>,
    /// Where its datagrams go.
    pub address: SocketAddr,
    /// Its share of new connections.
    pub weight: Option<u32>,
    /// What it is sent.
    #[serde(default)]
    pub state: StateValue,
    /// Its server IDs in hexadecimal digits. Each holds in all configurations with server IDs
    /// of its length.
    #[serde(default)]
    pub server_ids: Vec<String>,
}

/// The state of a backend in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateValue {
    /// [`BackendState::Active`].
    #[default]
    Active,
    /// [`BackendState::Draining`].
    Draining,
    /// [`BackendState::Down`].
    Down,
}

/// `[quic_lb]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuicLbSection {
    /// The configuration by which servers make new connection IDs.
    pub active: u8,
    /// Seconds after which a server's connections replace their connection IDs.
    pub lifetime_seconds: Option<u64>,
    /// The configurations whose connection IDs are routed.
    #[serde(default, rename = "config")]
    pub configs: Vec<QuicLbConfigSection>,
}

/// `[[quic_lb.config]]`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuicLbConfigSection {
    /// The config ID, 0 to 6.
    pub id: u8,
    /// Bytes of a server ID, 1 to 15.
    pub server_id_len: usize,
    /// Bytes of a nonce, 4 to 18.
    pub nonce_len: usize,
    /// 32 hexadecimal digits. Without a key everybody can read the server ID.
    pub key: Option<String>,
    /// Whether the first octet contains the length.
    #[serde(default)]
    pub encode_length: bool,
}

impl std::fmt::Debug for QuicLbConfigSection {
    /// Does not print the key, which is secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QuicLbConfigSection")
            .field("id", &self.id)
            .field("server_id_len", &self.server_id_len)
            .field("nonce_len", &self.nonce_len)
            .finish_non_exhaustive()
    }
}

impl File {
    /// Reads a file's text.
    ///
    /// # Errors
    /// [`FileError::Syntax`], with the line.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            let before = text.bytes().take(start);
            FileError::Syntax {
                line: before.filter(|byte| *byte == b'\n').count() + 1,
                message: error.message().trim_end().to_owned(),
            }
        })
    }

    /// Returns the settings of a balancer. `listen` takes the place of the file's address.
    ///
    /// # Errors
    /// If a value is missing, out of range, or contradicts another.
    pub fn settings(&self, listen: Option<SocketAddr>) -> Result<Settings, FileError> {
        let listen = listen.or(self.listen).ok_or_else(|| {
            value(
                "listen",
                "missing; add a line such as listen = \"0.0.0.0:443\"",
            )
        })?;
        let mut settings = Settings::new(listen);
        settings.quic_lb = self.configs()?;
        settings.backends = self.backend_settings(&settings.quic_lb)?;
        settings.shards = self.shards.unwrap_or(settings.shards);
        if !(1..=1_024).contains(&settings.shards) {
            return Err(value("shards", "must be from 1 to 1024"));
        }
        settings.sources = sources(&self.sources)?;
        if self.transparent {
            settings.keep_client_addresses();
        }
        settings.upstream_sockets = self.upstream_sockets.unwrap_or(settings.upstream_sockets);
        if settings.upstream_sockets == 0 {
            return Err(value("upstream_sockets", "must be at least 1"));
        }
        self.limits.apply(&mut settings)?;
        settings.health = self.health.settings()?;
        Ok(settings)
    }

    fn configs(&self) -> Result<Vec<Config>, FileError> {
        let sections = self.quic_lb.iter().flat_map(|section| &section.configs);
        sections.map(QuicLbConfigSection::config).collect()
    }

    fn backend_settings(&self, configs: &[Config]) -> Result<Vec<BackendSettings>, FileError> {
        let mut names = BTreeSet::new();
        let mut backends = Vec::new();
        for section in &self.backends {
            let backend = section.settings(configs)?;
            if !names.insert(backend.name.clone()) {
                let message = "two backends have this name; give one of them another";
                return Err(value(format!("backend {:?}", backend.name), message));
            }
            backends.push(backend);
        }
        Ok(backends)
    }

    /// Returns what a server behind the balancer needs: the configuration for its new connection
    /// IDs, the others, and the lifetime of connection IDs.
    ///
    /// # Errors
    /// If there is no `[quic_lb]` section, or it is invalid.
    pub fn server(&self) -> Result<ServerEncoding, FileError> {
        let section = self.quic_lb.as_ref().ok_or_else(|| {
            value(
                "quic_lb",
                "missing; run `clearway balance keygen` to have one written",
            )
        })?;
        let mut others = self.configs()?;
        let place = others
            .iter()
            .position(|config| config.id() == section.active);
        let place = place.ok_or_else(|| {
            let message = format!(
                "no [[quic_lb.config]] has the ID {}; add one, or name another",
                section.active
            );
            value("quic_lb.active", message)
        })?;
        Ok(ServerEncoding {
            active: others.remove(place),
            others,
            lifetime: section.lifetime_seconds.map(Duration::from_secs),
        })
    }
}

/// How a server behind a balancer makes its connection IDs.
#[derive(Clone, Debug)]
pub struct ServerEncoding {
    /// The configuration of new connection IDs.
    pub active: Config,
    /// The others, whose connection IDs may still be in use.
    pub others: Vec<Config>,
    /// How long a connection uses its connection IDs.
    pub lifetime: Option<Duration>,
}

impl LimitSection {
    fn apply(&self, settings: &mut Settings) -> Result<(), FileError> {
        let RouterLimits {
            entries,
            idle,
            new_connections,
            new_connections_by_source,
        } = settings.limits;
        settings.limits = RouterLimits {
            entries: self.table_entries.unwrap_or(entries),
            idle: self.idle_seconds.map_or(idle, Duration::from_secs),
            new_connections: self.new_connections.unwrap_or(new_connections),
            new_connections_by_source: self
                .new_connections_by_source
                .unwrap_or(new_connections_by_source),
        };
        settings.flows = self.flows.unwrap_or(settings.flows);
        let checked = [
            ("table_entries", settings.limits.entries),
            ("flows", settings.flows),
            ("idle_seconds", settings.limits.idle.as_secs() as usize),
        ];
        for (key, count) in checked {
            if count == 0 {
                return Err(value(format!("limits.{key}"), "must be at least 1"));
            }
        }
        Ok(())
    }
}

impl HealthSection {
    fn settings(&self) -> Result<Option<HealthSettings>, FileError> {
        if self.enabled == Some(false) {
            return Ok(None);
        }
        let default = HealthSettings::default();
        let interval = self
            .interval_ms
            .map_or(default.interval, Duration::from_millis);
        if interval < Duration::from_millis(10) {
            return Err(value("health.interval_ms", "must be at least 10"));
        }
        Ok(Some(HealthSettings {
            interval,
            failures: self.failures.unwrap_or(default.failures).max(1),
            successes: self.successes.unwrap_or(default.successes).max(1),
        }))
    }
}

impl BackendSection {
    fn settings(&self, configs: &[Config]) -> Result<BackendSettings, FileError> {
        let name = self
            .name
            .clone()
            .unwrap_or_else(|| self.address.to_string());
        let place = || format!("backend {name:?}");
        let weight = self.weight.unwrap_or(1);
        if !(1..=100).contains(&weight) {
            return Err(value(
                place(),
                format!("invalid weight {weight}: must be from 1 to 100"),
            ));
        }
        let mut server_ids = Vec::new();
        for text in &self.server_ids {
            let id = parse_server_id(text).map_err(|message| value(place(), message))?;
            let fitting = configs
                .iter()
                .filter(|config| config.server_id_len() == id.len());
            let before = server_ids.len();
            server_ids.extend(fitting.map(|config| (config.id(), id)));
            if server_ids.len() == before {
                let message = format!(
                    "no [[quic_lb.config]] has server IDs of {} byte(s), as {text:?} has",
                    id.len()
                );
                return Err(value(place(), message));
            }
        }
        Ok(BackendSettings {
            name,
            address: self.address,
            weight,
            state: match self.state {
                StateValue::Active => BackendState::Active,
                StateValue::Draining => BackendState::Draining,
                StateValue::Down => BackendState::Down,
            },
            server_ids,
        })
    }
}

impl QuicLbConfigSection {
    fn config(&self) -> Result<Config, FileError> {
        let place = || format!("quic_lb.config {}", self.id);
        let invalid = |error: quic_lb::ConfigError| value(place(), error.to_string());
        let mut config =
            Config::new(self.id, self.server_id_len, self.nonce_len).map_err(invalid)?;
        if let Some(key) = &self.key {
            let key: [u8; KEY_LEN] = parse_hex(key)
                .and_then(|bytes| bytes.try_into().ok())
                .ok_or_else(|| {
                    let message = "invalid key: expected 32 hexadecimal digits; \
                                   `clearway balance keygen` makes one";
                    value(place(), message)
                })?;
            config = config.with_key(&key).map_err(invalid)?;
        }
        if self.encode_length {
            config = config.with_encoded_len();
        }
        Ok(config)
    }
}

/// Reads a server ID from hexadecimal digits, or from an address whose ID it is
/// ([`server_id_of`]).
///
/// # Errors
/// What was expected, in words.
pub fn parse_server_id(text: &str) -> Result<ServerId, String> {
    // No address consists of hexadecimal digits alone.
    let address = text.parse().ok().and_then(server_id_of);
    let digits = || parse_hex(text).and_then(|bytes| ServerId::new(&bytes));
    address.or_else(digits).ok_or_else(|| {
        format!(
            "invalid server ID {text:?}: expected 1 to 15 bytes as hexadecimal digits, or the \
             server's IP address"
        )
    })
}

fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = digits.chunks_exact(2);
    pairs
        .map(|pair| match *pair {
            [high, low] => u8::try_from(digit(high)? << 4 | digit(low)?).ok(),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests;
