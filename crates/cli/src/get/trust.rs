//! Whom to believe.

use clearway::config::ClientCrypto;
use clearway::{ClientConfig, Roots, TransportConfig};

use super::Args;
use crate::failure::{Failure, Kind};
use crate::identity;

/// The client's settings.
///
/// # Errors
/// If there is nobody to trust.
pub(super) fn config(args: &Args) -> Result<ClientConfig, Failure> {
    let config = if args.insecure {
        ClientConfig::dangerous_accept_any_certificate()
    } else if let Some(fingerprint) = args.fingerprint {
        ClientConfig::with_fingerprint(fingerprint)
    } else if let Some(file) = &args.cacert {
        ClientConfig::with_roots(identity::read(file)?)
            .map_err(|error| Failure::caused(Kind::Arguments, file.display(), &error))?
    } else {
        ClientConfig::with_crypto(ClientCrypto::new(of_this_host()?))
    };
    let mut transport = TransportConfig::default();
    transport.controller = args.controller;
    let config = config.transport(transport);
    Ok(if args.keylog {
        config.key_log_from_env()
    } else {
        config
    })
}

/// What this host trusts: its administrator's additions and removals count, and
/// updates come with the system rather than with this program.
fn of_this_host() -> Result<Roots, Failure> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let why = found
            .errors
            .first()
            .map_or_else(String::new, |error| format!(" ({error})"));
        let message = format!("this host trusts no certificates{why}; use --cacert");
        return Err(Failure::new(Kind::Arguments, message));
    }
    Ok(Roots::from_der(
        found
            .certs
            .into_iter()
            .map(|certificate| certificate.to_vec()),
    ))
}
