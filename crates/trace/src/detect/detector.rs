//! The detectors by name.

use serde::{Deserialize, Serialize};

macro_rules! detectors {
    ($($(#[$doc:meta])* $variant:ident $name:literal $words:literal,)*) => {
        /// A problem that a trace can show.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(rename_all = "snake_case")]
        pub enum Detector {
            $($(#[$doc])* $variant,)*
        }

        impl Detector {
            /// All detectors.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its name, as used in scenarios and reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// An explanation in words.
            #[must_use]
            pub const fn explanation(self) -> &'static str {
                match self {
                    $(Self::$variant => $words,)*
                }
            }
        }
    };
}

detectors! {
    /// The window stays at its minimum without a reason.
    FloorPinned "floor_pinned"
        "the congestion window stayed at its minimum although data waited and nothing was lost",
    /// Recovery is entered and left every round without a loss.
    RecoveryFlap "recovery_flap"
        "the controller went in and out of recovery every round trip without a loss",
    /// The recovery boundary lies in the future.
    BoundaryInFuture "boundary_in_future"
        "the end of recovery was set to a packet or time in the future, so that packets not yet sent count as sent before it",
    /// Busy time was counted as idle time.
    FalseIdle "false_idle"
        "the growth curve was shifted as if the connection had been idle although data waited",
    /// Several window reductions for one congestion event.
    MultiCut "multi_cut"
        "the window was reduced again before anything sent after the last reduction was acknowledged",
    /// The window does not grow although it should.
    GrowthMissing "growth_missing"
        "the congestion window was the limit and did not grow although nothing was lost",
    /// The pacer delays sending for too long.
    PacingStall "pacing_stall"
        "data waited and the window had room, but nothing was sent for longer than the pacing rate explains",
    /// A phase of BBR does not end.
    PhaseStuck "phase_stuck"
        "the controller stayed in a phase that should have ended",
    /// The bandwidth estimate does not match the delivery rate.
    BwCollapse "bw_collapse"
        "the bandwidth estimate does not match the delivery rate",
    /// Startup does not end.
    StartupStuck "startup_stuck"
        "the startup phase did not end although data was always waiting",
    /// Repeated probe timeouts.
    PtoStorm "pto_storm"
        "several probe timeouts followed each other",
    /// Many spurious losses.
    SpuriousStorm "spurious_storm"
        "many packets declared lost were acknowledged later",
    /// The window grew without being used.
    ApplimitedInflation "applimited_inflation"
        "the congestion window is far larger than the bytes ever in flight",
    /// The bytes in flight are miscounted.
    BifDesync "bif_desync"
        "the reported bytes in flight differ from the sum of the packets in flight",
    /// Both ends wait for each other during address validation.
    AmplificationDeadlock "amplification_deadlock"
        "the server reached its anti-amplification limit and received nothing more from the client",
    /// Persistent congestion was declared wrongly.
    PersistentFalse "persistent_false"
        "persistent congestion was declared although the losses do not span three probe timeouts",
    /// The path became longer and the minimum RTT did not follow.
    RttStep "rtt_step"
        "the path's round-trip time grew but the minimum RTT did not follow",
    /// Flow-control credit does not arrive.
    FcDeadlock "fc_deadlock"
        "the sender waited for flow-control credit that did not come",
    /// A reduction was undone without proof.
    UndoUnproven "undo_unproven"
        "a window reduction was undone although no packet declared lost had been acknowledged",
    /// Startup continues through heavy loss.
    StartupOverrun "startup_overrun"
        "Startup continued although round after round exceeded the tolerated loss",
    /// Startup is paced more slowly than the first round trip allows.
    PacingStarved "pacing_starved"
        "Startup was paced below one initial window per round trip before any measurement justified it",
    /// The sender loses a tenth of its packets in its own queue and goes on.
    ExcessLoss "excess_loss"
        "a tenth of the packets or more was lost for many seconds while the queue was long",
    /// No ProbeRTT although the queue is long.
    ProbeRttOverdue "probe_rtt_overdue"
        "the round-trip time stayed far above its minimum and the controller did not drain the queue to measure it",
    /// The path is used far less than before, without a reason.
    UnderusedPath "underused_path"
        "the sender used less than half of what the path had carried before, although the queue was empty and nothing was lost",
    /// Losses come more often than the window can grow back.
    LossLimited "loss_limited"
        "losses came more often than the window could grow back, so that far less was delivered than the path had just carried",
    /// CE marks come more often than the window can grow back.
    MarkLimited "mark_limited"
        "CE marks came more often than the window could grow back, so that far less was delivered than the path had just carried",
    /// One flow gets next to nothing of a shared link.
    FlowStarved "flow_starved"
        "a flow got less than a tenth of an equal share of the link for many seconds",
    /// A timer expires again at once.
    BusyTimer "busy_timer"
        "an endpoint kept setting a timer that had already expired, which kept a processor busy",
}

impl core::fmt::Display for Detector {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no detector with that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown detector {0:?}")]
pub struct UnknownDetector(String);

impl core::str::FromStr for Detector {
    type Err = UnknownDetector;

    /// Accepts `floor_pinned` and `floor-pinned`.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let wanted = name.replace('-', "_");
        let found = Self::ALL.iter().find(|each| each.name() == wanted);
        found
            .copied()
            .ok_or_else(|| UnknownDetector(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_detector_names_round_trip() {
        assert_eq!(Detector::ALL.len(), 28);
        for detector in Detector::ALL {
            assert_eq!(detector.name().parse(), Ok(*detector));
            assert_eq!(detector.name().replace('_', "-").parse(), Ok(*detector));
            let json = serde_json::to_string(detector).expect("serialises");
            assert_eq!(json, format!("\"{detector}\""));
        }
        assert!("flor_pinned".parse::<Detector>().is_err());
    }
}
