//! The result of one run.

use core::time::Duration;

use clearway_links::{LinkStats, Time};
use clearway_trace::Finding;

use crate::app::{JobRecord, Record};
use crate::scenario::Case;
use crate::stack::SenderStats;

/// The direction of a flow's bulk data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bulk {
    /// To the client.
    Down,
    /// To the server.
    Up,
    /// In both directions.
    Both,
}

/// The state of a flow at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The time.
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
    /// Whether the window is within one datagram of its minimum while data is waiting.
    pub at_floor: bool,
}

/// The result of a flow.
#[derive(Clone, Debug)]
pub struct FlowOutcome {
    /// Its congestion controller.
    pub controller: String,
    /// When its client began.
    pub started: Time,
    /// The direction of its bulk data.
    pub bulk: Bulk,
    /// Whether it carries bulk data, rather than requests that only measure.
    pub counts: bool,
    /// What its applications recorded.
    pub record: Record,
    /// Statistics of the client's transport at the end.
    pub client: SenderStats,
    /// Statistics of the server's transport at the end.
    pub server: SenderStats,
    /// Its state over time.
    pub samples: Vec<Sample>,
    /// The two-way propagation delay at the start.
    pub base_rtt: Duration,
    /// The most bytes its sender sent at the same instant after the handshake.
    pub burst: u64,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The scenario.
    pub scenario: String,
    /// The grid point; empty without a grid.
    pub variant: String,
    /// The controller under test.
    pub controller: String,
    /// The seed.
    pub seed: u64,
    /// Whether every flow completed its work.
    pub finished: bool,
    /// When the run ended.
    pub ended: Time,
    /// When the warm-up ended.
    pub warmup: Time,
    /// When each disturbance ended.
    pub recovery_from: Vec<Time>,
    /// The flows.
    pub flows: Vec<FlowOutcome>,
    /// The shared link to the servers.
    pub up: LinkStats,
    /// The shared link to the clients.
    pub down: LinkStats,
    /// Capacity of that link between `warmup` and `ended`, in bits.
    pub up_capacity: Option<f64>,
    /// Capacity of that link between `warmup` and `ended`, in bits.
    pub down_capacity: Option<f64>,
    /// The rate of the bulk direction's link at each of `recovery_from`, bit/s.
    pub recovery_rates: Vec<Option<f64>>,
    /// The largest ratio of bytes sent to bytes received by a server before address validation,
    /// times 1,000.
    pub amplification_permille: u64,
    /// The digest of everything that happened.
    pub digest: u64,
    /// Number of events processed.
    pub events: u64,
    /// Length of the shared queue in the bulk direction over time, as bytes of full datagrams.
    pub queue: Vec<(Time, u64)>,
    /// How long that queue would take to drain, over time; without times at which the link is
    /// stopped, and for a link whose rate is not limited.
    pub queue_delay: Vec<(Time, Duration)>,
    /// Findings of the detectors at the senders, if they were run, with the index of the flow.
    pub findings: Vec<(usize, Finding)>,
    /// What must never happen: unaccounted packets, wrong bytes.
    pub violations: Vec<String>,
}

impl FlowOutcome {
    /// The end that sends the bulk data; the server if both do.
    #[must_use]
    pub fn sender(&self) -> &SenderStats {
        match self.bulk {
            Bulk::Down | Bulk::Both => &self.server,
            Bulk::Up => &self.client,
        }
    }

    /// Packets sent and lost by the ends that send bulk data.
    #[must_use]
    pub fn losses(&self) -> (u64, u64) {
        let one = |figures: &SenderStats| (figures.packets_sent, figures.packets_lost);
        match self.bulk {
            Bulk::Down => one(&self.server),
            Bulk::Up => one(&self.client),
            Bulk::Both => {
                let ((a, b), (c, d)) = (one(&self.server), one(&self.client));
                (a + c, b + d)
            }
        }
    }

    /// Bytes of bulk data in a sample.
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

    /// Whether it has been asked for something by `at` that is not done then: a connection that is
    /// not established yet, or a job.
    #[must_use]
    pub fn has_work(&self, at: Time) -> bool {
        if at < self.started {
            return false;
        }
        let jobs = &self.record.jobs;
        let open = |job: &JobRecord| job.began <= at && job.done.is_none_or(|done| done > at);
        jobs.iter().any(open) || self.record.connected.is_none_or(|connected| connected > at)
    }

    /// Goodput of its bulk data from `from` (or its own start) on, bit/s.
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
            queue_delay: Vec::new(),
            findings: Vec::new(),
            violations: vec![message],
        }
    }

    /// The flows that carry bulk data; all flows if none does.
    pub fn bulk_flows(&self) -> impl Iterator<Item = &FlowOutcome> {
        let any = self.flows.iter().any(|flow| flow.counts);
        self.flows.iter().filter(move |flow| flow.counts || !any)
    }
}
