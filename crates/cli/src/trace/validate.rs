//! `clearway trace validate`.

use std::io::Write as _;
use std::path::Path;

use clearway_trace::capture::KeyLog;

use super::args::Validate;
use crate::failure::{Failure, Kind};
use crate::output::print;
use crate::printable;
use crate::traces::{files, load};

/// Maximum number of offsets that are printed of one file.
const MOST_OFFSETS: usize = 10;
/// Maximum length of a line, in characters.
const LONGEST: usize = 2_000;

/// Checks traces: each is a line on stdout.
///
/// # Errors
/// If any of them cannot be read completely.
pub(super) fn command(args: &Validate) -> Result<(), Failure> {
    let secrets = args.secrets.load()?;
    let paths = files(&args.traces)?;
    let mut invalid = 0;
    for path in &paths {
        let problems = check(path, &secrets);
        invalid += usize::from(!problems.is_empty());
        let verdict = if problems.is_empty() {
            "valid".to_owned()
        } else {
            problems.join("; ")
        };
        let line = format!("{}: {verdict}", path.display());
        print(|out| writeln!(out, "{}", printable::short(&line, LONGEST)))?;
    }
    if invalid == 0 {
        return Ok(());
    }
    let message = format!("{invalid} of {} traces are not valid", paths.len());
    Err(Failure::new(Kind::Other, message))
}

/// What is wrong with a file.
fn check(path: &Path, secrets: &KeyLog) -> Vec<String> {
    let file = match load(path, secrets) {
        Ok(file) => file,
        Err(failure) => return vec![failure.message],
    };
    let problems = &file.problems;
    let mut found = Vec::new();
    if problems.bad_records > 0 {
        let shown = problems.offsets.iter().take(MOST_OFFSETS);
        let offsets: Vec<String> = shown.map(ToString::to_string).collect();
        let count = problems.bad_records;
        found.push(format!(
            "{count} records are not JSON or are truncated, at byte {}",
            offsets.join(", ")
        ));
    }
    if problems.senseless_events > 0 {
        let count = problems.senseless_events;
        found.push(format!(
            "{count} events lack their time, their name or required fields"
        ));
    }
    if problems.earlier_events > 0 {
        let count = problems.earlier_events;
        found.push(format!("{count} events are earlier than one before them"));
    }
    found.extend(file.notes);
    found.extend(file.broken);
    found
}
