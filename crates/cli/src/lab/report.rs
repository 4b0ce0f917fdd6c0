//! HTML reports of a run or a trace.

use std::path::Path;

use clearway_trace::{Breakdown, Finding, Series, report};

use crate::failure::{Failure, Kind};

/// The content of a report.
pub(super) struct ReportPage<'a> {
    pub(super) title: &'a str,
    /// A line each.
    pub(super) facts: &'a [(String, String)],
    pub(super) series: &'a Series,
    pub(super) breakdown: &'a Breakdown,
    pub(super) findings: &'a [Finding],
}

/// The page as HTML.
pub(super) fn html(page: &ReportPage<'_>) -> String {
    report::html(&report::ReportInput {
        title: page.title,
        facts: page.facts,
        series: page.series,
        breakdown: page.breakdown,
        findings: page.findings,
    })
}

/// Writes the page.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn write(file: &Path, page: &ReportPage<'_>) -> Result<(), Failure> {
    std::fs::write(file, html(page)).map_err(|error| {
        let what = format!("cannot write {}", file.display());
        Failure::caused(Kind::Output, what, &error)
    })?;
    say!("lab: wrote report to {}", file.display());
    Ok(())
}
