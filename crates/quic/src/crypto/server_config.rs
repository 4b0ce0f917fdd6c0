//! TLS configuration of a server.

use std::sync::Arc;

use rustls::server::{ResolvesServerCert, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{KeyLog, KeyLogFile, ServerConfig};

use super::client_config::Roots;
use super::common_settings::{CommonSettings, common_setters};
use super::config_error::ConfigError;
use super::identity::Identity;
use super::provider::Algorithms;
use super::server_sessions::ServerSessions;

/// The `max_early_data_size` of a ticket that allows 0-RTT: QUIC allows only this value or none
/// (RFC 9001 §4.6.1).
const UNLIMITED_EARLY_DATA: u32 = u32::MAX;

/// Whether clients have to present a certificate.
#[derive(Clone, Debug)]
pub enum ClientAuth {
    /// No certificate is requested.
    None,
    /// A certificate is requested, and verified with these roots if one is sent.
    Optional(Roots),
    /// The handshake fails without a certificate issued by these roots.
    Required(Roots),
}

#[derive(Clone, Debug)]
enum Certificates {
    One(Box<Identity>),
    Resolver(Arc<dyn ResolvesServerCert>),
}

/// Builds the TLS configuration of a server.
#[derive(Clone, Debug)]
#[must_use]
pub struct ServerCrypto {
    certificates: Certificates,
    common: CommonSettings,
    client_auth: ClientAuth,
    early_data: bool,
    sessions: Arc<ServerSessions>,
}

impl ServerCrypto {
    /// Creates the configuration of a server with one certificate for every name.
    pub fn new(identity: Identity) -> Self {
        Self::with_certificates(Certificates::One(Box::new(identity)))
    }

    /// Creates the configuration of a server whose certificate depends on the ClientHello, for
    /// several names or for renewal at run time.
    pub fn with_resolver(resolver: Arc<dyn ResolvesServerCert>) -> Self {
        Self::with_certificates(Certificates::Resolver(resolver))
    }

    fn with_certificates(certificates: Certificates) -> Self {
        Self {
            certificates,
            common: CommonSettings::default(),
            client_auth: ClientAuth::None,
            early_data: false,
            sessions: Arc::new(ServerSessions::default()),
        }
    }

    /// Sets whether clients have to present a certificate. Default: [`ClientAuth::None`], as most
    /// clients have none.
    pub fn client_auth(mut self, client_auth: ClientAuth) -> Self {
        self.client_auth = client_auth;
        self
    }

    /// Sets whether to accept 0-RTT data. Default: false, because an attacker on the path may
    /// replay it to another server (RFC 9001 §9.2). Within one store a ticket is valid for one
    /// handshake.
    pub fn early_data(mut self, accept: bool) -> Self {
        self.early_data = accept;
        self
    }

    /// Sets the store of sessions, which the shards of a server can share. All its users have to
    /// send the same transport parameters and serve the same application, because a client
    /// sends 0-RTT data by the limits that it remembers (RFC 9000 §7.4.1). Default: a store of
    /// its own.
    pub fn sessions(mut self, sessions: Arc<ServerSessions>) -> Self {
        self.sessions = sessions;
        self
    }

    common_setters!();

    /// Builds the configuration, to be shared by all connections.
    ///
    /// # Errors
    /// If the certificate does not belong to the key, the roots for client certificates are
    /// empty, no algorithm is enabled, or an ALPN name is empty or longer than 255 bytes.
    pub fn build(self) -> Result<Arc<ServerConfig>, ConfigError> {
        let provider = self.common.algorithms.provider()?;
        let builder =
            ServerConfig::builder_with_details(provider.clone(), self.common.wall_clock.clone())
                .with_protocol_versions(&[&rustls::version::TLS13])?;
        let verifier = |roots: Roots, required: bool| {
            let roots = Arc::new(roots.0);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
            let verifier = if required {
                verifier
            } else {
                verifier.allow_unauthenticated()
            };
            verifier.build().map_err(|_| ConfigError::NoRoots)
        };
        let builder = match self.client_auth {
            ClientAuth::None => builder.with_no_client_auth(),
            ClientAuth::Optional(roots) => {
                builder.with_client_cert_verifier(verifier(roots, false)?)
            }
            ClientAuth::Required(roots) => {
                builder.with_client_cert_verifier(verifier(roots, true)?)
            }
        };
        let mut config = match self.certificates {
            Certificates::One(identity) => {
                builder.with_single_cert(identity.chain, identity.key)?
            }
            Certificates::Resolver(resolver) => builder.with_cert_resolver(resolver),
        };
        self.common
            .finish(&mut config.alpn_protocols, &mut config.key_log)?;
        config.session_storage = self.sessions;
        config.max_early_data_size = if self.early_data {
            UNLIMITED_EARLY_DATA
        } else {
            0
        };
        Ok(Arc::new(config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::testing::Authority;

    #[test]
    fn private_key_of_other_certificate_is_rejected() {
        let authority = Authority::new();
        let (chain, _) = authority.issue_pem("localhost");
        let (_, key) = authority.issue_pem("localhost");
        let identity = Identity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
        let error = ServerCrypto::new(identity).build().unwrap_err();
        assert!(matches!(error, ConfigError::Tls(_)), "{error}");
    }

    #[test]
    fn empty_alpn_name_is_rejected() {
        let identity = Authority::new().issue("localhost");
        let error = ServerCrypto::new(identity).alpn([""]).build().unwrap_err();
        assert!(matches!(error, ConfigError::AlpnLength(0)), "{error}");
    }

    #[test]
    fn requiring_client_certificates_needs_roots() {
        let identity = Authority::new().issue("localhost");
        let error = ServerCrypto::new(identity)
            .client_auth(ClientAuth::Required(Roots::from_der([])))
            .build()
            .unwrap_err();
        assert!(matches!(error, ConfigError::NoRoots), "{error}");
    }
}
