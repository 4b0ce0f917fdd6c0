//! What a controller has to reach in a network: its envelope, and the bars that follow from it.

use std::collections::BTreeMap;

use clearway_links::Span;
use serde::{Deserialize, Serialize};

use super::genome::{Application, Genome, PACKET};
use super::ideal::Ideal;
use crate::measure::metric;
use crate::scenario::suggest;

/// The question that a run is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Oracle {
    /// How much of what an ideal sender could carry.
    Utilisation,
    /// How long the queue is, against what the algorithm promises.
    Queueing,
    /// How many packets are lost beside those that the path loses.
    Loss,
    /// How fair the shares are.
    Share,
    /// How long it takes to use a path that has changed.
    Recovery,
    /// How long nothing arrives although data is waiting.
    Stall,
    /// How long a transfer after a pause takes.
    Transfer,
    /// Whether something happened that must never happen, such as a panic.
    Violation,
}

impl Oracle {
    /// All oracles.
    pub const ALL: [Self; 8] = [
        Self::Utilisation,
        Self::Queueing,
        Self::Loss,
        Self::Share,
        Self::Recovery,
        Self::Stall,
        Self::Transfer,
        Self::Violation,
    ];

    /// The metric of the lab that answers it, and whether its limit is a maximum; `None` for
    /// what has no measure.
    #[must_use]
    pub const fn metric(self) -> Option<(&'static str, bool)> {
        match self {
            Self::Utilisation => Some(("util", false)),
            Self::Queueing => Some(("queue_late", true)),
            Self::Loss => Some(("loss_late", true)),
            Self::Share => Some(("share_min", false)),
            Self::Recovery => Some(("recovery", true)),
            Self::Stall => Some(("stall", true)),
            Self::Transfer => Some(("job_p99", true)),
            Self::Violation => None,
        }
    }

    /// A demand with this limit; `None` for what has no measure.
    #[must_use]
    pub fn demand(self, limit: f64) -> Option<Demand> {
        let (metric, at_most) = self.metric()?;
        Some(Demand {
            oracle: self,
            metric,
            at_most,
            limit,
            recovery: None,
        })
    }

    /// Its name in files and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Utilisation => "utilisation",
            Self::Queueing => "queueing",
            Self::Loss => "loss",
            Self::Share => "share",
            Self::Recovery => "recovery",
            Self::Stall => "stall",
            Self::Transfer => "transfer",
            Self::Violation => "violation",
        }
    }
}

/// One bar of one network: what the envelope demands there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// The oracle.
    pub oracle: Oracle,
    /// The metric of the lab that answers it.
    pub metric: &'static str,
    /// Whether the limit is a maximum.
    pub at_most: bool,
    /// The limit in the metric's unit.
    pub limit: f64,
    /// For recovery: milliseconds at which the change is over, and the rate in kbit/s of which
    /// 80 % have to be reached.
    pub recovery: Option<(u64, u64)>,
}

impl Demand {
    /// The bar as a line of `[pass]`.
    #[must_use]
    pub fn bar(&self) -> String {
        use crate::scenario::Unit;
        let end = if self.at_most { "max" } else { "min" };
        let unit = metric(self.metric).map_or(Unit::Number, |metric| metric.unit);
        let limit = match unit {
            Unit::Time => format!("{}us", (self.limit * 1e6).round() as u64),
            Unit::Share => format!("{:.3}%", self.limit * 100.0),
            Unit::Rate => format!("{}", self.limit.round() as u64),
            Unit::Bytes | Unit::Number => format!("{:.4}", self.limit),
        };
        format!("{}_{end} = \"{limit}\"", self.metric)
    }

    /// How far a value is beyond the limit: above one it is missed. At most [`Self::WORST`],
    /// which is also what a run without a value has.
    #[must_use]
    pub fn ratio(&self, value: Option<f64>) -> f64 {
        let Some(value) = value else {
            return Self::WORST;
        };
        let (more, less) = match self.at_most {
            true => (value, self.limit),
            false => (self.limit, value),
        };
        if more <= 0.0 {
            return 0.0;
        }
        (more / less.max(f64::MIN_POSITIVE)).min(Self::WORST)
    }

    /// The largest ratio.
    pub const WORST: f64 = 1_000.0;
}

/// How fast a controller finds new bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Growth {
    /// By a factor each round trip.
    Multiplicative,
    /// RFC 9438 §4.2.
    Cubic,
    /// By a packet each round trip.
    Additive,
}

