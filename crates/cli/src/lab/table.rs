//! Results as a table for people.

use std::io::Write as _;

use clearway_lab::measure::metric;
use clearway_lab::run::Group;
use clearway_lab::scenario::Unit;

use crate::failure::Failure;
use crate::output;

/// Columns beside the names: metric and heading.
const COLUMNS: &[(&str, &str)] = &[
    ("time", "time"),
    ("goodput", "goodput"),
    ("util", "util"),
    ("loss", "loss"),
    ("loss_late", "late loss"),
    ("rtt_p95", "rtt p95"),
    ("queue_p95", "queue p95"),
    ("ptos", "PTOs"),
];

/// Prints one line per group: medians over its seeds.
///
/// # Errors
/// If stdout cannot be written to.
pub(super) fn print(groups: &[Group]) -> Result<(), Failure> {
    let mut rows = vec![heading()];
    rows.extend(groups.iter().map(line));
    print_rows(&rows)
}

fn heading() -> Vec<String> {
    let names = ["scenario", "variant", "controller", "runs"];
    let columns = COLUMNS.iter().map(|(_, heading)| *heading);
    names
        .into_iter()
        .chain(columns)
        .chain(["Jain", "goodput of a flow", "bars"])
        .map(str::to_owned)
        .collect()
}

fn line(group: &Group) -> Vec<String> {
    let mut cells = vec![
        group.scenario.clone(),
        group.variant.clone(),
        group.controller.clone(),
        group.rows.len().to_string(),
    ];
    cells.extend(COLUMNS.iter().map(|(name, _)| value(group, name)));
    let (jain, shares) = fairness(group);
    cells.extend([jain, shares, verdict(group).to_owned()]);
    cells
}

/// Whether the bars were reached; a scenario without bars passes nothing.
fn verdict(group: &Group) -> &'static str {
    match (group.passed(), group.is_as_known()) {
        (true, _) if group.bars.is_empty() => "no bars",
        (true, _) => "pass",
        (false, true) => "missed",
        (false, false) => "FAIL",
    }
}

/// Jain's index, and who has how much; empty where there is one flow.
fn fairness(group: &Group) -> (String, String) {
    let all = group.goodput_by_controller();
    if all.iter().map(|(_, flows, _)| flows).sum::<usize>() < 2 {
        return (String::new(), String::new());
    }
    let each = all.iter().map(|(name, flows, goodput)| {
        let count = if *flows > 1 {
            format!("{flows} × ")
        } else {
            String::new()
        };
        let rate = goodput.map_or_else(|| "–".to_owned(), |rate| Unit::Rate.show(rate));
        format!("{name} {count}{rate}")
    });
    (value(group, "jain"), each.collect::<Vec<_>>().join(", "))
}

/// A metric's median with its unit, and the number of runs that have it if others do not: a run
/// that did not finish has no time.
pub(super) fn value(group: &Group, name: &str) -> String {
    match (group.median(name), metric(name)) {
        (Some(value), Some(metric)) => {
            let having = group.values(name).len();
            with_count(metric.unit.show(value), having, group.rows.len())
        }
        (None, _) | (_, None) => "–".to_owned(),
    }
}

fn with_count(median: String, having: usize, runs: usize) -> String {
    if having == runs {
        return median;
    }
    format!("{median} ({having} of {runs})")
}

/// Prints cells in columns as wide as they need to be; a column that is empty
/// but for its heading is left out.
///
/// # Errors
/// If stdout cannot be written to.
pub(super) fn print_rows(rows: &[Vec<String>]) -> Result<(), Failure> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
    let used: Vec<(usize, usize)> = (0..columns)
        .filter(|&column| rows.iter().skip(1).any(|row| !cell(row, column).is_empty()))
        .map(|column| {
            let width = rows.iter().map(|row| cell(row, column).chars().count());
            (column, width.max().unwrap_or(0))
        })
        .collect();
    output::print(|out| {
        for row in rows {
            let cells = used.iter().map(|&(column, width)| {
                let text = cell(row, column);
                let fill = " ".repeat(width - text.chars().count());
                format!("{text}{fill}")
            });
            let text: Vec<String> = cells.collect();
            writeln!(out, "{}", text.join("  ").trim_end())?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_some_runs_is_shown_with_their_number() {
        assert_eq!(with_count("3.33 s".to_owned(), 4, 12), "3.33 s (4 of 12)");
        assert_eq!(with_count("3.33 s".to_owned(), 12, 12), "3.33 s");
    }
}
