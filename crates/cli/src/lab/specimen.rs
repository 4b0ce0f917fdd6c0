//! `clearway lab run --specimen`: runs with known bugs.

#[cfg(feature = "specimens")]
use super::choose;
use super::choose::{PlannedRuns, SelectedScenario};
use crate::failure::{Failure, Kind};

/// The scenarios called `names`, or the one made to show the bug.
///
/// # Errors
/// If there is no such bug or scenario, or this build includes none.
#[cfg(feature = "specimens")]
pub(super) fn scenarios(name: &str, names: &[String]) -> Result<Vec<SelectedScenario>, Failure> {
    use clearway_lab::specimens::specimen_case;

    let own = specimen_case(bug(name)?).filter(|_| names.is_empty());
    match own {
        Some(case) => choose::scenarios(&[case.scenario.to_owned()]),
        None => choose::scenarios(names),
    }
}

/// Gives both ends of every run the bug.
///
/// # Errors
/// If there is no such bug.
#[cfg(feature = "specimens")]
pub(super) fn infect(name: &str, planned: &mut PlannedRuns) -> Result<(), Failure> {
    let specimen = bug(name)?;
    for case in &mut planned.plan.cases {
        case.transport.specimen = Some(specimen);
    }
    Ok(())
}

/// The bug with this name.
///
/// # Errors
/// If there is no such bug.
#[cfg(feature = "specimens")]
pub(super) fn bug(name: &str) -> Result<clearway_lab::specimens::Specimen, Failure> {
    name.parse()
        .map_err(|error| Failure::new(Kind::Arguments, format!("{error}")))
}

/// This build includes no specimens.
#[cfg(not(feature = "specimens"))]
pub(super) fn scenarios(name: &str, _names: &[String]) -> Result<Vec<SelectedScenario>, Failure> {
    bug(name).map(|never| match never {})
}

/// This build includes no specimens.
#[cfg(not(feature = "specimens"))]
pub(super) fn infect(name: &str, _planned: &mut PlannedRuns) -> Result<(), Failure> {
    bug(name).map(|never| match never {})
}

/// This build includes no specimens.
#[cfg(not(feature = "specimens"))]
pub(super) fn bug(name: &str) -> Result<core::convert::Infallible, Failure> {
    let message = format!(
        "cannot switch on the specimen {name:?}: this build includes no specimens; build with \
         cargo build --release -p clearway-cli --features specimens"
    );
    Err(Failure::new(Kind::Arguments, message))
}
