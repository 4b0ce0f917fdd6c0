//! The description of one network with its traffic, small enough to vary and to shrink.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// A moment, in thousandths of the run's duration.
pub type Permille = u32;

/// How long the queue of the bottleneck may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueLimitGene {
    /// In packets.
    Packets(u32),
    /// In milliseconds at the first rate.
    Millis(u32),
}

/// What manages or marks the queue of the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueManagement {
    /// Nothing: packets are dropped when the queue is full.
    DropTail,
    /// CE marks from this many milliseconds of queue on.
    StepMarking(u32),
    /// RFC 8289.
    Codel,
    /// RFC 8290.
    FqCodel,
    /// RFC 8033.
    Pie,
    /// RFC 9332.
    DualQ,
}

/// Loss in bursts on the way to the client, as a Gilbert model whose states change with time: a
/// burst of the air ends although nothing is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BurstLoss {
    /// Mean milliseconds between two.
    pub every: u32,
    /// Mean microseconds of one, in which everything is lost.
    pub length: u32,
}

impl BurstLoss {
    /// The share of the time in which packets are lost, in parts per million.
    #[must_use]
    pub fn ppm(self) -> u64 {
        let (every, length) = (u64::from(self.every) * 1_000, u64::from(self.length));
        length * 1_000_000 / (every + length).max(1)
    }

    /// The least milliseconds between bursts of this length that leave this share of loss.
    pub(super) fn least_every(length: u32, ppm: u64) -> u32 {
        let ppm = ppm.clamp(1, 1_000_000);
        let micros = u64::from(length) * (1_000_000 - ppm) / ppm;
        u32::try_from(micros.div_ceil(1_000)).unwrap_or(u32::MAX)
    }
}

/// Packets that arrive late and are overtaken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LatePackets {
    /// Late packets per million.
    pub ppm: u32,
    /// Microseconds by which they are late.
    pub by: u32,
}

/// A random extra delay of each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JitterGene {
    /// Its maximum in microseconds.
    pub max: u32,
    /// Whether packets overtake each other.
    pub reorders: bool,
}

/// A change of the rate or of the delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Step {
    /// When.
    pub at: Permille,
    /// The new value, in thousandths of the first.
    pub to: u32,
}

/// A time in which nothing arrives at the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Outage {
    /// When it begins.
    pub at: Permille,
    /// Its length in milliseconds.
    pub millis: u32,
}

/// A token bucket before the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PolicerGene {
    /// The rate of its tokens, in thousandths of the first rate.
    pub rate: u32,
    /// The size of its bucket in kB.
    pub bucket: u32,
}

/// How receivers acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AckPolicy {
    /// As the sender's ACK_FREQUENCY frames ask.
    Asked,
    /// Every packet.
    Every,
    /// Every second packet.
    EverySecond,
    /// Every tenth packet.
    EveryTenth,
}

/// More flows over the same path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Neighbours {
    /// Their controller; `None` for the one under test.
    pub controller: Option<String>,
    /// How many there are.
    pub count: u32,
    /// When they start.
    pub start: Permille,
}

/// What the application under test does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Application {
    /// Downloads without an end.
    Bulk,
    /// Downloads one after the other.
    OnOff {
        /// The size of each in kB.
        kilobytes: u32,
        /// The pause between two in milliseconds.
        gap: u32,
    },
    /// Writes at less than the rate, then all that fits.
    Paced {
        /// The rate of the writes, in thousandths of the first rate.
        rate: u32,
        /// When the bulk begins; 1,000 for never.
        burst: Permille,
    },
}

