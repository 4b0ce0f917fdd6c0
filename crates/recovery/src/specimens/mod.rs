//! Bugs that congestion control and loss recovery of other stacks had, which can be
//! switched on to test detectors (feature `specimens`).
//!
//! The correct code does not know them. Each bug is injected from outside:
//!
//! | bugs of              | injected by                                                        |
//! |----------------------|--------------------------------------------------------------------|
//! | CUBIC                | a wrapper around the controller, `congestion/classic/specimens.rs` |
//! | BBR                  | a wrapper around the controller, `congestion/bbr/specimens.rs`     |
//! | pacer, timer, paths  | [`Recovery`], a wrapper around the correct one                     |
//!
//! Without the feature neither the wrappers nor this list exist.

mod recovery;

use core::fmt;
use core::str::FromStr;

pub use recovery::Recovery;

/// A known bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Specimen {
    /// Whenever nothing is in flight, the time since the last packet sent counts as idle
    /// time. It moves CUBIC's epoch, which is the recovery boundary too. With a window of
    /// two packets each ACK empties the flight, so the boundary moves a round trip in each
    /// round trip, every packet counts as sent before it, no ACK grows the window, and it
    /// stays at two packets without any loss.
    IdleFromLastSend,
    /// The same, but the epoch never lies in the future: the window stays at two packets as
    /// well, with no epoch in the future to see it by.
    EpochClampedToNow,
    /// CUBIC's clock runs while nothing is sent: the window jumps after idling.
    EpochNotShifted,
    /// Idling restarts the curve as a loss does: growth is too fast after every pause.
    EpochResetOnIdle,
    /// Losses of less than a fifth of the window count as spurious: the window is never
    /// reduced.
    UndoOnLightLoss,
    /// Each lost packet of an ACK begins recovery again: thousands of reductions.
    MultiCut,
    /// BBR's window stays at what Startup reached, so Drain never ends.
    DrainTrap,
    /// DOWN ends only when less is in flight than its own pacing rate keeps there, while
    /// max_bw expires.
    DownTrap,
    /// The conditions to leave a state use the bytes in flight before the ACK.
    PreAckInflightExit,
    /// All slots of the max_bw filter expire in one round.
    MaxFilterSameRound,
    /// A placeholder of 10 ms is accepted as min_rtt.
    BootstrapRttPoison,
    /// Delivery-rate samples include the wait in the pacer.
    WalltimeRate,
    /// The first pacing rate is almost zero, and later rates never exceed what was
    /// measured.
    ZeroPacingBootstrap,
    /// After the first packets the pacer earns one token per ACK, and none by time.
    TokenbucketStartup,
    /// Startup ignores losses and does not limit the window.
    StartupOverrun,
    /// Persistent congestion zeroes max_bw.
    AmnesiaAfterOutage,
    /// inflight_longterm is not bounded by the BDP and falls with each loss.
    LongtermSpiral,
    /// A migration forgets what is in flight: no timer is armed and the window does not
    /// count it.
    BifDesync,
    /// A client with nothing in flight arms no timer, although the server may be unable to
    /// send: both wait for ever.
    PtoUnarmed,
    /// The pacer computes its deadline from the last train instead of from the last refill:
    /// it lies in the past, and the caller spins.
    PacerSpin,
    /// A migration declares everything in flight lost, so all of it is sent twice.
    RetransmitAllOnMigration,
    /// A migration resets the RTT to less than the true one: packets that are still on
    /// their way count as lost.
    MigrationRttReset,
}

impl Specimen {
    /// All specimens.
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

    /// Returns the name, as the command line takes it.
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
