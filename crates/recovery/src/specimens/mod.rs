//! Bugs that congestion control and loss recovery really had elsewhere, to be
//! switched on where a detector has to prove itself (feature `specimens`).
//!
//! The right code knows nothing of them. Each bug is injected from outside:
//!
//! | bugs of              | seam                                                     |
//! |----------------------|----------------------------------------------------------|
//! | CUBIC                | a wrapper around the controller, `congestion/classic/specimens.rs` |
//! | BBR                  | a wrapper around the controller, `congestion/bbr/specimens.rs`     |
//! | pacer, timer, paths  | [`Recovery`], a wrapper around the right one             |
//!
//! With the feature off neither the wrappers nor the list exist.

mod recovery;

use core::fmt;
use core::str::FromStr;

pub use recovery::Recovery;

/// A known bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Specimen {
    /// Idle is measured from the last packet sent whenever nothing is in flight,
    /// and shifts the one variable that is CUBIC's epoch and the recovery
    /// boundary: pinned at two packets, without loss.
    IdleFromLastSend,
    /// The same, but the variable never passes now: pinned as well, silently.
    EpochClampedToNow,
    /// CUBIC's clock runs while nothing is sent: the window jumps after idling.
    EpochNotShifted,
    /// Idling restarts the curve as a loss does: steep after every pause.
    EpochResetOnIdle,
    /// Losses of less than a fifth of the window are taken for spurious: the
    /// window never comes down.
    UndoOnLightLoss,
    /// Recovery begins anew for each packet of an ACK's losses: thousands of
    /// reductions.
    MultiCut,
    /// BBR's window is pinned to what Startup reached: Drain is never left.
    DrainTrap,
    /// DOWN waits for less in flight than its own pace keeps there, and for nothing
    /// else, while max_bw ages.
    DownTrap,
    /// Exits are tested on what was in flight before the ACK.
    PreAckInflightExit,
    /// All slots of the max_bw filter expire in one round.
    MaxFilterSameRound,
    /// A placeholder of 10 ms is accepted as min_rtt.
    BootstrapRttPoison,
    /// The wait in the pacer counts in the rate sample.
    WalltimeRate,
    /// The first rate is next to nothing, and pacing never asks for more than
    /// what was measured.
    ZeroPacingBootstrap,
    /// Once the first packets have left, each ACK brings one token, and time none.
    TokenbucketStartup,
    /// Startup looks at no loss and bounds no window.
    StartupOverrun,
    /// Persistent congestion zeroes max_bw.
    AmnesiaAfterOutage,
    /// The long-term bound has no floor of the BDP and falls with each loss.
    LongtermSpiral,
    /// A migration forgets what is in flight: no timer, no room kept for it.
    BifDesync,
    /// No timer while nothing is in flight, though the peer can't send either:
    /// silence.
    PtoUnarmed,
    /// The pacer counts its deadline from the last train instead of from the
    /// last refill: in the past, and the caller spins.
    PacerSpin,
    /// A migration declares everything in flight lost: all of it is sent twice.
    RetransmitAllOnMigration,
    /// A migration resets the round trip below the true one: what is only on its
    /// way counts as lost.
    MigrationRttReset,
}

impl Specimen {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::IdleFromLastSend,
        Self::EpochClampedToNow,
        Self::EpochNotShifted,
        Self::EpochResetOnIdle,
        Self::UndoOnLightLoss,
        Self::MultiCut,
        Self::DrainTrap,
        Self::DownTrap,
        Self::PreAckInflightExit,
        Self::MaxFilterSameRound,
        Self::BootstrapRttPoison,
        Self::WalltimeRate,
        Self::ZeroPacingBootstrap,
        Self::TokenbucketStartup,
        Self::StartupOverrun,
        Self::AmnesiaAfterOutage,
        Self::LongtermSpiral,
        Self::BifDesync,
        Self::PtoUnarmed,
        Self::PacerSpin,
        Self::RetransmitAllOnMigration,
        Self::MigrationRttReset,
    ];

    /// Its name, as a command line takes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::IdleFromLastSend => "idle-from-last-send",
            Self::EpochClampedToNow => "epoch-clamped-to-now",
            Self::EpochNotShifted => "epoch-not-shifted",
            Self::EpochResetOnIdle => "epoch-reset-on-idle",
            Self::UndoOnLightLoss => "undo-on-light-loss",
            Self::MultiCut => "multi-cut",
            Self::DrainTrap => "drain-trap",
            Self::DownTrap => "down-trap",
            Self::PreAckInflightExit => "pre-ack-inflight-exit",
            Self::MaxFilterSameRound => "max-filter-same-round",
            Self::BootstrapRttPoison => "bootstrap-rtt-poison",
            Self::WalltimeRate => "walltime-rate",
            Self::ZeroPacingBootstrap => "zero-pacing-bootstrap",
            Self::TokenbucketStartup => "tokenbucket-startup",
            Self::StartupOverrun => "startup-overrun",
            Self::AmnesiaAfterOutage => "amnesia-after-outage",
            Self::LongtermSpiral => "longterm-spiral",
            Self::BifDesync => "bif-desync",
            Self::PtoUnarmed => "pto-unarmed",
            Self::PacerSpin => "pacer-spin",
            Self::RetransmitAllOnMigration => "retransmit-all-on-migration",
            Self::MigrationRttReset => "migration-rtt-reset",
        }
    }
}

impl fmt::Display for Specimen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No specimen has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownSpecimen(String);

impl fmt::Display for UnknownSpecimen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name) = self;
        let known: Vec<_> = Specimen::ALL.iter().map(|known| known.name()).collect();
        let known = known.join(", ");
        write!(f, "unknown specimen {name:?}: expected one of {known}")
    }
}

impl core::error::Error for UnknownSpecimen {}

impl FromStr for Specimen {
    type Err = UnknownSpecimen;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .iter()
            .copied()
            .find(|specimen| specimen.name() == name)
            .ok_or_else(|| UnknownSpecimen(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specimen_names_are_unique_and_parse() {
        for (at, specimen) in Specimen::ALL.iter().enumerate() {
            assert_eq!(specimen.to_string().parse(), Ok(*specimen));
            assert_eq!(Specimen::ALL.iter().position(|s| s == specimen), Some(at));
        }
        let error = "drain".parse::<Specimen>().unwrap_err().to_string();
        assert!(
            error.contains(
                "unknown specimen \"drain\": expected one of idle-from-last-send, epoch-"
            ),
            "{error}"
        );
    }
}
