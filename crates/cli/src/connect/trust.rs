//! Trust in servers, and the key log.

use std::env;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use clearway::{ClientConfig, Fingerprint, TransportConfig};

use super::Args;
use crate::failure::{Failure, Kind};
use crate::identity;

/// The certificates that a client trusts: any, the one with a fingerprint, those of a file, or
/// those of the host.
///
/// # Errors
/// If there are none.
pub(crate) fn trusting(
    insecure: bool,
    fingerprint: Option<Fingerprint>,
    cacert: Option<&Path>,
) -> Result<ClientConfig, Failure> {
    if insecure {
        return Ok(ClientConfig::dangerous_accept_any_certificate());
    }
    if let Some(fingerprint) = fingerprint {
        return Ok(ClientConfig::with_fingerprint(fingerprint));
    }
    if let Some(file) = cacert {
        return ClientConfig::with_roots(identity::read(file)?)
            .map_err(|error| Failure::caused(Kind::Arguments, file.display(), &error));
    }
    ClientConfig::with_native_roots().map_err(|error| {
        let message = format!("{error}; use --cacert FILE, --fingerprint HEX or -k");
        Failure::new(Kind::Arguments, message)
    })
}

/// The client's configuration.
///
/// # Errors
/// If there are no trusted certificates.
pub(super) fn config(args: &Args) -> Result<ClientConfig, Failure> {
    let config = trusting(args.insecure, args.fingerprint, args.cacert.as_deref())?;
    let mut transport = TransportConfig::default();
    transport.controller = args.controller.into();
    transport.versions = args.versions;
    let config = config.transport(transport);
    if !args.keylog {
        return Ok(config);
    }
    key_log_is_writable()?;
    Ok(config.key_log_from_env())
}

/// Checks the key log in advance, because its own errors are ignored: they must not end a
/// connection.
pub(crate) fn key_log_is_writable() -> Result<(), Failure> {
    let named = env::var_os("SSLKEYLOGFILE").filter(|file| !file.is_empty());
    let Some(file) = named else {
        let message = "--keylog: the environment variable SSLKEYLOGFILE is not set";
        return Err(Failure::new(Kind::Arguments, message));
    };
    // Whoever reads it can decrypt what was sent.
    let mut how = OpenOptions::new();
    how.append(true).create(true).mode(0o600);
    let opened = how.open(&file);
    opened.map(drop).map_err(|error| {
        let what = format!("--keylog: cannot write {}", file.display());
        Failure::caused(Kind::Output, what, &error)
    })
}
