//! The flows of a scenario.

use core::time::Duration;

use clearway_links::Span;

use super::case::Flow;
use super::error::{ScenarioError, Source, suggest};
use super::network::{apply, bursts_are_of_losses, count, set_queue, time};
use super::tree::{Scalar, Table};
use super::units;
use super::variables::{Assignment, substitute};
use crate::app::{Job, Pace, Start, UNBOUNDED, Workload};
use crate::measure::Bulk;
use crate::stack::Protocol;
use crate::world::{AccessLink, AddressChanges};

/// A `[[flows]]` table as written.
#[derive(Clone, Debug)]
pub(super) struct FlowsText {
    traffic: Scalar,
    protocol: Option<Scalar>,
    bytes: Option<Scalar>,
    count: Option<Scalar>,
    every: Option<Scalar>,
    gap: Option<Scalar>,
    chunk: Option<Scalar>,
    interval: Option<Scalar>,
    bitrate: Option<Scalar>,
    bursts: Vec<Scalar>,
    burst_bytes: Option<Scalar>,
    flows: Option<Scalar>,
    start: Option<Scalar>,
    spacing: Option<Scalar>,
    controller: Option<Scalar>,
    leg_rtt: Option<Scalar>,
    leg_up: Option<Scalar>,
    leg_down: Option<Scalar>,
    next_leg_rtt: Option<Scalar>,
    next_leg_up: Option<Scalar>,
    next_leg_down: Option<Scalar>,
    migrate: Vec<Scalar>,
    rebind: Vec<Scalar>,
}

/// Maximum number of flows of a scenario: each is a client and a server with all their state.
const MOST_FLOWS: u32 = 10_000;

/// Maximum number of requests, downloads or segments of a flow.
const MOST_JOBS: u32 = 100_000;

/// The same for all flows together.
const MOST_JOBS_IN_ALL: usize = 1_000_000;

/// Maximum number of rebindings of a client: it has no more outside ports.
const MOST_REBINDINGS: usize = 63;

const PROTOCOLS: &[&str] = &["raw", "http3"];

const TRAFFIC: &[&str] = &[
    "download", "upload", "both", "requests", "on-off", "paced", "video",
];

/// Kinds of traffic with a size.
const BYTES: &[&str] = &["download", "upload", "both", "requests", "on-off", "paced"];

/// Kinds of traffic with a number of transfers.
const COUNT: &[&str] = &["requests", "on-off", "video"];

/// Kinds of traffic with a period.
const EVERY: &[&str] = &["requests", "video"];

/// What to write instead of a setting that has no effect on this kind of traffic.
fn instead(name: &str, traffic: &str) -> &'static str {
    match (name, traffic) {
        ("every", "on-off") => " (gap is the pause between two transfers)",
        ("every", "paced") => " (interval is the time between two writes)",
        ("gap", "requests" | "video") => " (every is the time from one to the next)",
        ("bytes", "video") => " (bitrate and every give the size of a segment)",
        ("bitrate", "paced") => " (chunk and interval give the rate)",
        _ => "",
    }
}

impl FlowsText {
    pub(super) fn read(mut table: Table, source: &Source<'_>) -> Result<Self, ScenarioError> {
        let this = Self {
            traffic: table.require(source, "traffic", "\"download\"")?,
            protocol: table.take_leaf(source, "protocol")?,
            bytes: table.take_leaf(source, "bytes")?,
            count: table.take_leaf(source, "count")?,
            every: table.take_leaf(source, "every")?,
            gap: table.take_leaf(source, "gap")?,
            chunk: table.take_leaf(source, "chunk")?,
            interval: table.take_leaf(source, "interval")?,
            bitrate: table.take_leaf(source, "bitrate")?,
            bursts: table.take_leaves(source, "bursts")?,
            burst_bytes: table.take_leaf(source, "burst_bytes")?,
            flows: table.take_leaf(source, "flows")?,
            start: table.take_leaf(source, "start")?,
            spacing: table.take_leaf(source, "spacing")?,
            controller: table.take_leaf(source, "controller")?,
            leg_rtt: table.take_leaf(source, "leg_rtt")?,
            leg_up: table.take_leaf(source, "leg_up")?,
            leg_down: table.take_leaf(source, "leg_down")?,
            next_leg_rtt: table.take_leaf(source, "next_leg_rtt")?,
            next_leg_up: table.take_leaf(source, "next_leg_up")?,
            next_leg_down: table.take_leaf(source, "next_leg_down")?,
            migrate: table.take_leaves(source, "migrate")?,
            rebind: table.take_leaves(source, "rebind")?,
        };
        table.finish(source, "[[flows]]")?;
        Ok(this)
    }

