//! `clearway trace stat`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use clearway_trace::capture::KeyLog;
use serde::Serialize;

use super::args::Stat;
use crate::failure::{Failure, Kind};
use crate::output::{print, print_json};
use crate::printable;
use crate::traces::{TraceReader, files, unreadable_records};

/// Maximum length of a name from a file, in characters.
const LONGEST: usize = 100;
/// Maximum number of different names that are counted.
const MAX_NAMES: usize = 1_000;

/// What a file contains.
#[derive(Serialize)]
struct FileCounts {
    file: String,
    format: Option<String>,
    role: Option<clearway_trace::event::Role>,
    events: u64,
    unreadable_records: u64,
    /// Bytes, after decompression.
    bytes: u64,
    seconds: f64,
    by_name: BTreeMap<String, u64>,
}

/// Counts the events of traces.
///
/// # Errors
/// If a file cannot be read or is of no known format.
pub(super) fn command(args: &Stat) -> Result<(), Failure> {
    let secrets = args.secrets.load()?;
    for path in files(&args.traces)? {
        let counts = count(&path, &secrets)?;
        if args.json {
            print_json(&counts)?;
        } else {
            show(&counts)?;
        }
    }
    Ok(())
}

fn count(path: &Path, secrets: &KeyLog) -> Result<FileCounts, Failure> {
    let name = path.display().to_string();
    let wrong = |error: &dyn std::error::Error| {
        Failure::caused(Kind::Arguments, format!("cannot read {name}"), error)
    };
    let mut reader = TraceReader::open(path, secrets).map_err(|error| wrong(&*error))?;
    let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
    let (mut events, mut first, mut last) = (0, None, 0);
    for event in reader.by_ref() {
        let event = event.map_err(|error| wrong(&*error))?;
        events += 1;
        first.get_or_insert(event.time);
        last = event.time.max(last);
        let known = event.data.name();
        let room = by_name.len() < MAX_NAMES || by_name.contains_key(known);
        let counted = if room { known } else { "other names" };
        *by_name.entry(counted.to_owned()).or_default() += 1;
    }
    Ok(FileCounts {
        format: reader.format(),
        role: match &reader {
            TraceReader::Qlog(reader) => reader.header().role,
            TraceReader::Capture(_) => None,
        },
        events,
        unreadable_records: reader.unreadable(),
        bytes: reader.offset(),
        seconds: last.saturating_sub(first.unwrap_or(0)) as f64 / 1e9,
        by_name,
        file: name,
    })
}

fn show(it: &FileCounts) -> Result<(), Failure> {
    print(|out| {
        let short = |text: &str| printable::short(text, LONGEST).into_owned();
        let format = it.format.as_deref().map_or("unknown format".into(), short);
        writeln!(out, "{}: {format}", short(&it.file))?;
        writeln!(
            out,
            "{} events over {:.3} s in {} bytes; {}",
            it.events,
            it.seconds,
            it.bytes,
            unreadable_records(it.unreadable_records)
        )?;
        let mut names: Vec<_> = it.by_name.iter().collect();
        names.sort_by_key(|(name, count)| (core::cmp::Reverse(**count), *name));
        for (name, count) in names {
            writeln!(out, "{count:>10}  {}", short(name))?;
        }
        Ok(())
    })
}
