//! Helpers for tests of keys and handshakes: a certificate authority, and two connected TLS
//! sessions.

use std::sync::Arc;

use rcgen::{CertificateParams, DnType, IsCa, KeyPair, PKCS_ED25519};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};

use super::client_config::{ClientCrypto, Roots};
use super::identity::Identity;
use super::keys::Keys;
use super::provider::Algorithms;
use super::server_config::ServerCrypto;
use super::tls::{Level, NewKeys, Session};
use super::update::OneRttKeys;
use crate::cid::ConnectionId;
use crate::error::TransportError;
use crate::wire::Version;

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|d| d as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

/// Returns the client's connection ID in RFC 9001 Appendix A.
pub(crate) fn appendix_a_dcid() -> ConnectionId {
    ConnectionId::new(&hex("8394c8f03e515708")).unwrap()
}

/// A certificate authority. It uses Ed25519, whose signatures all have one length, so that
/// handshakes have one length too.
pub(crate) struct Authority {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        // Each has its own name: two authorities with the same name would look like one with
        // invalid signatures.
        let name = format!("authority {:02x?}", key.public_key_raw());
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap();
        Self { certificate, key }
    }

    pub(crate) fn issue_pem(&self, name: &str) -> (String, String) {
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let certificate = params
            .signed_by(&key, &self.certificate, &self.key)
            .unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    pub(crate) fn issue(&self, name: &str) -> Identity {
        let (chain, key) = self.issue_pem(name);
        Identity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap()
    }

    pub(crate) fn roots(&self) -> Roots {
        Roots::from_pem(self.certificate.pem().as_bytes()).unwrap()
    }
}

/// One end of a handshake, and the keys that it has received.
pub(crate) struct TestSession {
    pub(crate) session: Session,
    pub(crate) handshake: Option<Keys>,
    pub(crate) one_rtt: Option<Box<OneRttKeys>>,
}

impl TestSession {
    pub(crate) fn new(session: Session) -> Self {
        Self {
            session,
            handshake: None,
            one_rtt: None,
        }
    }

    /// Returns its output, each piece with its level.
    pub(crate) fn output(&mut self) -> Vec<(Level, Vec<u8>)> {
        let mut output_bytes = Vec::new();
        loop {
            let level = self.session.write_level();
            let mut bytes = Vec::new();
            let step = self.session.next(&mut bytes);
            let done = step.is_none();
            match step {
                Some(NewKeys::Handshake(keys)) => self.handshake = Some(keys),
                Some(NewKeys::OneRtt(keys)) => self.one_rtt = Some(keys),
                None => {}
            }
            if !bytes.is_empty() {
                output_bytes.push((level, bytes));
            }
            if done {
                return output_bytes;
            }
        }
    }

    pub(crate) fn input(
        &mut self,
        output_bytes: Vec<(Level, Vec<u8>)>,
    ) -> Result<(), TransportError> {
        output_bytes
            .into_iter()
            .try_for_each(|(level, bytes)| self.session.read(level, &bytes))
    }
}

/// Creates a client and a server before their first message.
pub(crate) fn pair(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
) -> (TestSession, TestSession) {
    let name = ServerName::try_from("localhost").unwrap();
    (
        TestSession::new(
            Session::client(
                Version::V1,
                client.clone(),
                name,
                b"client parameters".to_vec(),
                false,
            )
            .unwrap(),
        ),
        TestSession::new(
            Session::server(Version::V1, server.clone(), b"server parameters".to_vec()).unwrap(),
        ),
    )
}

/// Exchanges messages until neither end has any left, or the first error.
pub(crate) fn run_handshake(
    client: &mut TestSession,
    server: &mut TestSession,
) -> Result<(), TransportError> {
    loop {
        let from_client = client.output();
        server.input(from_client.clone())?;
        let from_server = server.output();
        client.input(from_server.clone())?;
        if from_client.is_empty() && from_server.is_empty() {
            return Ok(());
        }
    }
}

/// Configurations that trust each other and support the protocol "test".
pub(crate) fn configs(algorithms: &Algorithms) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let authority = Authority::new();
    let client = ClientCrypto::new(authority.roots())
        .alpn(["test"])
        .algorithms(algorithms.clone());
    let server = ServerCrypto::new(authority.issue("localhost"))
        .alpn(["test"])
        .algorithms(algorithms.clone());
    (client.build().unwrap(), server.build().unwrap())
}

/// Returns the 1-RTT keys of a client and a server after their handshake.
pub(crate) fn one_rtt_pair(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
) -> (OneRttKeys, OneRttKeys) {
    let (mut client, mut server) = pair(client, server);
    run_handshake(&mut client, &mut server).unwrap();
    (*client.one_rtt.unwrap(), *server.one_rtt.unwrap())
}