    /// Compiles the flows, at most `most` of them.
    pub(super) fn compile(
        &self,
        variables: &Assignment,
        most: Option<u32>,
        source: &Source<'_>,
        out: &mut Vec<Flow>,
    ) -> Result<(), ScenarioError> {
        let reader = Reader { variables, source };
        let flows = reader.count(self.flows.as_ref(), MOST_FLOWS)?;
        let flows = most.map_or(flows, |most| flows.min(most));
        self.every_setting_counts(source)?;
        let start = reader.time(self.start.as_ref())?.unwrap_or_default();
        let spacing = reader.time(self.spacing.as_ref())?.unwrap_or_default();
        let (workload, bulk, counts) = self.workload(&reader)?;
        let controller = self.controller.as_ref().map(|leaf| reader.controller(leaf));
        let controller = controller.transpose()?;
        self.bounded(flows, &workload, out, source)?;
        let rebind = reader.rebindings(&self.rebind)?;
        let protocol = self.protocol.as_ref().map(|leaf| reader.protocol(leaf));
        let protocol = protocol.transpose()?.unwrap_or_default();
        for n in 0..flows {
            let moves = AddressChanges {
                leg: reader.leg([&self.leg_rtt, &self.leg_up, &self.leg_down])?,
                next_leg: reader.leg([
                    &self.next_leg_rtt,
                    &self.next_leg_up,
                    &self.next_leg_down,
                ])?,
                rebind: rebind.clone(),
                migrate: reader.times(&self.migrate)?,
                starts: start + spacing * n,
            };
            out.push(Flow {
                moves,
                workload: workload.clone(),
                protocol,
                bulk,
                counts,
                controller: controller.clone(),
            });
        }
        Ok(())
    }

    /// Rejects settings that have no effect: whoever writes one expects something of it.
    fn every_setting_counts(&self, source: &Source<'_>) -> Result<(), ScenarioError> {
        let settings = [
            ("bytes", self.bytes.as_ref(), BYTES),
            ("count", self.count.as_ref(), COUNT),
            ("every", self.every.as_ref(), EVERY),
            ("gap", self.gap.as_ref(), &["on-off"]),
            ("chunk", self.chunk.as_ref(), &["paced"]),
            ("interval", self.interval.as_ref(), &["paced"]),
            ("bursts", self.bursts.first(), &["paced"]),
            ("burst_bytes", self.burst_bytes.as_ref(), &["paced"]),
            ("bitrate", self.bitrate.as_ref(), &["video"]),
        ];
        let traffic = self.traffic.text.as_str();
        // A variable may stand for several kinds, and each setting for one of them.
        let known = TRAFFIC.contains(&traffic);
        for (name, leaf, used_by) in settings {
            if let Some(leaf) = leaf
                && known
                && !used_by.contains(&traffic)
            {
                let problem = format!("{name} has no effect on {traffic:?} traffic");
                let help = format!(
                    "remove it{}, or use traffic = {}",
                    instead(name, traffic),
                    used_by
                        .iter()
                        .map(|name| format!("{name:?}"))
                        .collect::<Vec<_>>()
                        .join(" or ")
                );
                return Err(source.error(&leaf.span, problem, help));
            }
        }
        let without = [
            (
                "burst_bytes",
                self.burst_bytes.as_ref(),
                "bursts",
                self.bursts.is_empty(),
            ),
            (
                "spacing",
                self.spacing.as_ref(),
                "flows",
                self.flows.is_none(),
            ),
            (
                "next_leg_rtt",
                self.next_leg_rtt.as_ref(),
                "migrate",
                self.migrate.is_empty(),
            ),
            (
                "next_leg_up",
                self.next_leg_up.as_ref(),
                "migrate",
                self.migrate.is_empty(),
            ),
            (
                "next_leg_down",
                self.next_leg_down.as_ref(),
                "migrate",
                self.migrate.is_empty(),
            ),
        ];
        for (name, leaf, needed, missing) in without {
            if let Some(leaf) = leaf.filter(|_| missing) {
                let problem = format!("{name} has no effect without {needed}");
                let help = format!("add {needed}, or remove {name}");
                return Err(source.error(&leaf.span, problem, help));
            }
        }
        Ok(())
    }

    /// Checks that all flows together fit in memory.
    fn bounded(
        &self,
        flows: u32,
        workload: &Workload,
        out: &[Flow],
        source: &Source<'_>,
    ) -> Result<(), ScenarioError> {
        let jobs = |workload: &Workload| workload.jobs.len();
        let before: usize = out.iter().map(|flow| jobs(&flow.workload)).sum();
        let flows = flows as usize;
        let all = out.len() + flows;
        if all > MOST_FLOWS as usize {
            let leaf = self.flows.as_ref().unwrap_or(&self.traffic);
            let problem = format!("the scenario has {all} flows in total");
            return Err(source.error(
                &leaf.span,
                problem,
                format!("expected at most {MOST_FLOWS}"),
            ));
        }
        let all = before + flows * jobs(workload);
        if all > MOST_JOBS_IN_ALL {
            let leaf = self.count.as_ref().unwrap_or(&self.traffic);
            let problem = format!("the scenario has {all} transfers in total");
            let help = format!("expected at most {MOST_JOBS_IN_ALL}");
            return Err(source.error(&leaf.span, problem, help));
        }
        Ok(())
    }

