//! Trust in servers.

use std::path::PathBuf;

use clearway::{ClientConfig, Fingerprint};
use clearway_prober::Trust;

use crate::failure::{Failure, Kind};
use crate::identity;

/// Options of every command that verifies the certificate of a server.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TrustOptions {
    /// Trust only the certificates in this PEM file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fingerprint", "insecure"])]
    cacert: Option<PathBuf>,
    /// Trust only the certificate with this SHA-256 fingerprint.
    #[arg(long, value_name = "HEX", conflicts_with = "insecure")]
    fingerprint: Option<Fingerprint>,
    /// Do not verify the server's certificate: anyone on the path can impersonate the server.
    #[arg(short = 'k', long)]
    insecure: bool,
}

impl TrustOptions {
    /// Returns whether trusted certificates are named, rather than any or those of the host.
    pub(crate) fn names_certificates(&self) -> bool {
        self.cacert.is_some() || self.fingerprint.is_some()
    }

    /// Returns which certificates are accepted. A file is read, but not checked.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn trust(&self) -> Result<Trust, Failure> {
        Ok(match (&self.cacert, self.fingerprint) {
            _ if self.insecure => Trust::Any,
            (_, Some(fingerprint)) => Trust::Fingerprint(fingerprint.0),
            (Some(file), None) => Trust::Roots(identity::read(file)?),
            (None, None) => Trust::Native,
        })
    }

    /// Returns the configuration of a client that accepts these certificates.
    ///
    /// # Errors
    /// If there are none.
    pub(crate) fn client_config(&self) -> Result<ClientConfig, Failure> {
        match self.trust()? {
            Trust::Any => Ok(ClientConfig::dangerous_accept_any_certificate()),
            Trust::Fingerprint(sha256) => Ok(ClientConfig::with_fingerprint(Fingerprint(sha256))),
            Trust::Roots(pem) => ClientConfig::with_roots(pem).map_err(|error| {
                let file = self.cacert.as_deref().unwrap_or("--cacert".as_ref());
                Failure::caused(Kind::Arguments, file.display(), &error)
            }),
            Trust::Native => ClientConfig::with_native_roots().map_err(|error| {
                let message = format!("{error}; use --cacert FILE, --fingerprint HEX or -k");
                Failure::new(Kind::Arguments, message)
            }),
        }
    }
}
