//! How the controllers of a connection's paths are built: one of this crate, or one that
//! the application brings.

use core::fmt::{self, Debug};
use core::str::FromStr;
use std::sync::Arc;

use super::{Algorithm, AlgorithmError, SlowStart, build_seeded};
use crate::controller::Controller;

/// What is known of a path when its controller is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewPath {
    /// Maximum datagram size in bytes of UDP payload. It may change later
    /// ([`Controller::on_mds`]).
    pub mds: u64,
    /// How the connection is configured to leave slow start.
    pub slow_start: SlowStart,
    /// A seed for controllers that draw random numbers. It differs from path to path, and
    /// is the same when a run is repeated with the same seed.
    pub seed: u64,
}

/// Builds the congestion controller of each new path.
pub trait ControllerFactory: Debug + Send + Sync {
    /// Builds the controller of a new path. Called when a connection begins, and
    /// again for each path it migrates to or probes (RFC 9000 §9.4).
    fn build(&self, path: &NewPath) -> Box<dyn Controller>;

    /// Returns the name of the controllers it builds, for logs and reports.
    fn name(&self) -> &str;
}

/// The congestion control of a connection.
///
/// ```
/// use clearway_recovery::congestion::{Algorithm, CongestionControl};
///
/// let default = CongestionControl::default();
/// assert_eq!(default.to_string(), "cubic");
/// let bbr = CongestionControl::from(Algorithm::Bbr);
/// assert_eq!(bbr.to_string(), "bbr");
/// assert!("bbr".parse::<CongestionControl>().is_ok());
/// ```
#[derive(Clone, Debug)]
pub enum CongestionControl {
    /// A controller of this crate.
    Algorithm(Algorithm),
    /// Controllers that the application builds.
    Custom(Arc<dyn ControllerFactory>),
}

impl CongestionControl {
    /// Uses the controllers that `factory` builds.
    pub fn custom(factory: impl ControllerFactory + 'static) -> Self {
        Self::Custom(Arc::new(factory))
    }

    /// Builds the controller of a new path.
    #[must_use]
    pub fn build(&self, path: &NewPath) -> Box<dyn Controller> {
        match self {
            Self::Algorithm(algorithm) => {
                build_seeded(*algorithm, path.slow_start, path.mds, path.seed)
            }
            Self::Custom(factory) => factory.build(path),
        }
    }
}

impl Default for CongestionControl {
    /// CUBIC, as [`Algorithm::default`] says.
    fn default() -> Self {
        Self::Algorithm(Algorithm::default())
    }
}

impl From<Algorithm> for CongestionControl {
    fn from(algorithm: Algorithm) -> Self {
        Self::Algorithm(algorithm)
    }
}

impl FromStr for CongestionControl {
    type Err = AlgorithmError;

    /// Parses the name of one of our algorithms.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        name.parse().map(Self::Algorithm)
    }
}

impl fmt::Display for CongestionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Algorithm(algorithm) => fmt::Display::fmt(algorithm, f),
            Self::Custom(factory) => f.write_str(factory.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Small;

    impl ControllerFactory for Small {
        fn build(&self, path: &NewPath) -> Box<dyn Controller> {
            build_seeded(Algorithm::Fixed(4 * path.mds), path.slow_start, path.mds, 0)
        }

        fn name(&self) -> &str {
            "small"
        }
    }

    const PATH: NewPath = NewPath {
        mds: 1_400,
        slow_start: SlowStart::HyStart,
        seed: 7,
    };

    #[test]
    fn custom_factory_is_given_the_path() {
        let custom = CongestionControl::custom(Small);
        assert_eq!(custom.build(&PATH).window(), 4 * 1_400);
        assert_eq!(custom.to_string(), "small");
    }

    #[test]
    fn every_algorithm_is_built_under_its_name() {
        for algorithm in Algorithm::ALL {
            let control = CongestionControl::from(*algorithm);
            assert_eq!(control.to_string(), algorithm.to_string());
            assert_eq!(control.build(&PATH).name(), control.to_string());
            let parsed: CongestionControl = control.to_string().parse().unwrap();
            assert_eq!(parsed.to_string(), control.to_string());
        }
    }
}