/// A network and the traffic over it.
///
/// A genome holds integers only, so that the same seed breeds the same genomes everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Genome {
    /// The rate of the bottleneck to the client in kbit/s.
    pub rate: u64,
    /// The two-way propagation delay in microseconds.
    pub rtt: u32,
    /// The limit of the bottleneck's queue.
    pub queue: QueueLimitGene,
    /// Virtual seconds.
    pub seconds: u32,
    /// What manages the queue.
    pub management: QueueManagement,
    /// Whether packets are ECN-capable.
    pub ecn: bool,
    /// Random loss to the client in packets per million.
    pub loss: u32,
    /// Loss in bursts.
    pub bursts: Option<BurstLoss>,
    /// Random loss of acknowledgements in packets per million.
    pub ack_loss: u32,
    /// Late packets.
    pub late: Option<LatePackets>,
    /// Jitter.
    pub jitter: Option<JitterGene>,
    /// Changes of the rate, in order of time.
    pub rate_steps: Vec<Step>,
    /// Changes of the delay, in order of time.
    pub rtt_steps: Vec<Step>,
    /// Outages, in order of time.
    pub outages: Vec<Outage>,
    /// A policer.
    pub policer: Option<PolicerGene>,
    /// Microseconds between the slots in which packets arrive; zero for none.
    pub slots: u32,
    /// The same for acknowledgements.
    pub ack_slots: u32,
    /// One of so many acknowledgements is kept; one for all.
    pub ack_thinning: u32,
    /// How the receiver acknowledges.
    pub acks: AckPolicy,
    /// The rate to the server, in thousandths of that to the client.
    pub uplink: u32,
    /// Other flows.
    pub neighbours: Vec<Neighbours>,
    /// The application.
    pub application: Application,
}

/// Bytes of a full datagram with headers.
pub(super) const PACKET: u64 = 1_480;

/// The plainest network: what every shrunk case is compared with.
impl Default for Genome {
    fn default() -> Self {
        Self {
            rate: 10_000,
            rtt: 40_000,
            queue: QueueLimitGene::Millis(40),
            seconds: 20,
            management: QueueManagement::DropTail,
            ecn: true,
            loss: 0,
            bursts: None,
            ack_loss: 0,
            late: None,
            jitter: None,
            rate_steps: Vec::new(),
            rtt_steps: Vec::new(),
            outages: Vec::new(),
            policer: None,
            slots: 0,
            ack_slots: 0,
            ack_thinning: 1,
            acks: AckPolicy::Asked,
            uplink: 1_000,
            neighbours: Vec::new(),
            application: Application::Bulk,
        }
    }
}

/// Everything that a genome can have beyond a plain link, by name.
pub const INGREDIENTS: &[&str] = &[
    "rate drop",
    "rate rise",
    "RTT step",
    "outage",
    "random loss",
    "burst loss",
    "ACK loss",
    "late packets",
    "jitter",
    "overtaking jitter",
    "policer",
    "slots",
    "ACK slots",
    "ACK thinning",
    "ACK policy",
    "narrow uplink",
    "step marking",
    "CoDel",
    "FQ-CoDel",
    "PIE",
    "DualQ",
    "no ECN",
    "equal neighbours",
    "other neighbours",
    "many flows",
    "pauses",
    "paced writes",
    "shallow queue",
    "deep queue",
    "short path",
    "long path",
    "slow link",
    "fast link",
];

impl Genome {
    /// The number of flows.
    #[must_use]
    pub fn flows(&self) -> u64 {
        1 + self
            .neighbours
            .iter()
            .map(|each| u64::from(each.count))
            .sum::<u64>()
    }

    /// The lowest rate that the link has, in kbit/s.
    pub(super) fn lowest_rate(&self) -> u64 {
        let steps = self.rate_steps.iter();
        let rates = steps.map(|step| self.rate * u64::from(step.to) / 1_000);
        rates.min().map_or(self.rate, |rate| rate.min(self.rate))
    }

    /// The limit of the queue in bytes.
    #[must_use]
    pub fn queue_bytes(&self) -> u64 {
        match self.queue {
            QueueLimitGene::Packets(packets) => u64::from(packets) * PACKET,
            QueueLimitGene::Millis(millis) => self.rate * u64::from(millis) / 8,
        }
    }

    /// The bandwidth-delay product at the start, in bytes.
    #[must_use]
    pub fn bdp(&self) -> u64 {
        self.rate * u64::from(self.rtt) / 8_000
    }

    /// A moment in milliseconds.
    #[must_use]
    pub fn millis(&self, at: Permille) -> u64 {
        u64::from(self.seconds) * u64::from(at)
    }

    /// The rate in kbit/s at a moment, without outages.
    #[must_use]
    pub fn rate_at(&self, at: Permille) -> u64 {
        let step = self.rate_steps.iter().rfind(|step| step.at <= at);
        step.map_or(self.rate, |step| {
            (self.rate * u64::from(step.to) / 1_000).max(1)
        })
    }

