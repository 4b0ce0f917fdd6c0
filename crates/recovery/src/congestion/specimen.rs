//! Bugs that congestion control really had elsewhere, each as a wrong variant of
//! the right code, to be switched on where a detector has to prove itself. Only
//! with the feature `specimens`; without it nothing of this exists.

use core::fmt;
use core::str::FromStr;

use crate::controller::Controller;

use super::classic::Classic;
use super::cubic::Cubic;
use super::{Algorithm, SlowStart, build_seeded};

/// A known bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
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
    /// A migration forgets what is in flight: no timer, no room kept for it.
    BifDesync,
    /// No timer while nothing is in flight, though the peer can't send either:
    /// silence.
    PtoUnarmed,
    /// The pacer counts its deadline from the last train instead of from the
    /// last refill: in the past, and the caller spins.
    PacerSpin,
    /// The pacer's bucket is refilled by ACKs, a packet each: after ten packets
    /// the rate falls with every round.
    TokenbucketStartup,
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
        Self::BifDesync,
        Self::PtoUnarmed,
        Self::PacerSpin,
        Self::TokenbucketStartup,
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
            Self::BifDesync => "bif-desync",
            Self::PtoUnarmed => "pto-unarmed",
            Self::PacerSpin => "pacer-spin",
            Self::TokenbucketStartup => "tokenbucket-startup",
            Self::RetransmitAllOnMigration => "retransmit-all-on-migration",
            Self::MigrationRttReset => "migration-rtt-reset",
        }
    }
}

/// A controller for a new path under a specimen: CUBIC with the bug if it is a
/// controller's, else the right one of `algorithm`, and the bug is where
/// `Config::specimen` of the recovery or the transport says.
#[must_use]
pub fn build_specimen(
    specimen: Specimen,
    algorithm: Algorithm,
    slow_start: SlowStart,
    mds: u64,
    seed: u64,
) -> Box<dyn Controller> {
    match specimen {
        Specimen::IdleFromLastSend
        | Specimen::EpochClampedToNow
        | Specimen::EpochNotShifted
        | Specimen::EpochResetOnIdle
        | Specimen::UndoOnLightLoss
        | Specimen::MultiCut => {
            let law = Cubic::with_flaw(specimen);
            Box::new(Classic::new(law, slow_start, mds).with_flaw(specimen))
        }
        Specimen::BifDesync
        | Specimen::PtoUnarmed
        | Specimen::PacerSpin
        | Specimen::TokenbucketStartup
        | Specimen::RetransmitAllOnMigration
        | Specimen::MigrationRttReset => build_seeded(algorithm, slow_start, mds, seed),
    }
}

impl fmt::Display for Specimen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no specimen's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownSpecimen(String);

impl fmt::Display for UnknownSpecimen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no specimen is called {:?}; there are", self.0)?;
        for (at, specimen) in Specimen::ALL.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma} {specimen}")?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownSpecimen {}

impl FromStr for Specimen {
    type Err = UnknownSpecimen;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.iter().find(|specimen| specimen.name() == name);
        found
            .copied()
            .ok_or_else(|| UnknownSpecimen(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_differ() {
        for (at, specimen) in Specimen::ALL.iter().enumerate() {
            assert_eq!(specimen.to_string().parse(), Ok(*specimen));
            assert_eq!(Specimen::ALL.iter().position(|s| s == specimen), Some(at));
        }
        let error = "drain".parse::<Specimen>().unwrap_err().to_string();
        assert!(
            error.contains("\"drain\"; there are idle-from-last-send, epoch-"),
            "{error}"
        );
    }
}
