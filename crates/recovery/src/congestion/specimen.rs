//! Specimens: wrong variants of the controllers, each with a bug that another
//! stack really had, so that the detectors meant for them can be shown the
//! disease. With the feature `specimens` off, every question "is this the one?"
//! is a constant no.
#![cfg_attr(
    not(feature = "specimens"),
    expect(unreachable_pub, reason = "public with the feature")
)]

/// A bug, by its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Specimen {
    /// The window is pinned to what Startup reached: Drain is never left.
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

    use super::{Specimen, Variant};

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
        ];

        /// Its name, as the lab's command line takes it.
        #[must_use]
        pub const fn name(self) -> &'static str {
            match self {
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
            }
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
            write!(f, "no specimen is called {name:?}; there are")?;
            let mut separator = ' ';
            for specimen in Specimen::ALL {
                write!(f, "{separator}{specimen} ")?;
                separator = '·';
            }
            Ok(())
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
pub use named::UnknownSpecimen;

#[cfg(all(test, feature = "specimens"))]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for specimen in Specimen::ALL {
            assert_eq!(specimen.to_string().parse(), Ok(*specimen));
        }
        let error = "seed-bug".parse::<Specimen>().unwrap_err().to_string();
        assert!(error.contains("drain-trap"), "{error}");
    }

    #[test]
    fn the_right_code_is_none_of_them() {
        for specimen in Specimen::ALL {
            assert!(!Variant::default().is(*specimen));
            assert!(Variant::from(*specimen).is(*specimen));
        }
    }
}
