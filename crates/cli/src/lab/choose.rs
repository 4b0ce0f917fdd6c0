//! Selection of scenarios, and the plan of their runs.

use std::collections::BTreeSet;

use clearway_lab::run::Plan;
#[cfg(not(feature = "specimens"))]
use clearway_lab::scenario::find;
use clearway_lab::scenario::{Case, Scenario, Size, catalogue};
use clearway_lab::stack::Protocol;

use super::args::RunSelection;
use crate::failure::{Failure, Kind};

/// Maximum number of grid points that an error lists.
const LISTED: usize = 40;

fn wrong(message: impl Into<String>) -> Failure {
    Failure::new(Kind::Arguments, message)
}

/// A scenario with the word that selected it: the name inside a file does not lead back to the
/// file.
#[derive(Clone, Debug)]
pub(super) struct SelectedScenario {
    pub(super) origin: String,
    pub(super) scenario: Scenario,
}

/// The runs to do, and what selected each case.
#[derive(Debug, Default)]
pub(super) struct PlannedRuns {
    pub(super) plan: Plan,
    /// By the index of the case in the plan.
    pub(super) origins: Vec<String>,
}

/// A scenario by name, number or file.
///
/// # Errors
/// If there is no such scenario, or its file cannot be read or has an error.
pub(super) fn scenario(name: &str) -> Result<Scenario, Failure> {
    let looks_like_a_file = name.contains('/') || name.ends_with(".toml");
    if !looks_like_a_file {
        return by_name(name).map_err(wrong);
    }
    let bytes = std::fs::read(name)
        .map_err(|error| Failure::caused(Kind::Arguments, format!("cannot read {name}"), &error))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        wrong(format!(
            "{name} is not a scenario: invalid UTF-8 at byte {at}; expected a TOML file such \
             as `clearway lab show shallow_25` prints"
        ))
    })?;
    Scenario::parse(name, &text).map_err(|error| wrong(error.to_string()))
}

/// A scenario of the catalogue, or a network made for a specimen.
fn by_name(name: &str) -> Result<Scenario, String> {
    #[cfg(feature = "specimens")]
    return clearway_lab::specimens::scenario(name);
    #[cfg(not(feature = "specimens"))]
    return find(name).cloned();
}

/// The named scenarios, or all.
pub(super) fn scenarios(names: &[String]) -> Result<Vec<SelectedScenario>, Failure> {
    if names.is_empty() {
        let all = catalogue().iter().map(|scenario| SelectedScenario {
            origin: scenario.name.clone(),
            scenario: scenario.clone(),
        });
        return Ok(all.collect());
    }
    let chosen = names.iter().map(|name| {
        Ok(SelectedScenario {
            origin: name.clone(),
            scenario: scenario(name)?,
        })
    });
    chosen.collect()
}

/// The runs that `extent` asks for.
pub(super) fn plan(
    scenarios: &[SelectedScenario],
    extent: &RunSelection,
) -> Result<PlannedRuns, Failure> {
    let mut planned = PlannedRuns::default();
    for SelectedScenario { origin, scenario } in scenarios {
        let count = extent.seeds.unwrap_or(scenario.seeds(extent.size()));
        let seeds = Some((extent.seed, count));
        let plan = &mut planned.plan;
        plan.add(scenario, extent.size(), &extent.controller, seeds)
            .map_err(|error| wrong(error.to_string()))?;
        planned.origins.resize(plan.cases.len(), origin.clone());
    }
    let plan = &mut planned.plan;
    if plan.tasks.is_empty() {
        let reasons = plan.skipped.iter();
        let reasons: Vec<String> = reasons
            .map(|(name, why)| format!("{name}: {why}"))
            .collect();
        return Err(wrong(format!("nothing to run: {}", reasons.join("; "))));
    }
    if let Some(text) = &extent.variant {
        let labels: Vec<&str> = plan.cases.iter().map(|it| it.variant.as_str()).collect();
        let chosen = matching(text, &labels).ok_or_else(|| no_variant(text, &labels))?;
        plan.retain(|case| chosen.contains(&case.variant));
    }
    if let Some(name) = extent.slow_start {
        for case in &mut plan.cases {
            case.transport.slow_start = name.slow_start();
        }
    }
    if extent.http3 {
        let flows = plan.cases.iter_mut().flat_map(|case| &mut case.flows);
        flows.for_each(|flow| flow.protocol = Protocol::Http3);
    }
    Ok(planned)
}

