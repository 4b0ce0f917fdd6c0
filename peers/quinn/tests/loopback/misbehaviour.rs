//! Peers that break the protocol: a client must notice, a server must live on.

use std::{path::Path, sync::Arc};

use crate::harness::{Server, certificates, client, complaint};
use quinn::{
    ClientConfig, Endpoint, ReadError, ReadToEndError, ServerConfig, VarInt,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use rustls::{
    RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    version::TLS13,
};

const ALPN: &[u8] = b"clearway-raw";

fn server_config(certificates: &Path) -> ServerConfig {
    let certificate = CertificateDer::from_pem_file(certificates.join("cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(certificates.join("key.pem")).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).unwrap()))
}

fn client_config(certificates: &Path) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(certificates.join("ca.pem")).unwrap())
        .unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()))
}

/// What our client says of a server that gives this answer to a request for 300 bytes.
async fn client_given(answer: &'static [u8]) -> std::process::Output {
    let folder = certificates();
    let server = Endpoint::server(server_config(folder.path()), "127.0.0.1:0".parse().unwrap());
    let server = server.unwrap();
    let address = server.local_addr().unwrap().to_string();
    let liar = tokio::spawn(async move {
        let connection = server.accept().await.unwrap().await.unwrap();
        let (mut send, mut receive) = connection.accept_bi().await.unwrap();
        receive.read_to_end(8).await.unwrap();
        send.write_all(answer).await.unwrap();
        send.finish().unwrap();
        connection.closed().await.to_string()
    });
    let run =
        tokio::task::spawn_blocking(move || client(&address, folder.path(), &["--bytes", "300"]));
    let output = run.await.unwrap();
    let cause = match output.status.success() {
        true => "closed by peer: done (code 0)",
        false => "closed by peer: failed (code 1)",
    };
    assert_eq!(liar.await.unwrap(), cause);
    output
}

/// The first 301 bytes of every answer.
const SOUND: [u8; 301] = {
    let mut bytes = [0; 301];
    let mut i = 0;
    while i < bytes.len() {
        bytes[i] = (i ^ (i >> 8) ^ (i >> 16)) as u8;
        i += 1;
    }
    bytes
};

/// A sound answer but for one byte.
const WRONG: [u8; 300] = {
    let mut bytes = [0; 300];
    let mut i = 0;
    while i < bytes.len() {
        bytes[i] = SOUND[i];
        i += 1;
    }
    bytes[299] ^= 1;
    bytes
};

#[tokio::test(flavor = "multi_thread")]
async fn responses_are_verified_to_the_last_byte() {
    assert!(client_given(&SOUND[..300]).await.status.success());
    let wrong = complaint(&client_given(&WRONG).await);
    assert!(wrong.contains("wrong byte at offset 299"), "{wrong}");
}

#[tokio::test(flavor = "multi_thread")]
async fn short_and_long_responses_are_errors() {
    let short = complaint(&client_given(&SOUND[..299]).await);
    assert!(
        short.contains("received 299 bytes, expected 300"),
        "{short}"
    );
    let long = complaint(&client_given(&SOUND).await);
    assert!(
        long.contains("received more than the expected 300 bytes"),
        "{long}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn request_with_an_incomplete_header_is_reset() {
    let server = Server::start(&[]);
    let endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let config = client_config(server.certificates.path());
    let address = server.address.parse().unwrap();
    let connecting = endpoint.connect_with(config, address, "localhost");
    let connection = connecting.unwrap().await.unwrap();

    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    send.write_all(&[0; 7]).await.unwrap();
    send.finish().unwrap();
    let reset = receive.read_to_end(100).await;
    let malformed = ReadToEndError::Read(ReadError::Reset(VarInt::from_u32(1)));
    assert_eq!(reset, Err(malformed));

    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    send.write_all(&300_u64.to_be_bytes()).await.unwrap();
    send.finish().unwrap();
    assert_eq!(receive.read_to_end(400).await.unwrap(), SOUND[..300]);
}
