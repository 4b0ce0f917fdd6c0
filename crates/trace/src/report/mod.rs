//! One self-contained page that shows a trace: a sentence, where the time went,
//! pictures over time, and what is wrong. It opens offline.

mod chart;
mod diagnosis;
mod escape;
mod page;

pub use self::diagnosis::diagnosis;

use crate::breakdown::Breakdown;
use crate::detect::Finding;
use crate::series::Series;

/// What a report shows.
#[derive(Clone, Copy, Debug)]
pub struct ReportInput<'a> {
    /// Its title: the scenario, the file, the connection.
    pub title: &'a str,
    /// Facts worth a line each: controller, path, bytes, goodput.
    pub facts: &'a [(String, String)],
    /// Figures over time; the queue of the path is drawn if it has one
    /// ([`Track::Queue`](crate::Track::Queue)).
    pub series: &'a Series,
    /// Where the time went.
    pub breakdown: &'a Breakdown,
    /// What is wrong.
    pub findings: &'a [Finding],
}

/// The page.
#[must_use]
pub fn html(input: &ReportInput<'_>) -> String {
    page::render(input)
}

#[cfg(test)]
mod tests;
