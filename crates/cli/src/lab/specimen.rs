//! `clearway lab run --specimen`: known bugs, to see what they do.

use super::args::Extent;
use super::choose::Planned;
use crate::failure::{Failure, Kind};

/// The runs of `names`, or of the network made to show it, with the bug.
///
/// # Errors
/// If there is no such bug or scenario, or this build has none.
#[cfg(feature = "specimens")]
pub(super) fn plan(name: &str, names: &[String], extent: &Extent) -> Result<Planned, Failure> {
    use clearway_lab::specimens::{Specimen, exhibit, scenario};

    use super::choose::{self, Chosen};

    let wrong = |message: String| Failure::new(Kind::Arguments, message);
    let specimen: Specimen = name.parse().map_err(|error| wrong(format!("{error}")))?;
    let own = exhibit(specimen).filter(|_| names.is_empty());
    let names = match own {
        Some(exhibit) => vec![exhibit.scenario.to_owned()],
        None => names.to_vec(),
    };
    let chosen = names.into_iter().map(|origin| {
        let scenario = scenario(&origin).or_else(|_| choose::scenario(&origin));
        scenario.map(|scenario| Chosen { origin, scenario })
    });
    let chosen: Vec<Chosen> = chosen.collect::<Result<_, _>>()?;
    let mut planned = choose::plan(&chosen, extent)?;
    for case in &mut planned.plan.cases {
        case.transport.specimen = Some(specimen);
    }
    Ok(planned)
}

/// This build has none.
#[cfg(not(feature = "specimens"))]
pub(super) fn plan(name: &str, _names: &[String], _extent: &Extent) -> Result<Planned, Failure> {
    let message = format!(
        "this build has no specimens, so none called {name:?}; build one that has: \
         cargo build --release -p clearway-cli --features specimens"
    );
    Err(Failure::new(Kind::Arguments, message))
}
