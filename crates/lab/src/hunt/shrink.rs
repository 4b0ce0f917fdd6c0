//! Simpler genomes, and the search for the simplest that still shows a failure.

use super::breed::rounded;
use super::genome::{AckPolicy, Application, Genome, QueueLimitGene, QueueManagement, Step};

/// A genome's complexity: what the smallest case has least of.
///
/// Ingredients count most, then values that are not those of the plainest network, then the size of
/// what there is.
#[must_use]
pub fn complexity(genome: &Genome) -> u64 {
    let plain = Genome::default();
    let parts = genome.rate_steps.len()
        + genome.rtt_steps.len()
        + genome.outages.len()
        + genome.neighbours.len();
    let ingredients = genome.ingredients().len() + parts;
    let unusual = [
        genome.rate != plain.rate,
        genome.rtt != plain.rtt,
        genome.queue != plain.queue,
    ];
    let unusual = unusual.into_iter().filter(|is| *is).count();
    let size = genome.flows() * 4 + u64::from(genome.seconds) + digits(genome);
    // Neighbours of another kind are harder to think about than equal ones.
    let others = genome.neighbours.iter();
    let others = others.filter(|each| each.controller.is_some()).count();
    ingredients as u64 * 1_000_000 + others as u64 * 100_000 + unusual as u64 * 10_000 + size
}

/// How many digits a reader has to take in.
fn digits(genome: &Genome) -> u64 {
    let count = |value: u64| {
        let mut value = value;
        while value > 0 && value.is_multiple_of(10) {
            value /= 10;
        }
        u64::from(value.checked_ilog10().unwrap_or(0))
    };
    let queue = match genome.queue {
        QueueLimitGene::Packets(value) | QueueLimitGene::Millis(value) => u64::from(value),
    };
    let steps = genome.rate_steps.iter().chain(&genome.rtt_steps);
    let steps: u64 = steps.map(|step| count(step.to.into())).sum();
    let late = genome
        .late
        .map_or(0, |late| count(late.ppm.into()) + count(late.by.into()));
    count(genome.rate)
        + count(genome.rtt.into())
        + count(queue)
        + count(genome.loss.into())
        + steps
        + late
}

/// Genomes that are simpler by one step each: first without something, then with plainer values.
#[must_use]
pub fn simpler(genome: &Genome) -> Vec<Genome> {
    let mut all = Vec::new();
    fewer_impairments(genome, &mut all);
    fewer_parts(genome, &mut all);
    plainer_values(genome, &mut all);
    let own = complexity(genome);
    all.retain(|each| complexity(each) < own);
    all
}

/// A copy with a change.
fn with(genome: &Genome, change: impl FnOnce(&mut Genome)) -> Genome {
    let mut copy = genome.clone();
    change(&mut copy);
    copy
}

fn fewer_impairments(genome: &Genome, all: &mut Vec<Genome>) {
    const REMOVALS: &[fn(&mut Genome)] = &[
        |it| it.neighbours.clear(),
        |it| it.rate_steps.clear(),
        |it| it.rtt_steps.clear(),
        |it| it.outages.clear(),
        |it| it.application = Application::Bulk,
        |it| it.management = QueueManagement::DropTail,
        |it| it.loss = 0,
        |it| it.bursts = None,
        |it| it.ack_loss = 0,
        |it| it.late = None,
        |it| it.jitter = None,
        |it| it.policer = None,
        |it| it.slots = 0,
        |it| it.ack_slots = 0,
        |it| it.ack_thinning = 1,
        |it| it.acks = AckPolicy::Asked,
        |it| it.uplink = 1_000,
        |it| it.ecn = true,
    ];
    all.extend(REMOVALS.iter().map(|removal| with(genome, removal)));
    if genome.jitter.is_some_and(|jitter| jitter.reorders) {
        all.push(with(genome, |it| {
            if let Some(jitter) = &mut it.jitter {
                jitter.reorders = false;
            }
        }));
    }
}