    fn workload(&self, reader: &Reader<'_>) -> Result<(Workload, Bulk, bool), ScenarioError> {
        let traffic = substitute(&self.traffic, reader.variables, reader.source)?;
        let bytes = reader.bytes(self.bytes.as_ref())?;
        let endless = bytes.unwrap_or(UNBOUNDED);
        let down = |workload| (workload, Bulk::Down, true);
        Ok(match traffic.as_str() {
            "download" => down(Workload::download(endless)),
            "upload" => (Workload::upload(endless), Bulk::Up, true),
            "both" => (Workload::both(endless), Bulk::Both, true),
            "requests" => {
                let count = reader.count(self.count.as_ref(), MOST_JOBS)?;
                let every = reader.time(self.every.as_ref())?.unwrap_or_default();
                let bytes = bytes.unwrap_or(REQUEST_ANSWER);
                let workload = Workload::requests(u64::from(count), bytes, every);
                (workload, Bulk::Down, false)
            }
            "on-off" => {
                let count = reader.count(self.count.as_ref(), MOST_JOBS)?;
                let gap = reader.time(self.gap.as_ref())?.unwrap_or_default();
                let bytes = reader.require(bytes, &self.traffic, "bytes = \"10MB\"")?;
                down(Workload::on_off(u64::from(count), bytes, gap))
            }
            "paced" => down(self.paced(reader, endless)?),
            "video" => down(self.video(reader)?),
            other => {
                let problem = format!("unknown traffic {other:?}");
                let help = suggest(other, TRAFFIC);
                return Err(reader.source.error(&self.traffic.span, problem, help));
            }
        })
    }

    fn paced(&self, reader: &Reader<'_>, bytes: u64) -> Result<Workload, ScenarioError> {
        let chunk = reader.bytes(self.chunk.as_ref())?;
        let chunk = reader.require(chunk, &self.traffic, "chunk = 511")?;
        let interval = reader.period(self.interval.as_ref())?;
        let interval = reader.require(interval, &self.traffic, "interval = \"0.8ms\"")?;
        let mut workload = Workload::download(bytes);
        workload.jobs[0].pace = Pace::Every {
            chunk: u32::try_from(chunk).unwrap_or(u32::MAX),
            interval,
        };
        let burst = reader.bytes(self.burst_bytes.as_ref())?;
        for at in reader.times(&self.bursts)? {
            let down = reader.require(burst, &self.traffic, "burst_bytes = \"1MB\"")?;
            workload.jobs.push(Job {
                start: Start::At(at),
                pace: Pace::Greedy,
                ..Workload::download(down).jobs[0]
            });
        }
        Ok(workload)
    }

    /// Segments of a video: three at once, then one each time one has been played.
    fn video(&self, reader: &Reader<'_>) -> Result<Workload, ScenarioError> {
        const AHEAD: u32 = 3;
        let count = reader.count(self.count.as_ref(), MOST_JOBS)?;
        let segment = reader.period(self.every.as_ref())?;
        let segment = reader.require(segment, &self.traffic, "every = \"2s\"")?;
        let bitrate = self.bitrate.as_ref().map(|leaf| {
            let text = substitute(leaf, reader.variables, reader.source)?;
            let rate = units::Unit::Rate.parse(&text);
            rate.map_err(|problem| reader.source.error(&leaf.span, problem, ""))
        });
        let bitrate = reader.require(bitrate.transpose()?, &self.traffic, "bitrate = \"5M\"")?;
        if let Some(leaf) = &self.bitrate
            && (bitrate <= 0.0 || bitrate.is_infinite())
        {
            let problem = format!(
                "invalid bitrate {:?}: must be greater than zero and finite",
                leaf.text
            );
            return Err(reader.source.error(
                &leaf.span,
                problem,
                "expected bits per second such as 5M",
            ));
        }
        let bytes = (bitrate * segment.as_secs_f64() / 8.0) as u64;
        let jobs = (0..count).map(|n| Job {
            start: Start::At(segment * n.saturating_sub(AHEAD - 1)),
            ..Workload::download(bytes).jobs[0]
        });
        Ok(Workload {
            jobs: jobs.collect(),
        })
    }
}

/// The size of a response without a given size.
const REQUEST_ANSWER: u64 = 100;

/// Reads scalars that may contain variables.
struct Reader<'a> {
    variables: &'a Assignment,
    source: &'a Source<'a>,
}

