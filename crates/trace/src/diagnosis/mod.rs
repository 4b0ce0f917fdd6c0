//! What is wrong with a connection, why, and what to try: findings, ranked and explained.

mod advice;
mod compare;
mod flips;
mod moment;
mod problem;
mod totals;

use serde::Serialize;

pub use self::compare::{Difference, compare};
pub use self::moment::Moment;
pub use self::problem::{Cause, Problem};
pub use self::totals::Totals;

use self::flips::Flips;
use crate::breakdown::Breakdown;
use crate::detect::{Detectors, Finding, Profile, Severity};
use crate::event::{Event, Role};
use crate::report::limit_sentence;
use crate::series::Series;
use crate::sink::Sink;

/// Packets lost, in tenths of a percent of those sent, that no trace is healthy with.
const HEAVY_LOSS: u64 = 100;

/// Everything that is derived from a trace, while it is read: a sink. A clone, finished, is the
/// examination so far.
#[derive(Clone, Debug)]
pub struct Examiner {
    detectors: Detectors,
    series: Series,
    breakdown: Breakdown,
    flips: Flips,
    totals: Totals,
    last: u64,
}

/// Everything that is derived from a trace.
#[derive(Clone, Debug)]
pub struct Examination {
    /// What is wrong.
    pub diagnosis: Diagnosis,
    /// The findings that the diagnosis explains, in order of time.
    pub findings: Vec<Finding>,
    /// Values over time.
    pub series: Series,
    /// What limited the sender.
    pub breakdown: Breakdown,
    /// Counts and facts.
    pub totals: Totals,
    /// When recovery was entered without a loss, in nanoseconds of the trace.
    pub flips: Vec<u64>,
}

/// What is wrong with a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// What happened, in one sentence.
    pub headline: String,
    /// How bad the worst problem is; `None` without problems.
    pub severity: Option<Severity>,
    /// The problems, the most important first.
    pub problems: Vec<Problem>,
}

impl Examiner {
    /// Creates an examiner for one connection, of which `role` recorded the trace.
    #[must_use]
    pub fn new(role: Option<Role>) -> Self {
        Self::with_series(role, Series::new())
    }

    /// Creates an examiner that fills this series, which may be bounded
    /// ([`Series::with_points`]).
    #[must_use]
    pub fn with_series(role: Option<Role>, series: Series) -> Self {
        let profile = Profile {
            role,
            ..Profile::default()
        };
        Self {
            detectors: Detectors::new(&profile),
            series,
            breakdown: Breakdown::new(),
            flips: Flips::default(),
            totals: Totals::new(role),
            last: 0,
        }
    }

    /// The diagnosis so far, if the trace ended at `now` (nanoseconds of the trace).
    #[must_use]
    pub fn diagnosis_at(&self, now: u64) -> Diagnosis {
        let mut breakdown = self.breakdown.clone();
        breakdown.until(now.max(self.last));
        let findings = self.detectors.clone().finish(now.max(self.last));
        Diagnosis::new(&findings, &breakdown, &self.flips, &self.totals)
    }

    /// The findings so far, without conditions that still hold.
    #[must_use]
    pub fn findings_so_far(&self) -> &[Finding] {
        self.detectors.so_far()
    }

    /// What limited the sender so far, if the trace ended at `now` (nanoseconds of the trace).
    #[must_use]
    pub fn breakdown_at(&self, now: u64) -> Breakdown {
        let mut breakdown = self.breakdown.clone();
        breakdown.until(now.max(self.last));
        breakdown
    }

    /// Counts and facts so far.
    #[must_use]
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Ends the trace at its last event.
    #[must_use]
    pub fn finish(self) -> Examination {
        let end = self.last;
        self.finish_at(end, Vec::new())
    }

    /// Ends the trace at `end` (nanoseconds of the trace), with findings from other sources.
    #[must_use]
    pub fn finish_at(mut self, end: u64, more: Vec<Finding>) -> Examination {
        let end = end.max(self.last);
        self.breakdown.until(end);
        let mut findings = self.detectors.finish(end);
        findings.extend(more);
        findings.sort_by_key(|finding| (finding.t0, finding.detector));
        Examination {
            diagnosis: Diagnosis::new(&findings, &self.breakdown, &self.flips, &self.totals),
            findings,
            series: self.series,
            breakdown: self.breakdown,
            totals: self.totals,
            flips: self.flips.times().to_vec(),
        }
    }
}

impl Sink for Examiner {
    fn event(&mut self, event: &Event) {
        self.last = self.last.max(event.time);
        self.detectors.on_event(event);
        self.series.event(event);
        self.breakdown.event(event);
        self.flips.on_event(event);
        self.totals.on_event(event);
        self.totals.probe_timeouts = self.detectors.probe_timeouts();
    }
}

impl Examination {
    /// Examines a whole trace.
    #[must_use]
    pub fn of(role: Option<Role>, events: &[Event]) -> Self {
        let mut examiner = Examiner::new(role);
        for event in events {
            examiner.event(event);
        }
        examiner.finish()
    }
}

impl Diagnosis {
    fn new(findings: &[Finding], breakdown: &Breakdown, flips: &Flips, totals: &Totals) -> Self {
        Self::of_problems(problem::problems(findings, flips), breakdown, totals)
    }

    /// A diagnosis of findings alone, without the events that show them.
    #[must_use]
    pub fn of_findings(findings: &[Finding], breakdown: &Breakdown) -> Self {
        Self::new(findings, breakdown, &Flips::default(), &Totals::default())
    }

    fn of_problems(problems: Vec<Problem>, breakdown: &Breakdown, totals: &Totals) -> Self {
        let severity = problems.iter().map(|problem| problem.severity).max();
        let headline = match problems.first() {
            Some(problem) if severity > Some(Severity::Note) => match &problem.cause {
                Some(cause) => format!("{}; cause: {}.", problem.summary, cause.summary),
                None => format!("{}.", problem.summary),
            },
            Some(_) | None => no_problem(breakdown, totals),
        };
        Self {
            headline,
            severity,
            problems,
        }
    }
}

/// What can be said of a trace in which no detector found a problem of a sender: what limited it,
/// and what was lost. That much loss is not the sender's fault as far as the trace shows, but it is
/// not "no problem" either.
fn no_problem(breakdown: &Breakdown, totals: &Totals) -> String {
    if let Some(received) = totals.received_sentence() {
        return format!("No problems found. {received}");
    }
    let limit = limit_sentence(breakdown);
    match totals.loss_sentence() {
        Some(lost) if totals.loss_permille() >= HEAVY_LOSS => {
            format!("Heavy loss: {lost} {limit}")
        }
        Some(lost) => format!("No problems found. {limit} {lost}"),
        None => format!("No problems found. {limit}"),
    }
}

#[cfg(test)]
mod tests;
