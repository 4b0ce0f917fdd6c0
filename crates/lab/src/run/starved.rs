//! Flows that get next to nothing of a link that they share. No trace of one connection shows it.

use core::time::Duration;

use clearway_trace::{Detector, Finding, Severity};

use crate::measure::{FlowOutcome, Outcome};

/// A flow is starved below this fraction of an equal share.
const FRACTION: f64 = 0.1;
/// Time that flows have to find their shares after the last of them began.
const SETTLE: Duration = Duration::from_secs(10);
/// Shortest time over which shares are compared.
const LEAST: Duration = Duration::from_secs(20);

/// Returns a finding, with the index of the flow, for each bulk flow that got less than a tenth of
/// an equal share of what flows in its direction got, while all of them had work.
pub(super) fn starved(outcome: &Outcome) -> Vec<(usize, Finding)> {
    let bulk: Vec<(usize, &FlowOutcome)> = outcome
        .flows
        .iter()
        .enumerate()
        .filter(|(_, flow)| flow.counts)
        .collect();
    let Some(last) = bulk.iter().map(|(_, flow)| flow.started).max() else {
        return Vec::new();
    };
    let from = (last + SETTLE).max(outcome.warmup);
    let end = outcome.ended;
    let busy = |flow: &FlowOutcome| flow.has_work(from) && flow.has_work(end);
    if end < from + LEAST || !bulk.iter().all(|(_, flow)| busy(flow)) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (index, flow) in &bulk {
        let beside = bulk.iter().filter(|(_, other)| other.bulk == flow.bulk);
        let rates: Vec<f64> = beside.filter_map(|(_, it)| it.goodput(from)).collect();
        let equal = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        let own = flow.goodput(from).unwrap_or(0.0);
        if rates.len() > 1 && own < equal * FRACTION {
            let (t0, t1) = (from.as_nanos(), end.as_nanos());
            let finding = Finding::new(Detector::FlowStarved, t0, t1, Severity::Warning)
                .with("goodput in bit/s", own as u64)
                .with("equal share in bit/s", equal as u64);
            findings.push((*index, finding));
        }
    }
    findings
}
