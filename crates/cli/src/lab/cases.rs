//! The cases of a hunt: as a table, and as scenario files with reports.

use std::path::Path;

use clearway_lab::hunt::{Answer, Heading, HuntCase, Oracle};
use clearway_lab::measure::metric;
use clearway_lab::scenario::{Scenario, Size};

use super::files::directory;
use super::table::print_rows;
use super::verdict::command_line;
use super::watch::report_of;
use crate::failure::{Failure, Kind};
use crate::output;

/// The name of a case's scenario.
fn name(index: usize, case: &HuntCase) -> String {
    format!("hunt_{}_{}_{index}", case.controller, case.oracle.name())
}

/// What was measured, in words.
fn measured(case: &HuntCase) -> String {
    let Some(answer) = case.evaluation.answer(case.oracle) else {
        return String::new();
    };
    if case.oracle == Oracle::Violation {
        return case
            .evaluation
            .violations
            .first()
            .cloned()
            .unwrap_or_default();
    }
    let measure = case.oracle.metric().and_then(|(name, _)| metric(name));
    let Some(metric) = measure else {
        return format!("{:.1} × its limit", answer.ratio);
    };
    let value = answer
        .value
        .map_or_else(|| "never".to_owned(), |value| metric.unit.show(value));
    format!(
        "{} {value}, limit {}",
        metric.name,
        metric.unit.show(answer.limit)
    )
}

/// Writes cases as files into `dir`, and prints them as a table or as JSON.
pub(super) fn report_cases(
    cases: &[&HuntCase],
    dir: Option<&Path>,
    json: bool,
) -> Result<(), Failure> {
    if let Some(dir) = dir {
        directory(dir)?;
        for (index, case) in cases.iter().enumerate() {
            write_case(dir, index + 1, case)?;
        }
    }
    if json {
        for case in cases {
            output::print_json(case)?;
        }
    } else if !cases.is_empty() {
        print_cases(cases, dir)?;
    }
    Ok(())
}

/// Prints one line per case.
///
/// # Errors
/// If stdout cannot be written to.
fn print_cases(cases: &[&HuntCase], dir: Option<&Path>) -> Result<(), Failure> {
    let heading = [
        "case",
        "controller",
        "oracle",
        "measured",
        "network",
        "limited by",
        "findings",
        "seeds",
        "after",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for (index, case) in cases.iter().enumerate() {
        let list = |names: &std::collections::BTreeSet<String>, none: &str| match names.is_empty() {
            true => none.to_owned(),
            false => names.iter().cloned().collect::<Vec<_>>().join(", "),
        };
        rows.push(vec![
            (index + 1).to_string(),
            case.controller.clone(),
            case.oracle.name().to_owned(),
            measured(case),
            list(&case.ingredients, "a plain link"),
            case.evaluation.dominant_limit().to_owned(),
            match case.is_silent() {
                true => "SILENT".to_owned(),
                false => list(&case.evaluation.findings, ""),
            },
            format!("{} of 3", case.seeds),
            case.after.to_string(),
        ]);
    }
    print_rows(&rows)?;
    if let Some(dir) = dir {
        say!(
            "lab: wrote {} scenarios with reports to {}",
            cases.len(),
            dir.display()
        );
    }
    Ok(())
}

/// Writes a case as a scenario file and a report beside it.
///
/// # Errors
/// If a file cannot be written.
fn write_case(dir: &Path, index: usize, case: &HuntCase) -> Result<(), Failure> {
    let name = name(index, case);
    let file = dir.join(format!("{name}.toml"));
    let replay = command_line(&[
        "clearway".to_owned(),
        "lab".to_owned(),
        "run".to_owned(),
        format!("./{name}.toml"),
        "--seed".to_owned(),
        case.seed.to_string(),
        "--detect".to_owned(),
    ]);
    let title = format!(
        "{} of {}: {}",
        case.oracle.name(),
        case.controller,
        measured(case)
    );
    let explanation = format!(
        "{}. Shown by {} of 3 seeds. Replay: {replay}",
        case.cause(),
        case.seeds
    );
    let answer = case.evaluation.answer(case.oracle);
    let demand = answer.and_then(Answer::demand);
    let heading = Heading {
        name: &name,
        title: &title,
        explanation: &explanation,
        controllers: core::slice::from_ref(&case.controller),
    };
    let text = format!(
        "# {replay}\n{}",
        case.genome.scenario(&heading, demand.as_slice())
    );
    let unwritable = |file: &Path, error: &std::io::Error| {
        Failure::caused(
            Kind::Output,
            format!("cannot write {}", file.display()),
            error,
        )
    };
    std::fs::write(&file, &text).map_err(|error| unwritable(&file, &error))?;
    let parsed = Scenario::parse(&name, &text)
        .and_then(|scenario| scenario.cases(Size::Full, &case.controller));
    let Some(runnable) = parsed.ok().and_then(|mut cases| cases.pop()) else {
        return Ok(());
    };
    let page = report_of(&runnable, case.seed);
    let file = dir.join(format!("{name}.html"));
    std::fs::write(&file, page).map_err(|error| unwritable(&file, &error))
}
