//! `clearway report`: traces as one HTML page.

use std::path::{Path, PathBuf};

use clearway_trace::capture::KeyLog;
use clearway_trace::report::{MAX_PANELS, Panel, html, page, panel_json};

use crate::failure::{EXIT_CODES, Failure, Kind};
use crate::traces::{Drawn, Index, SecretsOption, TraceFile, files, load};

/// What it does, for `--help`.
pub(crate) const ABOUT: &str = "\
Write traces as one HTML page that opens anywhere, without a network.

The page says what happened in one sentence, what the sender waited for, and shows window, \
round-trip times, rates and states over time, with the problems shaded and explained. It stays \
below 20 MB whatever the traces. Reads the same files as clearway diagnose. A trace of more than \
64 MiB gets an index beside it (FILE.index), from which its page opens at once next time.";

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
    #[command(flatten)]
    secrets: SecretsOption,
    /// The page to write.
    #[arg(short, long, value_name = "FILE.html")]
    output: PathBuf,
}

/// Writes the page.
///
/// # Errors
/// If a trace cannot be read, or the page cannot be written.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    let secrets = args.secrets.load()?;
    let paths = files(&args.traces)?;
    if let [path] = paths.as_slice()
        && let Some(index) = Index::of(path)
    {
        let drawn = draw(path, &index, &secrets)?;
        return write_page(&args.output, page(&drawn.title, &drawn.panels, None));
    }
    let mut loaded = Vec::new();
    for path in paths {
        let file = load(&path, &secrets)?;
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
    write_page(page, html(title, &panels))
}

fn write_page(to: &Path, page: String) -> Result<(), Failure> {
    std::fs::write(to, page).map_err(|error| {
        let what = format!("cannot write {}", to.display());
        Failure::caused(Kind::Output, what, &error)
    })?;
    say!("report: wrote {}", to.display());
    Ok(())
}

/// A large trace as it is drawn when it is alone on a page: from its index, or else read, and then
/// with an index for the next time.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn draw(path: &Path, index: &Index, secrets: &KeyLog) -> Result<Drawn, Failure> {
    if let Some(drawn) = index.read() {
        return Ok(drawn);
    }
    let file = load(path, secrets)?;
    for warning in file.warnings() {
        say!("warning: {}: {warning}", file.name);
    }
    let shown: Vec<Panel<'_>> = panels(&file).take(MAX_PANELS).collect();
    let json = |panel| panel_json(panel, shown.len());
    let drawn = Drawn {
        title: file.title.clone(),
        panels: shown.iter().map(json).collect(),
    };
    // Of a damaged file the warnings would be missing next time.
    if file.warnings().is_empty() {
        index.write(&drawn);
    }
    Ok(drawn)
}

/// The panels of a file.
pub(crate) fn panels(file: &TraceFile) -> impl Iterator<Item = Panel<'_>> {
    file.traces.iter().map(|examination| Panel {
        title: &file.title,
        facts: &[],
        examination,
    })
}
