//! s2n-quic as an endpoint of the public QUIC interop runner ([`contract::runner`]), over HTTP/0.9.

use std::{
    net::{Ipv6Addr, SocketAddr},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Error, Result};
use contract::runner::{self, Environment, Role, Target, any_address, requested_path};
use s2n_quic::{
    client::Connect,
    connection::Handle,
    provider::{
        endpoint_limits::{ConnectionAttempt, Limiter, Outcome},
        limits::Limits,
        tls::rustls::{
            Client as ClientTls, Server as ServerTls,
            rustls::{
                self, ClientConfig, DigitallySignedStruct, KeyLogFile, ServerConfig,
                SignatureScheme,
                client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
                crypto::{CryptoProvider, aws_lc_rs as crypto},
                pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
                version::TLS13,
            },
        },
    },
    stream::BidirectionalStream,
};
use tokio::task::JoinSet;

/// The application protocol of HTTP/0.9 over QUIC.
const HQ: &[u8] = b"hq-interop";

/// How long a handshake may take, and a connection be silent.
const PATIENCE: Duration = Duration::from_secs(120);

/// Streams that a client may open at once. The runner wants 1,000 at most.
const STREAMS: u64 = 1000;

/// Test cases that s2n-quic supports with rustls. It has no HTTP/3, no version 2, no resumption, and
/// no function that starts a key update.
const CASES: &[&str] = &[
    "handshake",
    "transfer",
    "longrtt",
    "chacha20",
    "multiplexing",
    "retry",
    "blackhole",
    "ecn",
    "amplificationlimit",
    "multiconnect",
    "handshakeloss",
    "transferloss",
    "handshakecorruption",
    "transfercorruption",
    "ipv6",
    "goodput",
    "crosstraffic",
    "rebind-port",
    "rebind-addr",
];

#[tokio::main]
async fn main() -> ExitCode {
    runner::main("endpoint-s2n-quic", run).await
}

async fn run(environment: Environment) -> Result<bool> {
    let test = environment.test_case.as_str();
    // A server answers the key updates of others.
    let answers = environment.role == Role::Server && test == "keyupdate";
    if !CASES.contains(&test) && !answers {
        return Ok(false);
    }
    match environment.role {
        Role::Client => download_all(&environment).await?,
        Role::Server => serve(&environment).await?,
    }
    Ok(true)
}

fn provider(environment: &Environment) -> Arc<CryptoProvider> {
    let mut provider = crypto::default_provider();
    if environment.test_case == "chacha20" {
        provider.cipher_suites = vec![crypto::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256];
    }
    Arc::new(provider)
}

fn limits() -> Result<Limits> {
    Ok(Limits::new()
        .with_max_handshake_duration(PATIENCE)?
        .with_max_idle_timeout(PATIENCE)?
        .with_max_open_remote_bidirectional_streams(STREAMS)?)
}

/// Whether to validate every address with Retry.
struct Retry(bool);

impl Limiter for Retry {
    fn on_connection_attempt(&mut self, _: &ConnectionAttempt<'_>) -> Outcome {
        if self.0 {
            Outcome::retry()
        } else {
            Outcome::allow()
        }
    }
}

async fn serve(environment: &Environment) -> Result<()> {
    let file = |name: &str| environment.certs.join(name);
    let chain = CertificateDer::pem_file_iter(file("cert.pem"))?;
    let mut tls = ServerConfig::builder_with_provider(provider(environment))
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(
            chain.collect::<Result<_, _>>()?,
            PrivateKeyDer::from_pem_file(file("priv.key"))?,
        )?;
    tls.alpn_protocols = vec![HQ.to_vec()];
    tls.key_log = Arc::new(KeyLogFile::new());
    #[expect(deprecated, reason = "the builder has no cipher suites")]
    let tls = ServerTls::new(tls);
    let address = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), environment.port);
    let mut server = s2n_quic::Server::builder()
        .with_tls(tls)?
        .with_io(address)?
        .with_limits(limits()?)?
        .with_endpoint_limits(Retry(environment.test_case == "retry"))?
        .start()?;
    println!("listening on {}", server.local_addr()?);
    while let Some(mut connection) = server.accept().await {
        let environment = environment.clone();
        tokio::spawn(async move {
            while let Ok(Some(stream)) = connection.accept_bidirectional_stream().await {
                let environment = environment.clone();
                tokio::spawn(async move { answer(&environment, stream).await });
            }
        });
    }
    Ok(())
}

async fn answer(environment: &Environment, stream: BidirectionalStream) -> Result<()> {
    let (mut receive, mut send) = stream.split();
    let mut request = Vec::new();
    while let Some(chunk) = receive.receive().await? {
        request.extend_from_slice(&chunk);
    }
    match requested_path(&request).and_then(|path| environment.page(path)) {
        Some(content) => {
            send.send(content.into()).await?;
            send.finish()?;
        }
        None => send.reset(1_u8.into())?,
    }
    Ok(())
}

async fn download_all(environment: &Environment) -> Result<()> {
    let targets = environment.targets()?;
    let first = targets.first().context("nothing to download")?;
    let server = first.resolve().await?;
    let provider = provider(environment);
    let mut tls = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    tls.alpn_protocols = vec![HQ.to_vec()];
    tls.key_log = Arc::new(KeyLogFile::new());
    #[expect(deprecated, reason = "the builder has no cipher suites")]
    let tls = ClientTls::new(tls);
    let mut client = s2n_quic::Client::builder()
        .with_tls(tls)?
        .with_io(any_address(server))?
        .with_limits(limits()?)?
        .start()?;
    let name = first.host.clone();
    let connect = || Connect::new(server).with_server_name(name.as_str());
    match environment.test_case.as_str() {
        "multiconnect" | "handshakeloss" | "handshakecorruption" => {
            for target in targets {
                let connection = client.connect(connect()).await?;
                download(&connection.handle(), vec![target]).await?;
                connection.close(0_u8.into());
            }
        }
        _ => {
            let connection = client.connect(connect()).await?;
            download(&connection.handle(), targets).await?;
            connection.close(0_u8.into());
        }
    }
    client.wait_idle().await.map_err(Error::from)
}

/// Downloads everything at once.
async fn download(connection: &Handle, targets: Vec<Target>) -> Result<()> {
    let mut downloads = JoinSet::new();
    for target in targets {
        let mut connection = connection.clone();
        downloads.spawn(async move {
            let stream = connection.open_bidirectional_stream().await?;
            let (mut receive, mut send) = stream.split();
            send.send(format!("GET {}\r\n", target.path).into()).await?;
            send.finish()?;
            let mut content = Vec::new();
            while let Some(chunk) = receive.receive().await? {
                content.extend_from_slice(&chunk);
            }
            target.store(&content)
        });
    }
    while let Some(done) = downloads.join_next().await {
        done??;
    }
    Ok(())
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
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("QUIC has no TLS 1.2".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
