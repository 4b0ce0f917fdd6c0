//! `clearway report`: traces as one HTML page.

use std::path::{Path, PathBuf};

use clearway_trace::report::{MAX_PANELS, Panel, html};

use crate::failure::{EXIT_CODES, Failure, Kind};
use crate::traces::{TraceFile, files, load};

/// What it does, for `--help`.
pub(crate) const ABOUT: &str = "\
Write traces as one HTML page that opens anywhere, without a network.

The page says what happened in one sentence, what the sender waited for, and shows window, \
round-trip times, rates and states over time, with the problems shaded and explained. It stays \
below 20 MB whatever the traces. Reads the same files as clearway diagnose.";

const EXAMPLES: &str = "\
Examples:
  # one connection
  clearway report slow.sqlog -o slow.html

  # both ends, or several runs, on one page
  clearway report traces -o all.html";

/// Options of `clearway report`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct Args {
    /// Traces, and directories of traces.
    #[arg(value_name = "FILE|DIR", required = true)]
    traces: Vec<PathBuf>,
    /// The page to write.
    #[arg(short, long, value_name = "FILE.html")]
    output: PathBuf,
}

/// Writes the page.
///
/// # Errors
/// If a trace cannot be read, or the page cannot be written.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    let mut loaded = Vec::new();
    for path in files(&args.traces)? {
        let file = load(&path)?;
        for warning in file.warnings() {
            say!("report: warning: {}: {warning}", file.name);
        }
        loaded.push(file);
    }
    write(&args.output, &loaded)
}

/// Writes a page of these traces.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn write(page: &Path, loaded: &[TraceFile]) -> Result<(), Failure> {
    let panels: Vec<Panel<'_>> = loaded.iter().flat_map(panels).collect();
    if panels.len() > MAX_PANELS {
        let count = panels.len();
        say!("report: warning: the page shows the first {MAX_PANELS} of {count} traces");
    }
    let title = loaded.first().map_or("clearway report", |file| &file.title);
    std::fs::write(page, html(title, &panels)).map_err(|error| {
        let what = format!("cannot write {}", page.display());
        Failure::caused(Kind::Output, what, &error)
    })?;
    say!("report: wrote {}", page.display());
    Ok(())
}

/// The panels of a file.
pub(crate) fn panels(file: &TraceFile) -> impl Iterator<Item = Panel<'_>> {
    file.traces.iter().map(|examination| Panel {
        title: &file.title,
        facts: &[],
        examination,
    })
}
