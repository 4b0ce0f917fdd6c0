//! Known bugs of other stacks, each with a network that shows it (feature `specimens`). They prove
//! that the detectors find what they are made for.

pub use clearway_recovery::specimens::Specimen;
use clearway_trace::{Detector, Finding, Severity};

use crate::measure::Outcome;
use crate::run::{RunObservers, run_case};
use crate::scenario::{Case, Scenario, Size, find};

/// A specimen, with the network that shows it.
#[derive(Clone, Copy, Debug)]
pub struct SpecimenCase {
    /// The bug.
    pub specimen: Specimen,
    /// The network: a scenario of the catalogue, or one made for specimens.
    pub scenario: &'static str,
    /// The controller that has the bug, or suffers from it.
    pub controller: &'static str,
    /// Number of seeds, from 1 on, of which at least one shows it: one, unless chance is involved.
    pub seeds: u64,
    /// The finding that shows it.
    pub detector: Detector,
}

macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../specimens/", $name, ".toml")))),*]
    };
}

/// Networks made for specimens alone.
const FILES: &[(&str, &str)] = files! {
    "spiral_ticks"
    "idle_growth"
    "shallow_loss"
    "bbr_begin"
    "bbr_plain"
    "bbr_deep"
    "bbr_slots"
    "bbr_longer"
    "bbr_outage"
    "bbr_gaps"
    "bbr_shallow"
    "bbr_jitter"
    "moved_download"
    "moved_upload"
    "lost_flight"
};

const fn found(
    specimen: Specimen,
    scenario: &'static str,
    controller: &'static str,
    seeds: u64,
    detector: Detector,
) -> SpecimenCase {
    SpecimenCase {
        specimen,
        scenario,
        controller,
        seeds,
        detector,
    }
}

/// Every specimen, in the order of [`Specimen::ALL`].
pub const SPECIMEN_CASES: &[SpecimenCase] = &[
    found(
        Specimen::IdleFromLastSend,
        "spiral_ticks",
        "cubic",
        12,
        Detector::FloorPinned,
    ),
    found(
        Specimen::EpochClampedToNow,
        "spiral_ticks",
        "cubic",
        12,
        Detector::FloorPinned,
    ),
    found(
        Specimen::EpochNotShifted,
        "idle_growth",
        "cubic",
        1,
        Detector::FalseIdle,
    ),
    found(
        Specimen::EpochResetOnIdle,
        "idle_growth",
        "cubic",
        1,
        Detector::FalseIdle,
    ),
    found(
        Specimen::UndoOnLightLoss,
        "shallow_loss",
        "cubic",
        1,
        Detector::UndoUnproven,
    ),
    found(
        Specimen::MultiCut,
        "shallow_loss",
        "cubic",
        1,
        Detector::MultiCut,
    ),
    found(
        Specimen::DrainTrap,
        "bbr_deep",
        "bbr",
        1,
        Detector::PhaseStuck,
    ),
    // A ProbeRTT frees it from DOWN before the phase counts as stuck.
    found(
        Specimen::DownTrap,
        "bbr_plain",
        "bbr",
        1,
        Detector::BwCollapse,
    ),
    found(
        Specimen::PreAckInflightExit,
        "bbr_slots",
        "bbr",
        1,
        Detector::PhaseStuck,
    ),
    found(
        Specimen::MaxFilterSameRound,
        "bbr_longer",
        "bbr",
        1,
        Detector::BwCollapse,
    ),
    found(
        Specimen::BootstrapRttPoison,
        "bbr_plain",
        "bbr",
        1,
        Detector::RttStep,
    ),
    found(
        Specimen::WalltimeRate,
        "bbr_plain",
        "bbr",
        1,
        Detector::BwCollapse,
    ),
    found(
        Specimen::ZeroPacingBootstrap,
        "bbr_begin",
        "bbr",
        1,
        Detector::PacingStarved,
    ),
    found(
        Specimen::TokenbucketStartup,
        "bbr_jitter",
        "bbr",
        1,
        Detector::FloorPinned,
    ),
    found(
        Specimen::StartupOverrun,
        "bbr_shallow",
        "bbr",
        1,
        Detector::StartupOverrun,
    ),
    found(
        Specimen::AmnesiaAfterOutage,
        "bbr_outage",
        "bbr",
        12,
        Detector::BwCollapse,
    ),
    found(
        Specimen::LongtermSpiral,
        "bbr_gaps",
        "bbr",
        1,
        Detector::BwCollapse,
    ),
    found(
        Specimen::BifDesync,
        "moved_download",
        "cubic",
        1,
        Detector::BifDesync,
    ),
    found(
        Specimen::PtoUnarmed,
        "lost_flight",
        "cubic",
        1,
        Detector::AmplificationDeadlock,
    ),
    found(
        Specimen::PacerSpin,
        "bbr_plain",
        "cubic",
        1,
        Detector::BusyTimer,
    ),
    found(
        Specimen::RetransmitAllOnMigration,
        "moved_download",
        "cubic",
        1,
        Detector::SpuriousStorm,
    ),
    found(
        Specimen::MigrationRttReset,
        "moved_upload",
        "cubic",
        1,
        Detector::PtoStorm,
    ),
];

/// The network of a case by name: one made for specimens, or one of the catalogue.
///
/// # Errors
/// If there is no such network.
pub fn scenario(name: &str) -> Result<Scenario, String> {
    match FILES.iter().find(|(known, _)| *known == name) {
        Some((known, text)) => Scenario::parse(known, text).map_err(|error| error.to_string()),
        None => find(name).cloned(),
    }
}

/// The case of a specimen.
#[must_use]
pub fn specimen_case(specimen: Specimen) -> Option<&'static SpecimenCase> {
    SPECIMEN_CASES.iter().find(|case| case.specimen == specimen)
}

impl SpecimenCase {
    /// The case to run: the first grid point of the network.
    ///
    /// # Errors
    /// If the network or the controller does not exist.
    pub fn case(&self) -> Result<Case, String> {
        let scenario = scenario(self.scenario)?;
        let cases = scenario
            .cases(Size::Ci, self.controller)
            .map_err(|error| error.to_string())?;
        cases
            .into_iter()
            .next()
            .ok_or_else(|| format!("{} has no case", self.scenario))
    }

    /// Runs it with or without the bug, with all randomness derived from `seed` and the detectors
    /// attached.
    ///
    /// # Errors
    /// Like [`Self::case`].
    pub fn run(&self, seed: u64, with_bug: bool) -> Result<Outcome, String> {
        let mut case = self.case()?;
        case.transport.specimen = with_bug.then_some(self.specimen);
        let extras = RunObservers {
            detect: true,
            ..RunObservers::default()
        };
        Ok(run_case(&case, seed, extras))
    }

    /// Whether a run shows the bug: a finding of its detector that is more than a note.
    #[must_use]
    pub fn shows(&self, run: &Outcome) -> bool {
        let found = |(_, finding): &(usize, Finding)| {
            finding.detector == self.detector && finding.severity > Severity::Note
        };
        run.findings.iter().any(found)
    }
}
