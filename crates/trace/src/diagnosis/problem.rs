//! Findings of one kind, put together: what is wrong, why, and what to try.

use serde::Serialize;

use super::advice::Advice;
use super::flips::Flips;
use super::moment::Moment;
use crate::detect::{Detector, Finding, Severity, span};

/// What causes a problem, as far as the trace shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// The detector that found the cause.
    pub detector: Detector,
    /// The cause, in a few words.
    pub summary: String,
    /// How the cause leads to the problem, in one sentence.
    pub mechanism: String,
}

/// Number of idle adjustments in the time of a finding from which on they are its cause.
const MIN_ADJUSTMENTS: usize = 5;

/// A problem of a connection: all findings of one detector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The detector that found it.
    pub detector: Detector,
    /// How bad the worst of it is.
    pub severity: Severity,
    /// The problem, in a few words.
    pub summary: String,
    /// When it began, in nanoseconds of the trace.
    pub t0: u64,
    /// When it ended, or was last seen.
    pub t1: u64,
    /// Nanoseconds that it lasted, without gaps.
    pub lasted: u64,
    /// Number of findings.
    pub occurrences: usize,
    /// How it comes about, in one sentence.
    pub mechanism: String,
    /// What causes it.
    pub cause: Option<Cause>,
    /// The longest finding as a sentence with its values.
    pub longest: String,
    /// Events that show it.
    pub evidence: Vec<Moment>,
    /// What to try, in one sentence.
    pub remedy: String,
}

/// All problems, the most important first.
pub(super) fn problems(findings: &[Finding], flips: &Flips) -> Vec<Problem> {
    let mut detectors: Vec<Detector> = findings.iter().map(|each| each.detector).collect();
    detectors.sort_unstable();
    detectors.dedup();
    let mut problems: Vec<Problem> = detectors
        .into_iter()
        .filter_map(|detector| problem(detector, findings, flips))
        .collect();
    problems.sort_by_key(|problem| {
        let explained = problem.cause.is_some();
        core::cmp::Reverse((
            problem.severity,
            explained,
            // A symptom that a user notices comes before what the controller did.
            is_symptom(problem.detector),
            problem.lasted,
            core::cmp::Reverse(problem.t0),
        ))
    });
    problems
}

/// Whether a user notices it as such, rather than as an effect.
const fn is_symptom(detector: Detector) -> bool {
    matches!(
        detector,
        Detector::FloorPinned
            | Detector::GrowthMissing
            | Detector::FcDeadlock
            | Detector::AmplificationDeadlock
            | Detector::PacingStall
    )
}

fn problem(detector: Detector, findings: &[Finding], flips: &Flips) -> Option<Problem> {
    let own: Vec<&Finding> = findings
        .iter()
        .filter(|each| each.detector == detector)
        .collect();
    let longest = own
        .iter()
        .max_by_key(|each| each.t1.saturating_sub(each.t0))?;
    let t0 = own.iter().map(|each| each.t0).min()?;
    let t1 = own.iter().map(|each| each.t1).max()?;
    let lasted = covered(&own);
    let advice = Advice::of(detector);
    let cause = cause(longest, findings, flips);
    let evidence = match detector {
        Detector::FloorPinned
        | Detector::GrowthMissing
        | Detector::RecoveryFlap
        | Detector::FalseIdle
        | Detector::BoundaryInFuture => flips
            .within(longest.t0, longest.t1)
            .or_else(|| flips.within(t0, t1))
            .map(super::flips::Flip::moments)
            .unwrap_or_default(),
        _ => Vec::new(),
    };
    Some(Problem {
        detector,
        severity: own.iter().map(|each| each.severity).max()?,
        summary: summary(detector, lasted, own.len()),
        t0,
        t1,
        lasted,
        occurrences: own.len(),
        mechanism: advice.mechanism.to_owned(),
        cause,
        longest: longest.sentence(),
        evidence,
        remedy: advice.remedy.to_owned(),
    })
}

