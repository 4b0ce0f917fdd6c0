//! A self-contained HTML page that shows a trace: a diagnosis, the breakdown, charts over time, and
//! findings. It works offline.

mod chart;
mod diagnosis;
mod escape;
mod page;

pub use self::diagnosis::diagnosis;

use crate::breakdown::Breakdown;
use crate::detect::Finding;
use crate::series::Series;

/// The content of a report.
#[derive(Clone, Copy, Debug)]
pub struct ReportInput<'a> {
    /// The title: the scenario, the file, the connection.
    pub title: &'a str,
    /// Facts, one per line: controller, path, bytes, goodput.
    pub facts: &'a [(String, String)],
    /// Values over time; the queue of the path is drawn if it is present
    /// ([`Track::Queue`](crate::Track::Queue)).
    pub series: &'a Series,
    /// The breakdown of the time.
    pub breakdown: &'a Breakdown,
    /// The findings.
    pub findings: &'a [Finding],
}

/// Renders the page.
#[must_use]
pub fn html(input: &ReportInput<'_>) -> String {
    page::render(input)
}

#[cfg(test)]
mod tests;
