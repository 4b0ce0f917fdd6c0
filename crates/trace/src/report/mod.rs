//! A self-contained HTML page that shows traces: what happened in one sentence, what the sender
//! waited for, lanes over time, problems with their evidence. It works offline, and stays below
//! [`MAX_PAGE`] whatever the traces.

mod data;
mod limit;
mod unit;

pub use self::data::panel_json;
pub(crate) use self::limit::limit_sentence;
pub(crate) use self::unit::{Unit, amount};

use crate::diagnosis::Examination;

/// Maximum size of a page, in bytes: browsers open it without a pause.
pub const MAX_PAGE: usize = 20_000_000;

/// Maximum number of traces on a page; each has at least a few thousand points.
pub const MAX_PANELS: usize = 64;

const TEMPLATE: &str = include_str!("assets/page.html");
const STYLE: &str = include_str!("assets/style.css");
/// The scripts, in the order in which they need each other.
const SCRIPTS: [&str; 4] = [
    include_str!("assets/units.js"),
    include_str!("assets/lanes.js"),
    include_str!("assets/words.js"),
    include_str!("assets/page.js"),
];

/// One trace on a page.
#[derive(Clone, Copy, Debug)]
pub struct Panel<'a> {
    /// The title: the scenario, the file, the connection.
    pub title: &'a str,
    /// Facts, one per line: path, bytes, goodput.
    pub facts: &'a [(String, String)],
    /// The examined trace. The queue of the path is drawn if it is present
    /// ([`Track::Queue`](crate::Track::Queue)).
    pub examination: &'a Examination,
}

/// Renders a page of these traces; those after the first [`MAX_PANELS`] are left out.
#[must_use]
pub fn html(title: &str, panels: &[Panel<'_>]) -> String {
    let shown = panels.get(..MAX_PANELS).unwrap_or(panels);
    let data: Vec<String> = shown
        .iter()
        .map(|panel| panel_json(panel, shown.len()))
        .collect();
    page(title, &data, None)
}

/// The number of a trace that is served, and its revision, which changes with its content.
pub type Served = (u64, u64);

/// The page with these panels as JSON ([`panel_json`]).
///
/// With `served`, which has an element for each panel, the page expects a server: files dropped on
/// it are posted to `/examine`, which answers with a panel; the events of `/live` are arrays of
/// objects with `id`, `title` and `revision`, and what is new or has changed is fetched from
/// `/connections/ID`, a panel too.
#[must_use]
pub fn page(title: &str, panels: &[String], served: Option<&[Served]>) -> String {
    let title = title
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    // Nothing in JSON needs `<` outside of strings: escaped, no text can end the element.
    let served = served.and_then(|served| serde_json::to_string(served).ok());
    let served = served.as_deref().unwrap_or("null");
    let data = format!("{{\"served\":{served},\"panels\":[{}]}}", panels.join(","));
    let data = data.replace('<', "\\u003c");
    let mut out = String::with_capacity(data.len().saturating_add(64 << 10));
    let mut pieces = TEMPLATE.split("{{");
    out.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let (name, rest) = piece.split_once("}}").unwrap_or(("", piece));
        match name {
            "title" => out.push_str(&title),
            "style" => out.push_str(STYLE),
            "data" => out.push_str(&data),
            "script" => SCRIPTS.iter().for_each(|script| out.push_str(script)),
            _ => {}
        }
        out.push_str(rest);
    }
    out
}

#[cfg(test)]
mod tests;
