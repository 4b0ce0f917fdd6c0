//! Which scenarios were meant, and the plan of their runs.

use std::collections::BTreeSet;

use clearway_lab::run::Plan;
use clearway_lab::scenario::{Case, Scenario, Size, catalogue, find};
use clearway_lab::stack::Protocol;

use super::args::Extent;
use crate::failure::{Failure, Kind};

/// Points of grids that an error lists at most.
const LISTED: usize = 40;

fn wrong(message: impl Into<String>) -> Failure {
    Failure::new(Kind::Arguments, message)
}

/// A scenario with the word that chose it: a file has a name of its own inside,
/// by which nobody finds it again.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) origin: String,
    pub(super) scenario: Scenario,
}

/// Runs to do, and what chose each case.
#[derive(Debug, Default)]
pub(super) struct Planned {
    pub(super) plan: Plan,
    /// By the case's place in the plan.
    pub(super) origins: Vec<String>,
}

/// A scenario by name, number or file.
///
/// # Errors
/// If there is none, or its file cannot be read or has a mistake.
pub(super) fn scenario(name: &str) -> Result<Scenario, Failure> {
    let looks_like_a_file = name.contains('/') || name.ends_with(".toml");
    if !looks_like_a_file {
        return find(name).cloned().map_err(wrong);
    }
    let bytes = std::fs::read(name)
        .map_err(|error| Failure::caused(Kind::Arguments, format!("cannot read {name}"), &error))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        wrong(format!(
            "{name} is no scenario: byte {at} is not of a text in UTF-8; write a TOML file such \
             as `clearway lab show shallow_25` prints"
        ))
    })?;
    Scenario::parse(name, &text).map_err(|error| wrong(error.to_string()))
}

/// Those named, or all.
pub(super) fn scenarios(names: &[String]) -> Result<Vec<Chosen>, Failure> {
    if names.is_empty() {
        let all = catalogue().iter().map(|scenario| Chosen {
            origin: scenario.name.clone(),
            scenario: scenario.clone(),
        });
        return Ok(all.collect());
    }
    let chosen = names.iter().map(|name| {
        Ok(Chosen {
            origin: name.clone(),
            scenario: scenario(name)?,
        })
    });
    chosen.collect()
}

/// The runs that `extent` asks for.
pub(super) fn plan(scenarios: &[Chosen], extent: &Extent) -> Result<Planned, Failure> {
    let mut planned = Planned::default();
    for Chosen { origin, scenario } in scenarios {
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
        return Err(wrong(format!(
            "there is nothing to run: {}",
            reasons.join("; ")
        )));
    }
    if let Some(text) = &extent.variant {
        let labels: Vec<&str> = plan.cases.iter().map(|it| it.variant.as_str()).collect();
        let chosen = matching(text, &labels).ok_or_else(|| no_variant(text, &labels))?;
        plan.retain(|case| chosen.contains(&case.variant));
    }
    if extent.http3 {
        let flows = plan.cases.iter_mut().flat_map(|case| &mut case.flows);
        flows.for_each(|flow| flow.protocol = Protocol::Http3);
    }
    Ok(planned)
}

/// Of these names of points, those that `text` means: what is called exactly so;
/// or else what has all its words, so that `queue=25` is not `queue=250`; or else
/// what contains it. `None` if there is nothing of the kind.
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
            "there is nothing to run: no point of a grid is called {text:?}, because there is no \
             grid"
        ));
    }
    let listed: Vec<&str> = labels.iter().copied().take(LISTED).collect();
    let more = match labels.len() - listed.len() {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    wrong(format!(
        "there is nothing to run: no point of a grid has {text:?} in its name; there are {}{more}",
        listed.join("; ")
    ))
}

/// A scenario's networks, for the relay: the first point of its grid, or the one
/// that `NAME:VARIANT` names.
///
/// # Errors
/// If there is none of this name.
pub(crate) fn network(text: &str) -> Result<Box<Case>, String> {
    let (name, variant) = text.split_once(':').unwrap_or((text, ""));
    let scenario = scenario(name).map_err(|failure| failure.to_string())?;
    let cases = scenario
        .cases(Size::Full, "cubic")
        .map_err(|error| error.to_string())?;
    let labels: Vec<&str> = cases.iter().map(|case| case.variant.as_str()).collect();
    let Some(meant) = matching(variant, &labels) else {
        return Err(format!(
            "{name} has no variant {variant:?}; there are {}",
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
    fn an_exact_name_wins_over_containing_it() {
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
    fn a_point_that_is_not_there_is_answered_with_those_that_are() {
        let error = no_variant("zzz", &["a=1", "a=2"]).to_string();
        assert!(error.ends_with("there are a=1; a=2"), "{error}");
        let error = no_variant("zzz", &["", ""]).to_string();
        assert!(error.ends_with("because there is no grid"), "{error}");
    }
}
