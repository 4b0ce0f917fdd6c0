//! Each case deviates with a server that has the very defect that the case looks for, and no other.
//!
//! The server is our own. First the correct one shows by which check it answers a case; then one
//! runs on which exactly this check is off, or answers with the wrong code where a server need not
//! check. Cases about what is legal, or about what the endpoint does without a connection, have a
//! defect of another kind: [`QUIRKS`] and [`HTTP_QUIRKS`]. Of TLS, whose checks are another
//! library's, the alert is kept back.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use clearway::http::Server;
use clearway::{DevelopmentIdentity, ServerConfig};
use clearway_http3::defects::Quirk as HttpQuirk;
use clearway_prober::{Case, CaseResult, Probe, Trust, Verdict, builtin_cases};
use clearway_quic::defects::{Check, Defect, Defects, Quirk};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

/// Cases that permit a server to check or not: wrong is another code.
const UNCHECKED: [&str; 5] = [
    "crypto-buffer-exceeded-after-handshake",
    "frame-type-not-shortest",
    "h3-setting-twice",
    "key-update-twice",
    "new-connection-id-sequence-reused",
];

/// Cases about QUIC that need another defect than a check that is off.
const QUIRKS: [(&str, Quirk); 33] = [
    (
        "new-connection-id-repeated",
        Quirk::RefusesRepeatedConnectionIds,
    ),
    ("max-streams-decreased", Quirk::RefusesLowerMaxStreams),
    ("max-data-decreased", Quirk::RefusesLowerMaxData),
    ("blocked-frames", Quirk::RefusesBlocked),
    ("stream-frame-empty", Quirk::RefusesEmptyStream),
    ("stream-data-repeated", Quirk::RefusesRepeatedData),
    ("path-response-unasked", Quirk::RefusesPathResponse),
    ("packet-number-skipped", Quirk::RefusesSkippedNumbers),
    ("fixed-bit-zero", Quirk::RefusesUnsetFixedBit),
    ("packet-not-authentic", Quirk::RefusesForgedPackets),
    ("key-update-answered", Quirk::IgnoresKeyUpdates),
    ("key-update-goes-on", Quirk::RefusesKeyUpdates),
    ("parameter-unknown", Quirk::RefusesUnknownParameters),
    ("ecn-counts-too-large", Quirk::RefusesLargeEcnCounts),
    ("ecn-counts-decreased", Quirk::RefusesLowerEcnCounts),
    ("ecn-counted", Quirk::IgnoresEcnMarks),
    ("initial-with-unknown-token", Quirk::RefusesUnknownTokens),
    ("path-challenge-answered", Quirk::IgnoresPathChallenges),
    ("rebinding-validated", Quirk::IgnoresMoves),
    ("rebinding-survived", Quirk::DropsMovedClients),
    ("close-is-final", Quirk::IgnoresClose),
    ("version-unknown", Quirk::IgnoresUnknownVersions),
    (
        "version-unknown-without-connection-ids",
        Quirk::IgnoresVersionsWithoutIds,
    ),
    (
        "version-unknown-with-long-connection-ids",
        Quirk::IgnoresVersionsWithLongIds,
    ),
    (
        "version-unknown-in-small-datagram",
        Quirk::NegotiatesSmallDatagrams,
    ),
    (
        "version-negotiation-from-client",
        Quirk::AnswersVersionNegotiation,
    ),
    ("initial-in-small-datagram", Quirk::AcceptsSmallInitials),
    (
        "stateless-reset-for-unknown-connection-id",
        Quirk::SendsLargeResets,
    ),
    (
        "stateless-reset-smaller-than-its-cause",
        Quirk::SendsLargeResets,
    ),
    ("amplification-limit", Quirk::Amplifies),
    ("flood-of-path-challenges", Quirk::SuccumbsToPathChallenges),
    ("flood-of-resets", Quirk::SuccumbsToResets),
    ("flood-of-pings", Quirk::SuccumbsToPings),
];

/// The same for HTTP/3 and QPACK.
const HTTP_QUIRKS: [(&str, HttpQuirk); 7] = [
    ("h3-setting-unknown", HttpQuirk::RefusesUnknownSettings),
    (
        "h3-unknown-frame-on-control-stream",
        HttpQuirk::RefusesUnknownFrames,
    ),
    (
        "h3-unknown-frame-on-request-stream",
        HttpQuirk::RefusesUnknownFrames,
    ),
    ("h3-unknown-stream", HttpQuirk::RefusesUnknownStreams),
    ("message-te-trailers", HttpQuirk::RefusesTe),
    (
        "qpack-stream-cancellation-unknown",
        HttpQuirk::RefusesCancellations,
    ),
    (
        "message-field-section-too-large",
        HttpQuirk::IgnoresSectionLimit,
    ),
];