/// The grid points that `text` selects: those with exactly this name; or else those with all its
/// words, so that `queue=25` does not select `queue=250`; or else those that contain it. `None` if
/// there are none.
fn matching(text: &str, labels: &[&str]) -> Option<BTreeSet<String>> {
    let has_words = |label: &str| {
        let mut asked = text.split_whitespace().peekable();
        asked.peek().is_some() && asked.all(|word| label.split(' ').any(|own| own == word))
    };
    let ways: [&dyn Fn(&str) -> bool; 3] = [&|label| label == text, &has_words, &|label| {
        label.contains(text)
    }];
    ways.into_iter().find_map(|is_meant| {
        let meant = labels.iter().filter(|label| is_meant(label));
        let meant: BTreeSet<String> = meant.map(|label| (*label).to_owned()).collect();
        (!meant.is_empty()).then_some(meant)
    })
}

fn no_variant(text: &str, labels: &[&str]) -> Failure {
    let named = labels.iter().filter(|label| !label.is_empty());
    let labels: BTreeSet<&str> = named.copied().collect();
    if labels.is_empty() {
        return wrong(format!(
            "nothing to run: no grid point has {text:?} in its name, because there is no \
             grid"
        ));
    }
    let listed: Vec<&str> = labels.iter().copied().take(LISTED).collect();
    let more = match labels.len() - listed.len() {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    wrong(format!(
        "nothing to run: no grid point has {text:?} in its name; expected one of {}{more}",
        listed.join("; ")
    ))
}

/// A scenario's networks, for the relay: the first grid point, or the one given by `NAME:VARIANT`.
///
/// # Errors
/// If there is no such scenario or variant.
pub(crate) fn network(text: &str) -> Result<Box<Case>, String> {
    let (name, variant) = text.split_once(':').unwrap_or((text, ""));
    let scenario = scenario(name).map_err(|failure| failure.to_string())?;
    let cases = scenario
        .cases(Size::Full, "cubic")
        .map_err(|error| error.to_string())?;
    let labels: Vec<&str> = cases.iter().map(|case| case.variant.as_str()).collect();
    let Some(meant) = matching(variant, &labels) else {
        return Err(format!(
            "{name} has no variant {variant:?}; expected one of {}",
            labels.join("; ")
        ));
    };
    let case = cases.iter().find(|case| meant.contains(&case.variant));
    case.cloned()
        .map(Box::new)
        .ok_or_else(|| format!("{name} has no networks"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(text: &str, labels: &[&str]) -> Vec<String> {
        let chosen = matching(text, labels);
        chosen.into_iter().flatten().collect()
    }

    #[test]
    fn exact_grid_point_name_wins_over_substring() {
        let queues = ["queue=25", "queue=250", "queue=2500"];
        assert_eq!(chosen("queue=25", &queues), ["queue=25"]);
        assert_eq!(chosen("=25", &queues), queues);
        let flows = ["flows=1 rtt=1ms", "flows=10 rtt=1ms", "flows=10 rtt=10ms"];
        assert_eq!(chosen("flows=1", &flows), [flows[0]]);
        assert_eq!(chosen("rtt=1ms flows=10", &flows), [flows[1]]);
        assert_eq!(chosen("ms", &flows).len(), 3);
        assert!(chosen("zzz", &flows).is_empty());
        assert_eq!(chosen("", &flows).len(), 3, "the relay takes the first");
    }

    #[test]
    fn unknown_grid_point_error_lists_existing_points() {
        let error = no_variant("zzz", &["a=1", "a=2"]).to_string();
        assert!(error.ends_with("expected one of a=1; a=2"), "{error}");
        let error = no_variant("zzz", &["", ""]).to_string();
        assert!(error.ends_with("because there is no grid"), "{error}");
    }
}
