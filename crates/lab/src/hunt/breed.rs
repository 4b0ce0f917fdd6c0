//! Random genomes, mutation and crossover.

use clearway_links::Dice;

use super::bounds::{BURST, Bounds};
use super::genome::{
    AckPolicy, Application, BurstLoss, Genome, INGREDIENTS, JitterGene, LatePackets, Neighbours,
    Outage, PolicerGene, QueueLimitGene, QueueManagement, Step,
};
use super::shrink::simpler;

/// The stream of randomness, of those of a seed, that breeding draws from.
const STREAM: u64 = 0x6275_6e74;

/// Makes genomes from a seed.
#[derive(Clone, Debug)]
pub struct Breeder {
    dice: Dice,
    bounds: Bounds,
    /// Controllers that neighbours may have.
    rivals: Vec<String>,
}

/// What a mutation may change.
const GENES: &[fn(&mut Breeder, &mut Genome)] = &[
    Breeder::rate,
    Breeder::rtt,
    Breeder::queue,
    Breeder::duration,
    Breeder::management,
    Breeder::loss,
    Breeder::late,
    Breeder::jitter,
    Breeder::rate_steps,
    Breeder::rate_steps,
    Breeder::rtt_steps,
    Breeder::outages,
    Breeder::policer,
    Breeder::slots,
    Breeder::acks,
    Breeder::neighbours,
    Breeder::neighbours,
    Breeder::application,
];

impl Breeder {
    /// The breeder of a seed, within bounds; neighbours may have one of these controllers.
    #[must_use]
    pub fn new(seed: u64, bounds: Bounds, rivals: Vec<String>) -> Self {
        Self {
            dice: Dice::new(seed, STREAM),
            bounds,
            rivals,
        }
    }

    /// A random genome: a link, and up to four things that are special about it.
    pub fn random(&mut self) -> Genome {
        let mut genome = Genome::default();
        for gene in [Self::rate, Self::rtt, Self::queue, Self::duration] {
            gene(self, &mut genome);
        }
        for _ in 0..self.dice.below(5) {
            self.change(&mut genome);
        }
        self.finish(genome)
    }

    /// A genome that differs in one to three genes.
    pub fn mutated(&mut self, genome: &Genome) -> Genome {
        let mut child = genome.clone();
        // Simpler networks show more clearly what is wrong, and run faster.
        if self.one_in(6) {
            let all = simpler(&child);
            if !all.is_empty() {
                let chosen = self.below(all.len() as u64) as usize;
                return self.finish(all[chosen].clone());
            }
        }
        for _ in 0..=self.below(3) {
            self.change(&mut child);
        }
        self.finish(child)
    }

    /// A genome whose genes are each of one parent.
    pub fn crossed(&mut self, a: &Genome, b: &Genome) -> Genome {
        macro_rules! mixed {
            ($($gene:ident)*) => {
                Genome { $($gene: if self.one_in(2) { a.$gene.clone() } else { b.$gene.clone() }),* }
            };
        }
        let child = mixed!(
            rate rtt queue seconds management ecn loss bursts ack_loss late jitter rate_steps
            rtt_steps outages policer slots ack_slots ack_thinning acks uplink neighbours application
        );
        self.finish(child)
    }

    /// Uniform in `0..bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.dice.below(bound)
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// Removes what is not allowed, and brings the rest within bounds.
    fn finish(&self, genome: Genome) -> Genome {
        let mut genome = self.bounds.repair(genome);
        let forbidden = |genome: &Genome| {
            let mut names = genome.ingredients().into_iter();
            names.find(|name| !self.bounds.allows(name))
        };
        // Each removes something; the sizes of the path cannot be removed.
        for _ in 0..INGREDIENTS.len() {
            let Some(name) = forbidden(&genome) else {
                break;
            };
            genome = self.bounds.repair(without(genome, name));
        }
        genome
    }

    fn change(&mut self, genome: &mut Genome) {
        let gene = self.below(GENES.len() as u64) as usize;
        GENES[gene](self, genome);
    }

