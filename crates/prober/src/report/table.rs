//! A table of results, as text.

use core::fmt::Write as _;

use crate::probe::Report;
use crate::run::{CaseResult, Verdict};

/// Returns the results as a table: all of them, or only those that are not as expected. Below
/// it, each deviation is told in full.
#[must_use]
pub fn table(report: &Report, all: bool) -> String {
    let shown = |result: &&CaseResult| all || result.verdict != Verdict::AsExpected;
    let rows: Vec<&CaseResult> = report.results.iter().filter(shown).collect();
    let widest = |of: fn(&CaseResult) -> usize| rows.iter().map(|row| of(row)).max().unwrap_or(0);
    let name = widest(|row| row.name.len());
    let source = widest(|row| row.source.chars().count());
    let mut out = String::new();
    for row in &rows {
        let _ = writeln!(
            out,
            "{:<14}  {:<name$}  {:<source$}  {}",
            row.verdict.words(),
            row.name,
            row.source,
            row.title
        );
    }
    for row in &rows {
        if matches!(row.verdict, Verdict::AsExpected | Verdict::Permitted) {
            continue;
        }
        let _ = writeln!(
            out,
            "\n{}: {} ({})",
            row.verdict.words(),
            row.name,
            row.source
        );
        for line in &row.script {
            let _ = writeln!(out, "  step      {line}");
        }
        for line in &row.sent {
            let _ = writeln!(out, "  sent      {line}");
        }
        let _ = writeln!(out, "  expected  {}", row.expected);
        let _ = writeln!(out, "  came      {}", row.came);
    }
    let _ = writeln!(out, "\n{}", summary(report));
    out
}

/// Returns one line that counts the verdicts.
fn summary(report: &Report) -> String {
    let counted = Verdict::ALL.iter().filter_map(|verdict| {
        let count = report.count(*verdict);
        (count > 0).then(|| format!("{count} {}", verdict.words()))
    });
    let counted: Vec<_> = counted.collect();
    format!("{} cases: {}", report.results.len(), counted.join(", "))
}
