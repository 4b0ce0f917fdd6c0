//! The root certificates of this host: they follow the administrator's changes, and are
//! updated with the system rather than with a program.

use clearway_quic::crypto::Roots;

/// No trusted root certificates were found on this host; with the reason, if the system gave one.
/// Install them (`ca-certificates` on Linux), or use
/// [`ClientConfig::with_roots`](crate::ClientConfig::with_roots).
#[derive(Clone, Debug, thiserror::Error)]
#[error("no trusted root certificates found on this host{}", .0.as_ref().map_or_else(String::new, |why| format!(" ({why})")))]
#[non_exhaustive]
pub struct NativeRootsError(Option<String>);

pub(super) fn native_roots() -> Result<Roots, NativeRootsError> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let why = found.errors.first().map(ToString::to_string);
        return Err(NativeRootsError(why));
    }
    let certificates = found.certs.into_iter();
    Ok(Roots::from_der(certificates.map(|one| one.to_vec())))
}
