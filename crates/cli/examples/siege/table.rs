//! The tables of `docs/measurements/siege.md`.

use std::fmt::Write as _;

use crate::report::{Summary, Verdict};

const HEADING: &str = "\
| attackers | packets/s | held | requests | failed | median ms | p95 ms | ratio | MiB | descriptors | server's core | passes |
|---|---|---|---|---|---|---|---|---|---|---|---|
";

const HEADING_OF_MISSES: &str = "
| attackers | missed |
|---|---|
";

/// Returns a table with a row for each step, and one of what was missed.
pub(crate) fn tables(summaries: &[Summary]) -> String {
    let mut tables = HEADING.to_owned();
    for summary in summaries {
        tables.push_str(&summary.row());
    }
    let passed = summaries
        .iter()
        .filter(|one| one.verdict() == Verdict::Passed);
    // Writing to a String cannot fail.
    let _ = writeln!(tables, "\n{} of {} pass.", passed.count(), summaries.len());
    let mut misses = summaries
        .iter()
        .flat_map(|one| one.misses().map(|miss| (&one.kind, miss)))
        .peekable();
    if misses.peek().is_some() {
        tables.push_str(HEADING_OF_MISSES);
    }
    for (kind, miss) in misses {
        // A message of the server may have several lines.
        let miss = miss.replace('\n', " ").replace('|', "\\|");
        let _ = writeln!(tables, "| {} | {miss} |", kind.replace('+', ", "));
    }
    tables
}