/// How random loss limits its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// Not at all.
    None,
    /// As Reno's.
    Reno,
    /// RFC 9438 §5.2.
    Cubic,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settle {
    pub(super) time: Time,
    pub(super) rtts: u64,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Utilisation {
    least: f64,
    loss: f64,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Queueing {
    rtts: f64,
    time: Time,
    packets: u64,
    /// Asked only where the queue marks packets, and beyond what it lets wait without a mark.
    #[serde(default)]
    marked: bool,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Loss {
    most: f64,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shares {
    equal: f64,
    other: f64,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Times {
    times: f64,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stall {
    time: Time,
    rtts: u64,
    reason: String,
}

/// A time as written, such as `3s`, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Time(pub(super) u64);

impl TryFrom<String> for Time {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let span: Span = text.parse().map_err(|error| format!("{error}"))?;
        Ok(Self(span.0.as_millis() as u64))
    }
}

/// What one controller has to reach. A question that is missing is not asked.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    pub(super) growth: Growth,
    pub(super) response: Response,
    pub(super) settle: Settle,
    utilisation: Option<Utilisation>,
    queueing: Option<Queueing>,
    loss: Option<Loss>,
    share: Option<Shares>,
    recovery: Option<Times>,
    stall: Option<Stall>,
    transfer: Option<Times>,
}

/// The envelopes of several controllers.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelopes(BTreeMap<String, Envelope>);

impl Default for Envelopes {
    /// Those of our controllers, from `hunt/envelopes.toml`.
    fn default() -> Self {
        match Self::parse("envelopes.toml", include_str!("../../hunt/envelopes.toml")) {
            Ok(own) => own,
            // A test parses the file.
            Err(error) => unreachable!("{error}"),
        }
    }
}

impl Envelopes {
    /// Reads envelopes from TOML; `file` is its name in error messages.
    ///
    /// # Errors
    /// What is wrong, and what is expected.
    pub fn parse(file: &str, text: &str) -> Result<Self, String> {
        let all: BTreeMap<String, Envelope> = toml::from_str(text)
            .map_err(|error| format!("{file}: {}", error.to_string().trim_end()))?;
        for (name, envelope) in &all {
            envelope
                .check()
                .map_err(|problem| format!("{file}: [{name}] {problem}"))?;
        }
        Ok(Self(all))
    }

    /// The envelope of a controller.
    ///
    /// # Errors
    /// If it has none; the message lists those that have one.
    pub fn of(&self, controller: &str) -> Result<&Envelope, String> {
        self.0.get(controller).ok_or_else(|| {
            let known: Vec<&str> = self.0.keys().map(String::as_str).collect();
            format!(
                "{controller:?} has no envelope to be measured against; {}; or give one in a \
                 file with --envelopes",
                suggest(controller, &known)
            )
        })
    }
}

impl Envelope {
    /// Checks that every limit is plausible and has its reason.
    fn check(&self) -> Result<(), String> {
        for (oracle, reason) in self.reasons() {
            if reason.trim().is_empty() {
                return Err(format!("{oracle} has no reason; expected reason = \"why\""));
            }
        }
        let share = |name: &str, value: f64| {
            if (0.0..=1.0).contains(&value) {
                return Ok(());
            }
            Err(format!("{name} is {value}; expected a share from 0 to 1"))
        };
        if let Some(own) = &self.utilisation {
            share("utilisation.least", own.least)?;
            share("utilisation.loss", own.loss)?;
        }
        if let Some(own) = &self.loss {
            share("loss.most", own.most)?;
        }
        if let Some(own) = &self.share {
            share("share.equal", own.equal)?;
            share("share.other", own.other)?;
        }
        Ok(())
    }

    /// The reason of each limit.
    pub fn reasons(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            Some(("settle", self.settle.reason.as_str())),
            self.utilisation
                .as_ref()
                .map(|own| ("utilisation", own.reason.as_str())),
            self.queueing
                .as_ref()
                .map(|own| ("queueing", own.reason.as_str())),
            self.loss.as_ref().map(|own| ("loss", own.reason.as_str())),
            self.share
                .as_ref()
                .map(|own| ("share", own.reason.as_str())),
            self.recovery
                .as_ref()
                .map(|own| ("recovery", own.reason.as_str())),
            self.stall
                .as_ref()
                .map(|own| ("stall", own.reason.as_str())),
            self.transfer
                .as_ref()
                .map(|own| ("transfer", own.reason.as_str())),
        ];
        all.into_iter().flatten()
    }

    /// What it demands in this network. Questions that make no sense there are not asked.
    #[must_use]
    pub fn demands(&self, genome: &Genome) -> Vec<Demand> {
        let ideal = Ideal::new(genome, self);
        let all = [
            self.utilisation_demand(&ideal),
            self.queueing_demand(&ideal),
            self.loss_demand(&ideal),
            self.share_demand(&ideal),
            self.recovery_demand(&ideal),
            self.stall_demand(&ideal),
            self.transfer_demand(&ideal),
        ];
        all.into_iter().flatten().collect()
    }

    fn utilisation_demand(&self, ideal: &Ideal<'_>) -> Option<Demand> {
        const LEAST: f64 = 0.1;
        let own = self.utilisation.as_ref()?;
        let share = ideal.share()?;
        let demand = Oracle::Utilisation.demand(own.least * share);
        let sensible = ideal.loss() <= own.loss && ideal.holds_minimum_windows();
        demand.filter(|_| share >= LEAST && sensible)
    }

    fn queueing_demand(&self, ideal: &Ideal<'_>) -> Option<Demand> {
        let own = self.queueing.as_ref()?;
        let alone = ideal
            .genome
            .neighbours
            .iter()
            .all(|each| each.controller.is_none());
        let marked = !own.marked || ideal.marks();
        if !(alone && marked && ideal.is_quiet()) {
            return None;
        }
        // Two flows' worth more, for what a sender may send at once.
        let packets = own.packets * (ideal.genome.flows() + 2) * PACKET * 8;
        let floor = packets as f64 / ideal.slowest() as f64 / 1e3;
        let rtts = own.rtts * ideal.longest_rtt() as f64 / 1e6;
        let unmarked = if own.marked { ideal.unmarked_wait() } else { 0 };
        let time = (own.time.0 + unmarked) as f64 / 1e3;
        Oracle::Queueing.demand(rtts + time + floor)
    }

    fn loss_demand(&self, ideal: &Ideal<'_>) -> Option<Demand> {
        const PACKETS: u64 = 20;
        let own = self.loss.as_ref()?;
        let demand = Oracle::Loss.demand(own.most + 1.5 * ideal.loss());
        let long_enough = ideal.packets_of_a_flow() >= PACKETS && ideal.has_plateau();
        demand.filter(|_| ideal.is_quiet() && long_enough)
    }

    fn share_demand(&self, ideal: &Ideal<'_>) -> Option<Demand> {
        const MOST_FLOWS: u64 = 10;
        const PACKETS: u64 = 10;
        let own = self.share.as_ref()?;
        let flows = ideal.genome.flows();
        let sensible = (2..=MOST_FLOWS).contains(&flows)
            && ideal.packets_of_a_flow() >= PACKETS
            && ideal.is_quiet()
            && ideal.is_bulk()
            && ideal.loss() == 0.0;
        let other = ideal
            .genome
            .neighbours
            .iter()
            .any(|each| each.controller.is_some());
        let least = if other { own.other } else { own.equal };
        let demand = Oracle::Share.demand(least / flows as f64);
        demand.filter(|_| sensible)
    }

    fn recovery_demand(&self, ideal: &Ideal<'_>) -> Option<Demand> {
        let own = self.recovery.as_ref()?;
        let (from, rate) = ideal.recovery()?;
        let limit = 2.0 + own.times * ideal.settle() as f64 / 1e3;
        let left = (u64::from(ideal.genome.seconds) * 1_000).checked_sub(from)?;
        let enough = left as f64 / 1e3 > limit + 1.0;
        let demand = Oracle::Recovery.demand(limit).filter(|_| enough)?;
        Some(Demand {
            recovery: Some((from, rate)),
            ..demand
        })
    }

    fn stall_demand(&self, ideal: &Ideal<'_>) -> Option<Demand> {
        /// The initial window: where those of all flows do not fit, a handshake may be lost three
        /// times, and the first probe timeouts are of one, two and four seconds.
        const PACKETS: u64 = 10;
        let own = self.stall.as_ref()?;
        let rtts = own.rtts * ideal.loaded_rtt() / 1_000;
        let millis = own.time.0 + rtts + 3 * ideal.longest_outage();
        let demand = Oracle::Stall.demand(millis as f64 / 1e3);
        let fits = ideal.packets_of_a_flow() >= PACKETS && ideal.holds_first_flights();
        demand.filter(|_| fits)
    }

    fn transfer_demand(&self, ideal: &Ideal<'_>) -> Option<Demand> {
        let own = self.transfer.as_ref()?;
        let Application::OnOff { gap, .. } = ideal.genome.application else {
            return None;
        };
        let limit = 1.0 + own.times * ideal.transfer()?;
        // One that takes this long has to begin and end in the second half.
        let needed = 2.0 * limit + f64::from(gap) / 1e3;
        let enough = f64::from(ideal.genome.seconds) / 2.0 > needed;
        Oracle::Transfer.demand(limit).filter(|_| enough)
    }
}
