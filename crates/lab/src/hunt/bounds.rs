//! The bounds of a search: how extreme its networks may be.

use core::time::Duration;

use clearway_links::{ByteSize, Probability, Rate, Span};
use serde::Deserialize;

use super::genome::{
    Application, BurstLoss, Genome, INGREDIENTS, PACKET, QueueLimitGene, QueueManagement,
};
use crate::scenario::suggest;

/// A smallest and a largest value, both included.
pub type Range = (u64, u64);

/// The length of a burst of losses in microseconds: from a few packets of a fast link to a fade of a
/// radio link. What is longer is an outage.
pub(super) const BURST: Range = (1_000, 100_000);

/// How extreme the networks of a search may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Rates in kbit/s.
    pub rate: Range,
    /// Round trips in microseconds.
    pub rtt: Range,
    /// Queues in milliseconds at the first rate; never less than ten packets.
    pub queue: Range,
    /// The shortest queue that a step marks, in packets: what the link takes for them at its slowest.
    pub marking: u64,
    /// Durations in seconds.
    pub seconds: Range,
    /// The most random loss in packets per million.
    pub loss: u64,
    /// The most that a packet may be late, in microseconds.
    pub late: u64,
    /// The longest outage in milliseconds.
    pub outage: u64,
    /// The most flows.
    pub flows: u64,
    /// The most bytes that the bottleneck could carry in one run: longer runs are cut.
    pub traffic: u64,
    /// Ingredients that are not used.
    pub without: Vec<String>,
}

impl Default for Bounds {
    /// Paths that exist: from a modem line to fast home access, from a data centre's
    /// neighbourhood to a satellite, queues up to the two seconds of bad home routers. A queue that
    /// marks lets two packets wait, the one that is being sent and one behind it: RFC 9332 appendix A.1
    /// exempts a queue of one packet (`Th_len`), and without that whatever meets another flow's packet
    /// is marked, whoever sends it.
    fn default() -> Self {
        Self {
            rate: (256, 100_000),
            rtt: (2_000, 600_000),
            queue: (5, 2_000),
            marking: 2,
            seconds: (10, 120),
            loss: 50_000,
            late: 200_000,
            outage: 3_000,
            flows: 50,
            traffic: 40_000_000,
            without: Vec::new(),
        }
    }
}

/// Bounds as written in a file: what is missing keeps its default.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct BoundsText {
    rate: Option<[String; 2]>,
    rtt: Option<[String; 2]>,
    queue: Option<[String; 2]>,
    duration: Option<[String; 2]>,
    loss: Option<String>,
    late: Option<String>,
    outage: Option<String>,
    flows: Option<u64>,
    marking: Option<u64>,
    traffic: Option<String>,
    #[serde(default)]
    without: Vec<String>,
}

fn range(
    name: &str,
    text: Option<&[String; 2]>,
    default: Range,
    hard: Range,
    parse: impl Fn(&str) -> Result<u64, String>,
) -> Result<Range, String> {
    let Some([low, high]) = text else {
        return Ok(default);
    };
    let wrong = |error: String| format!("{name}: {error}");
    let (a, b) = (parse(low).map_err(wrong)?, parse(high).map_err(wrong)?);
    if a > b {
        return Err(format!(
            "{name}: {low:?} is more than {high:?}; expected the smaller value first"
        ));
    }
    if a < hard.0 || b > hard.1 {
        return Err(format!(
            "{name}: [{low:?}, {high:?}] is outside of what can be searched; {}",
            match name {
                "rate" => "expected 64k to 10G",
                "rtt" => "expected 200us to 2s",
                "queue" => "expected 1ms to 10s",
                _ => "expected 5s to 600s",
            }
        ));
    }
    Ok((a, b))
}

fn rate(text: &str) -> Result<u64, String> {
    let rate: Rate = text.parse().map_err(|error| format!("{error}"))?;
    rate.bits()
        .map(|bits| bits / 1_000)
        .ok_or_else(|| "the rate must be limited, such as 10M".to_owned())
}

fn span(text: &str, unit: Duration) -> Result<u64, String> {
    let span: Span = text.parse().map_err(|error| format!("{error}"))?;
    Ok((span.0.as_nanos() / unit.as_nanos().max(1)) as u64)
}

const MICRO: Duration = Duration::from_micros(1);
const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

impl Bounds {
    /// Reads bounds from TOML; `file` is its name in error messages.
    ///
    /// # Errors
    /// What is wrong, and what is expected.
    pub fn parse(file: &str, text: &str) -> Result<Self, String> {
        let read: BoundsText = toml::from_str(text)
            .map_err(|error| format!("{file}: {}", error.to_string().trim_end()))?;
        Self::read(read).map_err(|error| format!("{file}: {error}"))
    }

