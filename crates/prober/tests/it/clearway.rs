//! Our own server does what every case expects.

use std::net::Ipv4Addr;
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use clearway::http::Server;
use clearway::{DevelopmentIdentity, ServerConfig};
use clearway_prober::{CaseResult, Probe, Trust, Verdict, builtin_cases};

/// The cases that our TLS answers with a generic alert.
const GENERIC_ALERTS: [&str; 3] = [
    "tls-key-share-missing",
    "tls-supported-groups-missing",
    "tls-signature-algorithms-missing",
];

/// A server that reads each request to its end.
fn serve() -> String {
    let identity = DevelopmentIdentity::generate(["localhost"]).unwrap();
    let config = ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem());
    let server = Server::builder((Ipv4Addr::LOCALHOST, 0).into(), config.unwrap());
    let server = server.build().unwrap();
    let url = format!("https://{}/", server.local_addr());
    // Reads each body to its end, so that its length is checked.
    let router = Router::new().fallback(any(async |body: axum::body::Bytes| body));
    tokio::spawn(async move { server.serve(router).await });
    url
}

/// A whole run, the intrusive cases included.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_server_answers_every_case_as_expected() {
    let probe = Probe::new(&serve(), Trust::Any).unwrap();
    // Used up only if something is missing.
    let patience = Duration::from_secs(6);
    let probe = probe
        .patience(patience)
        .connect_timeout(Duration::from_secs(60))
        .parallel(16);
    let report = probe.run(&builtin_cases(), |_| {}).await.unwrap();
    let fine = |result: &&CaseResult| match result.verdict {
        Verdict::AsExpected | Verdict::NotApplicable => true,
        // An answer may come late while the other tests run beside this one.
        Verdict::Unsteady => true,
        // rustls answers with handshake_failure, which RFC 9001 §4.8 permits.
        Verdict::Permitted => GENERIC_ALERTS.contains(&result.name.as_str()),
        // rustls accepts the compatibility mode of TLS 1.3, which a server SHOULD refuse.
        Verdict::Unadvised => result.name == "tls-session-id",
        Verdict::Deviation | Verdict::NotRun => false,
    };
    let wrong: Vec<_> = report
        .results
        .iter()
        .filter(|result| !fine(result))
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {}: {wrong:#?}",
        wrong.len(),
        report.results.len()
    );
}
