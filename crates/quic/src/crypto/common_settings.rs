//! What the TLS settings of a client and of a server have in common.

use std::sync::Arc;

use rustls::KeyLog;
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};

use super::config_error::{ConfigError, alpn};
use super::provider::Algorithms;

/// Settings of either role.
#[derive(Clone, Debug)]
pub(super) struct CommonSettings {
    pub(super) algorithms: Algorithms,
    pub(super) alpn: Vec<Vec<u8>>,
    pub(super) key_log: Option<Arc<dyn KeyLog>>,
    pub(super) wall_clock: Arc<dyn TimeProvider>,
}

impl Default for CommonSettings {
    fn default() -> Self {
        Self {
            algorithms: Algorithms::default(),
            alpn: Vec::new(),
            key_log: None,
            wall_clock: Arc::new(DefaultTimeProvider),
        }
    }
}

impl CommonSettings {
    /// Writes protocols and key log into rustls's configuration of a role.
    pub(super) fn finish(
        self,
        protocols: &mut Vec<Vec<u8>>,
        key_log: &mut Arc<dyn KeyLog>,
    ) -> Result<(), ConfigError> {
        *protocols = alpn(&self.alpn)?;
        if let Some(log) = self.key_log {
            *key_log = log;
        }
        Ok(())
    }
}

/// The setters of [`CommonSettings`] for a builder that has them in `common`.
macro_rules! common_setters {
    () => {
        /// Sets the algorithms that may be negotiated. Default: all of them, so that any peer can
        /// connect.
        pub fn algorithms(mut self, algorithms: Algorithms) -> Self {
            self.common.algorithms = algorithms;
            self
        }

        /// Sets the application protocols, most preferred first. Without one in common the
        /// handshake fails with alert 120 (RFC 9001 §8.1). Default: none.
        pub fn alpn<P: Into<Vec<u8>>>(mut self, protocols: impl IntoIterator<Item = P>) -> Self {
            self.common.alpn = protocols.into_iter().map(Into::into).collect();
            self
        }

        /// Passes every secret to `log`. Default: secrets are not logged.
        pub fn key_log(mut self, log: Arc<dyn KeyLog>) -> Self {
            self.common.key_log = Some(log);
            self
        }

        /// Appends every secret to the file named by the environment variable
        /// `SSLKEYLOGFILE`, if it is set.
        pub fn key_log_from_env(self) -> Self {
            self.key_log(Arc::new(KeyLogFile::new()))
        }

        /// Uses `clock` instead of the system's clock to check certificates and tickets.
        pub fn wall_clock(mut self, clock: Arc<dyn TimeProvider>) -> Self {
            self.common.wall_clock = clock;
            self
        }
    };
}
pub(super) use common_setters;
