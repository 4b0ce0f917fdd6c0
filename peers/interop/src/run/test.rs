//! The tests: files, network, and what the recording has to show.

use std::{fmt, time::Duration};

use anyhow::Result;

use super::{
    Run,
    capture::Capture,
    checks::{self, Check, Recording},
    decrypted::Decrypted,
    endpoint::{Ended, Endpoint, Extra, Mounts, Server, run_client},
    network::{Conditions, Network, Rebinding},
};

/// The path that all tests without one of their own have: 10 Mbit/s, 15 ms, 25 packets.
const S0: &str = "rate=10M delay=15ms queue=25";

/// The same path with the headers of Ethernet, IPv4 and UDP counted, as the public runner's
/// simulator counts them.
const S0_WITH_HEADERS: &str = "rate=10M delay=15ms queue=25 overhead=42";

/// What came of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// The goodput in kbit/s.
    Measured(u64),
    Unsupported,
    Failed(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("pass"),
            Self::Measured(kbit) => write!(f, "{kbit} kbit/s"),
            Self::Unsupported => f.write_str("unsupported"),
            Self::Failed(why) => write!(f, "FAIL: {why}"),
        }
    }
}

/// A test of the public runner.
pub(crate) struct Test {
    pub(crate) name: &'static str,
    /// Takes more than half a minute.
    pub(crate) slow: bool,
    /// What the endpoints are told.
    case: &'static str,
    /// What the server is told, if that differs.
    server_case: Option<&'static str>,
    /// Number and size of the files, and the length of their names.
    files: &'static [(usize, usize)],
    name_len: usize,
    conditions: Conditions,
    /// Certificates in the server's chain.
    chain: usize,
    checks: &'static [Check],
    patience: Duration,
    /// Number of runs of which the median goodput is the result; 0 if that is not measured.
    pub(crate) measured_runs: u32,
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

const SYMMETRIC_S0: Conditions = both_ways(S0);

/// The same link in both directions.
const fn both_ways(link: &'static str) -> Conditions {
    Conditions {
        up: link,
        down: link,
        rebinding: Rebinding::Never,
        ipv6: false,
    }
}

const PLAIN: Test = Test {
    name: "",
    slow: false,
    case: "transfer",
    files: &[(1, KIB)],
    name_len: 10,
    server_case: None,
    conditions: SYMMETRIC_S0,
    chain: 1,
    checks: &[checks::one_handshake],
    patience: Duration::from_secs(60),
    measured_runs: 0,
};

/// All tests, in the order of the table.
pub(crate) static ALL: &[Test] = &[
    Test {
        name: "handshake",
        case: "handshake",
        checks: &[checks::version_1, checks::one_handshake, checks::no_retry],
        ..PLAIN
    },
    Test {
        name: "transfer",
        files: &[(1, 2 * MIB), (1, 3 * MIB), (1, 5 * MIB)],
        ..PLAIN
    },
    Test {
        name: "longrtt",
        case: "longrtt",
        conditions: both_ways("rate=10M delay=750ms queue=25"),
        checks: &[checks::one_handshake, checks::repeated_hello],
        ..PLAIN
    },
    Test {
        name: "chacha20",
        case: "chacha20",
        files: &[(1, 3 * MIB)],
        checks: &[checks::one_handshake, checks::only_chacha20],
        ..PLAIN
    },
    Test {
        name: "multiplexing",
        case: "multiplexing",
        files: &[(1999, 32)],
        checks: &[checks::one_handshake, checks::stream_limit],
        ..PLAIN
    },
    Test {
        name: "retry",
        case: "retry",
        files: &[(1, 10 * KIB)],
        checks: &[checks::one_handshake, checks::retry],
        ..PLAIN
    },
    Test {
        name: "resumption",
        case: "resumption",
        files: &[(1, 5 * KIB), (1, 10 * KIB)],
        checks: &[checks::two_handshakes, checks::certificate_once],
        ..PLAIN
    },
    Test {
        name: "zerortt",
        case: "zerortt",
        files: &[(40, 32)],
        name_len: 250,
        checks: &[checks::two_handshakes, checks::early_data],
        ..PLAIN
    },
    Test {
        name: "http3",
        case: "http3",
        files: &[(1, 5 * KIB), (1, 10 * KIB), (1, 500 * KIB)],
        ..PLAIN
    },
    Test {
        name: "blackhole",
        files: &[(1, 10 * MIB)],
        conditions: both_ways("clock=first-packet rate=10M delay=15ms queue=25 blackhole=5s-7s"),
        ..PLAIN
    },
    Test {
        name: "keyupdate",
        case: "keyupdate",
        files: &[(1, 3 * MIB)],
        checks: &[checks::one_handshake, checks::key_update],
        ..PLAIN
    },
    Test {
        name: "amplificationlimit",
        files: &[(1, 5 * KIB)],
        conditions: Conditions {
            up: "rate=10M delay=15ms queue=25 drop=2-7",
            ..SYMMETRIC_S0
        },
        chain: 9,
        checks: &[checks::one_handshake, checks::amplification],
        ..PLAIN
    },
    Test {
        name: "handshakeloss",
        slow: true,
        case: "multiconnect",
        files: &[(50, KIB)],
        conditions: both_ways("rate=10M delay=15ms queue=25 loss=30% burst=3"),
        checks: &[checks::fifty_handshakes],
        patience: Duration::from_secs(300),
        ..PLAIN
    },
    Test {
        name: "transferloss",
        files: &[(1, 2 * MIB)],
        conditions: both_ways("rate=10M delay=15ms queue=25 loss=2% burst=3"),
        ..PLAIN
    },
    Test {
        name: "handshakecorruption",
        slow: true,
        case: "multiconnect",
        files: &[(50, KIB)],
        conditions: both_ways("rate=10M delay=15ms queue=25 corrupt=30%"),
        checks: &[],
        patience: Duration::from_secs(300),
        ..PLAIN
    },
    Test {
        name: "transfercorruption",
        files: &[(1, 2 * MIB)],
        conditions: both_ways("rate=10M delay=15ms queue=25 corrupt=2%"),
        checks: &[],
        ..PLAIN
    },
    Test {
        name: "v2",
        case: "v2",
        checks: &[checks::one_handshake, checks::version_2, checks::no_retry],
        ..PLAIN
    },
    Test {
        name: "rebind-port",
        files: &[(1, 10 * MIB)],
        conditions: Conditions {
            rebinding: Rebinding::Port,
            ..SYMMETRIC_S0
        },
        checks: &[checks::one_handshake, checks::challenged_by_server],
        ..PLAIN
    },
    Test {
        name: "rebind-addr",
        files: &[(1, 10 * MIB)],
        conditions: Conditions {
            rebinding: Rebinding::Address,
            ..SYMMETRIC_S0
        },
        checks: &[checks::one_handshake, checks::challenged_by_server],
        ..PLAIN
    },
    Test {
        name: "ecn",
        case: "ecn",
        files: &[(1, 100 * KIB)],
        checks: &[checks::one_handshake, checks::ecn],
        ..PLAIN
    },
    Test {
        name: "ipv6",
        case: "ipv6",
        files: &[(1, 5 * KIB), (1, 10 * KIB)],
        conditions: Conditions {
            ipv6: true,
            ..SYMMETRIC_S0
        },
        checks: &[checks::one_handshake, checks::only_ipv6],
        ..PLAIN
    },
    Test {
        name: "connectionmigration",
        server_case: Some("connectionmigration"),
        files: &[(1, 2 * MIB)],
        checks: &[checks::one_handshake, checks::moved_by_client],
        ..PLAIN
    },
    Test {
        name: "goodput",
        slow: true,
        files: &[(1, 10 * MIB)],
        conditions: both_ways(S0_WITH_HEADERS),
        measured_runs: 5,
        ..PLAIN
    },
];

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
        let port = free_port()?;
        let mut network = Network::new(port, &self.conditions, seed)?;
        let mut extra = Extra::default();
        if let Some(controller) = &options.controller {
            extra.set("CONGESTION", controller.as_str());
        }
        if client.only_http3 || server.only_http3 {
            extra.set("PROTOCOL", "h3");
        }
        let mut of_server = extra.clone();
        if let Some(preferred) = network.preferred {
            of_server.set("PREFERRED", preferred.to_string());
        }
        let case = self.server_case.unwrap_or(self.case);
        let Some(running) = Server::start(server, case, &mounts, port, &of_server)? else {
            return Ok(Outcome::Unsupported);
        };
        network.start();
        let url = |(name, _): &(String, usize)| format!("https://{}/{name}", network.address);
        let urls: Vec<String> = files.iter().map(url).collect();
        extra.set("REQUESTS", urls.join(" "));
        let ended = run_client(client, self.case, &mounts, &extra, self.patience)?;
        let capture = network.end();
        drop(running);
        let outcome = match ended {
            Ended::Unsupported => Outcome::Unsupported,
            Ended::Badly(why) => Outcome::Failed(why),
            Ended::Well => self.judge(&mounts, &files, capture),
        };
        if let (Outcome::Failed(_), Some(folder)) = (&outcome, &options.keep) {
            let name = format!("{}-{}-{}", self.name, client.name, server.name);
            mounts.keep(&folder.join(name))?;
        }
        Ok(outcome)
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
        match recording.headers.duration() {
            Some(duration) if self.measured_runs > 0 => {
                let bits: usize = files.iter().map(|(_, size)| 8 * size).sum();
                Outcome::Measured((bits as f64 / duration.as_secs_f64() / 1000.0) as u64)
            }
            _ => Outcome::Passed,
        }
    }
}

/// Returns a port that was free a moment ago.
fn free_port() -> Result<u16> {
    Ok(std::net::UdpSocket::bind("[::]:0")?.local_addr()?.port())
}
