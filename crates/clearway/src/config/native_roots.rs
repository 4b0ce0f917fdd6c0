//! What this host trusts: its administrator's additions and removals count, and
//! updates come with the system rather than with a program.

use clearway_quic::crypto::Roots;

/// This host trusts no certificates; says why, where the system did.
#[derive(Clone, Debug, thiserror::Error)]
#[error("this host trusts no certificates{}", .0.as_ref().map_or_else(String::new, |why| format!(" ({why})")))]
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
