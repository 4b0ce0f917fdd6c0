//! One download through the network.

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use clearway::{
    ClientConfig, CongestionController, Connection, DevelopmentIdentity, Endpoint, ServerConfig,
    TransportConfig,
};
use clearway_links::Profile;
use indicatif::{ProgressBar, ProgressStyle};

use super::breakdown::Breakdown;
use super::report::{Network, Report, Sender};
use super::series::{Recorder, Series};
use crate::failure::{Failure, Kind};
use crate::identity;
use crate::raw::{ALPN, Request, answer, ask};
use crate::relay::{self, Relay};

/// The network's name among the profiles.
const PROFILE: &str = "death_spiral";

/// What a run may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// Any free port of this host.
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// What to do once.
#[derive(Debug)]
pub(super) struct Run {
    /// Counted from one.
    pub(super) number: u32,
    /// How many there are.
    pub(super) runs: u32,
    pub(super) seed: u64,
    /// The server's.
    pub(super) controller: CongestionController,
    /// Bytes to download.
    pub(super) size: u64,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) report: Report,
    pub(super) series: Series,
    pub(super) failure: Option<Failure>,
}

/// Downloads once, whatever happens.
pub(super) async fn download(run: &Run) -> Outcome {
    let controller = run.controller.to_string();
    let mut report = Report::new(run.number, run.seed, controller, run.size);
    let recorder = Recorder::default();
    let failure = match Stage::build(run, &recorder) {
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
struct Stage {
    server: Endpoint,
    /// The server's end of the connection, once there is one.
    sender: Arc<OnceLock<Connection>>,
    relay: Relay,
    client: Endpoint,
}

impl Stage {
    fn build(run: &Run, recorder: &Recorder) -> Result<Self, Failure> {
        let identity = identity::development()?;
        let server = server(&identity, run.controller, recorder)?;
        let sender = Arc::new(OnceLock::new());
        tokio::spawn(serve(server.clone(), sender.clone()));
        let relay = network(server.local_addr(), run.seed)?;
        let config = ClientConfig::with_roots(identity.certificate_pem())
            .map_err(|error| Failure::caused(Kind::Other, "client", &error))?
            .alpn([ALPN]);
        let client = Endpoint::client(ANY, config)
            .map_err(|error| Failure::caused(Kind::Address, "client", &error))?;
        Ok(Self {
            server,
            sender,
            relay,
            client,
        })
    }

    /// Downloads and fills in the report; answers why it failed, if it did.
    async fn play(self, run: &Run, recorder: &Recorder, report: &mut Report) -> Option<Failure> {
        let progress = progress(run);
        let begun = Instant::now();
        let remote = self.relay.local_addr();
        let fetching = fetch(&self.client, remote, run.size, &progress, recorder);
        let result = tokio::time::timeout(DEADLINE, fetching).await;
        // Finishing moves the bar to its end.
        let received = progress.position();
        report.set_time(begun.elapsed().as_secs_f64(), received);
        progress.finish_and_clear();
        if let Some(sender) = self.sender.get() {
            self.describe_sender(sender, report);
        }
        self.client.close(0, b"done");
        self.server.close(0, b"done");
        let network = self.relay.stop();
        if let Ok(stats) = &network {
            report.network = Network::new(stats);
        }
        match (result, network) {
            (Ok(Ok(())), Ok(_)) => None,
            (_, Err(error)) => Some(Failure::caused(Kind::Other, "the relay", &error)),
            (Ok(Err(failure)), _) => Some(failure),
            (Err(_), _) => Some(Failure::new(
                Kind::Timeout,
                format!(
                    "{received} of {} bytes after {} s",
                    run.size,
                    DEADLINE.as_secs()
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
    controller: CongestionController,
    recorder: &Recorder,
) -> Result<Endpoint, Failure> {
    let mut transport = TransportConfig::default();
    transport.controller = controller;
    let config = ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem())
        .map_err(|error| Failure::caused(Kind::Other, "server", &error))?
        .alpn([ALPN])
        .transport(transport);
    let recorder = recorder.clone();
    Endpoint::builder(ANY)
        .server(config)
        .observe(move |_, _| Some(Box::new(recorder.clone())))
        .build()
        .map_err(|error| Failure::caused(Kind::Address, "server", &error))
}

/// Answers the requests of one connection.
async fn serve(server: Endpoint, sender: Arc<OnceLock<Connection>>) {
    let Some(connection) = server.accept().await else {
        return;
    };
    // Nobody else sets it.
    let _ = sender.set(connection.clone());
    while let Ok((send, recv)) = connection.accept_bi().await {
        // What goes wrong here the client reports.
        let _ = answer(send, recv).await;
    }
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
    Relay::start(config).map_err(|error| Failure::caused(Kind::Address, "the relay", &error))
}

async fn fetch(
    client: &Endpoint,
    remote: SocketAddr,
    size: u64,
    progress: &ProgressBar,
    recorder: &Recorder,
) -> Result<(), Failure> {
    let connection = client
        .connect(remote, "localhost")
        .await
        .map_err(|error| Failure::caused(Kind::Connection, "cannot connect", &error))?;
    let mut answer = ask(&connection, Request { bytes: size }, 0).await?;
    while let Some(len) = answer.next().await? {
        progress.inc(len);
        progress.set_message(format!("window {} kB", recorder.window() / 1_000));
    }
    Ok(())
}

/// The live line on stderr; nothing where stderr is no terminal.
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
