//! The search: generations of genomes, each a little worse for the controller than the last.

use std::collections::{BTreeMap, BTreeSet};

use super::bounds::Bounds;
use super::breed::Breeder;
use super::cases::{HuntCase, KnownCases};
use super::envelope::Oracle;
use super::evaluate::{Evaluate, Evaluation, Trial};
use super::genome::Genome;
use super::shrink::shrink;

/// Genomes of a generation.
const GENERATION: usize = 24;

/// The best of each oracle that a generation leaves to the next.
const ELITE: usize = 3;

/// Evaluations that shrinking one case may take.
const SHRINK_TRIES: usize = 80;

/// The seeds that a failure is confirmed with, besides the first.
const CONFIRMATIONS: [u64; 2] = [2, 3];

/// What to search for.
#[derive(Clone, Debug)]
pub struct HuntSettings {
    /// The controller.
    pub controller: String,
    /// The seed of the search.
    pub seed: u64,
    /// How extreme networks may be.
    pub bounds: Bounds,
    /// Failures that are known: they are counted, and not pursued.
    pub known: KnownCases,
    /// Controllers that neighbours may have.
    pub rivals: Vec<String>,
    /// How many genomes are tried at once when a case is shrunk.
    pub at_once: usize,
}

/// What a search has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Runs.
    pub evaluations: u64,
    /// Generations.
    pub generations: u64,
    /// Runs outside of the envelope.
    pub missed: u64,
    /// Those of them in which no detector found anything.
    pub silent: u64,
    /// Runs outside of the envelope by chance: other seeds of the same network are not.
    pub by_chance: u64,
    /// Runs outside of the envelope for a known reason, by the reason.
    pub known: BTreeMap<String, u64>,
    /// Findings in runs inside of the envelope, by detector.
    pub healthy_findings: BTreeMap<String, u64>,
}

/// A genome with what came of it.
#[derive(Clone, Debug)]
struct Individual {
    genome: Genome,
    evaluation: Evaluation,
}

/// A search for the networks in which one controller does worst.
#[derive(Debug)]
pub struct Hunt {
    settings: HuntSettings,
    breeder: Breeder,
    population: Vec<Individual>,
    cases: Vec<HuntCase>,
    tally: Tally,
}

impl Hunt {
    /// A search that has not begun.
    #[must_use]
    pub fn new(settings: HuntSettings) -> Self {
        let (bounds, rivals) = (settings.bounds.clone(), settings.rivals.clone());
        Self {
            breeder: Breeder::new(settings.seed, bounds, rivals),
            population: Vec::new(),
            cases: Vec::new(),
            tally: Tally::default(),
            settings,
        }
    }

    /// The controller that it searches for.
    #[must_use]
    pub fn controller(&self) -> &str {
        &self.settings.controller
    }

    /// What was found so far.
    #[must_use]
    pub fn cases(&self) -> &[HuntCase] {
        &self.cases
    }

    /// What was counted so far.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The worst answer that no case explains yet.
    #[must_use]
    pub fn worst(&self) -> Option<(Oracle, f64)> {
        let all = self.population.iter().flat_map(|each| {
            Oracle::ALL
                .into_iter()
                .map(|oracle| (oracle, self.unexplained(each, oracle)))
        });
        all.max_by(|a, b| a.1.total_cmp(&b.1))
            .filter(|(_, ratio)| *ratio > 0.0)
    }

    /// Breeds a generation, runs it, and pursues what is new in it. Returns the new cases.
    ///
    /// The result depends on the settings alone, not on the number of threads of `evaluator`.
    pub fn generation(&mut self, evaluator: &mut dyn Evaluate) -> Vec<HuntCase> {
        let genomes: Vec<Genome> = (0..GENERATION).map(|_| self.child()).collect();
        let evaluations = self.evaluate(evaluator, &genomes, 1);
        let children = genomes.into_iter().zip(evaluations);
        let children: Vec<Individual> = children
            .map(|(genome, evaluation)| Individual { genome, evaluation })
            .collect();
        self.tally.generations += 1;
        let before = self.cases.len();
        for child in &children {
            self.count(child);
            self.consider(child, evaluator);
        }
        self.population.extend(children);
        self.select();
        self.cases[before..].to_vec()
    }

    fn child(&mut self) -> Genome {
        let len = self.population.len() as u64;
        if len == 0 {
            return self.breeder.random();
        }
        let some = self.breeder.below(len) as usize;
        let other = self.breeder.below(len) as usize;
        match self.breeder.below(10) {
            0..=2 => self.breeder.random(),
            3..=7 => self.breeder.mutated(&self.population[some].genome),
            _ => {
                let (a, b) = (
                    &self.population[some].genome,
                    &self.population[other].genome,
                );
                self.breeder.crossed(a, b)
            }
        }
    }

    fn evaluate(
        &mut self,
        evaluator: &mut dyn Evaluate,
        genomes: &[Genome],
        seed: u64,
    ) -> Vec<Evaluation> {
        self.tally.evaluations += genomes.len() as u64;
        let trials: Vec<Trial> = genomes
            .iter()
            .map(|genome| self.trial(genome, seed))
            .collect();
        evaluator.evaluate(&trials)
    }

    fn trial(&self, genome: &Genome, seed: u64) -> Trial {
        Trial {
            controller: self.settings.controller.clone(),
            genome: genome.clone(),
            seed,
        }
    }