/// Our server already has the defect: rustls accepts what it should refuse.
const OWN_DEFECT: &str = "tls-session-id";

/// How long a correct server may take: used up only by cases that expect nothing, or if something
/// is missing.
const LONG: Duration = Duration::from_secs(3);
/// Enough on loopback; what a defective server owes may never come.
const SHORT: Duration = Duration::from_millis(300);
/// How many cases run at a time.
const AT_ONCE: usize = 12;

/// A server of ours, and the accounts of its defects.
struct Subject {
    url: String,
    task: JoinHandle<()>,
    quic: Defects<Quirk>,
    http: Defects<HttpQuirk>,
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A check, and the layer whose it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FailedCheck {
    Quic(Check),
    Http(Check),
}

/// What is wrong with a server.
#[derive(Clone, Debug)]
enum VeryDefect {
    Nothing,
    Ignores(FailedCheck),
    Miscodes(FailedCheck),
    Quic(Quirk),
    Http(HttpQuirk),
}

impl Subject {
    /// Starts a server to which `case` applies.
    fn start(case: &str, defect: &VeryDefect) -> Self {
        let (quic, http) = match defect.clone() {
            VeryDefect::Nothing => (Defect::Nothing, Defect::Nothing),
            VeryDefect::Ignores(FailedCheck::Quic(check)) => {
                (Defect::Ignores(check), Defect::Nothing)
            }
            VeryDefect::Ignores(FailedCheck::Http(check)) => {
                (Defect::Nothing, Defect::Ignores(check))
            }
            VeryDefect::Miscodes(FailedCheck::Quic(check)) => {
                (Defect::Miscodes(check), Defect::Nothing)
            }
            VeryDefect::Miscodes(FailedCheck::Http(check)) => {
                (Defect::Nothing, Defect::Miscodes(check))
            }
            VeryDefect::Quic(quirk) => (Defect::Has(quirk), Defect::Nothing),
            VeryDefect::Http(quirk) => (Defect::Nothing, Defect::Has(quirk)),
        };
        let (quic, http) = (Defects::new(quic), Defects::new(http));
        let names = match case {
            // The certificate alone is larger than what may be sent before the address is validated.
            "amplification-limit" => 300,
            _ => 1,
        };
        let names = (0..names).map(|n| format!("server-{n}.localhost"));
        let identity = DevelopmentIdentity::generate(names).unwrap();
        let config = ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem());
        let config = config
            .unwrap()
            .early_data(case.ends_with("-in-0rtt"))
            .transport(transport(case, &quic));
        let server = Server::builder((Ipv4Addr::LOCALHOST, 0).into(), config);
        let server = server.http(settings(case, &http)).shards(1);
        let server = server.build().unwrap();
        let url = format!("https://{}/", server.local_addr());
        // Reads each body to its end, so that its length is checked.
        let router = Router::new().fallback(any(async |body: axum::body::Bytes| body));
        let task = tokio::spawn(async move {
            let _ = server.serve(router).await;
        });
        Self {
            url,
            task,
            quic,
            http,
        }
    }

    fn uses(&self) -> usize {
        self.quic.uses() + self.http.uses()
    }

    /// Runs a case. Returns what was found, and what the case, and not the contact before it, made
    /// of the defect.
    async fn probe(
        &self,
        case: &Case,
        patience: Duration,
    ) -> (CaseResult, usize, Option<FailedCheck>) {
        let probe = Probe::new(&self.url, Trust::Any).unwrap();
        let probe = probe
            .patience(patience)
            .connect_timeout(Duration::from_secs(30));
        probe.contact().await.unwrap();
        let failed = (self.quic.failed_checks(), self.http.failed_checks());
        assert_eq!(failed, (Vec::new(), Vec::new()), "by an ordinary client");
        let uses = self.uses();
        let result = probe.run_case(case).await.unwrap();
        let quic = self.quic.failed_checks().into_iter().map(FailedCheck::Quic);
        let http = self.http.failed_checks().into_iter().map(FailedCheck::Http);
        (result, self.uses() - uses, quic.chain(http).next())
    }
}

fn transport(case: &str, defects: &Defects<Quirk>) -> clearway_quic::connection::Config {
    let mut transport = clearway_quic::connection::Config::default();
    transport.defects = Some(defects.clone());
    if case == "datagram-not-offered" {
        transport.datagram_buffer = 0;
    }
    transport
}

