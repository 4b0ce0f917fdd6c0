//! The league as text for terminals and for `docs/measurements/league.md`.

use std::fmt::Write as _;

use crate::league::{Standing, show};

/// Scenarios side by side; the table is cut into bands of so many.
const BAND: usize = 6;

/// Which kind of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Terminal,
    Markdown,
}

fn firsts<'a>(standings: &'a [Standing], of: fn(&'a Standing) -> &'a str) -> Vec<&'a str> {
    let mut names = Vec::new();
    for standing in standings {
        if !names.contains(&of(standing)) {
            names.push(of(standing));
        }
    }
    names
}

/// The one figure of a scenario: everybody's, or goodput where they differ.
fn figure(standings: &[Standing], scenario: &str) -> &'static str {
    let mut of = standings
        .iter()
        .filter(|one| one.scenario == scenario)
        .map(|one| one.figure);
    match of.next() {
        Some(first) if of.all(|other| other == first) => first,
        Some(_) | None => "goodput",
    }
}

/// `✓ 4.20 s`, `✗ 3/4 12.1 s`: of the points of a grid, how many pass; the
/// figure is the median over them.
fn cell(standings: &[Standing], entrant: &str, scenario: &str) -> String {
    let own: Vec<&Standing> = standings
        .iter()
        .filter(|one| one.entrant == entrant && one.scenario == scenario)
        .collect();
    if own.is_empty() {
        return "–".to_owned();
    }
    let name = figure(standings, scenario);
    let mut values: Vec<f64> = own
        .iter()
        .filter_map(|one| one.medians.get(name).copied())
        .collect();
    values.sort_by(f64::total_cmp);
    let value = show(name, values.get(values.len() / 2).copied());
    let passed = own.iter().filter(|one| one.passed).count();
    let mark = if passed == own.len() { "✓" } else { "✗" };
    if own.len() == 1 {
        format!("{mark} {value}")
    } else {
        format!("{mark} {passed}/{} {value}", own.len())
    }
}

/// Everything passed, of everything tried.
fn total(standings: &[Standing], entrant: &str) -> String {
    let own = standings.iter().filter(|one| one.entrant == entrant);
    let (passed, all) = own.fold((0, 0), |(passed, all), one| {
        (passed + usize::from(one.passed), all + 1)
    });
    format!("{passed} of {all}")
}

fn rows(out: &mut String, style: Style, rows: &[Vec<String>]) {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max())
        .map(|widest| widest.unwrap_or(0))
        .collect();
    let (before, between, after) = match style {
        Style::Terminal => ("", "  ", ""),
        Style::Markdown => ("| ", " | ", " |"),
    };
    for (index, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(text, width)| format!("{text}{}", " ".repeat(width - text.chars().count())))
            .collect();
        let line = format!("{before}{}{after}", cells.join(between));
        let _ = writeln!(out, "{}", line.trim_end());
        if index == 0 && style == Style::Markdown {
            let _ = writeln!(out, "|{}", "---|".repeat(columns));
        }
    }
}

/// Who passes what: one row per entrant, one column per scenario, and the sum.
pub(crate) fn standings(all: &[Standing], style: Style) -> String {
    let entrants = firsts(all, |one| &one.entrant);
    let scenarios = firsts(all, |one| &one.scenario);
    let mut out = String::new();
    let mut sums = vec![vec!["stack".to_owned(), "networks passed".to_owned()]];
    sums.extend(
        entrants
            .iter()
            .map(|entrant| vec![(*entrant).to_owned(), total(all, entrant)]),
    );
    rows(&mut out, style, &sums);
    for band in scenarios.chunks(BAND) {
        out.push('\n');
        let mut lines = vec![vec!["stack".to_owned()]];
        let heading = |name: &&str| format!("{name}: {}", figure(all, name));
        lines[0].extend(band.iter().map(heading));
        for entrant in &entrants {
            let cells = band.iter().map(|scenario| cell(all, entrant, scenario));
            lines.push(
                core::iter::once((*entrant).to_owned())
                    .chain(cells)
                    .collect(),
            );
        }
        rows(&mut out, style, &lines);
    }
    out
}

fn title(standing: &Standing) -> String {
    let variant = &standing.variant;
    let space = if variant.is_empty() { "" } else { " " };
    format!("{}{space}{variant}", standing.scenario)
}

fn missed(standing: &Standing) -> String {
    let told: Vec<String> = standing
        .misses
        .iter()
        .map(|miss| match &miss.bar {
            Some(bar) => format!(
                "{bar}, but {} ({} of {} runs)",
                miss.found, miss.runs, standing.runs
            ),
            None => format!("{} ({} of {} runs)", miss.found, miss.runs, standing.runs),
        })
        .collect();
    told.join("; ")
}

/// What each entrant misses, and why.
pub(crate) fn misses(all: &[Standing], style: Style) -> String {
    let mut out = String::new();
    for entrant in firsts(all, |one| &one.entrant) {
        let own = || all.iter().filter(|one| one.entrant == entrant);
        if own().all(|one| one.passed) {
            continue;
        }
        let heading = match style {
            Style::Terminal => format!("{entrant} misses"),
            Style::Markdown => format!("### {entrant}\n"),
        };
        let _ = writeln!(out, "{heading}");
        for standing in own().filter(|one| !one.passed) {
            let (dash, name) = match style {
                Style::Terminal => ("  ", title(standing)),
                Style::Markdown => ("- ", format!("**{}**", title(standing))),
            };
            let why = standing.diagnosis.as_deref().unwrap_or("");
            let _ = writeln!(out, "{dash}{name}: {}. {why}.", missed(standing));
        }
        out.push('\n');
    }
    out
}

/// The bars that could not be applied to the rivals.
pub(crate) fn unmeasured(all: &[Standing]) -> String {
    let mut told: Vec<String> = Vec::new();
    for standing in all {
        for bar in &standing.unmeasured {
            let line = format!("{}: {bar}", standing.scenario);
            if !told.contains(&line) {
                told.push(line);
            }
        }
    }
    told.join("; ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn standing(entrant: &str, variant: &str, seconds: f64, passed: bool) -> Standing {
        Standing {
            entrant: entrant.to_owned(),
            scenario: "spiral".to_owned(),
            variant: variant.to_owned(),
            runs: 1,
            passed,
            figure: "time",
            value: Some(seconds),
            misses: Vec::new(),
            unmeasured: Vec::new(),
            diagnosis: None,
            medians: BTreeMap::from([("time", seconds)]),
        }
    }

    #[test]
    fn cell_shows_how_many_points_of_a_grid_pass() {
        let all = [
            standing("a", "x", 2.0, true),
            standing("a", "y", 9.0, false),
            standing("b", "x", 3.0, true),
        ];
        assert_eq!(cell(&all, "a", "spiral"), "✗ 1/2 9.00 s");
        assert_eq!(cell(&all, "b", "spiral"), "✓ 3.00 s");
        assert_eq!(cell(&all, "c", "spiral"), "–");
        assert_eq!(total(&all, "a"), "1 of 2");
    }

    #[test]
    fn only_those_that_miss_are_told_of() {
        let all = [
            standing("a", "x", 2.0, true),
            standing("b", "x", 9.0, false),
        ];
        let text = misses(&all, Style::Terminal);
        assert!(text.contains("b misses") && !text.contains("a misses"));
    }
}