impl Reader<'_> {
    fn time(&self, leaf: Option<&Scalar>) -> Result<Option<Duration>, ScenarioError> {
        leaf.map(|leaf| time(leaf, self.variables, self.source))
            .transpose()
    }

    /// A time that is not zero.
    fn period(&self, leaf: Option<&Scalar>) -> Result<Option<Duration>, ScenarioError> {
        let time = self.time(leaf)?;
        match leaf {
            Some(leaf) if time == Some(Duration::ZERO) => {
                let problem = format!(
                    "invalid interval {:?}: must be greater than zero",
                    leaf.text
                );
                Err(self
                    .source
                    .error(&leaf.span, problem, "expected a time such as 10ms"))
            }
            Some(_) | None => Ok(time),
        }
    }

    /// The times at which a router changes its port: each later than the one before, and the first
    /// later than zero.
    fn rebindings(&self, leaves: &[Scalar]) -> Result<Vec<Duration>, ScenarioError> {
        let times = self.times(leaves)?;
        if let Some(leaf) = leaves.get(MOST_REBINDINGS) {
            let problem = format!("too many rebindings: {}", times.len());
            let help = format!("expected at most {MOST_REBINDINGS}");
            return Err(self.source.error(&leaf.span, problem, help));
        }
        let mut last = Duration::ZERO;
        for (time, leaf) in times.iter().zip(leaves) {
            if *time <= last {
                let problem = format!(
                    "the rebinding at {:?} is not later than {last:?}",
                    leaf.text
                );
                let help = "expected increasing times above zero such as [\"5s\", \"10s\"]";
                return Err(self.source.error(&leaf.span, problem, help));
            }
            last = *time;
        }
        Ok(times)
    }

    fn times(&self, leaves: &[Scalar]) -> Result<Vec<Duration>, ScenarioError> {
        leaves
            .iter()
            .map(|leaf| time(leaf, self.variables, self.source))
            .collect()
    }

    /// A count up to `most`; one if it is missing.
    fn count(&self, leaf: Option<&Scalar>, most: u32) -> Result<u32, ScenarioError> {
        leaf.map_or(Ok(1), |leaf| count(leaf, most, self.variables, self.source))
    }

    fn bytes(&self, leaf: Option<&Scalar>) -> Result<Option<u64>, ScenarioError> {
        let read = |leaf: &Scalar| {
            let text = substitute(leaf, self.variables, self.source)?;
            match units::bytes(&text) {
                Ok(0) => {
                    let problem = format!("invalid size {text:?}: must be greater than zero");
                    let help = "expected at least 1 byte, or omit the setting";
                    Err(self.source.error(&leaf.span, problem, help))
                }
                Ok(bytes) => Ok(bytes),
                Err(problem) => Err(self.source.error(&leaf.span, problem, "")),
            }
        };
        leaf.map(read).transpose()
    }

    /// A link from its RTT and the settings of both directions.
    fn leg(&self, texts: [&Option<Scalar>; 3]) -> Result<Option<AccessLink>, ScenarioError> {
        let [rtt, up, down] = texts;
        if texts.iter().all(|text| text.is_none()) {
            return Ok(None);
        }
        let mut leg = AccessLink::default();
        let rtt = self.time(rtt.as_ref())?.unwrap_or_default();
        for (text, link) in [(up, &mut leg.up), (down, &mut leg.down)] {
            link.delay = Span(rtt / 2).into();
            let Some(leaf) = text else { continue };
            let settings = substitute(leaf, self.variables, self.source)?;
            if let Some(queue) = apply(link, &settings, leaf, self.source)? {
                set_queue(link, &queue, rtt, leaf, self.source)?;
            }
            bursts_are_of_losses(link, Some(leaf), self.source)?;
        }
        Ok(Some(leg))
    }

    fn protocol(&self, leaf: &Scalar) -> Result<Protocol, ScenarioError> {
        let name = substitute(leaf, self.variables, self.source)?;
        match name.as_str() {
            "raw" => Ok(Protocol::Raw),
            "http3" => Ok(Protocol::Http3),
            other => {
                let problem = format!("unknown protocol {other:?}");
                let help = suggest(other, PROTOCOLS);
                Err(self.source.error(&leaf.span, problem, help))
            }
        }
    }

    fn controller(&self, leaf: &Scalar) -> Result<String, ScenarioError> {
        let name = substitute(leaf, self.variables, self.source)?;
        super::parse::known_controller(&name, leaf, self.source)?;
        Ok(name)
    }

    fn require<T>(
        &self,
        value: Option<T>,
        traffic: &Scalar,
        example: &str,
    ) -> Result<T, ScenarioError> {
        value.ok_or_else(|| {
            let problem = format!("missing setting for {:?} traffic", traffic.text);
            let help = format!("expected {example}");
            self.source.error(&traffic.span, problem, help)
        })
    }
}