fn settings(case: &str, defects: &Defects<HttpQuirk>) -> clearway_http3::Config {
    let mut settings = clearway_http3::Config {
        datagrams: case.starts_with("h3-") && case.contains("datagram"),
        defects: Some(defects.clone()),
        ..clearway_http3::Config::default()
    };
    if case == "message-field-section-too-large" {
        settings.limits.max_field_section = 16 << 10;
    }
    settings
}

/// Shows that a case is as expected with a correct server, and deviates with a defective one.
async fn show(case: &Case) -> Result<VeryDefect, String> {
    let name = case.name.as_str();
    let correct = || Subject::start(name, &VeryDefect::Nothing);
    let (mut result, _, mut failed) = correct().probe(case, LONG).await;
    if result.verdict == Verdict::Deviation {
        // A busy machine.
        (result, _, failed) = correct().probe(case, LONG * 4).await;
    }
    if name == OWN_DEFECT && result.verdict == Verdict::Unadvised {
        return Ok(VeryDefect::Nothing);
    }
    if !is_fine(&result) {
        return Err(format!(
            "{name}: the correct server: {:?}, {}",
            result.verdict, result.came
        ));
    }
    let quirk = QUIRKS.iter().find(|(of, _)| *of == name);
    let http_quirk = HTTP_QUIRKS.iter().find(|(of, _)| *of == name);
    let defect = match (quirk, http_quirk, failed) {
        (Some((_, quirk)), None, _) => VeryDefect::Quic(*quirk),
        (None, Some((_, quirk)), _) => VeryDefect::Http(*quirk),
        (None, None, Some(check)) if UNCHECKED.contains(&name) => VeryDefect::Miscodes(check),
        (None, None, Some(check)) => VeryDefect::Ignores(check),
        (_, _, None) | (Some(_), Some(_), _) => {
            return Err(format!("{name}: no defect is known: {}", result.came));
        }
    };
    let defective = || Subject::start(name, &defect);
    let (mut result, mut uses, _) = defective().probe(case, SHORT).await;
    if uses == 0 {
        // A busy machine: nothing has arrived yet.
        (result, uses, _) = defective().probe(case, LONG).await;
    }
    let deviates = matches!(result.verdict, Verdict::Deviation | Verdict::Unadvised);
    match deviates && uses > 0 {
        true => Ok(defect),
        false => Err(format!(
            "{name}: {defect:?}: {:?}, {uses} uses, {}",
            result.verdict, result.came
        )),
    }
}

fn is_fine(result: &CaseResult) -> bool {
    matches!(result.verdict, Verdict::AsExpected | Verdict::Permitted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_deviates_with_its_very_defect() {
    let total = builtin_cases().len();
    let (permits, mut running) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
    for case in builtin_cases() {
        let permits = permits.clone();
        running.spawn(async move {
            let _permit = permits.acquire_owned().await;
            show(&case).await
        });
    }
    let (shown, wrong): (Vec<_>, Vec<_>) =
        (running.join_all().await.into_iter()).partition(Result::is_ok);
    let wrong: Vec<_> = wrong.into_iter().filter_map(Result::err).collect();
    let shown: Vec<_> = shown.into_iter().filter_map(Result::ok).collect();
    assert!(wrong.is_empty(), "{} of {total}: {wrong:#?}", wrong.len());
    let count = |kind: fn(&VeryDefect) -> bool| shown.iter().filter(|it| kind(it)).count();
    let of_quirks = QUIRKS.len() + HTTP_QUIRKS.len();
    assert_eq!(count(|it| matches!(it, VeryDefect::Nothing)), 1);
    assert_eq!(
        count(|it| matches!(it, VeryDefect::Miscodes(_))),
        UNCHECKED.len()
    );
    assert_eq!(
        count(|it| matches!(it, VeryDefect::Quic(_) | VeryDefect::Http(_))),
        of_quirks
    );
    // All others: a case that loses its check has to be looked at.
    assert_eq!(count(|it| matches!(it, VeryDefect::Ignores(_))), 189);
    assert_eq!(shown.len(), total);
}

/// Several cases may fail at one check, but not with the same input.
#[test]
fn no_case_is_there_twice() {
    let cases = builtin_cases();
    let scripts: BTreeMap<_, _> = cases.iter().map(|it| (&it.script, &it.name)).collect();
    assert_eq!(scripts.len(), cases.len());
}
