//! What is measured.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;

use crate::{
    process::{Cores, Process},
    stack::Stack,
};

/// One load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Load {
    /// One endless raw answer
    Bulk,
    /// One endless HTTP/3 response
    BulkHttp3,
    /// Raw requests in a closed loop: 64 bytes up, 1 KiB down
    Requests,
    /// HTTP/3 requests in a closed loop: 1 KiB down
    RequestsHttp3,
    /// Raw requests one after the other, beside a raw download without end on the same connection
    /// and on another one
    BesideBulk,
    /// The same over HTTP/3
    BesideBulkHttp3,
    /// Full handshakes, one after the other
    Handshakes,
    /// Full handshakes, 64 at once
    Handshakes64,
    /// Memory of connections that do nothing
    Idle,
}

/// The duration and size of a load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) seconds: f64,
    pub(crate) idle: u64,
}

/// How many requests are under way at once, and on how many connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Spread {
    pub(crate) in_flight: u64,
    pub(crate) connections: u64,
}

/// The connection of a download beside the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Place {
    Same,
    Other,
}

/// What is measured: a load, and how its requests are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Case {
    pub(crate) load: Load,
    /// `None` for loads without a closed loop of requests.
    pub(crate) spread: Option<Spread>,
    /// `None` for loads without a download beside them.
    pub(crate) bulk: Option<Place>,
}

impl Case {
    /// Returns the cases of a load.
    pub(crate) fn of(load: Load, in_flight: &[u64], connections: &[u64]) -> Vec<Self> {
        let plain = Self {
            load,
            spread: None,
            bulk: None,
        };
        if load.is_beside_bulk() {
            let places = [Place::Same, Place::Other].map(Some);
            return places.map(|bulk| Self { bulk, ..plain }).to_vec();
        }
        if !load.is_requests() {
            return vec![plain];
        }
        let mut cases = Vec::new();
        for &connections in connections {
            for &in_flight in in_flight.iter().filter(|&&count| count >= connections) {
                let spread = Some(Spread {
                    in_flight,
                    connections,
                });
                cases.push(Self { spread, ..plain });
            }
        }
        cases
    }

    /// The name in the table.
    pub(crate) fn name(self) -> String {
        let name = self.load.name();
        match self.spread {
            None if self.bulk == Some(Place::Other) => format!("{name}, other"),
            None => name.to_owned(),
            Some(Spread {
                in_flight,
                connections: 1,
            }) => format!("{name}, {in_flight}"),
            Some(Spread {
                in_flight,
                connections,
            }) => format!("{name}, {in_flight} on {connections}"),
        }
    }
}

/// The result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Sample {
    /// The measured figure, in [`Load::unit`].
    pub(crate) value: f64,
    /// The figure of the client, if it is measured separately: memory.
    pub(crate) client_value: Option<f64>,
    /// The rate of the download beside the requests, in Gbit/s.
    pub(crate) bulk: Option<f64>,
    /// Processor time of the server, in [`Load::cpu_unit`].
    pub(crate) server_cpu: Option<f64>,
    /// Processor time of the client, including its start.
    pub(crate) client_cpu: Option<f64>,
    /// The share of the time that server and client were busy.
    pub(crate) busy: Option<(f64, f64)>,
    /// The time within which half of the requests were completed, and 99 of 100, in microseconds.
    pub(crate) response_times: Option<(f64, f64)>,
}

impl Load {
    /// All loads, in the order of the table.
    pub(crate) const ALL: [Self; 9] = [
        Self::Bulk,
        Self::BulkHttp3,
        Self::Requests,
        Self::RequestsHttp3,
        Self::BesideBulk,
        Self::BesideBulkHttp3,
        Self::Handshakes,
        Self::Handshakes64,
        Self::Idle,
    ];

