//! The first sentence of the report.

use clearway_recovery::limit::LimitGroup;

use crate::breakdown::{Breakdown, WaitReason};
use crate::detect::{Detector, Finding, Severity};

/// The most important finding and the main limit, in a sentence or two.
#[must_use]
pub fn diagnosis(breakdown: &Breakdown, findings: &[Finding]) -> String {
    let limit = limit(breakdown);
    let worst = findings.iter().map(|finding| finding.severity).max();
    match worst {
        None | Some(Severity::Note) => format!("No problems found in this connection. {limit}"),
        Some(severity) => {
            let mut detectors: Vec<Detector> = findings
                .iter()
                .filter(|finding| finding.severity == severity)
                .map(|finding| finding.detector)
                .collect();
            detectors.sort_unstable();
            detectors.dedup();
            let explained: Vec<&str> = detectors
                .iter()
                .map(|detector| detector.explanation())
                .collect();
            let lead = match severity {
                Severity::Error => "Problem found",
                Severity::Warning | Severity::Note => "Possible problem",
            };
            format!("{lead}: {}. {limit}", explained.join("; "))
        }
    }
}

/// The reason that took the largest share of the time.
fn limit(breakdown: &Breakdown) -> String {
    let parts = breakdown.permille();
    let largest = parts.iter().max_by_key(|(_, permille)| *permille);
    let Some((share, permille)) = largest.filter(|(_, permille)| *permille > 0) else {
        return "The trace does not record what limited the connection.".into();
    };
    let percent = permille / 10;
    match share {
        WaitReason::Of(LimitGroup::Handshake) => {
            format!("The handshake took {percent} % of the time.")
        }
        WaitReason::Of(LimitGroup::Network) => {
            format!(
                "The network was the limit {percent} % of the time, as expected for a bulk transfer."
            )
        }
        WaitReason::Of(LimitGroup::Host) => {
            format!(
                "This host was the limit {percent} % of the time: data that could be sent was not taken."
            )
        }
        WaitReason::Of(LimitGroup::FlowControl) => format!(
            "The receiver was the limit {percent} % of the time: its windows are too small, or its application reads too slowly."
        ),
        WaitReason::Of(LimitGroup::Application) => {
            format!("The application had nothing to send {percent} % of the time.")
        }
        WaitReason::Unknown => {
            format!("For {percent} % of the time the trace does not record what the limit was.")
        }
    }
}

#[cfg(test)]
mod tests {
    use clearway_recovery::limit::Limit;

    use super::*;
    use crate::event::{Event, EventData};
    use crate::sink::Sink;

    fn breakdown(limit: Limit) -> Breakdown {
        let mut breakdown = Breakdown::new();
        breakdown.event(&Event {
            time: 0,
            data: EventData::DataBlockedUpdated {
                reason: Some(limit),
            },
        });
        breakdown.until(1_000);
        breakdown
    }

    #[test]
    fn diagnosis_leads_with_worst_finding_then_the_limit() {
        let pinned = Finding::new(Detector::FloorPinned, 0, 9, Severity::Error);
        let storm = Finding::new(Detector::PtoStorm, 0, 9, Severity::Warning);
        let said = diagnosis(
            &breakdown(Limit::Congestion),
            &[storm.clone(), pinned.clone(), pinned],
        );
        assert!(said.starts_with("Problem found: the congestion window"));
        assert!(!said.contains("probe"), "{said}");
        assert!(said.ends_with("100 % of the time, as expected for a bulk transfer."));
        let said = diagnosis(&breakdown(Limit::Application), &[storm]);
        assert!(
            said.starts_with("Possible problem: several probe"),
            "{said}"
        );
        let said = diagnosis(&breakdown(Limit::StreamFlowControl), &[]);
        assert!(said.starts_with("No problems found"), "{said}");
        assert!(said.contains("The receiver was the limit 100 %"), "{said}");
    }
}
