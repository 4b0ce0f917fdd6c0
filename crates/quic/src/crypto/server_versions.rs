//! The TLS settings of a server for each QUIC version. A session ticket is valid for the version of
//! the connection that it was sent on only (RFC 9369 §5).

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::StoresServerSessions;

use crate::wire::{Version, VersionPreference};

/// The TLS settings of a server for each QUIC version that it speaks.
#[derive(Clone, Debug)]
pub(crate) struct ServerCryptoByVersion {
    /// For version 1, and for what a session of this version stores.
    base: Arc<ServerConfig>,
    /// For version 2, if the server speaks it.
    v2: Option<Arc<ServerConfig>>,
}

impl ServerCryptoByVersion {
    /// Creates them from the settings for version 1.
    pub(crate) fn new(base: Arc<ServerConfig>, versions: VersionPreference) -> Self {
        let v2 = versions.contains(Version::V2).then(|| {
            let mut config = (*base).clone();
            config.session_storage = Arc::new(VersionStore {
                store: base.session_storage.clone(),
                version: Version::V2,
            });
            Arc::new(config)
        });
        Self { base, v2 }
    }

    /// Returns the settings for `version`.
    pub(crate) fn of(&self, version: Version) -> Arc<ServerConfig> {
        match &self.v2 {
            Some(v2) if version == Version::V2 => v2.clone(),
            Some(_) | None => self.base.clone(),
        }
    }
}

/// The sessions of one version in a store that all versions share.
#[derive(Debug)]
struct VersionStore {
    store: Arc<dyn StoresServerSessions>,
    version: Version,
}

impl VersionStore {
    /// Returns the key under which the session of a ticket is stored. Keys for version 1 are those
    /// of the tickets, which all have one length.
    fn key(&self, ticket: &[u8]) -> Vec<u8> {
        [ticket, &self.version.0.to_be_bytes()].concat()
    }
}

impl StoresServerSessions for VersionStore {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.store.put(self.key(&key), value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.store.get(&self.key(key))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.store.take(&self.key(key))
    }

    fn can_cache(&self) -> bool {
        self.store.can_cache()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::testing::Authority;
    use crate::crypto::{ServerCrypto, ServerSessions};

    #[test]
    fn session_of_one_version_is_not_found_in_another() {
        let sessions = Arc::new(ServerSessions::new(16));
        let base = ServerCrypto::new(Authority::new().issue("localhost"))
            .sessions(sessions.clone())
            .build()
            .expect("settings");
        let crypto = ServerCryptoByVersion::new(base, VersionPreference::default());
        let store = |version| crypto.of(version).session_storage.clone();
        let (v1, v2) = (store(Version::V1), store(Version::V2));
        let ticket = [7; 32];
        assert!(v2.put(ticket.to_vec(), vec![2]));
        assert_eq!(v1.take(&ticket), None);
        assert_eq!(v2.take(&ticket), Some(vec![2]));
        assert!(v1.put(ticket.to_vec(), vec![1]));
        assert_eq!(v2.get(&ticket), None);
        assert_eq!(v1.get(&ticket), Some(vec![1]));
        assert_eq!(sessions.len(), 1);
    }
}
