//! One download through the network.

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::time::Instant;

use clearway::http::{Client, Code, Server};
use clearway::{
    ClientConfig, CongestionController, Connection, DevelopmentIdentity, Endpoint, QlogDir,
    ServerConfig, TransportConfig,
};
use clearway_links::Profile;
use indicatif::{ProgressBar, ProgressStyle};

use super::breakdown::Breakdown;
use super::report::{Network, Report, Sender};
use super::series::{Recorder, Series};
use super::site::Site;
use crate::failure::{Failure, Kind};
use crate::identity;
use crate::qlog::with_traces;
use crate::raw::pattern;
use crate::relay::{self, Relay};
use crate::terminal;

/// The network's name among the profiles.
const PROFILE: &str = "death_spiral";

/// Maximum duration of a run.
const DEADLINE: Duration = Duration::from_secs(30);

/// Any free port of this host.
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The parameters of a run.
#[derive(Debug)]
pub(super) struct Run {
    /// Counted from one.
    pub(super) number: u32,
    /// Total number of runs.
    pub(super) runs: u32,
    pub(super) seed: u64,
    /// The server's.
    pub(super) controller: CongestionController,
    /// Bytes to download.
    pub(super) size: u64,
    /// Where both ends write traces.
    pub(super) qlog: Option<QlogDir>,
}

/// The result of a run.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) report: Report,
    pub(super) series: Series,
    pub(super) failure: Option<Failure>,
}

/// Performs one download; failures are part of the result.
pub(super) async fn download(run: &Run) -> Outcome {
    let controller = run.controller.to_string();
    let mut report = Report::new(run.number, run.seed, controller, run.size);
    let recorder = Recorder::default();
    let failure = match DemoSetup::build(run, &recorder) {
        Ok(stage) => stage.play(run, &recorder, &mut report).await,
        Err(failure) => Some(failure),
    };
    match &failure {
        None => report.completed = true,
        Some(failure) => report.fail(failure),
    }
    Outcome {
        report,
        series: recorder.series(),
        failure,
    }
}

/// A server, a network and a client.
struct DemoSetup {
    server: Server,
    site: Site,
    relay: Relay,
    client: Client,
}

impl DemoSetup {
    fn build(run: &Run, recorder: &Recorder) -> Result<Self, Failure> {
        let identity = identity::development()?;
        let server = server(&identity, run, recorder)?;
        let site = Site::default();
        tokio::spawn({
            let (server, site) = (server.clone(), site.clone());
            async move { server.serve(site).await }
        });
        let relay = network(server.local_addr(), run.seed)?;
        let config = ClientConfig::with_roots(identity.certificate_pem())
            .map_err(|error| Failure::caused(Kind::Other, "client", &error))?;
        let endpoint = with_traces(Endpoint::builder(ANY), run.qlog.as_ref());
        let client = Client::with_endpoint(endpoint, config)
            .map_err(|error| Failure::caused(Kind::Address, "client", &error))?;
        Ok(Self {
            server,
            site,
            relay,
            client,
        })
    }

    /// Downloads and fills in the report; returns the failure, if any.
    async fn play(self, run: &Run, recorder: &Recorder, report: &mut Report) -> Option<Failure> {
        let progress = progress(run);
        terminal::show(&progress);
        let begun = Instant::now();
        let remote = self.relay.local_addr();
        let fetching = fetch(&self.client, remote, run.size, &progress, recorder);
        let result = tokio::time::timeout(DEADLINE, fetching).await;
        // Finishing moves the bar to its end.
        let received = progress.position();
        report.set_time(begun.elapsed().as_secs_f64(), received);
        terminal::clear();
        if let Some(sender) = self.site.sender() {
            self.describe_sender(sender, report);
        }
        for endpoint in [self.client.endpoint(), self.server.endpoint()] {
            endpoint.close(Code::NO_ERROR.0, b"done");
        }
        let network = self.relay.stop();
        if let Ok(stats) = &network {
            report.network = Network::new(stats);
        }
        match (result, network) {
            (Ok(Ok(())), Ok(_)) => None,
            (_, Err(error)) => Some(Failure::caused(Kind::Other, "relay", &error)),
            (Ok(Err(failure)), _) => Some(failure),
            (Err(_), _) => Some(Failure::new(
                Kind::Timeout,
                format!(
                    "timed out after {} s: received {received} of {} bytes",
                    DEADLINE.as_secs(),
                    run.size
                ),
            )),
        }
    }

