//! What each problem means, how it comes about, and what to try.

use crate::detect::Detector;

/// What is known about the problem that a detector finds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Advice {
    /// A few words for the headline.
    pub(super) headline: &'static str,
    /// How it comes about, in one sentence.
    pub(super) mechanism: &'static str,
    /// What to try, in one sentence.
    pub(super) remedy: &'static str,
}

const fn advice(headline: &'static str, mechanism: &'static str, remedy: &'static str) -> Advice {
    Advice {
        headline,
        mechanism,
        remedy,
    }
}

/// The advice for problems of the congestion window and its growth.
const fn of_window(detector: Detector) -> Option<Advice> {
    Some(match detector {
        Detector::FloorPinned => advice(
            "Stuck: window at its floor",
            "Acknowledgements arrive and data waits, but the controller never raises the window from its minimum.",
            "Look for what resets the controller each round trip (idle handling, recovery boundary, spurious losses), or use another congestion controller.",
        ),
        Detector::RecoveryFlap => advice(
            "Unstable: in and out of recovery every round trip",
            "The controller enters recovery although nothing was lost, and leaves it with the next acknowledgement, so that no round trip is left for growth.",
            "Check what sets the start of recovery: it must be a packet that was sent, not a time that an idle adjustment moves.",
        ),
        Detector::BoundaryInFuture => advice(
            "Recovery ends in the future",
            "Packets that have not been sent yet count as sent before recovery began, so their acknowledgements do not grow the window.",
            "Bind the recovery boundary to the last packet sent, and never move it forward.",
        ),
        Detector::FalseIdle => advice(
            "Busy time counted as idle time",
            "The controller shifts its growth curve by time in which data was waiting, so the curve never advances.",
            "Measure idle time from when the application ran out of data, not from the last packet sent.",
        ),
        Detector::MultiCut => advice(
            "Window reduced more than once for one loss event",
            "Further losses of the same flight each reduce the window, although one reduction answers all of them (RFC 9002 §7.3.2).",
            "Reduce the window only for packets sent after recovery began.",
        ),
        Detector::GrowthMissing => advice(
            "Stuck: window does not grow",
            "The window is full and everything is acknowledged, but the controller does not count it as a use of the window.",
            "Check how the controller decides that the window was used, or use another congestion controller.",
        ),
        Detector::ApplimitedInflation => advice(
            "Window far larger than its use",
            "The window grows with every acknowledgement although the application does not fill it (RFC 9002 §7.8).",
            "Grow the window only while it limits the sender.",
        ),
        Detector::UndoUnproven => advice(
            "Window reduction undone without proof",
            "A reduction is taken back although none of the packets declared lost arrived after all.",
            "Undo only when packets declared lost are acknowledged later.",
        ),
        Detector::PersistentFalse => advice(
            "Persistent congestion declared wrongly",
            "The window collapses to its minimum although the losses span less than three probe timeouts (RFC 9002 §7.6).",
            "Check the two ends of the lost period: nothing between them may have been acknowledged.",
        ),
        _ => return None,
    })
}

/// The advice for problems of model-based controllers and of pacing.
const fn of_rate(detector: Detector) -> Option<Advice> {
    Some(match detector {
        Detector::PacingStall => advice(
            "Pacer holds data back",
            "Nothing leaves although the window has room and the pacing rate would long have allowed it.",
            "On a busy host, look for late timers (clearway doctor); otherwise check the pacer's next release time.",
        ),
        Detector::PhaseStuck => advice(
            "Controller stuck in one phase",
            "The condition that ends the phase cannot become true.",
            "Check the exit condition of the phase that the evidence names.",
        ),
        Detector::BwCollapse => advice(
            "Bandwidth estimate does not match the delivery rate",
            "Rate samples are wrong or are kept too long, and the sender paces by them.",
            "Check how samples that the application limited are marked, and how long the maximum filter keeps them.",
        ),
        Detector::StartupStuck => advice(
            "Startup does not end",
            "The controller still expects the rate to grow although data was waiting for many round trips.",
            "Check how Startup decides that the pipe is full.",
        ),
        Detector::StartupOverrun => advice(
            "Startup continues through heavy loss",
            "The controller keeps doubling although round after round loses more than it tolerates.",
            "End Startup after a round with excessive loss.",
        ),
        Detector::PacingStarved => advice(
            "Startup paced too slowly",
            "The first pacing rate is derived from a wrong round-trip time or from nothing, so the first window does not leave within a round trip.",
            "Pace the initial window over the first measured round-trip time.",
        ),
        _ => return None,
    })
}

