//! Which server is probed, and which certificates are accepted.

use core::net::SocketAddr;
use std::sync::Arc;

use clearway_quic::crypto::{Algorithms, ClientCrypto, ClientSessions, ConfigError, Group, Roots};
use http::Uri;
use http::uri::Authority;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

/// Which certificates are accepted.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Those signed by a root certificate of this host.
    Native,
    /// Those signed by one of these root certificates, in PEM.
    Roots(Vec<u8>),
    /// Exactly the one with this SHA-256 fingerprint.
    Fingerprint([u8; 32]),
    /// Any.
    Any,
}

/// What is wrong with a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The URL cannot be used.
    #[error("invalid URL {url:?}: {reason}")]
    Url {
        /// As it was given.
        url: String,
        /// What was expected.
        reason: String,
    },
    /// The host has no root certificates.
    #[error("no root certificates on this host: name trusted certificates, or accept any")]
    NoRoots,
    /// The trusted certificates cannot be used.
    #[error("cannot use the trusted certificates: {0}")]
    Roots(String),
    /// The name has no addresses.
    #[error("cannot resolve {host:?}: {reason}")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver says.
        reason: String,
    },
}

/// The server that is probed.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    host: String,
    port: u16,
    /// What `@authority` stands for.
    pub(crate) authority: String,
    /// What `@path` stands for.
    pub(crate) path: String,
    pub(crate) name: ServerName<'static>,
    crypto: ClientCrypto,
}

impl Target {
    /// Reads a URL; `https://` may be omitted.
    pub(crate) fn new(url: &str, trust: Trust) -> Result<Self, TargetError> {
        let wrong = |reason: &str| TargetError::Url {
            url: url.to_owned(),
            reason: reason.to_owned(),
        };
        let whole = match url.contains("://") {
            true => url.to_owned(),
            false => format!("https://{url}"),
        };
        let expected = "expected one such as https://example.org/";
        let uri: Uri = whole.parse().map_err(|_| wrong(expected))?;
        if uri.scheme_str() != Some("https") {
            return Err(wrong("expected the scheme https"));
        }
        let authority = uri.authority().ok_or_else(|| wrong(expected))?;
        if authority.as_str().contains('@') {
            return Err(wrong("user names and passwords are not supported"));
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host.clone())
            .map_err(|_| wrong("expected a DNS name or an IP address as host"))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            port: port(authority).ok_or_else(|| wrong("expected a port from 1 to 65535"))?,
            authority: authority.as_str().to_owned(),
            path: path.to_owned(),
            host,
            name,
            crypto: crypto(trust)?,
        })
    }

    /// Returns the TLS configuration of one case, whose tickets nobody else uses.
    pub(crate) fn client_config(&self, alpn: &[Vec<u8>]) -> Result<Arc<ClientConfig>, ConfigError> {
        let crypto = self.crypto.clone().alpn(alpn.iter().cloned());
        crypto.sessions(Arc::new(ClientSessions::default())).build()
    }

    /// Appends the TLS secrets of every connection to the file in `SSLKEYLOGFILE`.
    pub(crate) fn log_keys(&mut self) {
        self.crypto = self.crypto.clone().key_log_from_env();
    }

    /// Returns the host's name and port.
    pub(crate) fn host_and_port(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// Looks the host up.
    pub(crate) async fn resolve(&self) -> Result<Vec<SocketAddr>, TargetError> {
        let failed = |reason: String| TargetError::Resolve {
            host: self.host.clone(),
            reason,
        };
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let found: Vec<_> = found.map_err(|error| failed(error.to_string()))?.collect();
        match found.is_empty() {
            true => Err(failed("it has no addresses".to_owned())),
            false => Ok(found),
        }
    }
}

fn crypto(trust: Trust) -> Result<ClientCrypto, TargetError> {
    let crypto = match trust {
        Trust::Any => ClientCrypto::dangerous_accept_any_certificate(),
        Trust::Roots(pem) => ClientCrypto::new(
            Roots::from_pem(&pem).map_err(|error| TargetError::Roots(error.to_string()))?,
        ),
        Trust::Native => {
            let found = rustls_native_certs::load_native_certs().certs;
            if found.is_empty() {
                return Err(TargetError::NoRoots);
            }
            ClientCrypto::new(Roots::from_der(found.into_iter().map(|cert| cert.to_vec())))
        }
        Trust::Fingerprint(expected) => ClientCrypto::with_certificate_check(move |certificate| {
            let found = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate);
            match found.as_ref() == expected {
                true => Ok(()),
                false => Err("certificate fingerprint mismatch".to_owned()),
            }
        }),
    };
    // One small key share, so that a ClientHello fits into one datagram.
    let groups = [Group::X25519, Group::Secp256r1];
    Ok(crypto.algorithms(Algorithms::default().with_groups(&groups)))
}

/// Returns the port, 443 if there is none, and nothing for what is no port.
fn port(authority: &Authority) -> Option<u16> {
    match authority.as_str().strip_prefix(authority.host()) {
        Some("" | ":") => Some(443),
        _ => authority.port_u16().filter(|&port| port != 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_split_into_name_port_authority_and_path() {
        let target = Target::new("localhost:4433/a?b", Trust::Any).unwrap();
        assert_eq!(target.host_and_port(), ("localhost", 4433));
        assert_eq!(
            (&*target.authority, &*target.path),
            ("localhost:4433", "/a?b")
        );
        let target = Target::new("https://[::1]", Trust::Any).unwrap();
        assert_eq!(target.host_and_port(), ("::1", 443));
        assert_eq!(target.path, "/");
    }

    #[test]
    fn invalid_url_says_what_is_expected() {
        for (url, expected) in [
            ("http://localhost/", "the scheme https"),
            ("https://", "such as https://example.org/"),
            ("https://a b/", "such as https://example.org/"),
            ("https://a_b..c/", "a DNS name or an IP address"),
            ("https://localhost:99999/", "a port from 1 to 65535"),
            ("https://[::1]:0/", "a port from 1 to 65535"),
            ("https://localhost:x/", "a port from 1 to 65535"),
            ("https://a@localhost/", "not supported"),
        ] {
            let error = Target::new(url, Trust::Any).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