    /// The propagation delay in microseconds at a moment.
    #[must_use]
    pub fn rtt_at(&self, at: Permille) -> u64 {
        let rtt = u64::from(self.rtt);
        let step = self.rtt_steps.iter().rfind(|step| step.at <= at);
        step.map_or(rtt, |step| (rtt * u64::from(step.to) / 1_000).max(1))
    }

    /// Bytes that the link could carry in the whole run.
    #[must_use]
    pub fn traffic(&self) -> u64 {
        let kilobits: u64 = (0..100).map(|part| self.rate_at(part * 10)).sum();
        kilobits * u64::from(self.seconds) * 1_000 / 8 / 100
    }

    /// Everything that it has beyond a plain link, by the names of [`INGREDIENTS`].
    #[must_use]
    pub fn ingredients(&self) -> BTreeSet<&'static str> {
        let mut all = BTreeSet::new();
        self.impairments(&mut all);
        self.population(&mut all);
        self.proportions(&mut all);
        all
    }

    fn impairments(&self, all: &mut BTreeSet<&'static str>) {
        let mut rate = 1_000;
        for step in &self.rate_steps {
            all.insert(if step.to < rate {
                "rate drop"
            } else {
                "rate rise"
            });
            rate = step.to;
        }
        let jitter = self.jitter.map(|jitter| jitter.reorders);
        let has = [
            (!self.rtt_steps.is_empty(), "RTT step"),
            (!self.outages.is_empty(), "outage"),
            (self.loss > 0, "random loss"),
            (self.bursts.is_some(), "burst loss"),
            (self.ack_loss > 0, "ACK loss"),
            (self.late.is_some(), "late packets"),
            (jitter == Some(false), "jitter"),
            (jitter == Some(true), "overtaking jitter"),
            (self.policer.is_some(), "policer"),
            (self.slots > 0, "slots"),
            (self.ack_slots > 0, "ACK slots"),
            (self.ack_thinning > 1, "ACK thinning"),
            (self.acks != AckPolicy::Asked, "ACK policy"),
            (self.uplink < 1_000, "narrow uplink"),
            (!self.ecn, "no ECN"),
        ];
        all.extend(has.iter().filter(|(has, _)| *has).map(|(_, name)| *name));
        match self.management {
            QueueManagement::DropTail => false,
            QueueManagement::StepMarking(_) => all.insert("step marking"),
            QueueManagement::Codel => all.insert("CoDel"),
            QueueManagement::FqCodel => all.insert("FQ-CoDel"),
            QueueManagement::Pie => all.insert("PIE"),
            QueueManagement::DualQ => all.insert("DualQ"),
        };
    }

    fn population(&self, all: &mut BTreeSet<&'static str>) {
        for neighbours in &self.neighbours {
            all.insert(match neighbours.controller {
                None => "equal neighbours",
                Some(_) => "other neighbours",
            });
        }
        if self.flows() >= 8 {
            all.insert("many flows");
        }
        match self.application {
            Application::Bulk => false,
            Application::OnOff { .. } => all.insert("pauses"),
            Application::Paced { .. } => all.insert("paced writes"),
        };
    }

    /// What is unusual about rate, RTT and queue.
    fn proportions(&self, all: &mut BTreeSet<&'static str>) {
        let (queue, bdp) = (self.queue_bytes(), self.bdp());
        let is = [
            (queue * 2 < bdp, "shallow queue"),
            (queue > bdp * 4, "deep queue"),
            (self.rtt < 5_000, "short path"),
            (self.rtt > 150_000, "long path"),
            (self.rate < 1_000, "slow link"),
            (self.rate > 80_000, "fast link"),
        ];
        all.extend(is.iter().filter(|(is, _)| *is).map(|(_, name)| *name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_lose_the_share_of_time_that_they_last() {
        let bursts = BurstLoss {
            every: 99,
            length: 1_000,
        };
        assert_eq!(bursts.ppm(), 10_000);
        for (length, ppm) in [(1_000, 10_000), (100_000, 50_000), (7_777, 3), (1_000, 0)] {
            let every = BurstLoss::least_every(length, ppm);
            let share = BurstLoss { every, length }.ppm();
            assert!(share <= ppm.max(1), "{share} of {ppm} for {length} µs");
        }
        assert_eq!(BurstLoss::least_every(1_000, 10_000), 99);
    }
}