/// The advice for problems of loss recovery, the path and flow control.
const fn of_path(detector: Detector) -> Option<Advice> {
    Some(match detector {
        Detector::PtoStorm => advice(
            "Repeated probe timeouts",
            "Neither data nor probes are acknowledged: the path is interrupted, or acknowledgements do not arrive.",
            "Look at the other end's trace at this time; if it received nothing, the path was interrupted.",
        ),
        Detector::SpuriousStorm => advice(
            "Packets declared lost that arrived",
            "The path reorders packets, or delays them, by more than the loss thresholds allow.",
            "Raise the reordering threshold, or let it adapt.",
        ),
        Detector::BifDesync => advice(
            "Bytes in flight miscounted",
            "The sender counts bytes that are no longer in flight, or misses some, and its window fills too early or too late.",
            "Check what is removed from flight when packets are lost, discarded with keys, or move to another path.",
        ),
        Detector::AmplificationDeadlock => advice(
            "Handshake stuck at the anti-amplification limit",
            "The server may not send more before the client does, and the client sends nothing because it waits for the server (RFC 9002 §6.2.2.1).",
            "The client has to keep its probe timer armed until the handshake is confirmed.",
        ),
        Detector::RttStep => advice(
            "Minimum RTT out of date",
            "The path became longer, and the controller still plans with the old minimum.",
            "Let the minimum expire, and measure it again at an empty pipe.",
        ),
        Detector::FcDeadlock => advice(
            "Waiting for flow-control credit that does not come",
            "The sender used up its credit, and the receiver sent no more although everything arrived.",
            "Look at the receiver: does its application read, and does it send MAX_DATA and MAX_STREAM_DATA when it does?",
        ),
        Detector::ExcessLoss => advice(
            "Losing packets in its own queue",
            "The sender offers more than the path carries, fills the queue, and does not slow down when packets are dropped.",
            "Look at the bandwidth estimate or the window after the first losses: what keeps it from falling?",
        ),
        Detector::ProbeRttOverdue => advice(
            "Round-trip time not measured again",
            "The controller takes a standing queue for the path, or postpones the phase in which it drains the queue.",
            "Look at what renews the minimum RTT: only a sample below it should.",
        ),
        Detector::UnderusedPath => advice(
            "Path used far less than before",
            "The window or the pacing rate fell, and grows too slowly to use the path again.",
            "Look at the last reductions, and at how fast the window has grown since.",
        ),
        Detector::LossLimited => advice(
            "Held back by frequent losses",
            "Losses come more often than the window can grow back, although the queue is empty: they are the path's own, or a queue is too short for what is sent at once.",
            "Look at what is lost: single packets (a path that loses), the ends of bursts (a short queue), or packets that arrive late (reordering).",
        ),
        Detector::MarkLimited => advice(
            "Held back by frequent CE marks",
            "Marks come more often than the window can grow back, although the queue is empty: the queue marks what is sent at once, or what jitter and other flows add to it.",
            "Compare the queue's threshold with the time that a packet takes on the link; an L4S controller (Prague) needs fewer unmarked round trips.",
        ),
        Detector::FlowStarved => advice(
            "One flow gets next to nothing",
            "The flows beside it respond less to losses or marks than it does, and take its share.",
            "Compare what each flow does at a loss or a mark of the shared queue.",
        ),
        Detector::BusyTimer => advice(
            "Busy loop on a timer",
            "A timer is set to a time that has already passed, over and over, without anything else happening.",
            "Check the deadline of the timer that the evidence names.",
        ),
        _ => return None,
    })
}

impl Advice {
    /// The advice for problems found by `detector`.
    pub(super) fn of(detector: Detector) -> Self {
        of_window(detector)
            .or_else(|| of_rate(detector))
            .or_else(|| of_path(detector))
            .unwrap_or(Self {
                headline: detector.explanation(),
                mechanism: detector.explanation(),
                remedy: "Compare with a trace of a healthy transfer on the same path (--against).",
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_detector_has_advice_of_its_own() {
        for &detector in Detector::ALL {
            let groups = [of_window(detector), of_rate(detector), of_path(detector)];
            let count = groups.iter().flatten().count();
            assert_eq!(count, 1, "{detector}");
            let advice = Advice::of(detector);
            assert!(!advice.headline.ends_with('.'), "{detector}");
            assert!(advice.mechanism.ends_with('.'), "{detector}");
            assert!(advice.remedy.ends_with(['.', '?']), "{detector}");
        }
    }
}