    /// The name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bulk => "bulk, 1 stream",
            Self::BulkHttp3 => "bulk, HTTP/3",
            Self::Requests => "raw requests",
            Self::RequestsHttp3 => "HTTP/3 requests",
            Self::BesideBulk => "p99 beside bulk",
            Self::BesideBulkHttp3 => "p99 beside bulk, HTTP/3",
            Self::Handshakes => "handshakes, 1",
            Self::Handshakes64 => "handshakes, 64",
            Self::Idle => "idle memory",
        }
    }

    /// The unit of a sample.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Bulk | Self::BulkHttp3 => "Gbit/s",
            Self::Requests | Self::RequestsHttp3 | Self::Handshakes | Self::Handshakes64 => "1/s",
            Self::BesideBulk | Self::BesideBulkHttp3 => "µs",
            Self::Idle => "KiB",
        }
    }

    /// The unit of processor time.
    pub(crate) fn cpu_unit(self) -> &'static str {
        match self {
            Self::Bulk | Self::BulkHttp3 | Self::BesideBulk | Self::BesideBulkHttp3 => "s/GB",
            Self::Requests | Self::RequestsHttp3 => "µs each",
            Self::Handshakes | Self::Handshakes64 => "ms each",
            Self::Idle => "",
        }
    }

    /// Whether less is better.
    pub(crate) fn is_cost(self) -> bool {
        self == Self::Idle || self.is_beside_bulk()
    }

    fn is_beside_bulk(self) -> bool {
        matches!(self, Self::BesideBulk | Self::BesideBulkHttp3)
    }

    fn is_requests(self) -> bool {
        matches!(self, Self::Requests | Self::RequestsHttp3)
    }

    fn is_http3(self) -> bool {
        matches!(
            self,
            Self::BulkHttp3 | Self::RequestsHttp3 | Self::BesideBulkHttp3
        )
    }

    /// Whether a stack supports the load.
    pub(crate) fn suits(self, stack: &Stack) -> bool {
        stack.http3 || !self.is_http3()
    }

    /// The client's options.
    fn options(self, size: &Size) -> Vec<String> {
        let text = match self {
            Self::Bulk => "--raw",
            Self::BulkHttp3 => "",
            Self::Requests => "--raw --bytes 1024 --post 56",
            Self::RequestsHttp3 => "--bytes 1024",
            Self::BesideBulk => "--raw --bytes 1024",
            Self::BesideBulkHttp3 => "--bytes 1024",
            Self::Handshakes => "--raw --handshakes",
            Self::Handshakes64 => "--raw --handshakes --parallel 64",
            Self::Idle => "--raw",
        };
        let mut options: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        options.extend(match self {
            Self::Idle => ["--idle".to_owned(), size.idle.to_string()],
            Self::Bulk
            | Self::BulkHttp3
            | Self::Requests
            | Self::RequestsHttp3
            | Self::BesideBulk
            | Self::BesideBulkHttp3
            | Self::Handshakes
            | Self::Handshakes64 => ["--seconds".to_owned(), size.seconds.to_string()],
        });
        options
    }
}

impl Case {
    /// The client's options.
    fn options(self, size: &Size) -> Vec<String> {
        let mut options = self.load.options(size);
        let place = self.bulk.map(|place| match place {
            Place::Same => "same",
            Place::Other => "other",
        });
        options.extend(place.map(|place| format!("--beside-bulk={place}")));
        if let Some(spread) = self.spread {
            options.extend(["--parallel".to_owned(), spread.in_flight.to_string()]);
            if spread.connections > 1 {
                options.extend(["--connections".to_owned(), spread.connections.to_string()]);
            }
        }
        options
    }

    /// Runs the load once.
    pub(crate) fn measure(
        self,
        stack: &Stack,
        size: &Size,
        cores: Cores,
        folder: &Path,
    ) -> Result<Sample> {
        let file = |name: &str| folder.join(name).display().to_string();
        let mut arguments = vec!["serve".to_owned(), "--listen".into(), "127.0.0.1:0".into()];
        arguments.extend([
            "--cert".into(),
            file("cert.pem"),
            "--key".into(),
            file("key.pem"),
        ]);
        if !self.load.is_http3() {
            arguments.push("--raw".into());
        }
        let tuning = || stack.tuning.iter().map(|&word| word.to_owned());
        arguments.extend(tuning());
        let complaints = folder.join("server.stderr");
        let mut server = Process::start(stack, cores.server, &arguments, complaints)?;
        let line = server.line().context("server")?;
        let address = line.strip_prefix("listening on ");
        let address = address.with_context(|| format!("not an address: {line}"))?;

        let mut arguments = vec!["get".to_owned(), address.to_owned(), "--server-name".into()];
        arguments.extend([
            "localhost".into(),
            "--ca".into(),
            file("ca.pem"),
            "--json".into(),
        ]);
        arguments.extend(self.options(size));
        arguments.extend(tuning());
        let complaints = folder.join("client.stderr");
        let before = server.cpu()?;
        let client = Process::start(stack, cores.client, &arguments, complaints)?;
        if self.load == Load::Idle {
            return idle(&server, client, size.idle).context("client");
        }
        let (report, client_cpu) = client.finish().context("client")?;
        let server_cpu = server.cpu()? - before;
        let line = report.lines().last().context("no report")?;
        self.load
            .sample(&serde_json::from_str(line)?, server_cpu, client_cpu)
    }
}

