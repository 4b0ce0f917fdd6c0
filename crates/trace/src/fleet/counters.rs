//! Sums over connections.

use std::collections::BTreeMap;

use clearway_recovery::limit::Limit;

use crate::breakdown::Breakdown;
use crate::detect::{Detector, Finding};
use crate::diagnosis::{Examination, Examiner, Totals};

/// Sums over connections. None of them ever decreases.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    /// Findings by detector. Of open connections, those whose condition has ended.
    findings: BTreeMap<Detector, u64>,
    /// Nanoseconds by limit.
    limited: [u64; Limit::ALL.len()],
    pub(super) packets_sent: u64,
    pub(super) packets_received: u64,
    pub(super) packets_lost: u64,
    pub(super) bytes_sent: u64,
    pub(super) bytes_received: u64,
    pub(super) probe_timeouts: u64,
    /// Open connections with a problem that is there now.
    pub(super) troubled: u64,
}

impl Counters {
    pub(super) fn findings(&self, detector: Detector) -> u64 {
        self.findings.get(&detector).copied().unwrap_or(0)
    }

    /// Nanoseconds during which `limit` was in effect.
    pub(super) fn limited(&self, limit: Limit) -> u64 {
        self.limited.get(limit as usize).copied().unwrap_or(0)
    }

    pub(super) fn add_ended(&mut self, it: &Examination) {
        self.add(&it.findings, &it.breakdown, &it.totals);
    }

    pub(super) fn add_open(&mut self, it: &Examiner, now: u64) {
        self.add(it.findings_so_far(), &it.breakdown_at(now), it.totals());
        let bad = it.diagnosis_at(now).severity > Some(crate::detect::Severity::Note);
        self.troubled = self.troubled.saturating_add(bad.into());
    }

    fn add(&mut self, findings: &[Finding], breakdown: &Breakdown, totals: &Totals) {
        for finding in findings {
            let count = self.findings.entry(finding.detector).or_default();
            *count = count.saturating_add(1);
        }
        for limit in Limit::ALL {
            if let Some(sum) = self.limited.get_mut(limit as usize) {
                *sum = sum.saturating_add(breakdown.spent(limit));
            }
        }
        for (sum, more) in [
            (&mut self.packets_sent, totals.packets_sent),
            (&mut self.packets_received, totals.packets_received),
            (&mut self.packets_lost, totals.packets_lost),
            (&mut self.bytes_sent, totals.bytes_sent),
            (&mut self.bytes_received, totals.bytes_received),
            (&mut self.probe_timeouts, totals.probe_timeouts),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}
