//! TLS configurations.

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result};
use contract::{H3, runner::Environment};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::{
    DigitallySignedStruct, Error, KeyLogFile, SignatureScheme,
    client::{
        ClientSessionMemoryCache, Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs as crypto},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    quic::Suite,
    version::TLS13,
};

use super::HQ;

fn provider(environment: &Environment) -> Arc<CryptoProvider> {
    let mut provider = crypto::default_provider();
    if environment.test_case == "chacha20" {
        provider.cipher_suites = vec![crypto::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256];
    }
    Arc::new(provider)
}

/// The suite of Initial packets, which is not negotiated.
fn initial() -> Result<Suite> {
    let suite = crypto::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13();
    let suite = suite.and_then(rustls::Tls13CipherSuite::quic_suite);
    suite.context("no suite for Initial packets")
}

fn alpn(environment: &Environment) -> Vec<Vec<u8>> {
    let http3 = environment.test_case == "http3";
    vec![if http3 { H3 } else { HQ }.to_vec()]
}

pub(crate) fn server(environment: &Environment) -> Result<QuicServerConfig> {
    let file = |name: &str| environment.certs.join(name);
    let chain = |file: &Path| {
        let chain = CertificateDer::pem_file_iter(file)?;
        chain.collect::<Result<Vec<_>, _>>()
    };
    let mut config = rustls::ServerConfig::builder_with_provider(provider(environment))
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(
            chain(&file("cert.pem")).context("reading cert.pem")?,
            PrivateKeyDer::from_pem_file(file("priv.key")).context("reading priv.key")?,
        )?;
    config.alpn_protocols = alpn(environment);
    config.max_early_data_size = u32::MAX;
    config.key_log = Arc::new(KeyLogFile::new());
    Ok(QuicServerConfig::with_initial(
        Arc::new(config),
        initial()?,
    )?)
}

/// Returns a client's configuration, and where it keeps its tickets.
pub(crate) fn client(
    environment: &Environment,
) -> Result<(QuicClientConfig, Arc<ClientSessionMemoryCache>)> {
    let provider = provider(environment);
    let verifier = Arc::new(AnyCertificate(provider.clone()));
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    let tickets = Arc::new(ClientSessionMemoryCache::new(8));
    config.resumption = Resumption::store(tickets.clone());
    config.alpn_protocols = alpn(environment);
    config.enable_early_data = true;
    config.key_log = Arc::new(KeyLogFile::new());
    let config = QuicClientConfig::with_initial(Arc::new(config), initial()?)?;
    Ok((config, tickets))
}

/// Accepts every certificate: the runner makes them for each run, for names of its own.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("QUIC has no TLS 1.2".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