impl Load {
    /// Computes a sample from a client's report and the processor time of both sides.
    fn sample(self, report: &Value, server_cpu: f64, client_cpu: f64) -> Result<Sample> {
        let number = |key: &str| {
            let value = report[key].as_f64();
            value.with_context(|| format!("{key} is {}", report[key]))
        };
        let seconds = number("seconds")?;
        if self.is_beside_bulk() {
            return beside_bulk(report, seconds, server_cpu, client_cpu);
        }
        // Units done, how many of them a unit of the value, and a unit of processor time per unit.
        let (done, value_scale, cpu_scale) = match self {
            Self::Bulk | Self::BulkHttp3 => (number("bytes")?, 8e-9, 1e9),
            Self::Requests | Self::RequestsHttp3 => (number("requests")?, 1.0, 1e6),
            Self::Handshakes | Self::Handshakes64 => (number("handshakes")?, 1.0, 1e3),
            Self::BesideBulk | Self::BesideBulkHttp3 | Self::Idle => (0.0, 0.0, 0.0),
        };
        ensure!(
            done > 0.0 && seconds > 0.0,
            "nothing was measured: {report}"
        );
        Ok(Sample {
            value: done * value_scale / seconds,
            client_value: None,
            bulk: None,
            server_cpu: Some(server_cpu * cpu_scale / done),
            client_cpu: Some(client_cpu * cpu_scale / done),
            busy: Some((server_cpu / seconds, client_cpu / seconds)),
            response_times: report["p50_us"].as_f64().zip(report["p99_us"].as_f64()),
        })
    }
}

/// Computes a sample of requests beside a download: how long 99 of 100 take.
fn beside_bulk(report: &Value, seconds: f64, server_cpu: f64, client_cpu: f64) -> Result<Sample> {
    let number = |key: &str| report[key].as_f64().filter(|&value| value > 0.0);
    let (p50, p99) = number("p50_us")
        .zip(number("p99_us"))
        .with_context(|| format!("no request was completed: {report}"))?;
    let bulk = number("bulk_gbps").with_context(|| format!("no download: {report}"))?;
    let gigabytes = bulk * seconds / 8.0;
    Ok(Sample {
        value: p99,
        client_value: None,
        bulk: Some(bulk),
        server_cpu: Some(server_cpu / gigabytes),
        client_cpu: Some(client_cpu / gigabytes),
        busy: Some((server_cpu / seconds, client_cpu / seconds)),
        response_times: Some((p50, p99)),
    })
}

/// Measures how much memory idle connections take, on both sides.
fn idle(server: &Process, mut client: Process, count: u64) -> Result<Sample> {
    let event = |client: &mut Process, name: &str| -> Result<()> {
        let line = client.line()?;
        let object: Value = serde_json::from_str(&line)?;
        ensure!(
            object["event"] == name,
            "expected the event {name}, found: {line}"
        );
        Ok(())
    };
    event(&mut client, "ready")?;
    let before = (server.memory()?, client.memory()?);
    client.nudge()?;
    event(&mut client, "idle")?;
    let after = (server.memory()?, client.memory()?);
    let each = |before: u64, after: u64| (after as f64 - before as f64) / 1024.0 / count as f64;
    client.nudge()?;
    Ok(Sample {
        value: each(before.0, after.0),
        client_value: Some(each(before.1, after.1)),
        bulk: None,
        server_cpu: None,
        client_cpu: None,
        busy: None,
        response_times: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_are_per_unit_of_work() {
        let report = json!({"bytes": 2_500_000_000_u64, "seconds": 2.0, "requests": 1});
        let sample = Load::Bulk.sample(&report, 1.25, 2.5).unwrap();
        assert!((sample.value - 10.0).abs() < 1e-9);
        assert!((sample.server_cpu.unwrap() - 0.5).abs() < 1e-9);
        let report = json!({"handshakes": 500, "seconds": 0.5});
        let sample = Load::Handshakes64.sample(&report, 0.1, 0.2).unwrap();
        assert!((sample.value - 1000.0).abs() < 1e-9);
        assert!((sample.client_cpu.unwrap() - 0.4).abs() < 1e-9);
    }

    #[test]
    fn requests_beside_a_download_are_judged_by_their_latency() {
        let mut report = json!({
            "requests": 100, "seconds": 2.0, "bulk_gbps": 8.0, "p50_us": 100.0, "p99_us": 300.0,
        });
        let sample = Load::BesideBulk.sample(&report, 1.0, 2.0).unwrap();
        assert!((sample.value - 300.0).abs() < 1e-9);
        assert!((sample.server_cpu.unwrap() - 0.5).abs() < 1e-9);
        report["bulk_gbps"] = json!(0.0);
        assert!(Load::BesideBulk.sample(&report, 1.0, 2.0).is_err());
    }

    #[test]
    fn requests_have_a_case_for_each_spread_that_is_possible() {
        let names = |load| -> Vec<_> {
            let cases = Case::of(load, &[16, 1_000], &[1, 100]);
            cases.into_iter().map(Case::name).collect()
        };
        let expected = [
            "raw requests, 16",
            "raw requests, 1000",
            "raw requests, 1000 on 100",
        ];
        assert_eq!(names(Load::Requests), expected);
        assert_eq!(names(Load::Bulk), ["bulk, 1 stream"]);
    }

    #[test]
    fn nothing_done_is_no_sample() {
        let report = json!({"requests": 0, "seconds": 1.0});
        assert!(Load::Requests.sample(&report, 1.0, 1.0).is_err());
    }
}
