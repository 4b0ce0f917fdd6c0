//! One run's result.

use core::time::Duration;

use clearway_links::{LinkStats, Time};
use clearway_trace::Finding;

use crate::app::Record;
use crate::scenario::Case;
use crate::stack::Figures;

/// Which way a flow's bulk goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bulk {
    /// To the client.
    Down,
    /// To the server.
    Up,
    /// Both ways.
    Both,
}

/// A flow at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// Bytes the client has read.
    pub down: u64,
    /// Bytes the server has read.
    pub up: u64,
    /// The sender's congestion window, bytes.
    pub window: u64,
    /// The sender's bytes in flight.
    pub in_flight: u64,
    /// The sender's smoothed RTT.
    pub rtt: Duration,
    /// Packets it has sent.
    pub sent: u64,
    /// Packets it has declared lost.
    pub lost: u64,
    /// The window is within one datagram of its minimum while data wait.
    pub at_floor: bool,
}

/// What became of a flow.
#[derive(Clone, Debug)]
pub struct FlowOutcome {
    /// Its congestion controller.
    pub controller: String,
    /// When its client began.
    pub started: Time,
    /// Which way its bulk goes.
    pub bulk: Bulk,
    /// Whether it carries bulk, rather than requests that only measure.
    pub counts: bool,
    /// What its applications saw.
    pub record: Record,
    /// The client's transport at the end.
    pub client: Figures,
    /// The server's transport at the end.
    pub server: Figures,
    /// Its course.
    pub samples: Vec<Sample>,
    /// Propagation delay there and back at the start.
    pub base_rtt: Duration,
    /// The most bytes its sender sent at one instant after the handshake.
    pub burst: u64,
}

/// What became of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The scenario.
    pub scenario: String,
    /// The point of its grid; empty if it has none.
    pub variant: String,
    /// The controller under test.
    pub controller: String,
    /// The seed.
    pub seed: u64,
    /// Whether every flow did all it had to.
    pub finished: bool,
    /// When the run ended.
    pub ended: Time,
    /// Measurement begins here.
    pub warmup: Time,
    /// From where on each disturbance is over.
    pub recovery_from: Vec<Time>,
    /// The flows.
    pub flows: Vec<FlowOutcome>,
    /// The shared link to the servers.
    pub up: LinkStats,
    /// The shared link to the clients.
    pub down: LinkStats,
    /// Bits it could have carried between `warmup` and `ended`.
    pub up_capacity: Option<f64>,
    /// Bits it could have carried between `warmup` and `ended`.
    pub down_capacity: Option<f64>,
    /// Rate of the bulk's link at each of `recovery_from`, bit/s.
    pub recovery_rates: Vec<Option<f64>>,
    /// Thousandths of what a server had received that it sent before it knew
    /// the client's address.
    pub amplification_permille: u64,
    /// One number for everything that happened.
    pub digest: u64,
    /// Events handled.
    pub events: u64,
    /// Packets waiting in the bulk's shared queue over time, as bytes of full
    /// datagrams.
    pub queue: Vec<(Time, u64)>,
    /// What the detectors found at the senders, if they were asked to look,
    /// with the flow's place.
    pub findings: Vec<(usize, Finding)>,
    /// What must never happen: packets unaccounted for, wrong bytes.
    pub violations: Vec<String>,
}

impl FlowOutcome {
    /// The end that sends the bulk; the server where both do.
    #[must_use]
    pub fn sender(&self) -> &Figures {
        match self.bulk {
            Bulk::Down | Bulk::Both => &self.server,
            Bulk::Up => &self.client,
        }
    }

    /// Packets sent and lost by the ends that carry bulk.
    #[must_use]
    pub fn losses(&self) -> (u64, u64) {
        let one = |figures: &Figures| (figures.packets_sent, figures.packets_lost);
        match self.bulk {
            Bulk::Down => one(&self.server),
            Bulk::Up => one(&self.client),
            Bulk::Both => {
                let ((a, b), (c, d)) = (one(&self.server), one(&self.client));
                (a + c, b + d)
            }
        }
    }

    /// Bytes of the bulk in a sample.
    #[must_use]
    pub fn bytes(&self, sample: &Sample) -> u64 {
        match self.bulk {
            Bulk::Down => sample.down,
            Bulk::Up => sample.up,
            Bulk::Both => sample.down + sample.up,
        }
    }

    /// The samples from `at` on.
    #[must_use]
    pub fn since(&self, at: Time) -> &[Sample] {
        let first = self.samples.partition_point(|sample| sample.at < at);
        &self.samples[first..]
    }

    /// Bits per second of its bulk from `from` (or its own start) on.
    #[must_use]
    pub fn goodput(&self, from: Time) -> Option<f64> {
        let samples = self.since(from.max(self.started));
        let (first, last) = (samples.first()?, samples.last()?);
        let first_at = if from <= self.started {
            self.started
        } else {
            first.at
        };
        let base = if from <= self.started {
            0
        } else {
            self.bytes(first)
        };
        let time = (last.at - first_at).as_secs_f64();
        (time > 0.0).then(|| (self.bytes(last) - base) as f64 * 8.0 / time)
    }
}

impl Outcome {
    /// A run that ended in a panic.
    #[must_use]
    pub fn crashed(case: &Case, seed: u64, message: String) -> Self {
        Self {
            scenario: case.scenario.clone(),
            variant: case.variant.clone(),
            controller: case.controller.clone(),
            seed,
            finished: false,
            ended: Time::ZERO,
            warmup: Time::ZERO,
            recovery_from: Vec::new(),
            flows: Vec::new(),
            up: LinkStats::default(),
            down: LinkStats::default(),
            up_capacity: None,
            down_capacity: None,
            recovery_rates: Vec::new(),
            amplification_permille: 0,
            digest: 0,
            events: 0,
            queue: Vec::new(),
            findings: Vec::new(),
            violations: vec![message],
        }
    }

    /// The flows that carry bulk; all, if none does.
    pub fn bulk_flows(&self) -> impl Iterator<Item = &FlowOutcome> {
        let any = self.flows.iter().any(|flow| flow.counts);
        self.flows.iter().filter(move |flow| flow.counts || !any)
    }
}