fn fewer_parts(genome: &Genome, all: &mut Vec<Genome>) {
    for index in 0..genome.rate_steps.len() {
        all.push(with(genome, |it| {
            it.rate_steps.remove(index);
        }));
    }
    for index in 0..genome.rtt_steps.len() {
        all.push(with(genome, |it| {
            it.rtt_steps.remove(index);
        }));
    }
    for index in 0..genome.outages.len() {
        all.push(with(genome, |it| {
            it.outages.remove(index);
        }));
    }
    for index in 0..genome.neighbours.len() {
        all.push(with(genome, |it| {
            it.neighbours.remove(index);
        }));
        for count in [1, genome.neighbours[index].count / 2] {
            all.push(with(genome, |it| it.neighbours[index].count = count.max(1)));
        }
        all.push(with(genome, |it| it.neighbours[index].controller = None));
    }
}

fn plainer_values(genome: &Genome, all: &mut Vec<Genome>) {
    let plain = Genome::default();
    all.push(with(genome, |it| {
        (it.rate, it.rtt, it.queue) = (plain.rate, plain.rtt, plain.queue);
    }));
    all.push(with(genome, |it| it.rate = plain.rate));
    all.push(with(genome, |it| it.rtt = plain.rtt));
    all.push(with(genome, |it| it.queue = plain.queue));
    // The bandwidth-delay product.
    let bdp = (genome.rtt / 1_000).max(1);
    all.push(with(genome, |it| it.queue = QueueLimitGene::Millis(bdp)));
    // The same steps from the usual rate.
    let scaled = |step: &Step| Step {
        at: step.at,
        to: (u64::from(step.to) * genome.rate / plain.rate).max(1) as u32,
    };
    all.push(with(genome, |it| {
        it.rate = plain.rate;
        it.rate_steps = genome.rate_steps.iter().map(scaled).collect();
    }));
    for seconds in [plain.seconds, genome.seconds / 2, genome.seconds * 3 / 4] {
        all.push(with(genome, |it| it.seconds = seconds.max(1)));
    }
    all.push(with(genome, |it| {
        it.rate = one_digit(it.rate);
        it.rtt = one_digit(it.rtt.into()) as u32;
        it.queue = match it.queue {
            QueueLimitGene::Packets(packets) => {
                QueueLimitGene::Packets(one_digit(packets.into()) as u32)
            }
            QueueLimitGene::Millis(millis) => {
                QueueLimitGene::Millis(one_digit(millis.into()) as u32)
            }
        };
        it.loss = one_digit(it.loss.into()) as u32;
        for step in it.rate_steps.iter_mut().chain(&mut it.rtt_steps) {
            step.to = one_digit(step.to.into()) as u32;
        }
        if let Some(late) = &mut it.late {
            late.ppm = one_digit(late.ppm.into()) as u32;
            late.by = one_digit(late.by.into()) as u32;
        }
    }));
    for step in 0..genome.rate_steps.len() {
        all.push(with(genome, |it| {
            it.rate_steps[step].to = one_digit(it.rate_steps[step].to.into()) as u32;
        }));
    }
}

/// To one significant digit, but never to zero.
fn one_digit(value: u64) -> u64 {
    let unit = value.checked_ilog10().map_or(1, |log| 10_u64.pow(log));
    if value >= unit * 10 {
        rounded(value)
    } else {
        value / unit * unit
    }
}

/// Shrinks a genome: takes the first simpler one that still fails, until none does or `tries` are
/// used up. `fails` is asked about several at once and answers for each.
pub fn shrink(
    genome: &Genome,
    repair: impl Fn(Genome) -> Genome,
    mut tries: usize,
    mut fails: impl FnMut(&[Genome]) -> Vec<bool>,
    at_once: usize,
) -> Genome {
    let mut best = genome.clone();
    'simpler: loop {
        let own = complexity(&best);
        let mut candidates: Vec<Genome> = simpler(&best).into_iter().map(&repair).collect();
        candidates.retain(|each| complexity(each) < own);
        let mut seen = std::collections::BTreeSet::new();
        candidates.retain(|each| seen.insert(format!("{each:?}")));
        for some in candidates.chunks(at_once.max(1)) {
            if tries == 0 {
                return best;
            }
            let some = &some[..some.len().min(tries)];
            tries -= some.len();
            let failed = fails(some);
            if let Some(index) = failed.iter().position(|failed| *failed) {
                best = some[index].clone();
                continue 'simpler;
            }
        }
        return best;
    }
}
