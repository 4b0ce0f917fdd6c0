//! What is said about servers that cannot be probed.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use clearway_prober::testing::{Defect, DefectiveServer};
use clearway_prober::{Probe, ProbeError, Trust, Verdict, builtin_cases};

async fn error(url: &str, trust: Trust) -> ProbeError {
    let probe = Probe::new(url, trust).unwrap();
    let probe = probe.connect_timeout(Duration::from_millis(600));
    probe.contact().await.unwrap_err()
}

#[tokio::test]
async fn closed_port_is_named() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    drop(socket);
    let error = error(&format!("https://{address}/"), Trust::Any).await;
    assert!(matches!(error, ProbeError::Connect { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("nobody listens on this UDP port"),
        "{error}"
    );
}

/// Nothing is blamed on a server that is not there any more, nor is its silence an answer.
#[tokio::test]
async fn server_that_has_gone_away_makes_no_case_pass_or_deviate() {
    let server = DefectiveServer::start(Defect::Deaf).await.unwrap();
    let probe = Probe::new(&server.url(), Trust::Any).unwrap();
    let probe = probe
        .patience(Duration::from_millis(300))
        .connect_timeout(Duration::from_secs(2))
        .parallel(24);
    probe.contact().await.unwrap();
    drop(server);
    let report = probe.run(&builtin_cases(), |_| {}).await.unwrap();
    let judged: Vec<_> = report
        .results
        .iter()
        .filter(|result| !matches!(result.verdict, Verdict::NotRun | Verdict::NotApplicable))
        .collect();
    assert!(judged.is_empty(), "{judged:#?}");
}

#[tokio::test]
async fn silent_port_is_named() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    let error = error(&format!("https://{address}/"), Trust::Any).await;
    assert!(
        error
            .to_string()
            .contains("does not speak QUIC on this port"),
        "{error}"
    );
}

#[tokio::test]
async fn untrusted_certificate_is_named() {
    let server = DefectiveServer::start(Defect::Deaf).await.unwrap();
    let error = error(&server.url(), Trust::Fingerprint([7; 32])).await;
    assert!(matches!(error, ProbeError::Certificate { .. }), "{error}");
    assert!(error.to_string().contains("fingerprint"), "{error}");
}

#[tokio::test]
async fn server_of_another_protocol_is_named() {
    use clearway::{DevelopmentIdentity, Endpoint, ServerConfig};
    let identity = DevelopmentIdentity::generate(["localhost"]).unwrap();
    let config = ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem());
    let config = config.unwrap().alpn(["echo"]);
    let server = Endpoint::server((Ipv4Addr::LOCALHOST, 0).into(), config).unwrap();
    let url = format!("https://{}/", server.local_addr());
    let error = error(&url, Trust::Any).await;
    assert!(matches!(error, ProbeError::NotHttp3 { .. }), "{error}");
    assert!(
        error.to_string().contains("does not offer the protocol h3"),
        "{error}"
    );
}
