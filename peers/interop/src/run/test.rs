//! A test: files, network, and what the recording has to show.

use std::{fmt, net::SocketAddr, time::Duration};

use anyhow::Result;

use super::{
    Run,
    capture::Capture,
    checks::{Check, Recording},
    decrypted::Decrypted,
    endpoint::{Ended, Endpoint, Extra, Mounts, Server, run_client},
    inside::{TcpFlow, TcpSender},
    network::{Conditions, Network},
    tunnel::{self, Recorded, Tunnel},
};

/// The server's port, and that of a TCP connection, in namespaces of their own.
const PORT: u16 = 443;
const TCP_PORT: u16 = 5001;

/// How long a TCP connection has the path for itself.
const TCP_ALONE: Duration = Duration::from_secs(1);

/// Who takes part in a test.
struct Pair<'a> {
    client: &'a Endpoint,
    server: &'a Endpoint,
}

/// What came of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// The goodput in kbit/s.
    Measured(u64),
    /// The goodput in kbit/s, which is not what it has to be.
    Missed(u64, Bar),
    Unsupported,
    Failed(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("pass"),
            Self::Measured(kbit) => write!(f, "{kbit} kbit/s"),
            Self::Missed(kbit, bar) => write!(f, "FAIL: {kbit} kbit/s, expected {bar}"),
            Self::Unsupported => f.write_str("unsupported"),
            Self::Failed(why) => write!(f, "FAIL: {why}"),
        }
    }
}

/// What a median goodput has to be, in kbit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    pub(crate) least: u64,
    pub(crate) most: Option<u64>,
}

impl Bar {
    fn holds(self, kbit: u64) -> bool {
        kbit >= self.least && self.most.is_none_or(|most| kbit <= most)
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.most {
            None => write!(f, "at least {}", self.least),
            Some(most) => write!(f, "{} to {most}", self.least),
        }
    }
}

/// A test of the public runner.
pub(crate) struct Test {
    pub(crate) name: &'static str,
    /// Takes more than half a minute.
    pub(crate) slow: bool,
    /// What the endpoints are told.
    pub(super) case: &'static str,
    /// What the server is told, if that differs.
    pub(super) server_case: Option<&'static str>,
    /// Number and size of the files, and the length of their names.
    pub(super) files: &'static [(usize, usize)],
    pub(super) name_len: usize,
    pub(super) conditions: Conditions,
    /// Certificates in the server's chain.
    pub(super) chain: usize,
    pub(super) checks: &'static [Check],
    pub(super) patience: Duration,
    /// Number of runs of which the median goodput is the result; 0 if that is not measured.
    pub(crate) measured_runs: u32,
    /// What that median has to be with Clearway's server; those of others are only reported.
    pub(super) bar: Option<Bar>,
    /// Whether a TCP connection of the kernel, with CUBIC, has the same path.
    pub(super) beside_tcp: bool,
    /// The congestion controller of Clearway's server; with one, the test is for Clearway with itself.
    pub(super) controller: Option<&'static str>,
}

impl Test {
    /// Runs it once.
    pub(crate) fn run(
        &self,
        client: &Endpoint,
        server: &Endpoint,
        seed: u64,
        options: &Run,
    ) -> Result<Outcome> {
        let files = self.files();
        let mounts = Mounts::new(&files, self.chain)?;
        let mut extra = Extra::default();
        if let Some(controller) = self.controller.or(options.controller.as_deref()) {
            extra.set("CONGESTION", controller);
        }
        if client.only_http3 || server.only_http3 {
            extra.set("PROTOCOL", "h3");
        }
        let pair = Pair { client, server };
        let ran = if self.beside_tcp {
            self.run_beside_tcp(&pair, &mounts, &files, extra, seed)
        } else {
            self.run_through_relay(&pair, &mounts, &files, extra, seed)
        };
        let outcome = match ran {
            Ok((Ended::Unsupported, _)) => Outcome::Unsupported,
            Ok((Ended::Badly(why), _)) => Outcome::Failed(why),
            Ok((Ended::Well, capture)) => self.judge(&mounts, &files, capture),
            // The log of a server that did not start is among what is kept.
            Err(error) => Outcome::Failed(format!("{error:#}")),
        };
        let is_worth_reading = match outcome {
            Outcome::Failed(_) => true,
            Outcome::Measured(kbit) => {
                matches!(self.judge_median(kbit, server), Outcome::Missed(..))
            }
            _ => false,
        };
        if let (true, Some(folder)) = (is_worth_reading, &options.keep) {
            let name = format!("{}-{}-{}-{seed}", self.name, client.name, server.name);
            mounts.keep(&folder.join(name))?;
        }
        Ok(outcome)
    }

    fn run_through_relay(
        &self,
        pair: &Pair<'_>,
        mounts: &Mounts,
        files: &[(String, usize)],
        mut extra: Extra,
        seed: u64,
    ) -> Result<(Ended, Capture)> {
        let port = free_port()?;
        let mut network = Network::new(port, &self.conditions, seed)?;
        let mut of_server = extra.clone();
        if let Some(preferred) = network.preferred {
            of_server.set("PREFERRED", preferred.to_string());
        }
        let case = self.server_case.unwrap_or(self.case);
        let Some(running) = Server::start(pair.server, case, mounts, port, &of_server)? else {
            return Ok((Ended::Unsupported, Capture::default()));
        };
        network.start();
        extra.set("REQUESTS", requests(network.address, files));
        let ended = run_client(pair.client, self.case, mounts, &extra, self.patience)?;
        let capture = network.end();
        drop(running);
        Ok((ended, capture))
    }

