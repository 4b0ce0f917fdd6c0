//! The detectors by name.

use serde::{Deserialize, Serialize};

macro_rules! detectors {
    ($($(#[$doc:meta])* $variant:ident $name:literal $words:literal,)*) => {
        /// A disease that a trace can show.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(rename_all = "snake_case")]
        pub enum Detector {
            $($(#[$doc])* $variant,)*
        }

        impl Detector {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its name, as scenarios and reports write it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// What it means, in words.
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
    /// The window stays at its minimum for no reason.
    FloorPinned "floor_pinned"
        "the congestion window stayed at its minimum although data waited and nothing was lost",
    /// Recovery is entered and left each round without loss.
    RecoveryFlap "recovery_flap"
        "the controller went in and out of recovery every round trip without a loss",
    /// The recovery boundary lies ahead of what was sent.
    BoundaryInFuture "boundary_in_future"
        "the end of recovery was set to a packet or a time still to come, so new packets count as old",
    /// Busy time was taken for idle time.
    FalseIdle "false_idle"
        "the growth curve was moved as if the connection had been idle while data waited",
    /// Several reductions for one event.
    MultiCut "multi_cut"
        "the window was reduced again before anything sent after the last reduction was acknowledged",
    /// The window should grow and does not.
    GrowthMissing "growth_missing"
        "the congestion window was the limit and did not grow although nothing was lost",
    /// The pacer holds back too long.
    PacingStall "pacing_stall"
        "data waited and the window had room, but nothing was sent for longer than the pacing rate explains",
    /// BBR stays in a phase.
    PhaseStuck "phase_stuck"
        "the controller stayed in a phase that should have ended",
    /// The bandwidth estimate left the truth.
    BwCollapse "bw_collapse"
        "the bandwidth estimate does not match the rate at which data were delivered",
    /// Start-up does not end.
    StartupStuck "startup_stuck"
        "the start-up phase did not end although data waited all the time",
    /// Probe timeouts pile up.
    PtoStorm "pto_storm"
        "probe timeouts followed each other",
    /// Losses that were none.
    SpuriousStorm "spurious_storm"
        "many packets that had been declared lost arrived after all",
    /// The window grew without being used.
    ApplimitedInflation "applimited_inflation"
        "the congestion window is far larger than anything that was ever in flight",
    /// Bytes in flight are miscounted.
    BifDesync "bif_desync"
        "the bytes in flight reported are not the sum of the packets in flight",
    /// Both ends wait.
    AmplificationDeadlock "amplification_deadlock"
        "the server may not send more before it hears from the client, and hears nothing",
    /// Persistent congestion that was none.
    PersistentFalse "persistent_false"
        "persistent congestion was declared although the losses do not span three probe timeouts",
    /// The path became longer and the minimum RTT did not follow.
    RttStep "rtt_step"
        "the path's round trip became longer but the minimum did not follow",
    /// Credit does not come.
    FcDeadlock "fc_deadlock"
        "the sender waited for flow-control credit that did not come",
    /// A reduction was undone although nothing proved it wrong.
    UndoUnproven "undo_unproven"
        "a reduction was taken back although no packet declared lost had arrived after all",
    /// Startup goes on through heavy loss.
    StartupOverrun "startup_overrun"
        "Startup went on although round after round lost more than it may tolerate",
    /// Startup's rate is below what the first round trip allows.
    PacingStarved "pacing_starved"
        "Startup was paced below its initial window per round trip, before anything was measured to call for it",
    /// A timer is due again at once.
    BusyTimer "busy_timer"
        "an endpoint asked to be woken again and again at a moment that had come, and kept a processor busy",
}

impl core::fmt::Display for Detector {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

/// No detector has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no detector is called {0:?}")]
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
    fn there_are_twenty_two_and_their_names_round_trip() {
        assert_eq!(Detector::ALL.len(), 22);
        for detector in Detector::ALL {
            assert_eq!(detector.name().parse(), Ok(*detector));
            assert_eq!(detector.name().replace('_', "-").parse(), Ok(*detector));
            let json = serde_json::to_string(detector).expect("serialises");
            assert_eq!(json, format!("\"{detector}\""));
        }
        assert!("flor_pinned".parse::<Detector>().is_err());
    }
}
