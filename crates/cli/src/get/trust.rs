//! Trust in servers, and the key log.

use std::env;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;

use clearway::{ClientConfig, TransportConfig};

use super::Args;
use crate::failure::{Failure, Kind};
use crate::identity;

/// The client's configuration.
///
/// # Errors
/// If there are no trusted certificates.
pub(super) fn config(args: &Args) -> Result<ClientConfig, Failure> {
    let config = if args.insecure {
        ClientConfig::dangerous_accept_any_certificate()
    } else if let Some(fingerprint) = args.fingerprint {
        ClientConfig::with_fingerprint(fingerprint)
    } else if let Some(file) = &args.cacert {
        ClientConfig::with_roots(identity::read(file)?)
            .map_err(|error| Failure::caused(Kind::Arguments, file.display(), &error))?
    } else {
        ClientConfig::with_native_roots().map_err(|error| {
            Failure::new(
                Kind::Arguments,
                format!("{error}; use --cacert FILE, --fingerprint HEX or -k"),
            )
        })?
    };
    let mut transport = TransportConfig::default();
    transport.controller = args.controller.into();
    let config = config.transport(transport);
    if !args.keylog {
        return Ok(config);
    }
    key_log_is_writable()?;
    Ok(config.key_log_from_env())
}

/// Checks the key log in advance, because its own errors are ignored: they must not end a
/// connection.
fn key_log_is_writable() -> Result<(), Failure> {
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