    /// The public runner starts the TCP connection first, too.
    fn run_beside_tcp(
        &self,
        pair: &Pair<'_>,
        mounts: &Mounts,
        files: &[(String, usize)],
        extra: Extra,
        seed: u64,
    ) -> Result<(Ended, Capture)> {
        let tunnel = Tunnel::new(self.conditions.down, seed, PORT)?;
        let [client_space, server_space] = &tunnel.spaces;
        let of_server = extra.clone().in_namespace(server_space);
        let mut of_client = extra.in_namespace(client_space);
        let Some(running) = Server::start(pair.server, self.case, mounts, PORT, &of_server)? else {
            return Ok((Ended::Unsupported, Capture::default()));
        };
        let flow = start_cubic(&tunnel)?;
        let address = SocketAddr::new(tunnel::SERVER.into(), PORT);
        of_client.set("REQUESTS", requests(address, files));
        let ended = run_client(pair.client, self.case, mounts, &of_client, self.patience)?;
        drop(flow);
        drop(running);
        let recorded = tunnel.end();
        if let (Ended::Well, Some(span)) = (&ended, recorded.quic.one_rtt_arrived()) {
            let tcp = beside(&recorded, PORT, span);
            eprintln!("{}: {tcp}", self.name);
        }
        Ok((ended, recorded.quic))
    }

    /// Returns whether the test is for this pair.
    pub(crate) fn concerns(&self, client: &Endpoint, server: &Endpoint) -> bool {
        self.controller.is_none() || client.ours && server.ours
    }

    /// Judges the median of all runs.
    pub(crate) fn judge_median(&self, kbit: u64, server: &Endpoint) -> Outcome {
        match self.bar {
            Some(bar) if server.ours && !bar.holds(kbit) => Outcome::Missed(kbit, bar),
            _ => Outcome::Measured(kbit),
        }
    }

    fn files(&self) -> Vec<(String, usize)> {
        let sizes = self
            .files
            .iter()
            .flat_map(|(count, size)| std::iter::repeat_n(*size, *count));
        sizes
            .enumerate()
            // A letter first: to ngtcp2's server, a number asks for as many bytes.
            .map(|(at, size)| (format!("f{at:0>width$}", width = self.name_len - 1), size))
            .collect()
    }

    fn judge(&self, mounts: &Mounts, files: &[(String, usize)], headers: Capture) -> Outcome {
        if let Some(name) = mounts.missing(files) {
            return Outcome::Failed(format!("the file {name} did not arrive as it is"));
        }
        let decrypted = Decrypted::new(&headers, mounts.secrets());
        let recording = Recording { headers, decrypted };
        if let Some(why) = self.checks.iter().find_map(|check| check(&recording).err()) {
            return Outcome::Failed(why);
        }
        match recording.headers.download_time() {
            Some(duration) if self.measured_runs > 0 => {
                let bits: usize = files.iter().map(|(_, size)| 8 * size).sum();
                Outcome::Measured((bits as f64 / duration.as_secs_f64() / 1000.0) as u64)
            }
            _ => Outcome::Passed,
        }
    }
}

/// Starts the TCP connection that has the path for itself first.
pub(super) fn start_cubic(tunnel: &Tunnel) -> Result<TcpFlow> {
    let [client, server] = &tunnel.spaces;
    let address = SocketAddr::new(tunnel::CLIENT.into(), TCP_PORT);
    let cubic = TcpSender {
        controller: "cubic".to_owned(),
        paced: false,
    };
    let flow = TcpFlow::start(server, (client, address), &cubic, None)?;
    std::thread::sleep(TCP_ALONE);
    Ok(flow)
}

/// Says what that connection had beside the flow with this port, and what the queue dropped of both.
pub(super) fn beside(recorded: &Recorded, port: u16, span: (Duration, Duration)) -> String {
    let rate = recorded.tcp_rate(TCP_PORT, span);
    let [of_flow, of_tcp] = [port, TCP_PORT].map(|port| recorded.drops(port, span));
    format!(
        "TCP with CUBIC had {rate} kbit/s meanwhile; {} packets of this flow were dropped in {} round \
         trips, {} of CUBIC in {}",
        of_flow.packets, of_flow.episodes, of_tcp.packets, of_tcp.episodes
    )
}

/// Returns the URLs that a client downloads.
fn requests(server: SocketAddr, files: &[(String, usize)]) -> String {
    let urls = files
        .iter()
        .map(|(name, _)| format!("https://{server}/{name}"));
    urls.collect::<Vec<_>>().join(" ")
}

/// Returns a port that was free a moment ago.
fn free_port() -> Result<u16> {
    Ok(std::net::UdpSocket::bind("[::]:0")?.local_addr()?.port())
}