    fn count(&mut self, child: &Individual) {
        let evaluation = &child.evaluation;
        if evaluation.missed().is_empty() {
            for detector in &evaluation.findings {
                *self
                    .tally
                    .healthy_findings
                    .entry(detector.clone())
                    .or_default() += 1;
            }
            return;
        }
        self.tally.missed += 1;
        if evaluation.findings.is_empty() && evaluation.violations.is_empty() {
            self.tally.silent += 1;
        }
    }

    /// Pursues the worst failure of a genome that nothing explains.
    fn consider(&mut self, child: &Individual, evaluator: &mut dyn Evaluate) {
        let ingredients = child.genome.ingredients();
        for answer in child.evaluation.missed() {
            let (controller, oracle) = (&self.settings.controller, answer.oracle);
            if let Some(known) = self.settings.known.find(controller, oracle, &ingredients) {
                let reason = known.reason.clone();
                *self.tally.known.entry(reason).or_default() += 1;
                continue;
            }
            if self
                .cases
                .iter()
                .any(|case| case.explains(oracle, &ingredients))
            {
                continue;
            }
            if self.showing(&child.genome, oracle, evaluator) < 2 {
                self.tally.by_chance += 1;
                continue;
            }
            let case = self.pursue(&child.genome, oracle, evaluator);
            self.cases.push(case);
        }
    }

    /// How many of three seeds show a failure that the first has shown.
    fn showing(&mut self, genome: &Genome, oracle: Oracle, evaluator: &mut dyn Evaluate) -> u32 {
        let trials = CONFIRMATIONS.map(|seed| self.trial(genome, seed));
        self.tally.evaluations += trials.len() as u64;
        let again = evaluator.evaluate(&trials);
        let again = again.iter().filter(|each| each.ratio(oracle) > 1.0);
        1 + again.count() as u32
    }

    /// Shrinks a failure, and makes a case of it.
    fn pursue(
        &mut self,
        genome: &Genome,
        oracle: Oracle,
        evaluator: &mut dyn Evaluate,
    ) -> HuntCase {
        let after = self.tally.evaluations;
        let met = genome.ingredients();
        let bounds = self.settings.bounds.clone();
        let at_once = self.settings.at_once;
        let fails = |some: &[Genome]| {
            let all = self.evaluate(evaluator, some, 1);
            all.iter().map(|each| each.ratio(oracle) > 1.0).collect()
        };
        let repair = |genome| bounds.repair(genome);
        let small = shrink(genome, repair, SHRINK_TRIES, fails, at_once);
        let (mut genome, mut seeds) = (genome.clone(), 0);
        if small != genome {
            seeds = self.showing(&small, oracle, evaluator);
        }
        if seeds >= 2 {
            genome = small;
        } else {
            seeds = self.showing(&genome, oracle, evaluator);
        }
        let evaluation = self
            .evaluate(evaluator, core::slice::from_ref(&genome), 1)
            .swap_remove(0);
        let ingredients = needed_ingredients(&met, &genome.ingredients());
        HuntCase {
            controller: self.settings.controller.clone(),
            oracle,
            ingredients: ingredients.into_iter().map(str::to_owned).collect(),
            genome,
            seed: 1,
            seeds,
            evaluation,
            after,
        }
    }

    /// How bad an individual is by an oracle; zero if that is explained already.
    fn unexplained(&self, individual: &Individual, oracle: Oracle) -> f64 {
        let ratio = individual.evaluation.ratio(oracle);
        if ratio == 0.0 {
            return 0.0;
        }
        let ingredients = individual.genome.ingredients();
        let known = self
            .settings
            .known
            .find(&self.settings.controller, oracle, &ingredients);
        let mut cases = self.cases.iter();
        let explained = known.is_some() || cases.any(|case| case.explains(oracle, &ingredients));
        if explained { 0.0 } else { ratio }
    }

    /// Keeps the worst few of each oracle.
    fn select(&mut self) {
        let mut kept: Vec<usize> = Vec::new();
        for oracle in Oracle::ALL {
            let all = self.population.iter().enumerate();
            let mut ranked: Vec<(usize, f64)> = all
                .map(|(index, each)| (index, self.unexplained(each, oracle)))
                .filter(|(_, ratio)| *ratio > 0.0)
                .collect();
            // Of equals the older stays, so that the order is one order.
            ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            kept.extend(ranked.iter().take(ELITE).map(|(index, _)| *index));
        }
        kept.sort_unstable();
        kept.dedup();
        let mut index = 0;
        self.population.retain(|_| {
            let keep = kept.binary_search(&index).is_ok();
            index += 1;
            keep
        });
    }
}

/// Returns what a failure takes, of what the network that it was met in had.
///
/// What that one had not, such as a queue that is deep beside the plainest path, the failure does not
/// take. Otherwise the same network would be met again. A neighbour that was made an equal one still
/// counts as the neighbour that it was: without it there may be no failure.
fn needed_ingredients(
    met: &BTreeSet<&'static str>,
    small: &BTreeSet<&'static str>,
) -> BTreeSet<&'static str> {
    let (equal, other) = ("equal neighbours", "other neighbours");
    let mut needed: BTreeSet<_> = small.intersection(met).copied().collect();
    if small.contains(equal) && !met.contains(equal) {
        needed.insert(other);
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbour_that_became_an_equal_one_is_still_needed() {
        let met = ["late packets", "other neighbours", "step marking"].into();
        let needed =
            |small: &[&'static str]| needed_ingredients(&met, &small.iter().copied().collect());
        assert_eq!(
            needed(&["equal neighbours", "short path", "step marking"]),
            ["other neighbours", "step marking"].into()
        );
        assert_eq!(needed(&["step marking"]), ["step marking"].into());
    }
}
