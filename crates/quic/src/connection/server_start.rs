//! A server's TLS session, which may have to wait for the whole ClientHello.

use super::client_start::EncodableParameters;
use super::versions::VersionChoice;
use crate::Role;
use crate::crypto::{ClientHello, Level, ServerCryptoByVersion, Session};
use crate::error::TransportError;
use crate::wire::TransportParameters;

/// A server's TLS session that is not created yet, because the client's versions decide on the
/// version that it is for.
#[derive(Debug)]
pub(super) struct ServerStart {
    pub(super) crypto: ServerCryptoByVersion,
    pub(super) parameters: EncodableParameters,
    pub(super) hello: ClientHello,
}

impl ServerStart {
    /// Creates the session for the current version.
    ///
    /// # Errors
    /// If the configuration does not support QUIC.
    pub(super) fn session(&mut self, versions: VersionChoice) -> Result<Session, TransportError> {
        let version = versions.current();
        let parameters = self.parameters.encode(Role::Server, versions);
        Session::server(version, self.crypto.of(version), parameters)
    }

    /// Returns the version that the server prefers among the client's. A ClientHello from which
    /// they cannot be read decides for that of its packets; TLS, or the check of the client's
    /// transport parameters, then reports what is wrong with it.
    pub(super) fn preferred_version(&self, versions: VersionChoice) -> crate::wire::Version {
        let client = self
            .hello
            .transport_parameters()
            .and_then(|bytes| TransportParameters::decode(bytes, Role::Client).ok());
        let information = client.and_then(|client| client.version_information);
        versions.preferred_with(information.as_ref())
    }

    /// Passes the collected bytes to the session.
    ///
    /// # Errors
    /// A TLS alert.
    pub(super) fn read_hello(&self, session: &mut Session) -> Result<(), TransportError> {
        session.read(Level::Initial, self.hello.bytes())
    }
}
