//! `clearway lab run --specimen`: known bugs, to see what they do.

use clearway_lab::run::Plan;

use super::args::Extent;
use crate::failure::{Failure, Kind};

/// The runs of `names`, or of the network made to show it, with the bug.
///
/// # Errors
/// If there is no such bug or scenario, or this build has none.
#[cfg(feature = "specimens")]
pub(super) fn plan(name: &str, names: &[String], extent: &Extent) -> Result<Plan, Failure> {
    use clearway_lab::scenario::Scenario;
    use clearway_lab::specimens::{Specimen, exhibit, scenario};

    use super::choose;

    let wrong = |message: String| Failure::new(Kind::Arguments, message);
    let specimen: Specimen = name.parse().map_err(|error| wrong(format!("{error}")))?;
    let own = exhibit(specimen).filter(|_| names.is_empty());
    let scenarios: Vec<Scenario> = match own {
        Some(exhibit) => vec![scenario(exhibit.scenario).map_err(wrong)?],
        None => names
            .iter()
            .map(|name| scenario(name).or_else(|_| choose::scenario(name)))
            .collect::<Result<_, _>>()?,
    };
    let mut plan = choose::plan(&scenarios, extent)?;
    for case in &mut plan.cases {
        case.transport.specimen = Some(specimen);
    }
    Ok(plan)
}

/// This build has none.
#[cfg(not(feature = "specimens"))]
pub(super) fn plan(name: &str, _names: &[String], _extent: &Extent) -> Result<Plan, Failure> {
    let message = format!(
        "this build has no specimens, so none called {name:?}; build one that has: \
         cargo build --release -p clearway-cli --features specimens"
    );
    Err(Failure::new(Kind::Arguments, message))
}