    fn read(text: BoundsText) -> Result<Self, String> {
        let default = Self::default();
        let most = |name: &str, text: Option<String>, default: u64, limit: u64, unit| {
            let Some(text) = text else { return Ok(default) };
            let value = span(&text, unit).map_err(|error| format!("{name}: {error}"))?;
            if value > limit {
                return Err(format!(
                    "{name}: {text:?} is too long; expected at most 60s"
                ));
            }
            Ok(value)
        };
        let loss = match text.loss {
            None => default.loss,
            Some(text) => {
                let share: Probability = text.parse().map_err(|error| format!("loss: {error}"))?;
                if share.parts() > 500_000_000 {
                    return Err(format!("loss: {text:?} is too much; expected at most 50%"));
                }
                u64::from(share.parts() / 1_000)
            }
        };
        let traffic = match text.traffic {
            None => default.traffic,
            Some(text) => {
                let bytes: ByteSize = text.parse().map_err(|error| format!("traffic: {error}"))?;
                if bytes.0 < 1_000_000 {
                    return Err(format!(
                        "traffic: {text:?} is too little; expected at least 1MB"
                    ));
                }
                bytes.0
            }
        };
        let flows = text.flows.unwrap_or(default.flows);
        if !(1..=1_000).contains(&flows) {
            return Err(format!(
                "flows: {flows} is out of range; expected 1 to 1000"
            ));
        }
        let marking = text.marking.unwrap_or(default.marking);
        if marking > 1_000 {
            return Err(format!(
                "marking: {marking} is out of range; expected 0 to 1000 packets"
            ));
        }
        for name in &text.without {
            if !INGREDIENTS.contains(&name.as_str()) {
                return Err(format!(
                    "without: unknown ingredient {name:?}; {}",
                    suggest(name, INGREDIENTS)
                ));
            }
        }
        let micros = |text: &str| span(text, MICRO);
        let millis = |text: &str| span(text, MILLI);
        let seconds = |text: &str| span(text, SECOND);
        Ok(Self {
            rate: range(
                "rate",
                text.rate.as_ref(),
                default.rate,
                (64, 10_000_000),
                rate,
            )?,
            rtt: range(
                "rtt",
                text.rtt.as_ref(),
                default.rtt,
                (200, 2_000_000),
                micros,
            )?,
            queue: range(
                "queue",
                text.queue.as_ref(),
                default.queue,
                (1, 10_000),
                millis,
            )?,
            seconds: range(
                "duration",
                text.duration.as_ref(),
                default.seconds,
                (5, 600),
                seconds,
            )?,
            marking,
            loss,
            late: most("late", text.late, default.late, 60_000_000, MICRO)?,
            outage: most("outage", text.outage, default.outage, 60_000, MILLI)?,
            flows,
            traffic,
            without: text.without,
        })
    }

    /// Whether an ingredient may be used.
    #[must_use]
    pub fn allows(&self, ingredient: &str) -> bool {
        !self.without.iter().any(|name| name == ingredient)
    }

    /// Brings a genome within the bounds, and makes it consistent.
    #[must_use]
    pub fn repair(&self, mut genome: Genome) -> Genome {
        let within = |value: u64, (low, high): Range| value.clamp(low, high);
        genome.rate = within(genome.rate, self.rate);
        genome.rtt = within(genome.rtt.into(), self.rtt) as u32;
        genome.loss = genome.loss.min(self.loss as u32);
        genome.ack_loss = genome.ack_loss.min(self.loss as u32);
        self.repair_queue(&mut genome);
        self.repair_flows(&mut genome);
        self.repair_steps(&mut genome);
        if let Some(bursts) = &mut genome.bursts {
            let (shortest, longest) = BURST;
            bursts.length = u64::from(bursts.length).clamp(shortest, longest) as u32;
            let least = BurstLoss::least_every(bursts.length, self.loss);
            bursts.every = bursts.every.max(least);
        }
        if let Some(late) = &mut genome.late {
            late.ppm = late.ppm.clamp(1, 100_000);
            late.by = late.by.clamp(1, self.late.max(1) as u32);
        }
        if let Some(jitter) = &mut genome.jitter {
            jitter.max = jitter.max.clamp(1, self.late.max(1) as u32);
        }
        if let Some(policer) = &mut genome.policer {
            policer.rate = policer.rate.clamp(50, 1_000);
            policer.bucket = policer.bucket.clamp(10, 10_000);
        }
        genome.slots = genome.slots.min(100_000);
        genome.ack_slots = genome.ack_slots.min(100_000);
        genome.ack_thinning = genome.ack_thinning.clamp(1, 20);
        genome.uplink = genome.uplink.clamp(100, 1_000);
        if let Application::OnOff { kilobytes, gap } = &mut genome.application {
            *kilobytes = (*kilobytes).clamp(10, 20_000);
            *gap = (*gap).clamp(10, 30_000);
        }
        if let Application::Paced { rate, burst } = &mut genome.application {
            // A write at least every half second, so that a pause between two is not a stall.
            let least = 20_000_u64.div_ceil(genome.rate);
            *rate = (*rate).clamp(least.min(900) as u32, 900);
            *burst = (*burst).clamp(50, 1_000);
        }
        self.repair_duration(&mut genome);
        self.repair_marking(&mut genome);
        genome
    }

