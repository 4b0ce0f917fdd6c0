//! Which scenarios were meant, and the plan of their runs.

use clearway_lab::run::Plan;
use clearway_lab::scenario::{Case, Scenario, Size, catalogue, find};

use super::args::Extent;
use crate::failure::{Failure, Kind};

fn wrong(message: impl Into<String>) -> Failure {
    Failure::new(Kind::Arguments, message)
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
    let text = std::fs::read_to_string(name)
        .map_err(|error| Failure::caused(Kind::Arguments, format!("cannot read {name}"), &error))?;
    Scenario::parse(name, &text).map_err(|error| wrong(error.to_string()))
}

/// Those named, or all.
pub(super) fn scenarios(names: &[String]) -> Result<Vec<Scenario>, Failure> {
    if names.is_empty() {
        return Ok(catalogue().to_vec());
    }
    names.iter().map(|name| scenario(name)).collect()
}

/// The runs that `extent` asks for.
pub(super) fn plan(scenarios: &[Scenario], extent: &Extent) -> Result<Plan, Failure> {
    let mut plan = Plan::default();
    for scenario in scenarios {
        let count = extent.seeds.unwrap_or(scenario.seeds(extent.size()));
        let seeds = Some((extent.seed, count));
        plan.add(scenario, extent.size(), &extent.controller, seeds)
            .map_err(|error| wrong(error.to_string()))?;
    }
    if let Some(part) = &extent.variant {
        plan.retain(|case| case.variant.contains(part.as_str()));
    }
    if plan.tasks.is_empty() {
        for (name, reason) in &plan.skipped {
            say!("lab: {name} is not run: {reason}");
        }
        return Err(wrong("there is nothing to run"));
    }
    Ok(plan)
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
    let labels: Vec<String> = cases.iter().map(|case| case.variant.clone()).collect();
    cases
        .into_iter()
        .find(|case| case.variant.contains(variant))
        .map(Box::new)
        .ok_or_else(|| {
            format!(
                "{name} has no variant {variant:?}; there are {}",
                labels.join("; ")
            )
        })
}