    /// Between two values, as likely in each octave, with two digits.
    fn draw(&mut self, low: u64, high: u64) -> u64 {
        let (low, high) = (low.max(1), high.max(1));
        let first = low.ilog2();
        let octave = first + self.below(u64::from(high.ilog2() - first) + 1) as u32;
        let from = (1 << octave).max(low);
        let until = (1_u64 << (octave + 1)).min(high + 1);
        let value = from + self.below(until.saturating_sub(from));
        rounded(value).clamp(low, high)
    }

    fn rate(&mut self, genome: &mut Genome) {
        let (low, high) = self.bounds.rate;
        genome.rate = self.draw(low, high);
    }

    fn rtt(&mut self, genome: &mut Genome) {
        let (low, high) = self.bounds.rtt;
        genome.rtt = self.draw(low, high) as u32;
    }

    fn queue(&mut self, genome: &mut Genome) {
        let (low, high) = self.bounds.queue;
        genome.queue = match self.below(3) {
            0 => QueueLimitGene::Packets(self.draw(10, 2_000) as u32),
            // Around the bandwidth-delay product.
            1 => {
                let rtt = u64::from(genome.rtt) / 1_000;
                QueueLimitGene::Millis(self.draw(rtt / 2, rtt * 4) as u32)
            }
            _ => QueueLimitGene::Millis(self.draw(low, high) as u32),
        };
    }

    fn duration(&mut self, genome: &mut Genome) {
        let (low, high) = self.bounds.seconds;
        genome.seconds = self.draw(low, high) as u32;
    }

    fn management(&mut self, genome: &mut Genome) {
        genome.management = match self.below(7) {
            0 | 1 => QueueManagement::DropTail,
            2 => QueueManagement::StepMarking(self.draw(1, 50) as u32),
            3 => QueueManagement::Codel,
            4 => QueueManagement::FqCodel,
            5 => QueueManagement::Pie,
            _ => QueueManagement::DualQ,
        };
        genome.ecn = !self.one_in(4);
    }

    fn loss(&mut self, genome: &mut Genome) {
        let most = self.bounds.loss;
        match self.below(4) {
            0 => genome.loss = 0,
            1 => genome.loss = self.draw(10, most) as u32,
            2 => genome.ack_loss = self.draw(1_000, most) as u32,
            _ => {
                let (shortest, longest) = BURST;
                let length = self.draw(shortest, longest) as u32;
                let least = BurstLoss::least_every(length, most);
                let every = self.draw(
                    least.into(),
                    (u64::from(least) * 100).min(30_000).max(least.into()),
                ) as u32;
                genome.bursts = Some(BurstLoss { every, length });
            }
        }
    }

    fn late(&mut self, genome: &mut Genome) {
        let most = self.bounds.late;
        genome.late = (!self.one_in(4)).then(|| LatePackets {
            ppm: self.draw(100, 100_000) as u32,
            by: self.draw(1_000, most) as u32,
        });
    }

    fn jitter(&mut self, genome: &mut Genome) {
        let most = self.bounds.late;
        genome.jitter = (!self.one_in(4)).then(|| JitterGene {
            max: self.draw(200, most) as u32,
            reorders: self.one_in(2),
        });
    }

    fn rate_steps(&mut self, genome: &mut Genome) {
        let (low, high) = self.bounds.rate;
        genome.rate_steps = (0..self.below(3))
            .map(|_| {
                let rate = self.draw(low, high);
                Step {
                    at: self.moment(),
                    to: (rate * 1_000 / genome.rate.max(1)).max(1) as u32,
                }
            })
            .collect();
    }

    fn rtt_steps(&mut self, genome: &mut Genome) {
        genome.rtt_steps = (0..self.below(3))
            .map(|_| Step {
                at: self.moment(),
                to: self.draw(100, 10_000) as u32,
            })
            .collect();
    }

    fn outages(&mut self, genome: &mut Genome) {
        let most = self.bounds.outage;
        genome.outages = (0..self.below(3))
            .map(|_| Outage {
                at: self.moment(),
                millis: self.draw(20, most) as u32,
            })
            .collect();
    }

