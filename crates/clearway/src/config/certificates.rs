//! Server certificates by name, which can be replaced while the server runs.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use clearway_quic::crypto::{ConfigError, Identity};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// A server's certificates: a default, and any number for names that clients ask for (SNI,
/// RFC 6066 §3).
///
/// Clones are the same set. A replaced certificate is used for handshakes that begin
/// afterwards; open connections are not affected.
///
/// ```
/// use clearway::{Certificates, DevelopmentIdentity, ServerConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let first = DevelopmentIdentity::generate(["localhost"])?;
/// let certificates = Certificates::new(first.certificate_pem(), first.key_pem())?;
/// let config = ServerConfig::with_certificates(&certificates);
/// // … months later, while the server runs:
/// let renewed = DevelopmentIdentity::generate(["localhost"])?;
/// certificates.replace(renewed.certificate_pem(), renewed.key_pem())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Certificates(Arc<Resolver>);

struct Resolver(RwLock<CertificateSet>);

struct CertificateSet {
    default: Arc<CertifiedKey>,
    /// By lower-case name; `*.example.org` under that name.
    named: BTreeMap<String, Arc<CertifiedKey>>,
}

impl Certificates {
    /// Creates a set with a default certificate: its chain, leaf first, and its key, in PEM.
    ///
    /// # Errors
    /// If either cannot be parsed, or the key does not match the certificate.
    pub fn new(
        certificates_pem: impl AsRef<[u8]>,
        key_pem: impl AsRef<[u8]>,
    ) -> Result<Self, ConfigError> {
        let default = certified(certificates_pem.as_ref(), key_pem.as_ref())?;
        Ok(Self(Arc::new(Resolver(RwLock::new(CertificateSet {
            default,
            named: BTreeMap::new(),
        })))))
    }

    /// Replaces the default certificate. On an error the one in use stays.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn replace(
        &self,
        certificates_pem: impl AsRef<[u8]>,
        key_pem: impl AsRef<[u8]>,
    ) -> Result<(), ConfigError> {
        let default = certified(certificates_pem.as_ref(), key_pem.as_ref())?;
        self.change(|set| set.default = default);
        Ok(())
    }

    /// Sets the certificate for a name that clients ask for. A wildcard such as
    /// `*.example.org` matches names with one more label that have no certificate of their
    /// own.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn set(
        &self,
        name: &str,
        certificates_pem: impl AsRef<[u8]>,
        key_pem: impl AsRef<[u8]>,
    ) -> Result<(), ConfigError> {
        let identity = certified(certificates_pem.as_ref(), key_pem.as_ref())?;
        self.change(|set| set.named.insert(name.to_ascii_lowercase(), identity));
        Ok(())
    }

    /// Removes the certificate for a name. Returns whether there was one for exactly that
    /// name.
    pub fn remove(&self, name: &str) -> bool {
        self.change(|set| set.named.remove(&name.to_ascii_lowercase()).is_some())
    }

    pub(crate) fn resolver(&self) -> Arc<dyn ResolvesServerCert> {
        self.0.clone()
    }

    fn change<T>(&self, change: impl FnOnce(&mut CertificateSet) -> T) -> T {
        let Resolver(set) = &*self.0;
        change(&mut set.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Resolver {
    fn find(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        let Self(set) = self;
        let set = set.read().unwrap_or_else(PoisonError::into_inner);
        let named = name.and_then(|name| {
            let name = name.to_ascii_lowercase();
            set.named.get(&name).or_else(|| {
                let (_, parent) = name.split_once('.')?;
                set.named.get(&format!("*.{parent}"))
            })
        });
        named.unwrap_or(&set.default).clone()
    }
}

impl std::fmt::Debug for Resolver {
    /// Shows the names and no keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(set) = self;
        let set = set.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_set().entry(&"*").entries(set.named.keys()).finish()
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.find(client_hello.server_name()))
    }
}

fn certified(certificates: &[u8], key: &[u8]) -> Result<Arc<CertifiedKey>, ConfigError> {
    let identity = Identity::from_pem(certificates, key)?;
    Ok(Arc::new(identity.into_certified_key()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DevelopmentIdentity;

    fn identity() -> DevelopmentIdentity {
        DevelopmentIdentity::generate(["localhost"]).unwrap()
    }

    fn set(identity: &DevelopmentIdentity) -> Certificates {
        Certificates::new(identity.certificate_pem(), identity.key_pem()).unwrap()
    }

    fn leaf(certificates: &Certificates, name: Option<&str>) -> Vec<u8> {
        certificates.0.find(name).cert[0].to_vec()
    }

    #[test]
    fn certificate_is_chosen_by_exact_name_then_wildcard_then_default() {
        let [first, one, many] = [identity(), identity(), identity()];
        let certificates = set(&first);
        let add = |name, identity: &DevelopmentIdentity| {
            certificates.set(name, identity.certificate_pem(), identity.key_pem())
        };
        add("Www.example.org", &one).unwrap();
        add("*.example.org", &many).unwrap();
        let [first, one, many] = [None, Some("www.EXAMPLE.org"), Some("a.example.org")]
            .map(|name| leaf(&certificates, name));
        assert!(first != one && one != many && first != many);
        assert_eq!(leaf(&certificates, Some("www.example.org")), one);
        for name in ["example.org", "a.b.example.org", "localhost", ""] {
            assert_eq!(leaf(&certificates, Some(name)), first, "{name}");
        }
        assert!(certificates.remove("WWW.example.org"));
        assert!(!certificates.remove("www.example.org"));
        assert_eq!(leaf(&certificates, Some("www.example.org")), many);
    }

    #[test]
    fn replacement_with_wrong_key_keeps_old_certificate() {
        let [first, second] = [identity(), identity()];
        let certificates = set(&first);
        let before = leaf(&certificates, None);
        let wrong = certificates.replace(second.certificate_pem(), first.key_pem());
        assert!(wrong.is_err(), "the key does not match");
        assert_eq!(leaf(&certificates, None), before);
        certificates
            .replace(second.certificate_pem(), second.key_pem())
            .unwrap();
        assert_ne!(leaf(&certificates, None), before);
    }
}
