//! What limited a connection, in a sentence.

use clearway_recovery::limit::LimitGroup;

use crate::breakdown::{Breakdown, WaitReason};

/// The reason that took the largest share of the time.
pub(crate) fn limit_sentence(breakdown: &Breakdown) -> String {
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

    #[test]
    fn sentence_names_the_main_limit() {
        for (limit, expected) in [
            (Limit::Congestion, "The network was the limit 100 %"),
            (
                Limit::Application,
                "The application had nothing to send 100 %",
            ),
            (Limit::StreamFlowControl, "The receiver was the limit 100 %"),
            (Limit::Scheduling, "This host was the limit 100 %"),
        ] {
            let mut breakdown = Breakdown::new();
            let reason = Some(limit);
            breakdown.event(&Event {
                time: 0,
                data: EventData::DataBlockedUpdated { reason },
            });
            breakdown.until(1_000);
            let said = limit_sentence(&breakdown);
            assert!(said.starts_with(expected), "{said}");
        }
        assert!(limit_sentence(&Breakdown::new()).contains("does not record"));
    }
}