    fn repair_queue(&self, genome: &mut Genome) {
        const LEAST: u64 = 10;
        match &mut genome.queue {
            QueueLimitGene::Packets(packets) => {
                let most = (genome.rate * self.queue.1 / 8 / PACKET).max(LEAST);
                *packets = u64::from(*packets).clamp(LEAST, most) as u32;
            }
            QueueLimitGene::Millis(millis) => {
                *millis = u64::from(*millis).clamp(self.queue.0, self.queue.1) as u32;
            }
        }
        if genome.queue_bytes() < LEAST * PACKET {
            genome.queue = QueueLimitGene::Packets(LEAST as u32);
        }
    }

    fn repair_marking(&self, genome: &mut Genome) {
        let lowest = genome.lowest_rate().max(1);
        if let QueueManagement::StepMarking(millis) = &mut genome.management {
            let least = (self.marking * PACKET * 8).div_ceil(lowest);
            *millis = u64::from(*millis).max(least) as u32;
        }
    }

    fn repair_flows(&self, genome: &mut Genome) {
        let mut left = self.flows.saturating_sub(1);
        for neighbours in &mut genome.neighbours {
            neighbours.count = u64::from(neighbours.count).min(left) as u32;
            // They are measured in the second half, and need time to settle.
            neighbours.start = neighbours.start.min(400);
            left -= u64::from(neighbours.count);
        }
        genome.neighbours.retain(|each| each.count > 0);
        genome.neighbours.truncate(2);
    }

    fn repair_steps(&self, genome: &mut Genome) {
        let (slowest, fastest) = self.rate;
        for step in &mut genome.rate_steps {
            let low = (slowest * 1_000).div_ceil(genome.rate);
            let high = (fastest * 1_000 / genome.rate).max(low);
            step.to = u64::from(step.to).clamp(low, high) as u32;
        }
        let (shortest, longest) = self.rtt;
        for step in &mut genome.rtt_steps {
            let rtt = u64::from(genome.rtt);
            let low = (shortest * 1_000).div_ceil(rtt);
            let high = (longest * 1_000 / rtt).max(low);
            step.to = u64::from(step.to).clamp(low, high) as u32;
        }
        for steps in [&mut genome.rate_steps, &mut genome.rtt_steps] {
            steps
                .iter_mut()
                .for_each(|step| step.at = step.at.clamp(50, 900));
            steps.sort_unstable();
            steps.dedup_by_key(|step| step.at);
            steps.truncate(3);
            let mut last = 1_000;
            steps.retain(|step| core::mem::replace(&mut last, step.to) != step.to);
        }
        for outage in &mut genome.outages {
            outage.at = outage.at.clamp(50, 900);
            outage.millis = u64::from(outage.millis).clamp(1, self.outage.max(1)) as u32;
        }
        genome.outages.sort_unstable();
        genome.outages.truncate(2);
    }

    /// Shortens a run whose link could carry too much; outages that would overlap are dropped.
    fn repair_duration(&self, genome: &mut Genome) {
        let seconds = u64::from(genome.seconds).clamp(self.seconds.0, self.seconds.1);
        genome.seconds = seconds as u32;
        let traffic = genome.traffic().max(1);
        if traffic > self.traffic {
            let cut = seconds * self.traffic / traffic;
            genome.seconds = cut.clamp(self.seconds.0, seconds) as u32;
        }
        let traffic = genome.traffic().max(1);
        if traffic > self.traffic {
            let rate = genome.rate * self.traffic / traffic;
            genome.rate = rate.clamp(self.rate.0, self.rate.1);
            self.repair_queue(genome);
            self.repair_steps(genome);
        }
        let seconds = u64::from(genome.seconds);
        let mut free = 0;
        genome.outages.retain(|outage| {
            let from = seconds * u64::from(outage.at);
            let own = from >= free;
            if own {
                free = from + u64::from(outage.millis) + 1;
            }
            own
        });
    }
}
