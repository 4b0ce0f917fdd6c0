//! What a scenario's flows carry.

use core::time::Duration;

use clearway_links::Span;

use super::case::Flow;
use super::error::{ScenarioError, Source, suggest};
use super::network::{apply, bursts_are_of_losses, count, set_queue, time};
use super::tree::{Leaf, Table};
use super::units;
use super::variables::{Assignment, substitute};
use crate::app::{Job, Pace, Start, UNBOUNDED, Workload};
use crate::measure::Bulk;
use crate::stack::Protocol;
use crate::world::{Leg, Moves};

/// A `[[flows]]` table as written.
#[derive(Clone, Debug)]
pub(super) struct FlowsText {
    traffic: Leaf,
    protocol: Option<Leaf>,
    bytes: Option<Leaf>,
    count: Option<Leaf>,
    every: Option<Leaf>,
    gap: Option<Leaf>,
    chunk: Option<Leaf>,
    interval: Option<Leaf>,
    bitrate: Option<Leaf>,
    bursts: Vec<Leaf>,
    burst_bytes: Option<Leaf>,
    flows: Option<Leaf>,
    start: Option<Leaf>,
    spacing: Option<Leaf>,
    controller: Option<Leaf>,
    leg_rtt: Option<Leaf>,
    leg_up: Option<Leaf>,
    leg_down: Option<Leaf>,
    next_leg_rtt: Option<Leaf>,
    next_leg_up: Option<Leaf>,
    next_leg_down: Option<Leaf>,
    migrate: Vec<Leaf>,
    rebind: Vec<Leaf>,
}

/// Flows of a scenario at most: each is a client and a server with all they
/// remember.
const MOST_FLOWS: u32 = 10_000;

/// Requests, downloads or segments of a flow at most.
const MOST_JOBS: u32 = 100_000;

/// The same of all flows together.
const MOST_JOBS_IN_ALL: usize = 1_000_000;

/// Rebindings of a client at most: it has no more outside ports.
const MOST_REBINDINGS: usize = 63;

const PROTOCOLS: &[&str] = &["raw", "http3"];

const TRAFFIC: &[&str] = &[
    "download", "upload", "both", "requests", "on-off", "paced", "video",
];

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

    /// The flows, at most `most` of them.
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
            let moves = Moves {
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

    /// All flows together must fit in memory.
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
            let problem = format!("with these the scenario has {all} flows");
            return Err(source.error(&leaf.span, problem, format!("write at most {MOST_FLOWS}")));
        }
        let all = before + flows * jobs(workload);
        if all > MOST_JOBS_IN_ALL {
            let leaf = self.count.as_ref().unwrap_or(&self.traffic);
            let problem = format!("with these the scenario has {all} transfers");
            let right = format!("write at most {MOST_JOBS_IN_ALL} in all");
            return Err(source.error(&leaf.span, problem, right));
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
                let problem = format!("no traffic is called {other:?}");
                let right = suggest(other, TRAFFIC);
                return Err(reader.source.error(&self.traffic.span, problem, right));
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

    /// Segments of a film: three at once, then one each time one has been
    /// watched.
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
            let problem = format!("{:?} is no bitrate of a film", leaf.text);
            return Err(reader
                .source
                .error(&leaf.span, problem, "write one such as 5M"));
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

/// Bytes of an answer nobody gave a size.
const REQUEST_ANSWER: u64 = 100;

/// Reads leaves with variables in them.
struct Reader<'a> {
    variables: &'a Assignment,
    source: &'a Source<'a>,
}

impl Reader<'_> {
    fn time(&self, leaf: Option<&Leaf>) -> Result<Option<Duration>, ScenarioError> {
        leaf.map(|leaf| time(leaf, self.variables, self.source))
            .transpose()
    }

    /// A time that is not zero.
    fn period(&self, leaf: Option<&Leaf>) -> Result<Option<Duration>, ScenarioError> {
        let time = self.time(leaf)?;
        match leaf {
            Some(leaf) if time == Some(Duration::ZERO) => {
                let problem = format!("{:?} is no time between two", leaf.text);
                Err(self
                    .source
                    .error(&leaf.span, problem, "write one such as 10ms"))
            }
            Some(_) | None => Ok(time),
        }
    }

    /// When a router takes another port: each time later than the one before,
    /// and the first later than the start.
    fn rebindings(&self, leaves: &[Leaf]) -> Result<Vec<Duration>, ScenarioError> {
        let times = self.times(leaves)?;
        if let Some(leaf) = leaves.get(MOST_REBINDINGS) {
            let problem = format!("{} rebindings are more than there are ports", times.len());
            let right = format!("write at most {MOST_REBINDINGS}");
            return Err(self.source.error(&leaf.span, problem, right));
        }
        let mut last = Duration::ZERO;
        for (time, leaf) in times.iter().zip(leaves) {
            if *time <= last {
                let problem = format!("the rebinding at {:?} is not after {last:?}", leaf.text);
                let right = "write the times in order, above 0, such as [\"5s\", \"10s\"]";
                return Err(self.source.error(&leaf.span, problem, right));
            }
            last = *time;
        }
        Ok(times)
    }

    fn times(&self, leaves: &[Leaf]) -> Result<Vec<Duration>, ScenarioError> {
        leaves
            .iter()
            .map(|leaf| time(leaf, self.variables, self.source))
            .collect()
    }

    /// A count up to `most`; one if nothing is said.
    fn count(&self, leaf: Option<&Leaf>, most: u32) -> Result<u32, ScenarioError> {
        leaf.map_or(Ok(1), |leaf| count(leaf, most, self.variables, self.source))
    }

    fn bytes(&self, leaf: Option<&Leaf>) -> Result<Option<u64>, ScenarioError> {
        let read = |leaf: &Leaf| {
            let text = substitute(leaf, self.variables, self.source)?;
            match units::bytes(&text) {
                Ok(0) => {
                    let problem = format!("{text:?} is nothing to carry");
                    let right = "write at least 1, or leave it out";
                    Err(self.source.error(&leaf.span, problem, right))
                }
                Ok(bytes) => Ok(bytes),
                Err(problem) => Err(self.source.error(&leaf.span, problem, "")),
            }
        };
        leaf.map(read).transpose()
    }

    /// A link from its RTT and the settings of both ways.
    fn leg(&self, texts: [&Option<Leaf>; 3]) -> Result<Option<Leg>, ScenarioError> {
        let [rtt, up, down] = texts;
        if texts.iter().all(|text| text.is_none()) {
            return Ok(None);
        }
        let mut leg = Leg::default();
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

    fn protocol(&self, leaf: &Leaf) -> Result<Protocol, ScenarioError> {
        let name = substitute(leaf, self.variables, self.source)?;
        match name.as_str() {
            "raw" => Ok(Protocol::Raw),
            "http3" => Ok(Protocol::Http3),
            other => {
                let problem = format!("no protocol is called {other:?}");
                let right = suggest(other, PROTOCOLS);
                Err(self.source.error(&leaf.span, problem, right))
            }
        }
    }

    fn controller(&self, leaf: &Leaf) -> Result<String, ScenarioError> {
        let name = substitute(leaf, self.variables, self.source)?;
        super::parse::known_controller(&name, leaf, self.source)?;
        Ok(name)
    }

    fn require<T>(
        &self,
        value: Option<T>,
        traffic: &Leaf,
        example: &str,
    ) -> Result<T, ScenarioError> {
        value.ok_or_else(|| {
            let problem = format!("{:?} traffic lacks a setting", traffic.text);
            let right = format!("write {example}");
            self.source.error(&traffic.span, problem, right)
        })
    }
}
