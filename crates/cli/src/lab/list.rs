//! `clearway lab list` and `clearway lab show`.

use std::io::{self, Write as _};

use clearway_lab::measure::METRICS;
use clearway_lab::run::available;
use clearway_lab::scenario::{Bar, Scenario, Size, catalogue};
use serde_json::json;

use super::args::{List, Show};
use super::choose;
use crate::failure::Failure;

/// Prints every scenario.
///
/// # Errors
/// If stdout is closed.
pub(super) fn list(args: &List) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
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

/// Explains one.
///
/// # Errors
/// If there is none of this name or stdout is closed.
pub(super) fn show(args: &Show) -> Result<(), Failure> {
    let scenario = choose::scenario(&args.scenario)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}: {}\n", scenario.name, scenario.title)?;
    writeln!(out, "{}\n", scenario.explanation)?;
    if !scenario.origin.is_empty() {
        writeln!(out, "Source: {}", scenario.origin)?;
    }
    if let Some(reason) = &scenario.waiting {
        writeln!(out, "Not run yet: {reason}")?;
    }
    let known = scenario.controllers.iter().filter(|name| available(name));
    for controller in known {
        let cases = scenario
            .cases(Size::Full, controller)
            .map_err(|error| Failure::new(crate::failure::Kind::Arguments, error.to_string()))?;
        for case in &cases {
            let bars: Vec<String> = case.bars.iter().map(Bar::text).collect();
            let variant = if case.variant.is_empty() { "" } else { " " };
            writeln!(
                out,
                "{controller}{variant}{}: {}",
                case.variant,
                bars.join(", ")
            )?;
        }
    }
    writeln!(out, "\n{}", scenario.text().trim_end())?;
    Ok(())
}
