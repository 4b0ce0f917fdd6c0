//! The numbers of one run, as tables and JSON show them.

use std::collections::BTreeMap;

use clearway_trace::Finding;
use serde::{Deserialize, Serialize};

use crate::measure::{FlowOutcome, METRICS, Outcome};
use crate::scenario::{Aggregation, Bar, Case};

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
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
    /// Virtual seconds.
    pub ended: f64,
    /// Every metric of the run, in seconds, bit/s, shares of one, bytes.
    pub metrics: BTreeMap<String, f64>,
    /// The limits of the sender, as shares of its time.
    pub limits: BTreeMap<String, f64>,
    /// The bulk flows, in the scenario's order.
    pub flows: Vec<RowFlow>,
    /// Findings that the scenario does not declare, if the detectors were run.
    pub findings: Vec<Finding>,
    /// What must never happen.
    pub violations: Vec<String>,
    /// Names of the bars that this run missed by itself.
    pub failed: Vec<String>,
    /// The digest of everything that happened, in hexadecimal.
    pub digest: String,
    /// Number of events processed.
    pub events: u64,
}

/// The numbers of one flow of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowFlow {
    /// Its controller.
    pub controller: String,
    /// Its goodput after the warm-up or its own start, in bit/s; `None` if it never ran.
    pub goodput: Option<f64>,
    /// Packets it sent and declared lost, as a share of one; `None` if it sent none.
    pub loss: Option<f64>,
}

impl RowFlow {
    fn new(run: &Outcome, flow: &FlowOutcome) -> Self {
        let (sent, lost) = flow.losses();
        Self {
            controller: flow.controller.clone(),
            goodput: flow.goodput(run.warmup),
            loss: (sent > 0).then(|| lost as f64 / sent as f64),
        }
    }
}

impl Row {
    /// The numbers of a run of `case`.
    #[must_use]
    pub fn new(case: &Case, run: &Outcome) -> Self {
        let bars = case
            .bars
            .iter()
            .filter(|bar| bar.over == Aggregation::Every);
        let failed = bars.filter(|bar| !bar.passes_run(run)).map(Bar::text);
        let metrics = METRICS.iter().filter_map(|metric| {
            let value = (metric.of)(run).filter(|value| value.is_finite())?;
            Some((metric.name.to_owned(), value))
        });
        Self {
            scenario: run.scenario.clone(),
            variant: run.variant.clone(),
            controller: run.controller.clone(),
            seed: run.seed,
            finished: run.finished,
            ended: run.ended.as_nanos() as f64 / 1e9,
            metrics: metrics.collect(),
            limits: limits(run),
            flows: run
                .bulk_flows()
                .map(|flow| RowFlow::new(run, flow))
                .collect(),
            findings: unexpected(case, run),
            violations: run.violations.clone(),
            failed: failed.collect(),
            digest: format!("{:016x}", run.digest),
            events: run.events,
        }
    }

    /// The value of a metric.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        self.metrics.get(name).copied()
    }
}

/// Findings that the scenario does not declare.
fn unexpected(case: &Case, run: &Outcome) -> Vec<Finding> {
    let declared = |finding: &Finding| {
        let name = finding.detector.name();
        case.expected_findings
            .iter()
            .any(|expected| expected == name)
    };
    let findings = run.findings.iter().map(|(_, finding)| finding);
    findings
        .filter(|finding| !declared(finding))
        .cloned()
        .collect()
}

fn limits(run: &Outcome) -> BTreeMap<String, f64> {
    let mut spent: BTreeMap<String, f64> = BTreeMap::new();
    for flow in run.bulk_flows() {
        for (limit, time) in &flow.sender().limits {
            *spent.entry(limit.name().to_owned()).or_default() += time.as_secs_f64();
        }
    }
    let all: f64 = spent.values().sum();
    spent.retain(|_, time| *time > 0.0);
    for time in spent.values_mut() {
        *time /= all;
    }
    spent
}