    fn describe_sender(&self, sender: &Connection, report: &mut Report) {
        let stats = sender.stats();
        report.breakdown = Breakdown::new(&stats.limits);
        report.sender = Some(Sender {
            packets: stats.counters.packets_sent,
            losses: stats.counters.packets_lost,
            spurious_losses: stats.counters.spurious_losses,
            ptos: stats.counters.ptos,
            rtt_ms: stats.smoothed_rtt.as_micros() as f64 / 1e3,
            window: stats.window,
        });
    }
}

fn server(
    identity: &DevelopmentIdentity,
    run: &Run,
    recorder: &Recorder,
) -> Result<Server, Failure> {
    let mut transport = TransportConfig::default();
    transport.controller = run.controller.into();
    let config = ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem())
        .map_err(|error| Failure::caused(Kind::Other, "server", &error))?
        .transport(transport);
    let recorder = recorder.clone();
    Server::builder(ANY, config)
        .endpoint(|endpoint| {
            let endpoint = endpoint.observe(move |_, _| Some(Box::new(recorder.clone())));
            with_traces(endpoint, run.qlog.as_ref())
        })
        .build()
        .map_err(|error| Failure::caused(Kind::Address, "server", &error))
}

/// Starts the relay in front of `server`.
fn network(server: SocketAddr, seed: u64) -> Result<Relay, Failure> {
    let wrong = |error: &dyn std::error::Error| Failure::caused(Kind::Other, PROFILE, error);
    let profile = Profile::named(PROFILE).map_err(|error| wrong(&error))?;
    let mut config = relay::Config::new(ANY, server);
    let applied = config.up.apply(profile.up_settings());
    applied
        .and_then(|()| config.down.apply(profile.down_settings()))
        .map_err(|error| wrong(&error))?;
    config.seed = seed;
    Relay::start(config).map_err(|error| Failure::caused(Kind::Address, "relay", &error))
}

async fn fetch(
    client: &Client,
    remote: SocketAddr,
    size: u64,
    progress: &ProgressBar,
    recorder: &Recorder,
) -> Result<(), Failure> {
    let url = format!("https://localhost:{}/{size}", remote.port());
    let broken = |error| Failure::caused(Kind::Connection, "download failed", &error);
    let mut response = client.get(&url).await.map_err(broken)?;
    if response.status() != http::StatusCode::OK {
        let message = format!("unexpected response: {}", response.status());
        return Err(Failure::new(Kind::Content, message));
    }
    let mut received = 0;
    while let Some(chunk) = response.body_mut().chunk().await.map_err(broken)? {
        pattern::check(received, &chunk).map_err(|offset| {
            Failure::new(
                Kind::Content,
                format!("wrong content: byte {offset} differs from what was sent"),
            )
        })?;
        received += chunk.len() as u64;
        progress.inc(chunk.len() as u64);
        progress.set_message(format!("window {} kB", recorder.window() / 1_000));
    }
    if received == size {
        return Ok(());
    }
    let message = format!("wrong length: received {received} bytes, expected {size}");
    Err(Failure::new(Kind::Content, message))
}

/// The progress bar on stderr; hidden unless it is a terminal.
fn progress(run: &Run) -> ProgressBar {
    let template = "{prefix} {elapsed_precise} [{bar:30}] {decimal_bytes}/{decimal_total_bytes} \
                    {decimal_bytes_per_sec}, {msg}";
    let style = ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("█▉▊▋▌▍▎▏ ");
    ProgressBar::new(run.size)
        .with_style(style)
        .with_prefix(format!("run {}/{}", run.number, run.runs))
}
