//! The page's first sentence.

use clearway_recovery::limit::LimitGroup;

use crate::breakdown::{Breakdown, Share};
use crate::detect::{Detector, Finding, Severity};

/// What a person should know first, in a sentence or two.
#[must_use]
pub fn diagnosis(breakdown: &Breakdown, findings: &[Finding]) -> String {
    let limit = limit(breakdown);
    let worst = findings.iter().map(|finding| finding.severity).max();
    match worst {
        None | Some(Severity::Note) => format!("Nothing is wrong with this connection. {limit}"),
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
                Severity::Error => "Something is wrong",
                Severity::Warning | Severity::Note => "Something is worth a look",
            };
            format!("{lead}: {}. {limit}", explained.join("; "))
        }
    }
}

/// What held it back most.
fn limit(breakdown: &Breakdown) -> String {
    let parts = breakdown.permille();
    let largest = parts.iter().max_by_key(|(_, permille)| *permille);
    let Some((share, permille)) = largest.filter(|(_, permille)| *permille > 0) else {
        return "The trace says nothing of what it waited for.".into();
    };
    let percent = permille / 10;
    match share {
        Share::Of(LimitGroup::Handshake) => {
            format!("It spent {percent} % of its time in the handshake.")
        }
        Share::Of(LimitGroup::Network) => {
            format!("It waited for the network {percent} % of the time, as a bulk transfer should.")
        }
        Share::Of(LimitGroup::Host) => {
            format!("This host did not take what was ready {percent} % of the time.")
        }
        Share::Of(LimitGroup::FlowControl) => format!(
            "It waited for the receiver {percent} % of the time: its windows are too small, or its application reads too slowly."
        ),
        Share::Of(LimitGroup::Application) => {
            format!("The application had nothing to send {percent} % of the time.")
        }
        Share::Unknown => {
            format!("For {percent} % of the time the trace does not say what it waited for.")
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
    fn the_worst_comes_first_and_the_limit_second() {
        let pinned = Finding::new(Detector::FloorPinned, 0, 9, Severity::Error);
        let storm = Finding::new(Detector::PtoStorm, 0, 9, Severity::Warning);
        let said = diagnosis(
            &breakdown(Limit::Congestion),
            &[storm.clone(), pinned.clone(), pinned],
        );
        assert!(said.starts_with("Something is wrong: the congestion window"));
        assert!(!said.contains("probe"), "{said}");
        assert!(said.ends_with("100 % of the time, as a bulk transfer should."));
        let said = diagnosis(&breakdown(Limit::Application), &[storm]);
        assert!(
            said.starts_with("Something is worth a look: probe"),
            "{said}"
        );
        let said = diagnosis(&breakdown(Limit::StreamFlowControl), &[]);
        assert!(said.starts_with("Nothing is wrong"), "{said}");
        assert!(said.contains("waited for the receiver 100 %"), "{said}");
    }
}
