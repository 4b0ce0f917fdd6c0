//! `clearway lab list` and `clearway lab show`.

use std::io::{self, Write};

use clearway_lab::measure::METRICS;
use clearway_lab::run::available;
use clearway_lab::scenario::{Bar, Case, Scenario, ScenarioError, Size, catalogue};
use serde_json::json;

use super::args::{List, Show};
use super::choose;
use crate::failure::{Failure, Kind};
use crate::output;

/// Prints every scenario.
///
/// # Errors
/// If stdout cannot be written to.
pub(super) fn list(args: &List) -> Result<(), Failure> {
    output::print(|out| write_list(args, out))
}

fn write_list(args: &List, out: &mut impl Write) -> io::Result<()> {
    if args.metrics {
        for metric in METRICS {
            writeln!(out, "{:18} {}", metric.name, metric.about)?;
        }
        writeln!(
            out,
            "Bars are NAME_min and NAME_max; completes_within is time_max, recovers_within recovery_max."
        )?;
        return Ok(());
    }
    for scenario in catalogue() {
        if args.json {
            writeln!(out, "{}", object(scenario))?;
            continue;
        }
        let waiting = if scenario.waiting.is_some() {
            " (waiting)"
        } else {
            ""
        };
        writeln!(
            out,
            "{:3} {:24} {}{waiting}",
            scenario.number, scenario.name, scenario.title
        )?;
    }
    Ok(())
}

fn object(scenario: &Scenario) -> serde_json::Value {
    json!({
        "number": scenario.number,
        "name": scenario.name,
        "title": scenario.title,
        "source": scenario.origin,
        "waiting": scenario.waiting,
        "controllers": scenario.controllers,
        "seeds": scenario.seeds(Size::Full),
        "ci_seeds": scenario.seeds(Size::Ci),
    })
}

/// Prints a scenario with its explanation.
///
/// # Errors
/// If there is no such scenario or stdout cannot be written to.
pub(super) fn show(args: &Show) -> Result<(), Failure> {
    let scenario = choose::scenario(&args.scenario)?;
    let wrong = |error: ScenarioError| Failure::new(Kind::Arguments, error.to_string());
    let known = scenario.controllers.iter().filter(|name| available(name));
    let cases: Vec<Vec<Case>> = known
        .map(|controller| scenario.cases(Size::Full, controller).map_err(wrong))
        .collect::<Result<_, _>>()?;
    output::print(|out| explain(&scenario, &cases.concat(), out))
}

fn explain(scenario: &Scenario, cases: &[Case], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}: {}\n", scenario.name, scenario.title)?;
    writeln!(out, "{}\n", scenario.explanation)?;
    if !scenario.origin.is_empty() {
        writeln!(out, "Source: {}", scenario.origin)?;
    }
    if let Some(reason) = &scenario.waiting {
        writeln!(out, "Not run yet: {reason}")?;
    }
    for case in cases {
        let bars: Vec<String> = case.bars.iter().map(Bar::text).collect();
        let variant = if case.variant.is_empty() { "" } else { " " };
        writeln!(
            out,
            "{}{variant}{}: {}",
            case.controller,
            case.variant,
            bars.join(", ")
        )?;
    }
    writeln!(out, "\n{}", scenario.text().trim_end())
}
