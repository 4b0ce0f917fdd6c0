//! Bugs that congestion control really had elsewhere, each as a wrong variant of
//! the right code, to be switched on where a detector has to prove itself. With
//! the feature `specimens` off, no code can have one, and every question "is this
//! the one?" is a constant no.
#![cfg_attr(
    not(feature = "specimens"),
    expect(unreachable_pub, reason = "public with the feature")
)]

/// A known bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(
    not(feature = "specimens"),
    expect(dead_code, reason = "asked for with the feature")
)]
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

/// Which specimen a controller is, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Variant {
    #[cfg(feature = "specimens")]
    specimen: Option<Specimen>,
}

impl Variant {
    /// Whether it is this one.
    #[cfg(feature = "specimens")]
    pub(crate) fn is(self, specimen: Specimen) -> bool {
        self.specimen == Some(specimen)
    }

    /// Whether it is this one: never.
    #[cfg(not(feature = "specimens"))]
    #[expect(clippy::unused_self, reason = "the other one asks it")]
    pub(crate) const fn is(self, _specimen: Specimen) -> bool {
        false
    }
}

#[cfg(feature = "specimens")]
mod named {
    use core::fmt;
    use core::str::FromStr;

    use super::super::bbr::Bbr;
    use super::super::classic::Classic;
    use super::super::cubic::Cubic;
    use super::super::{Algorithm, SlowStart, build_seeded};
    use super::{Specimen, Variant};
    use crate::controller::Controller;

    impl From<Specimen> for Variant {
        fn from(specimen: Specimen) -> Self {
            Self {
                specimen: Some(specimen),
            }
        }
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

    /// A controller for a new path under a specimen: CUBIC or BBR with the bug if
    /// it is theirs, else the right one of `algorithm`, and the bug is where
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
            Specimen::DrainTrap
            | Specimen::DownTrap
            | Specimen::PreAckInflightExit
            | Specimen::MaxFilterSameRound
            | Specimen::BootstrapRttPoison
            | Specimen::WalltimeRate
            | Specimen::ZeroPacingBootstrap
            | Specimen::StartupOverrun
            | Specimen::AmnesiaAfterOutage
            | Specimen::LongtermSpiral => Box::new(Bbr::new(mds, seed, specimen.into())),
            Specimen::TokenbucketStartup if algorithm == Algorithm::Bbr => {
                Box::new(Bbr::new(mds, seed, specimen.into()))
            }
            Specimen::TokenbucketStartup
            | Specimen::BifDesync
            | Specimen::PtoUnarmed
            | Specimen::PacerSpin
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
            let Self(name) = self;
            let known: Vec<_> = Specimen::ALL.iter().map(|known| known.name()).collect();
            let known = known.join(", ");
            write!(f, "no specimen is called {name:?}; there are {known}")
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
}

#[cfg(feature = "specimens")]
pub use named::{UnknownSpecimen, build_specimen};

#[cfg(all(test, feature = "specimens"))]
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

    #[test]
    fn the_right_code_is_none_of_them() {
        for specimen in Specimen::ALL {
            assert!(!Variant::default().is(*specimen));
            assert!(Variant::from(*specimen).is(*specimen));
        }
    }
}