/// The time that findings cover, each instant counted once.
fn covered(findings: &[&Finding]) -> u64 {
    let mut spans: Vec<(u64, u64)> = findings.iter().map(|each| (each.t0, each.t1)).collect();
    spans.sort_unstable();
    let (mut sum, mut until) = (0_u64, 0_u64);
    for (t0, t1) in spans {
        let from = t0.max(until);
        sum = sum.saturating_add(t1.saturating_sub(from));
        until = until.max(t1);
    }
    sum
}

/// The problem in a few words, with how long it lasted.
fn summary(detector: Detector, lasted: u64, occurrences: usize) -> String {
    /// Shorter problems are told by their number.
    const LONG: u64 = 10_000_000;
    let what = Advice::of(detector).headline;
    let lossless = match detector {
        Detector::FloorPinned | Detector::GrowthMissing => " with no loss",
        _ => "",
    };
    match (lasted, occurrences) {
        (LONG.., _) => format!("{what} for {}{lossless}", seconds(lasted)),
        (_, 2..) => format!("{what}, {occurrences} times"),
        (_, _) => what.to_owned(),
    }
}

/// A duration in the unit that fits a headline.
pub(super) fn seconds(nanos: u64) -> String {
    match nanos {
        100_000_000.. => {
            let tenths = nanos.saturating_add(50_000_000) / 100_000_000;
            format!("{}.{} s", tenths / 10, tenths % 10)
        }
        _ => span(nanos),
    }
}

/// What the trace shows as the cause of this finding.
fn cause(finding: &Finding, findings: &[Finding], flips: &Flips) -> Option<Cause> {
    if !matches!(
        finding.detector,
        Detector::FloorPinned | Detector::GrowthMissing
    ) {
        return None;
    }
    let overlaps = |detector: Detector| {
        findings.iter().find(|each| {
            each.detector == detector && each.t0 <= finding.t1 && finding.t0 <= each.t1
        })
    };
    let flap = overlaps(Detector::RecoveryFlap);
    let idle = overlaps(Detector::FalseIdle);
    let ahead = overlaps(Detector::BoundaryInFuture);
    let flip = flips.within(finding.t0, finding.t1);
    let adjustments = flips.adjustments_within(finding.t0, finding.t1);
    let idle = idle.is_some() || adjustments >= MIN_ADJUSTMENTS;
    let adjusted = idle || flip.is_some_and(|flip| flip.emptied);
    let (detector, summary, mechanism) = match (flap, idle, ahead) {
        (Some(_), _, _) if adjusted => (
            Detector::RecoveryFlap,
            "it flips between recovery and congestion avoidance once a round trip, because an \
             idle adjustment fires while data waits",
            "Each time the last packet in flight is acknowledged, the next send takes the empty \
             pipe for an idle connection and moves the start of recovery forward, so that the \
             packets it sends count as sent before recovery and never grow the window.",
        ),
        (Some(_), _, _) => (
            Detector::RecoveryFlap,
            "it flips between recovery and congestion avoidance once a round trip without a loss",
            "Recovery begins again with every round trip although nothing was lost, and the \
             window does not grow in recovery.",
        ),
        (None, true, _) => (
            Detector::FalseIdle,
            "an idle adjustment fires once a round trip while data waits",
            "Each time the last packet in flight is acknowledged, the next send takes the empty \
             pipe for an idle connection and moves the growth curve by the round trip that just \
             passed, so that the curve never advances and the window never grows.",
        ),
        (None, false, Some(_)) => (
            Detector::BoundaryInFuture,
            "the end of recovery lies beyond the packets sent so far",
            "Every packet counts as sent before recovery ended, so that its acknowledgement does \
             not grow the window.",
        ),
        (None, false, None) => return None,
    };
    Some(Cause {
        detector,
        summary: summary.to_owned(),
        mechanism: mechanism.to_owned(),
    })
}