    /// More often early, so that there is time to see what comes of it.
    fn moment(&mut self) -> u32 {
        let most = if self.one_in(3) { 900 } else { 350 };
        50 + 10 * self.below((most - 50) / 10) as u32
    }

    fn policer(&mut self, genome: &mut Genome) {
        genome.policer = (!self.one_in(3)).then(|| PolicerGene {
            rate: self.draw(50, 1_000) as u32,
            bucket: self.draw(20, 2_000) as u32,
        });
    }

    fn slots(&mut self, genome: &mut Genome) {
        match self.below(4) {
            0 => (genome.slots, genome.ack_slots) = (0, 0),
            1 => genome.slots = self.draw(1_000, 50_000) as u32,
            _ => genome.ack_slots = self.draw(1_000, 50_000) as u32,
        }
    }

    fn acks(&mut self, genome: &mut Genome) {
        match self.below(4) {
            0 => genome.ack_thinning = self.draw(1, 20) as u32,
            1 => genome.uplink = self.draw(100, 1_000) as u32,
            _ => {
                genome.acks = match self.below(4) {
                    0 => AckPolicy::Asked,
                    1 => AckPolicy::Every,
                    2 => AckPolicy::EverySecond,
                    _ => AckPolicy::EveryTenth,
                }
            }
        }
    }

    fn neighbours(&mut self, genome: &mut Genome) {
        let most = self.bounds.flows;
        genome.neighbours = (0..self.below(3))
            .map(|_| {
                let other = self.one_in(3) && !self.rivals.is_empty();
                let chosen = self.below(self.rivals.len().max(1) as u64) as usize;
                Neighbours {
                    controller: other.then(|| self.rivals[chosen].clone()),
                    count: self.draw(1, most) as u32,
                    start: 10 * self.below(41) as u32,
                }
            })
            .collect();
    }

    fn application(&mut self, genome: &mut Genome) {
        genome.application = match self.below(4) {
            0 => Application::Bulk,
            1 => Application::OnOff {
                kilobytes: self.draw(20, 5_000) as u32,
                gap: self.draw(50, 10_000) as u32,
            },
            _ => Application::Paced {
                rate: self.draw(10, 800) as u32,
                burst: self.moment(),
            },
        };
    }
}

/// The genome without an ingredient. What cannot be left out, such as a slow link, remains: the
/// bounds are there for that.
fn without(mut genome: Genome, ingredient: &str) -> Genome {
    match ingredient {
        "rate drop" | "rate rise" => genome.rate_steps.clear(),
        "RTT step" => genome.rtt_steps.clear(),
        "outage" => genome.outages.clear(),
        "random loss" => genome.loss = 0,
        "burst loss" => genome.bursts = None,
        "ACK loss" => genome.ack_loss = 0,
        "late packets" => genome.late = None,
        "jitter" | "overtaking jitter" => genome.jitter = None,
        "policer" => genome.policer = None,
        "slots" => genome.slots = 0,
        "ACK slots" => genome.ack_slots = 0,
        "ACK thinning" => genome.ack_thinning = 1,
        "ACK policy" => genome.acks = AckPolicy::Asked,
        "narrow uplink" => genome.uplink = 1_000,
        "step marking" | "CoDel" | "FQ-CoDel" | "PIE" | "DualQ" => {
            genome.management = QueueManagement::DropTail;
        }
        "no ECN" => genome.ecn = true,
        "equal neighbours" => genome.neighbours.retain(|each| each.controller.is_some()),
        "other neighbours" => genome.neighbours.retain(|each| each.controller.is_none()),
        "many flows" => genome.neighbours.clear(),
        "pauses" | "paced writes" => genome.application = Application::Bulk,
        _ => {}
    }
    genome
}

/// To two significant digits.
pub(super) fn rounded(value: u64) -> u64 {
    let unit = value
        .checked_ilog10()
        .map_or(1, |log| 10_u64.pow(log.saturating_sub(1)));
    value / unit * unit
}
