//! The evaluation of a genome: one run, measured against an envelope.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::envelope::{Demand, Envelope, Oracle};
use super::genome::Genome;
use crate::run::{Plan, Row, RunObservers, Settings, Task, run_all};
use crate::scenario::Case;

/// The answer to one question.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The oracle.
    pub oracle: Oracle,
    /// What was measured, in the unit of the oracle's metric; `None` for never.
    pub value: Option<f64>,
    /// The limit.
    pub limit: f64,
    /// How far it is beyond the limit: above one it is missed.
    pub ratio: f64,
    /// What [`Demand::recovery`] says.
    pub recovery: Option<(u64, u64)>,
}

impl Answer {
    /// What was demanded; `None` for what has no measure.
    #[must_use]
    pub fn demand(&self) -> Option<Demand> {
        let demand = self.oracle.demand(self.limit)?;
        Some(Demand {
            recovery: self.recovery,
            ..demand
        })
    }
}

/// One run of one genome, measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Every question that was asked.
    pub answers: Vec<Answer>,
    /// Detectors that found something, by name.
    pub findings: BTreeSet<String>,
    /// What must never happen.
    pub violations: Vec<String>,
    /// What held the senders back, as shares of their time.
    pub limits: BTreeMap<String, f64>,
    /// The digest of everything that happened, in hexadecimal.
    pub digest: String,
    /// Events of the run.
    pub events: u64,
}

impl Evaluation {
    /// Judges a row against what was demanded.
    #[must_use]
    pub fn new(row: &Row, demands: &[Demand]) -> Self {
        let answer = |demand: &Demand| {
            let value = row.get(demand.metric);
            Answer {
                oracle: demand.oracle,
                value,
                limit: demand.limit,
                ratio: demand.ratio(value),
                recovery: demand.recovery,
            }
        };
        let broken = !row.violations.is_empty();
        let violation = broken.then_some(Answer {
            oracle: Oracle::Violation,
            value: Some(row.violations.len() as f64),
            limit: 0.0,
            ratio: Demand::WORST,
            recovery: None,
        });
        // What a run that broke off has measured means nothing.
        let measured = demands.iter().filter(|_| !broken).map(answer);
        let findings = row
            .findings
            .iter()
            .map(|each| each.detector.name().to_owned());
        Self {
            answers: measured.chain(violation).collect(),
            findings: findings.collect(),
            violations: row.violations.clone(),
            limits: row.limits.clone(),
            digest: row.digest.clone(),
            events: row.events,
        }
    }

    /// The answer of an oracle.
    #[must_use]
    pub fn answer(&self, oracle: Oracle) -> Option<&Answer> {
        self.answers.iter().find(|answer| answer.oracle == oracle)
    }

    /// How far an oracle's answer is beyond its limit; zero if it was not asked.
    #[must_use]
    pub fn ratio(&self, oracle: Oracle) -> f64 {
        self.answer(oracle).map_or(0.0, |answer| answer.ratio)
    }

    /// The answers beyond their limits, the worst first.
    #[must_use]
    pub fn missed(&self) -> Vec<Answer> {
        let missed = self.answers.iter().filter(|answer| answer.ratio > 1.0);
        let mut missed: Vec<Answer> = missed.copied().collect();
        missed.sort_by(|a, b| b.ratio.total_cmp(&a.ratio).then(a.oracle.cmp(&b.oracle)));
        missed
    }

    /// What held the senders back for most of the time.
    #[must_use]
    pub fn dominant_limit(&self) -> &str {
        let most = self.limits.iter().max_by(|a, b| a.1.total_cmp(b.1));
        most.map_or("nothing", |(name, _)| name.as_str())
    }
}

/// A run to do: a genome with the seed of its chances.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Trial {
    /// The controller.
    pub controller: String,
    /// The network.
    pub genome: Genome,
    /// The seed of the run.
    pub seed: u64,
}

/// Runs trials and judges them.
pub trait Evaluate {
    /// The evaluation of each trial, in their order.
    fn evaluate(&mut self, trials: &[Trial]) -> Vec<Evaluation>;
}

/// Runs our own stack in the lab.
#[derive(Clone, Debug)]
pub struct LabEvaluator<'a> {
    /// The envelope of each controller.
    pub envelopes: BTreeMap<String, &'a Envelope>,
    /// Number of threads.
    pub threads: usize,
    /// A known bug to give both ends, to see whether the search finds it.
    #[cfg(feature = "specimens")]
    pub specimen: Option<clearway_recovery::specimens::Specimen>,
}

impl Evaluate for LabEvaluator<'_> {
    fn evaluate(&mut self, trials: &[Trial]) -> Vec<Evaluation> {
        #[cfg_attr(
            not(feature = "specimens"),
            expect(unused_variables, reason = "only a known bug changes a case")
        )]
        let prepare = |case: &mut Case| {
            #[cfg(feature = "specimens")]
            {
                case.transport.specimen = self.specimen;
            }
        };
        let observers = |_: &Case| RunObservers {
            detect: true,
            ..RunObservers::default()
        };
        evaluate_with(trials, &self.envelopes, self.threads, &prepare, &observers)
    }
}

/// Runs trials and judges each against the envelope of its controller, with cases changed by
/// `prepare` and runs observed by `observers`, which may also name another stack.
pub fn evaluate_with(
    trials: &[Trial],
    envelopes: &BTreeMap<String, &Envelope>,
    threads: usize,
    prepare: &dyn Fn(&mut Case),
    observers: &(dyn Fn(&Case) -> RunObservers + Sync),
) -> Vec<Evaluation> {
    let mut plan = Plan::default();
    let mut demands = Vec::new();
    let mut refused = BTreeMap::new();
    for (index, trial) in trials.iter().enumerate() {
        let envelope = envelopes.get(&trial.controller);
        let own = envelope.map_or_else(Vec::new, |own| own.demands(&trial.genome));
        match trial.genome.case(&trial.controller, &own) {
            Ok(mut case) => {
                prepare(&mut case);
                plan.add_case(case, trial.seed, 1);
                demands.push(own);
            }
            // A bug of the search itself, which the others need not suffer from.
            Err(error) => {
                refused.insert(index, format!("the genome makes no scenario: {error}"));
            }
        }
    }
    let extras = |task: &Task| observers(&plan.cases[task.case]);
    let settings = Settings {
        extras: &extras,
        ..Settings::quiet(threads)
    };
    let mut judged = Vec::new();
    run_all(&plan, &settings, |task, row| {
        judged.push(Evaluation::new(&row, &demands[task.case]));
    });
    let mut judged = judged.into_iter();
    let all = (0..trials.len()).map(|index| match refused.remove(&index) {
        Some(message) => refusal(message),
        None => judged
            .next()
            .unwrap_or_else(|| refusal("the run was not done".to_owned())),
    });
    all.collect()
}

fn refusal(message: String) -> Evaluation {
    Evaluation {
        answers: vec![Answer {
            oracle: Oracle::Violation,
            value: Some(1.0),
            limit: 0.0,
            ratio: Demand::WORST,
            recovery: None,
        }],
        findings: BTreeSet::new(),
        violations: vec![message],
        limits: BTreeMap::new(),
        digest: String::new(),
        events: 0,
    }
}
