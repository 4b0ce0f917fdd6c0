//! `clearway lab run --specimen`: runs with known bugs.

use super::args::RunSelection;
use super::choose::PlannedRuns;
use crate::failure::{Failure, Kind};

/// The runs of `names`, or of the network made to show the bug.
///
/// # Errors
/// If there is no such bug or scenario, or this build includes none.
#[cfg(feature = "specimens")]
pub(super) fn plan(
    name: &str,
    names: &[String],
    extent: &RunSelection,
) -> Result<PlannedRuns, Failure> {
    use clearway_lab::specimens::{Specimen, specimen_case};

    use super::choose::{self, SelectedScenario};

    let wrong = |message: String| Failure::new(Kind::Arguments, message);
    let specimen: Specimen = name.parse().map_err(|error| wrong(format!("{error}")))?;
    let own = specimen_case(specimen).filter(|_| names.is_empty());
    let names = match own {
        Some(case) => vec![case.scenario.to_owned()],
        None => names.to_vec(),
    };
    let chosen = names.into_iter().map(|origin| {
        let scenario = choose::scenario(&origin);
        scenario.map(|scenario| SelectedScenario { origin, scenario })
    });
    let chosen: Vec<SelectedScenario> = chosen.collect::<Result<_, _>>()?;
    let mut planned = choose::plan(&chosen, extent)?;
    for case in &mut planned.plan.cases {
        case.transport.specimen = Some(specimen);
    }
    Ok(planned)
}

/// This build includes no specimens.
#[cfg(not(feature = "specimens"))]
pub(super) fn plan(
    name: &str,
    _names: &[String],
    _extent: &RunSelection,
) -> Result<PlannedRuns, Failure> {
    let message = format!(
        "cannot switch on the specimen {name:?}: this build includes no specimens; build with \
         cargo build --release -p clearway-cli --features specimens"
    );
    Err(Failure::new(Kind::Arguments, message))
}
